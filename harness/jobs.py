"""What one job does: from its spec file to its tables."""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl

from harness.clocks import limit_threads
from harness.execution import PHASES, Clock
from harness.job import Job
from harness.sources import check_unchanged
from harness.spec import read_spec
from results import schema
from results.errors import TableError
from results.provenance import provenance
from results.writing import write_table

# Modules are imported late: each brings a backend or a library that the other stages do without.
STAGES: Mapping[str, tuple[str, str]] = {
    "bases": ("harness.basis_jobs", "estimate_bases"),
    "sweep": ("harness.run_jobs", "run_lanes"),
    "refine": ("harness.run_jobs", "run_lanes"),
    "final": ("harness.run_jobs", "run_lanes"),
    "timing": ("harness.timing_jobs", "time_study"),
    "parity": ("harness.parity", "compare_backends"),
    "checks": ("harness.check_jobs", "check_claims"),
}


TORCH_CACHE = Path(".cache/torch")  # in the project's folder, where snakemake runs jobs


class Interrupted(KeyboardInterrupt):
    """The system asks the job to end; no `except Exception` on the way holds it up."""


def run_job(spec_path: Path, results: Path, threads: int = 1) -> Path:
    """Compute one job and write its tables; the last file written is jobs.parquet.

    A job that fails leaves failure.parquet beside them, which says how; it is gone when the job succeeds.

    Args:
        spec_path: the spec file.
        results: the results folder.
        threads: how many processor threads the job may use.

    Returns:
        The job's folder.

    Raises:
        InputError: for a damaged spec, sources that changed since it was planned, or a batch that is larger
            than the data.
        Interrupted: when a SIGTERM ends the job: it is out of time, cancelled or preempted.
    """
    spec = read_spec(spec_path)
    check_unchanged(spec)
    limit_threads(threads)
    _keep_compiled(threads)
    facts = provenance(threads)
    named = {one["name"] for one in facts["packages"]}
    facts["packages"] += [  # those of contestants
        {"name": name, "version": number} for name, number in spec.versions.items() if name not in named
    ]
    job = Job(spec, results, Clock(), threads, facts["machine"])
    job.folder.mkdir(parents=True, exist_ok=True)
    module, function = STAGES[spec.stage]
    stage: Callable[[Job], list[str]] = getattr(importlib.import_module(module), function)
    with _recorded(job, facts):
        notes = stage(job)
        check_unchanged(spec)  # a source edited meanwhile may or may not have been imported before
        write_table(job.folder / "jobs.parquet", _row(job, facts, notes), schema.JOBS)
    return job.folder


def _keep_compiled(threads: int) -> None:
    """Tell torch.compile where what it compiles is kept, and how many processes may compile."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(TORCH_CACHE.resolve()))
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(threads)


@contextmanager
def _recorded(job: Job, facts: Mapping[str, Any]) -> Iterator[None]:
    """Record how the job fails, in a table that is no output of it: nothing takes it for a success."""
    path = job.folder / "failure.parquet"
    try:
        with _interruptible():
            yield
    except BaseException as error:
        with suppress(TableError):  # the failure itself matters more than its record
            write_table(path, _failure(job, facts, error), schema.FAILURES)
        raise
    path.unlink(missing_ok=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn SIGTERM into `Interrupted`, once: what it sets off is not interrupted again."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise Interrupted("SIGTERM: out of time, cancelled or preempted")

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _failure(job: Job, facts: Mapping[str, Any], error: BaseException) -> pl.DataFrame:
    row = {
        **{name: value for name, value in facts.items() if name in schema.FAILURES},
        **_identity(job),
        "outcome": _outcome(error),
        "reason": f"{type(error).__name__}: {error}",
        "total_seconds": _total_seconds(),
    }
    return pl.DataFrame([row], schema=schema.FAILURES)


def _outcome(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    said = f"{type(error).__name__} {error}".lower()  # torch and XLA have types of their own
    memory = ("memoryerror", "out of memory", "resource_exhausted")
    return "out_of_memory" if any(word in said for word in memory) else "error"


def _row(job: Job, facts: Mapping[str, Any], notes: list[str]) -> pl.DataFrame:
    seconds, total = job.clock.seconds, _total_seconds()
    row = {
        **facts,
        **_identity(job),
        **{f"{phase}_seconds": seconds[phase] for phase in PHASES},
        "other_seconds": total - sum(seconds[phase] for phase in PHASES),
        "total_seconds": total,
        "peak_memory_bytes": _peak_memory_bytes(),
        "claim_rules": [{"claim": claim, "rule": rule} for claim, rule in job.spec.claim_rules.items()],
        "notes": notes,
    }
    return pl.DataFrame([row], schema=schema.JOBS)


def _identity(job: Job) -> dict[str, Any]:
    spec = job.spec
    return {
        "spec_hash": spec.hash,
        "study": spec.study,
        "scale": spec.scale,
        "stage": spec.stage,
        "optimizer": spec.optimizers[0].label if len(spec.optimizers) == 1 else None,
        "backend": spec.backend,
        "device": spec.device,
    }


def _total_seconds() -> float:
    """Seconds since this process started."""
    stat = Path("/proc/self/stat")
    if hasattr(time, "CLOCK_BOOTTIME") and stat.exists():
        # Both since the machine started: a date of the start would be rounded to a second (proc(5)).
        ticks = int(stat.read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    import psutil

    return time.time() - psutil.Process().create_time()


def _peak_memory_bytes() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
