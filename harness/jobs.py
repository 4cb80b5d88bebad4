"""What one job does: from its spec file to its tables."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from harness.execution import PHASES, Clock
from harness.job import Job
from harness.sources import check_unchanged
from harness.spec import read_spec
from results import schema
from results.provenance import provenance
from results.writing import write_table

# Modules are imported late: each brings a backend or a library that the other stages do without.
STAGES: Mapping[str, tuple[str, str]] = {
    "bases": ("harness.basis_jobs", "estimate_bases"),
    "sweep": ("harness.run_jobs", "run_lanes"),
    "refine": ("harness.run_jobs", "run_lanes"),
    "final": ("harness.run_jobs", "run_lanes"),
    "timing": ("harness.timing_jobs", "time_study"),
}


def run_job(spec_path: Path, results: Path, threads: int = 1) -> Path:
    """Compute one job and write its tables; the last file written is jobs.parquet.

    Args:
        spec_path: the spec file.
        results: the results folder.
        threads: how many processor threads the job may use.

    Returns:
        The job's folder.

    Raises:
        InputError: for a damaged spec, sources that changed since it was planned, or a batch that is larger
            than the data.
    """
    spec = read_spec(spec_path)
    check_unchanged(spec)
    _limit_threads(threads)
    facts = provenance(threads)
    job = Job(spec, results, Clock(), threads, facts["machine"])
    job.folder.mkdir(parents=True, exist_ok=True)
    module, function = STAGES[spec.stage]
    stage: Callable[[Job], list[str]] = getattr(importlib.import_module(module), function)
    notes = stage(job)
    check_unchanged(spec)  # a source edited meanwhile may or may not have been imported before
    write_table(job.folder / "jobs.parquet", _row(job, facts, notes), schema.JOBS)
    return job.folder


def _limit_threads(threads: int) -> None:
    """Hold this process to the job's threads; JAX reads its share when it is imported."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    os.environ["OMP_NUM_THREADS"] = os.environ["NPROC"] = str(threads)
    threadpool_limits(threads)  # NumPy's linear algebra, loaded by now


def _row(job: Job, facts: Mapping[str, Any], notes: list[str]) -> pl.DataFrame:
    import psutil

    spec, seconds = job.spec, job.clock.seconds
    total = time.time() - psutil.Process().create_time()
    row = {
        **facts,
        "spec_hash": spec.hash,
        "study": spec.study,
        "scale": spec.scale,
        "stage": spec.stage,
        "optimizer": spec.optimizers[0].name if len(spec.optimizers) == 1 else None,
        "backend": spec.backend,
        "device": spec.device,
        **{f"{phase}_seconds": seconds[phase] for phase in PHASES},
        "other_seconds": total - sum(seconds[phase] for phase in PHASES),
        "total_seconds": total,
        "peak_memory_bytes": _peak_memory_bytes(),
        "notes": notes,
    }
    return pl.DataFrame([row], schema=schema.JOBS)


def _peak_memory_bytes() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
