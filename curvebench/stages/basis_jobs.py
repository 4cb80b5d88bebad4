"""The bases stage: gradient samples and eigenbases, one file a seed."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from curvebench.backends.engine import Engine
from curvebench.basis_estimation.decomposition import decomposition_on
from curvebench.basis_estimation.gradients import Sampler, estimated, sampler
from curvebench.optimizers.bases import bases
from curvebench.optimizers.bases.estimators import Decomposition, by_numpy
from curvebench.paths import basis_file
from curvebench.progress import Progress
from curvebench.results.writing import NotWritten, replacing
from curvebench.sources import check_unchanged
from curvebench.spec.job import HOST, BasesSpec
from curvebench.spec.method import BasisSpec, WorkloadSpec
from curvebench.stages.job import (
    BASIS_STREAM,
    Instance,
    Job,
    basis_name,
    dtype_of,
    groups_of,
    instance,
    precision_of,
    sampling_of,
    workload_of,
)
from curvebench.stages.supervision import FAULTS, NOTHING, FailedBefore, Lanes, failure_of
from curvebench.workloads.workload import Workload


def estimate_bases(job: Job) -> list[str]:
    """Estimate every basis of the spec for every workload and seed, where it is not there; returns notes."""
    spec = job.spec
    assert isinstance(spec, BasesSpec)
    notes: list[str] = []
    wanted = [basis for basis in spec.bases if bases()[basis.name].estimated]
    progress = Progress(f"{spec.study} bases", len(spec.workloads) * len(wanted))
    for number, (workload, basis) in enumerate(itertools.product(spec.workloads, wanted)):
        place = Lanes(number)
        name = basis_name(basis, workload.name)
        failure = job.attendance.lost.get(place) or job.attendance.not_tried(name)
        files = {seed: basis_file(job.folder, workload.name, basis.label, seed) for seed in spec.seeds}
        if not all(file.exists() for file in files.values()):
            try:
                if failure is not None:
                    raise FailedBefore(failure)
                job.attendance.journal.begin(place)
                notes += _estimate_seeds(job, workload, basis, files)
            except NotWritten:
                raise
            except FAULTS as error:
                job.trace(error)
                job.fail(name, failure_of(error))
        progress.advance(1, f"({basis.label} on {workload.name})")
    job.attendance.journal.begin(NOTHING)
    return list(dict.fromkeys(notes))


def _engine_of(job: Job, workload: Workload) -> tuple[Engine, Decomposition]:
    """What takes gradients and decomposes them: JAX on the host and NumPy, or the device of the runs."""
    if job.spec.backend == HOST:
        return job.engine("float64", backend="jax", device="cpu"), by_numpy
    assert isinstance(job.spec, BasesSpec)
    engine = job.engine(precision_of(job.spec, workload))
    return engine, decomposition_on(engine)


def _estimate_seeds(
    job: Job, workload: WorkloadSpec, basis: BasisSpec, files: Mapping[int, Path]
) -> list[str]:
    """Estimate a basis for each seed whose file is not there, and write it in the precision of its runs."""
    assert isinstance(job.spec, BasesSpec)
    found = workload_of(workload)
    dtype = dtype_of(job.spec, found)
    engine, decompose = _engine_of(job, found)
    sample = None
    for seed, file in files.items():
        if file.exists():
            continue
        with job.clock.phase("data"):
            one = instance(found, workload.settings, seed)
        if sample is None:
            with job.clock.phase("compile"):
                what = sampling_of(basis, workload, one)
                sample = sampler(what, engine, one.problem, one.random)
        with job.clock.phase("step"):
            arrays = estimate(basis, workload, one, sample, decompose)
        for name in [name for name in arrays if name.startswith("matrix")]:
            arrays[name] = arrays[name].astype(dtype)  # as runs would when they read it
        check_unchanged(job.spec)
        with replacing(file) as temporary:
            np.savez(temporary, allow_pickle=False, **arrays)
    return engine.notes


def estimate(
    basis: BasisSpec,
    workload: WorkloadSpec,
    one: Instance,
    sample: Sampler,
    decompose: Decomposition = by_numpy,
) -> dict[str, np.ndarray]:
    """One basis as arrays: `groups` and `changes` (JSON), `matrix0`, `eigenvalues0`, ..., and what it cost.

    `seconds` covers sampling and decomposition; compilation, done once for all seeds, is apart.
    """
    start = time.perf_counter()
    kind, random = bases()[basis.name], one.random(BASIS_STREAM)
    groups = groups_of(basis, workload, one)
    found, count = estimated(
        groups,
        lambda group: kind.estimator(basis.options, group, random, decompose),
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
