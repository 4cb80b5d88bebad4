"""The timing stage: every method's single run with its chosen setting, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from harness.execution import Bundle
from harness.job import Cell, Instance, Job, bundle_of, instance, load_basis, workload_of
from harness.progress import Progress
from harness.spec import BasisSpec, OptimizerSpec, WorkloadSpec
from harness.timing import Timing, time_methods
from results import schema
from results.reading import read
from results.writing import write_table

STEPS, REPETITIONS = 50, 7
Method = tuple[str, str]  # optimizer, basis


def time_study(job: Job) -> list[str]:
    """Time all methods of a study on one backend and write the timings; returns notes."""
    spec = job.spec
    finals = pl.concat([read(folder, "runs") for folder in job.upstream("final")])
    progress = Progress(
        f"{spec.study} timing on {spec.backend}",
        len(spec.workloads) * (1 + len(spec.optimizers) * len(spec.bases)),
    )
    rows: list[dict[str, Any]] = []
    notes: set[str] = set()
    for workload in spec.workloads:
        engine = job.engine(workload_of(workload).dtype)
        bundles = _bundles(job, workload, finals)
        timings = time_methods(
            {" @ ".join(method): bundle for method, bundle in bundles.items()},
            engine,
            min(STEPS, *(len(bundle.schedule) for bundle in bundles.values())),
            REPETITIONS,
            lambda method: progress.advance(1, f"({method})"),
        )
        for timing in timings:
            job.clock.seconds["step" if timing.phase == "null_step" else timing.phase] += timing.seconds
            rows.append(_row(job, workload.name, timing))
        notes.update(engine.notes)
    write_table(job.folder / "timings.parquet", pl.DataFrame(rows, schema=schema.TIMINGS), schema.TIMINGS)
    return sorted(notes)


def _bundles(job: Job, workload: WorkloadSpec, finals: pl.DataFrame) -> dict[Method, Bundle]:
    with job.clock.phase("data"):
        one = instance(workload_of(workload), workload.settings, job.spec.seeds[0])
        return {
            (optimizer.name, basis.label): _bundle(job, workload, optimizer, basis, one, finals)
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
        & (pl.col("optimizer") == optimizer.name)
        & (pl.col("basis") == basis.label)
        & (pl.col("seed") == job.spec.seeds[0]),
        named=True,
    )
    setting: Mapping[str, float] = {
        "learning_rate": chosen["learning_rate"],
        **{item["name"]: item["value"] for item in chosen["hyperparameters"]},
    }
    cell = Cell(workload_of(workload), workload, optimizer, basis, [setting])
    loaded = load_basis(job, workload.name, basis, job.spec.seeds[:1], cell.workload.dtype)
    return bundle_of(job, cell, [one], loaded)


def _row(job: Job, workload: str, timing: Timing) -> dict[str, Any]:
    spec = job.spec
    optimizer, _, basis = timing.method.partition(" @ ")
    return {
        "study": spec.study,
        "scale": spec.scale,
        "workload": workload,
        "optimizer": optimizer,
        "basis": basis or "identity",
        "backend": spec.backend,
        "device": spec.device,
        "phase": timing.phase,
        "repetition": timing.repetition,
        "steps": timing.steps,
        "seconds": timing.seconds,
        "spec_hash": spec.hash,
        "machine": job.machine,
    }
