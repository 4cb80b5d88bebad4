"""The timing stage: time and memory of every method's single run with its chosen setting, one at a time."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from functools import partial
from typing import Any

import polars as pl

from curvebench.engine.bundle import Bundle
from curvebench.engine.clock import PHASES
from curvebench.progress import Progress
from curvebench.results.outcomes import finished
from curvebench.results.reading import read
from curvebench.spec.method import WorkloadSpec, methods
from curvebench.stages.job import Cell, Job, basis_of, bundle_of, instance, precision_of, workload_of
from curvebench.timing.clocks import pinned
from curvebench.timing.step_times import NULL, Measured, measure_methods

STEPS = 50  # the least of a stretch
REPETITIONS = 9  # the least number at which a 95 % interval of a median leaves out both extremes
NOT_PINNED = "this system cannot pin threads to processors: seconds may vary more"
Method = tuple[str, str]  # optimizer, basis


def time_study(job: Job) -> None:
    """Measure the methods of a study that come to their end on one backend."""
    spec = job.spec
    runs = pl.concat([read(folder, "runs") for folder in job.upstream("runs")])
    finals = runs.filter(finished(), stage="final")
    progress = Progress(
        f"{spec.study} timing on {spec.backend}",
        len(spec.workloads) * (1 + len(methods(spec.optimizers, spec.bases))) * (1 + REPETITIONS),
    )
    timings: list[dict[str, Any]] = []
    memory: list[dict[str, Any]] = []

    def measure(workload: WorkloadSpec) -> None:
        bundles = _bundles(job, workload, finals)
        if not bundles:
            return
        measured = measure_methods(
            {" @ ".join(method): bundle for method, bundle in bundles.items()},
            job.engine(precision_of(job.spec, workload_of(workload))),
            STEPS,
            REPETITIONS,
            lambda method: progress.advance(1, f"({'no optimizer' if method == NULL.name else method})"),
            lambda method, error: job.fail(f"times of {method} on {workload.name}", error),
        )
        _charge(job, measured)
        timings.extend(_row(job, workload.name, asdict(one)) for one in measured.timings)
        memory.extend(_row(job, workload.name, asdict(one)) for one in measured.memory)

    with pinned(job.threads) as processors:
        for workload in spec.workloads:
            job.attempt(f"times of all methods on {workload.name}", partial(measure, workload))
    if not processors:
        job.own_notes.append(NOT_PINNED)
    job.write("timings", timings)
    job.write("memory", memory)


def _charge(job: Job, measured: Measured) -> None:
    """Charge the timings to the job's clock; a warm-up is neither compilation nor steps, and stays other."""
    for timing in measured.timings:
        phase = "step" if timing.phase == "null_step" else timing.phase
        if phase in PHASES:
            job.clock.seconds[phase] += timing.seconds


def _bundles(job: Job, workload: WorkloadSpec, finals: pl.DataFrame) -> dict[Method, Bundle]:
    """One run of each method: that of the job's seed, where it is among the runs."""
    spec, seed, bundles = job.spec, job.spec.seeds[0], dict[Method, Bundle]()
    with job.clock.phase("data"):
        found = workload_of(workload, job.training.evaluated_splits)
        one = instance(found, workload.settings, seed)
        runs = {
            (run["optimizer"], run["basis"]): run
            for run in finals.filter(workload=workload.name, seed=seed).iter_rows(named=True)
        }
        for optimizer, basis in itertools.product(spec.optimizers, spec.bases):
            method = (optimizer.label, basis.label)
            if (run := runs.get(method)) is None:
                continue
            setting = {item["name"]: item["value"] for item in run["hyperparameters"]}
            setting["learning_rate"] = run["learning_rate"]
            cell = Cell(found, workload, optimizer, basis, [setting])
            bundles[method] = bundle_of(job, cell, [one], basis_of(job, basis, [one]))
    return bundles


def _row(job: Job, workload: str, measured: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a timing or of a memory; its `method` is an optimizer, or one in a basis."""
    optimizer, _, basis = measured.pop("method").partition(" @ ")
    return {**job.columns(workload, optimizer, basis or "identity"), **measured}
