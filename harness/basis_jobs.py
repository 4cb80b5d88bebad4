"""The bases stage: gradient samples and eigenbases, on the host in float64, one file a seed."""

from __future__ import annotations

import json
import time

import numpy as np

from harness.gradients import Sampler, estimated, sampler
from harness.job import Instance, Job, groups_of, instance, sampling_of, workload_of
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
    for workload in spec.workloads:
        with job.clock.phase("data"):
            instances = [instance(workload_of(workload), workload.settings, seed) for seed in spec.seeds]
        for basis in wanted:
            first = instances[0]
            with job.clock.phase("compile"):
                sample = sampler(sampling_of(basis, workload, first), engine, first.problem, first.random)
            for seed, one in zip(spec.seeds, instances, strict=True):
                with job.clock.phase("step"):
                    arrays = estimate(basis, workload, one, sample)
                with replacing(basis_file(job.folder, workload.name, basis.label, seed)) as temporary:
                    np.savez(temporary, allow_pickle=False, **arrays)
                progress.advance(1, f"({workload.name}, seed {seed})")
    return engine.notes


def estimate(
    basis: BasisSpec, workload: WorkloadSpec, one: Instance, sample: Sampler
) -> dict[str, np.ndarray]:
    """One basis as arrays: `groups` and `changes` (JSON), `matrix0`, `eigenvalues0`, ..., and what it cost.

    `seconds` covers sampling and decomposition; compilation, done once for all seeds, is apart.
    """
    start = time.perf_counter()
    kind, random = bases()[basis.name], one.random("egop basis")
    groups = groups_of(basis, workload, one)
    found, count = estimated(
        groups,
        lambda group: kind.estimator(basis.options, group, random),
        sample(one.problem, one.random),
    )
    arrays: dict[str, np.ndarray] = {}
    for number, (matrix, eigenvalues) in enumerate(found):
        arrays[f"matrix{number}"], arrays[f"eigenvalues{number}"] = matrix, eigenvalues
    arrays["groups"] = np.array(json.dumps([group.names for group in groups]))
    arrays["changes"] = np.array(json.dumps([group.change.name for group in groups]))
    arrays["gradient_evaluations"] = np.array(count)
    arrays["seconds"] = np.array(time.perf_counter() - start)
    return arrays
