"""What one job does: from its spec file to its tables."""

from __future__ import annotations

import importlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from types import FrameType
from typing import Any

from curvebench.engine.checkpoints import remove_with_empty_parents
from curvebench.engine.clock import PHASES, Clock
from curvebench.paths import FAILED, checkpoints_folder
from curvebench.planning.snakemake_inputs import TABLES
from curvebench.results import schema
from curvebench.results.provenance import provenance
from curvebench.results.temporary import write_texts
from curvebench.sources import check_unchanged
from curvebench.spec.errors import InputError
from curvebench.spec.job import ChecksSpec, RunsSpec, read_spec
from curvebench.stages.devices import joules_used, reserve_gpu
from curvebench.stages.job import PARTS, Job
from curvebench.stages.supervision import DONE, Attendance, Failure, Interrupted, failure_of
from curvebench.timing.clocks import limit_threads

# Modules are imported late: each brings a backend or a library that the other stages do without.
STAGES: Mapping[str, tuple[str, str]] = {
    "bases": ("curvebench.stages.basis_jobs", "estimate_bases"),
    "runs": ("curvebench.stages.run_jobs", "run_lanes"),
    "timing": ("curvebench.stages.timing_jobs", "time_study"),
    "parity": ("curvebench.stages.parity", "compare_backends"),
    "checks": ("curvebench.stages.check_jobs", "check_claims"),
}
WHOLE = ("timing", "parity", "checks")  # fail as a whole where a signal ends their process
CACHE = Path(".cache")  # what was compiled, in the project's folder, where snakemake runs jobs


def run_job(
    spec_path: Path,
    results: Path,
    threads: int = 1,
    attendance: Attendance | None = None,
    keep_failed: bool = False,
    checkpoint_minutes: float | None = None,
) -> Path:
    """Compute one job and write its tables; the last file written is jobs.parquet.

    What fails is a row with its outcome, or is missing and listed in `failures` of jobs.parquet, and the rest
    goes on. `failed.json` says that something did; it is gone when nothing fails any more.

    Args:
        spec_path: the spec file.
        results: the results folder.
        threads: how many processor threads the job may use.
        attendance: what the process that attends this one hands on; None for a job on its own.
        keep_failed: where something failed before, write that as it is, and compute nothing.
        checkpoint_minutes: between two checkpoints of a run; None for `curvebench.engine.checkpoints.EVERY`.

    Returns:
        The job's folder.

    Raises:
        InputError: for a damaged spec, sources that changed since it was planned, a GPU that is not there,
            and a folder that cannot take the tables.
    """
    spec = read_spec(spec_path)
    check_unchanged(spec)
    limit_threads(threads)
    facts: dict[str, Any] = provenance(threads)
    taken = reserve_gpu() if spec.device == "gpu" else None
    device, waited = (None, 0.0) if taken is None else (taken.name, taken.waited)
    before = joules_used(device)
    _keep_compiled(threads, facts["machine"])
    named = {one["name"] for one in facts["packages"]}
    facts["packages"] += [  # those of contestants
        {"name": name, "version": number} for name, number in spec.versions.items() if name not in named
    ]
    machine, attendance = facts["machine"], attendance or Attendance()
    job = Job(spec, results, machine, Clock(), threads, attendance, keep_failed, checkpoint_minutes)
    if keep_failed and (job.folder / FAILED).exists():
        failures = json.loads((job.folder / FAILED).read_text())
        job.attendance.kept = {one["what"]: Failure(one["outcome"], one["reason"]) for one in failures}
        job.attendance.ended = Failure("interrupted", "never run with these settings, nor now (keep_failed)")
    if job.attendance.ended is None:  # else nothing is computed
        _check_device(job)
    job.folder.mkdir(parents=True, exist_ok=True)
    with _interruptible(job.attendance.ended is None):
        try:
            _compute(job)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is left is short
        except Interrupted as error:
            job.attendance.ended = failure_of(error)
            job.failures.clear()
            _compute(job)  # which now writes what there is
        check_unchanged(spec)  # a source edited meanwhile may or may not have been imported before
        _mark(job)
        facts["gpu_joules"] = _joules_since(before, device, job)
        job.write("jobs", [_row(job, facts, waited)])
        job.attendance.journal.begin(DONE)
        if not any((folder / FAILED).exists() for folder in [job.folder, *job.upstream(*spec.upstream)]):
            rmtree(job.folder / PARTS, ignore_errors=True)
            remove_with_empty_parents(checkpoints_folder(results, spec.name), parents=1)
    return job.folder


