"""The timing stage: time and memory of every method's single run with its chosen setting, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from harness.clocks import pinned
from harness.execution import PHASES, Bundle
from harness.job import Cell, Instance, Job, bundle_of, instance, load_basis, precision_of, workload_of
from harness.progress import Progress
from harness.spec import BasisSpec, OptimizerSpec, WorkloadSpec
from harness.timing import NULL, Measured, Memory, Timing, measure_methods
from results import schema
from results.reading import read
from results.writing import write_table

STEPS = 50  # the least of a stretch
REPETITIONS = 9  # the least number at which a 95 % interval of a median leaves out both extremes
NOT_PINNED = "this system cannot pin threads to processors: seconds may vary more"
Method = tuple[str, str]  # optimizer, basis


def time_study(job: Job) -> list[str]:
    """Measure all methods of a study on one backend and write timings and memory; returns notes."""
    spec = job.spec
    finals = pl.concat([read(folder, "runs") for folder in job.upstream("final")])
    progress = Progress(
        f"{spec.study} timing on {spec.backend}",
        len(spec.workloads) * (1 + len(spec.optimizers) * len(spec.bases)),
    )
    timings: list[dict[str, Any]] = []
    memory: list[dict[str, Any]] = []
    notes: set[str] = set()
    with pinned(job.threads) as processors:
        for workload in spec.workloads:
            engine = job.engine(precision_of(spec, workload_of(workload)))
            measured = measure_methods(
                {" @ ".join(method): bundle for method, bundle in _bundles(job, workload, finals).items()},
                engine,
                STEPS,
                REPETITIONS,
                lambda method: progress.advance(1, f"({'no optimizer' if method == NULL.name else method})"),
            )
            _charge(job, measured)
            timings += [_timing_row(job, workload.name, timing) for timing in measured.timings]
            memory += [_memory_row(job, workload.name, one) for one in measured.memory]
            notes.update(engine.notes)
    if not processors:
        notes.add(NOT_PINNED)
    write_table(job.folder / "timings.parquet", pl.DataFrame(timings, schema=schema.TIMINGS), schema.TIMINGS)
    write_table(job.folder / "memory.parquet", pl.DataFrame(memory, schema=schema.MEMORY), schema.MEMORY)
    return sorted(notes)


def _charge(job: Job, measured: Measured) -> None:
    """Charge the timings to the job's clock; a warm-up is neither compilation nor steps, and stays other."""
    for timing in measured.timings:
        phase = "step" if timing.phase == "null_step" else timing.phase
        if phase in PHASES:
            job.clock.seconds[phase] += timing.seconds


def _bundles(job: Job, workload: WorkloadSpec, finals: pl.DataFrame) -> dict[Method, Bundle]:
    with job.clock.phase("data"):
        one = instance(workload_of(workload), workload.settings, job.spec.seeds[0])
        return {
            (optimizer.label, basis.label): _bundle(job, workload, optimizer, basis, one, finals)
            for optimizer in job.spec.optimizers
            for basis in job.spec.bases
        }


def _bundle(
    job: Job,
    workload: WorkloadSpec,
    optimizer: OptimizerSpec,
    basis: BasisSpec,
    one: Instance,
    finals: pl.DataFrame,
) -> Bundle:
    chosen = finals.row(
        by_predicate=(pl.col("workload") == workload.name)
        & (pl.col("optimizer") == optimizer.label)
        & (pl.col("basis") == basis.label)
        & (pl.col("seed") == job.spec.seeds[0]),
        named=True,
    )
    setting: Mapping[str, float] = {
        "learning_rate": chosen["learning_rate"],
        **{item["name"]: item["value"] for item in chosen["hyperparameters"]},
    }
    cell = Cell(workload_of(workload), workload, optimizer, basis, [setting])
    dtype = precision_of(job.spec, cell.workload)
    loaded = load_basis(job, workload.name, basis, job.spec.seeds[:1], dtype)
    return bundle_of(job, cell, [one], loaded)


def _timing_row(job: Job, workload: str, timing: Timing) -> dict[str, Any]:
    return {
        **_cell(job, workload, timing.method),
        "phase": timing.phase,
        "repetition": timing.repetition,
        "steps": timing.steps,
        "seconds": timing.seconds,
    }


def _memory_row(job: Job, workload: str, memory: Memory) -> dict[str, Any]:
    return {
        **_cell(job, workload, memory.method),
        "host_baseline_bytes": memory.host.baseline if memory.host else None,
        "host_peak_bytes": memory.host.peak if memory.host else None,
        "device_peak_bytes": memory.device,
    }


def _cell(job: Job, workload: str, method: str) -> dict[str, Any]:
    spec = job.spec
    optimizer, _, basis = method.partition(" @ ")
    return {
        "study": spec.study,
        "scale": spec.scale,
        "workload": workload,
        "optimizer": optimizer,
        "basis": basis or "identity",
        "backend": spec.backend,
        "device": spec.device,
        "spec_hash": spec.hash,
        "machine": job.machine,
    }
