"""The bases stage: gradient samples and eigenbases, on the host in float64, one file a seed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness.gradients import sample_gradients
from harness.job import Instance, Job, instance, workload_of
from harness.paths import basis_file
from harness.progress import Progress
from harness.spec import BasisSpec, WorkloadSpec
from optimizers.bases import bases
from results.writing import replacing


def estimate_bases(job: Job) -> list[str]:
    """Estimate every basis of the spec for every workload and seed; returns notes."""
    spec = job.spec
    engine = job.engine("float64", backend="jax", device="cpu")
    wanted = [basis for basis in spec.bases if bases()[basis.name].needs_gradients]
    progress = Progress(f"{spec.study} bases", len(spec.workloads) * len(wanted) * len(spec.seeds))
    for workload_spec in spec.workloads:
        for seed in spec.seeds:
            with job.clock.phase("data"):
                one = instance(workload_of(workload_spec), workload_spec.settings, seed)
            for basis in wanted:
                with job.clock.phase("step"):
                    arrays = estimate(basis, workload_spec, one, engine)
                _save(basis_file(job.folder, workload_spec.name, basis.label, seed), arrays)
                progress.advance(1, f"({workload_spec.name}, seed {seed})")
    return engine.notes


def estimate(
    basis_spec: BasisSpec, workload_spec: WorkloadSpec, one: Instance, engine: Any
) -> dict[str, np.ndarray]:
    """One basis as arrays: `groups` (JSON), `matrix0`, `eigenvalues0`, ..., and what it cost."""
    start = time.perf_counter()
    basis, workload, settings = bases()[basis_spec.name], workload_of(workload_spec), workload_spec.settings
    parameters = one.problem.parameters
    count = basis.samples(basis_spec.options, sum(value.size for value in parameters.values()))
    sampling = basis.sampling(basis_spec.options)
    gradients = sample_gradients(
        workload,
        settings,
        one.problem,
        one.random,
        engine,
        count,
        normal_scale=sampling.scale if sampling.kind == "normal" else None,
    )
    kinds = {name: str(role.kind) for name, role in workload.roles(settings).items()}
    shapes = {name: value.shape for name, value in parameters.items()}
    groups = basis.groups(basis_spec.options, shapes, kinds)
    arrays: dict[str, np.ndarray] = {}
    for number, group in enumerate(groups):
        rows = np.concatenate([gradients[name].reshape(count, -1) for name in group], axis=1)
        arrays[f"matrix{number}"], arrays[f"eigenvalues{number}"] = basis.eigenbasis(rows)
    arrays["groups"] = np.array(json.dumps(groups))
    arrays["gradient_evaluations"] = np.array(count)
    arrays["seconds"] = np.array(time.perf_counter() - start)
    return arrays


def _save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with replacing(path) as temporary:
        np.savez(temporary, allow_pickle=False, **arrays)