def _check_device(job: Job) -> None:
    """Refuse a GPU that is not there before anything is computed: no method is to blame for it."""
    if job.spec.device == "cpu":
        return
    try:
        job.engine("float32")
    except InputError as error:
        raise InputError(f"study {job.spec.study}, scale {job.spec.scale}: {error}") from error


def _compute(job: Job) -> None:
    """Compute and write the job's other tables, without rows where all of it fails."""
    module, function = STAGES[job.spec.stage]
    name = ", ".join(one.label for one in job.spec.optimizers) or "all bases"
    name = job.spec.description if isinstance(job.spec, RunsSpec) else name

    def stage() -> None:
        getattr(importlib.import_module(module), function)(job)

    failure = job.attendance.not_tried(name) if job.spec.stage in WHOLE else None
    if not job.attempt(name, stage, failure):
        for table in set(TABLES[job.spec.stage]) - {"jobs"}:
            job.write(table)


def _mark(job: Job) -> None:
    """Say what of the job failed, for the next call."""
    marker = job.folder / FAILED
    if job.failures:
        write_texts({marker: json.dumps(job.failures, indent=1) + "\n"})
    else:
        marker.unlink(missing_ok=True)


def _keep_compiled(threads: int, machine: str) -> None:
    """Tell the compilers where what they compile is kept, and torch.compile how many processes may compile.

    JAX's key of a program does not say which instructions the processor has: each machine has its own folder.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str((CACHE / "torch").resolve()))
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(threads)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str((CACHE / "jax" / machine).resolve()))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")


@contextmanager
def _interruptible(once: bool) -> Iterator[None]:
    """Turn SIGTERM into `Interrupted`, once or never: what it sets off is not interrupted again."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise Interrupted("SIGTERM: out of time, cancelled or preempted")

    before = signal.signal(signal.SIGTERM, interrupt if once else signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _row(job: Job, facts: Mapping[str, Any], waited: float) -> dict[str, Any]:
    """What the job took, but for the seconds in which it `waited` for a GPU that others had."""
    spec, seconds = job.spec, job.clock.seconds
    total = _total_seconds(job.attendance.since) - waited + job.clock.earlier
    rules = spec.claim_rules if isinstance(spec, RunsSpec | ChecksSpec) else {}
    return {
        **facts,
        **{name: getattr(spec, name) for name in ("study", "scale", "stage", "backend", "device")},
        "spec_hash": spec.hash,
        "optimizer": spec.optimizers[0].label if len(spec.optimizers) == 1 else None,
        **{f"{phase}_seconds": seconds[phase] for phase in PHASES},
        "other_seconds": total - sum(seconds[phase] for phase in PHASES),
        "total_seconds": total,
        **{f"{part}_seconds": job.clock.named[part] for part in schema.WITHIN},
        "peak_memory_bytes": _peak_memory_bytes(),
        "claim_rules": [{"claim": claim, "rule": rule} for claim, rule in rules.items()],
        "failures": job.failures,
        "notes": job.notes,
    }


def _joules_since(before: float | None, device: str | None, job: Job) -> float | None:
    """What the job's GPU has used since it had used `before`; not known where a run began elsewhere."""
    now = None if job.clock.earlier else joules_used(device)
    return None if now is None or before is None else now - before


def _total_seconds(since: float | None) -> float:
    """Return the seconds since a worker received the job, or since this process started."""
    if since is not None:
        return time.monotonic() - since
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
