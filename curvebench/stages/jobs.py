"""Computation of one job, from its spec file to its tables."""

from __future__ import annotations

import importlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
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
from curvebench.stages.supervision import DONE, Failure, Interrupted, Supervision, failure_of
from curvebench.timing.clocks import limit_threads, process_seconds

# Module and function that compute the jobs of each stage.
# A module is imported only when a job needs it, since each module imports large libraries.
STAGES: Mapping[str, tuple[str, str]] = {
    "bases": ("curvebench.stages.basis_jobs", "estimate_bases"),
    "runs": ("curvebench.stages.run_jobs", "run_lanes"),
    "timing": ("curvebench.stages.timing_jobs", "time_study"),
    "parity": ("curvebench.stages.parity", "compare_backends"),
    "checks": ("curvebench.stages.check_jobs", "check_claims"),
}
# Stages whose jobs fail as a whole if a signal ends their process, because no partial results are stored.
INDIVISIBLE = ("timing", "parity", "checks")
# Folder for compiled programs.
# The path is relative to the working directory of jobs, the folder of the project.
CACHE = Path(".cache")


def run_job(
    spec_path: Path,
    results: Path,
    threads: int = 1,
    supervision: Supervision | None = None,
    keep_failed: bool = False,
    checkpoint_minutes: float | None = None,
) -> Path:
    """Compute one job and write its tables. The last file that is written is jobs.parquet.

    A failure does not end the job. A failed run has a row with its outcome; other failures are listed in the
    column `failures` of jobs.parquet. The file `failed.json` exists as long as something in the job has
    failed.

    Args:
        spec_path: the spec file.
        results: the results folder.
        threads: number of CPU threads that the job may use.
        supervision: information from the supervisor; None if the job is not supervised.
        keep_failed: whether to keep failures that an earlier call for this job recorded (`failed.json`). If
            there are such failures, nothing is computed, and the tables are written from stored rows.
        checkpoint_minutes: minutes between two checkpoints of a run; None for the default of
            `curvebench.engine.checkpoints.CHECKPOINT_SECONDS`.

    Returns:
        The job's folder.

    Raises:
        InputError: if the spec is damaged, if sources have changed since the job was planned, if the GPU is
            missing, or if the tables cannot be written.
    """
    spec = read_spec(spec_path)
    check_unchanged(spec)
    if supervision is not None and supervision.since is not None:
        _forget_peak_memory()
    limit_threads(threads)
    facts: dict[str, Any] = provenance(threads)
    gpu = reserve_gpu() if spec.device == "gpu" else None
    device, waited = (None, 0.0) if gpu is None else (gpu.name, gpu.waited)
    joules_before = joules_used(device)
    _set_compile_caches(threads, facts["machine"])
    names = {package["name"] for package in facts["packages"]}
    # Add packages of which the spec has a version, such as the packages of optimizers of other libraries.
    facts["packages"] += [
        {"name": name, "version": number} for name, number in spec.versions.items() if name not in names
    ]
    machine, supervision = facts["machine"], supervision or Supervision()
    job = Job(spec, results, machine, Clock(), threads, supervision, keep_failed, checkpoint_minutes)
    if keep_failed and (job.folder / FAILED).exists():
        failures = json.loads((job.folder / FAILED).read_text())
        not_retried = {item["what"]: Failure(item["outcome"], item["reason"]) for item in failures}
        job.supervision.not_retried = not_retried
        job.supervision.ended = Failure("interrupted", "never run with these settings, nor now (keep_failed)")
    if job.supervision.ended is None:  # a job with `ended` computes nothing, and needs no device
        _check_device(job)
    job.folder.mkdir(parents=True, exist_ok=True)
    with _interruptible(job.supervision.ended is None):
        try:
            _compute(job)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # let the job write its tables
        except Interrupted as error:
            job.supervision.ended = failure_of(error)
            job.failures.clear()
            _compute(job)  # because `ended` is set, this call only writes the tables of finished runs
        # If a source file was edited during the job, the results may be of either version of the file.
        check_unchanged(spec)
        _mark(job)
        facts["gpu_joules"] = _joules_since(joules_before, device, job)
        job.write("jobs", [_row(job, facts, waited)])
        job.supervision.journal.begin(DONE)
        if not any((folder / FAILED).exists() for folder in [job.folder, *job.upstream(*spec.upstream)]):
            rmtree(job.folder / PARTS, ignore_errors=True)
            remove_with_empty_parents(checkpoints_folder(results, spec.name), parents=1)
    return job.folder


