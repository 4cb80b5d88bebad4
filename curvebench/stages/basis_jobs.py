"""Basis-estimation jobs: they estimate bases from sampled gradients, or draw random bases.

A basis is a change of coordinates in which an optimizer works. The result of a job is one file for each
workload, basis and seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from curvebench.basis_estimation.gradients import Sampler, decomposition_on, sampler
from curvebench.optimizers.bases import bases
from curvebench.optimizers.bases.estimators import Decomposition, by_numpy
from curvebench.paths import basis_file
from curvebench.progress import Progress
from curvebench.results.writing import replacing
from curvebench.sources import check_unchanged
from curvebench.spec.job import HOST, BasesSpec
from curvebench.spec.method import BasisSpec, WorkloadSpec
from curvebench.stages import job as job_parts
from curvebench.stages.supervision import NOTHING, Lanes
from curvebench.steps.engine import Engine
from curvebench.workloads.workload import Workload


def estimate_bases(job: job_parts.Job) -> None:
    """Estimate or draw the bases of a job for each workload and seed, and write each basis to a file.

    Bases whose files exist are not estimated again. If the estimation of a basis on a workload fails, the
    failure is recorded, and the job continues with the next basis.
    """
    spec = job.spec
    assert isinstance(spec, BasesSpec)
    stored = [basis for basis in spec.bases if bases()[basis.name].stored]
    progress = Progress(f"{spec.study} bases", len(spec.workloads) * len(stored))
    for number, (workload, basis) in enumerate(itertools.product(spec.workloads, stored)):
        cell, name = Lanes(number), job_parts.basis_name(basis, workload.name)
        files = {seed: basis_file(job.folder, workload.name, basis.label, seed) for seed in spec.seeds}
        missing = {seed: file for seed, file in files.items() if not file.exists()}
        if missing:
            failure = job.supervision.lost.get(cell) or job.supervision.failure_to_record(name)
            if failure is None:
                job.supervision.journal.begin(cell)
            job.attempt(name, partial(_estimate_seeds, job, workload, basis, missing), failure)
        progress.advance(1, f"({basis.label} on {workload.name})")
    job.supervision.journal.begin(NOTHING)


def _engine_of(job: job_parts.Job, workload: Workload) -> tuple[Engine, Decomposition]:
    """Return the engine that computes gradients, and the function that computes eigenvectors from gradients.

    If the backend of the job is `HOST`, the engine is JAX on the CPU, or the engine of the only backend that
    the workload supports. The function then uses NumPy. Both compute in float64. Otherwise the engine and the
    function use the backend and the device of the job, on which the runs are computed as well.
    """
    if job.spec.backend == HOST:
        return job.engine("float64", backend=workload.backend or "jax", device="cpu"), by_numpy
    assert isinstance(job.spec, BasesSpec)
    engine = job.engine(job_parts.precision_of(job.spec, workload))
    return engine, decomposition_on(engine)


def _estimate_seeds(
    job: job_parts.Job, workload: WorkloadSpec, basis: BasisSpec, files: Mapping[int, Path]
) -> None:
    """Estimate or draw a basis for each seed, and write each basis to a file in the precision of the runs.

    Args:
        job: the job.
        workload: the workload.
        basis: the basis with its options.
        files: a mapping from seeds to the paths of the files to write.
    """
    assert isinstance(job.spec, BasesSpec)
    loaded = job_parts.workload_of(workload)
    dtype = job_parts.dtype_of(job.spec, loaded)
    estimation: tuple[()] | tuple[Sampler, Decomposition] = ()
    for seed, file in files.items():
        with job.clock.phase("data"):
            instance = job_parts.instance(loaded, workload.settings, seed)
            sampling = job_parts.sampling_of(basis, instance)
        if sampling.count and not estimation:
            engine, decompose = _engine_of(job, loaded)
            with job.clock.phase("compile"):
                estimation = sampler(sampling, engine, instance.problem, instance.random), decompose
        with job.clock.phase("step"):
            arrays = job_parts.estimate(basis, instance, *estimation)
        for name in [name for name in arrays if name.startswith("matrix")]:
            arrays[name] = arrays[name].astype(dtype)
        check_unchanged(job.spec)
        with replacing(file) as temporary:
            np.savez(temporary, allow_pickle=False, **arrays)