def _check_device(job: Job) -> None:
    """Check that the device of a job is available, before anything is computed.

    Without this check, a missing GPU would be recorded as a failure of each method.

    Raises:
        InputError: if there is no GPU.
    """
    if job.spec.device == "cpu":
        return
    try:
        job.engine("float32")
    except InputError as error:
        raise InputError(f"study {job.spec.study}, scale {job.spec.scale}: {error}") from error


def _compute(job: Job) -> None:
    """Compute and write all tables except jobs.parquet. If the whole stage fails, write empty tables."""
    module, function = STAGES[job.spec.stage]
    name = ", ".join(optimizer.label for optimizer in job.spec.optimizers) or "all bases"
    name = job.spec.description if isinstance(job.spec, RunsSpec) else name

    def stage() -> None:
        getattr(importlib.import_module(module), function)(job)

    failure = job.supervision.failure_to_record(name) if job.spec.stage in INDIVISIBLE else None
    if not job.attempt(name, stage, failure):
        for table in set(TABLES[job.spec.stage]) - {"jobs"}:
            job.write(table)


def _mark(job: Job) -> None:
    """Write the job's failures to `failed.json` for the next call. If nothing failed, remove the file."""
    marker = job.folder / FAILED
    if job.failures:
        write_texts({marker: json.dumps(job.failures, indent=1) + "\n"})
    else:
        marker.unlink(missing_ok=True)


def _set_compile_caches(threads: int, machine: str) -> None:
    """Set the folders in which PyTorch and JAX store compiled programs, and limit the compiler processes.

    Each machine has a folder of its own for JAX, because the keys by which JAX finds a stored program do not
    contain the instruction set of the processor.

    Args:
        threads: largest number of compiler processes of PyTorch.
        machine: identifier of this machine.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str((CACHE / "torch").resolve()))
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(threads)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str((CACHE / "jax" / machine).resolve()))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")


@contextmanager
def _interruptible(once: bool) -> Iterator[None]:
    """Raise `Interrupted` in this context when SIGTERM arrives, and ignore all further signals.

    Args:
        once: whether to raise `Interrupted` at the first SIGTERM. If `once` is false, every SIGTERM is
            ignored.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise Interrupted("SIGTERM: out of time, cancelled or preempted")

    handler = signal.signal(signal.SIGTERM, interrupt if once else signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _row(job: Job, facts: Mapping[str, Any], waited: float) -> dict[str, Any]:
    """Return the job's row of the table `jobs`.

    Args:
        job: the job.
        facts: provenance of the job.
        waited: seconds of waiting for a free GPU, which are not part of the job's total seconds.
    """
    spec, seconds = job.spec, job.clock.seconds
    since = job.supervision.since
    elapsed = process_seconds() if since is None else time.monotonic() - since
    total = elapsed - waited + job.clock.earlier
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


def _joules_since(joules: float | None, device: str | None, job: Job) -> float | None:
    """Return the energy in joules that the GPU of a job has used since the start of the job.

    Args:
        joules: value of the GPU's energy counter at the start of the job; None if the value is unknown.
        device: number or UUID of the GPU; None if the job has no GPU.
        job: the job.

    Returns:
        The energy; None if the energy is unknown, for example because the job has resumed a run that another
        process had begun.
    """
    now = None if job.clock.earlier else joules_used(device)
    return None if now is None or joules is None else now - joules


def _forget_peak_memory() -> None:
    """Reset the peak of resident memory that the system has recorded for this process (Linux only).

    An earlier job of the same worker process may have used more memory than the next job.
    """
    from curvebench.timing.step_times import PROCESS, RESET_PEAK

    with suppress(OSError):
        (PROCESS / "clear_refs").write_text(RESET_PEAK)


def _peak_memory_bytes() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
