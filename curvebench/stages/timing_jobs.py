"""Timing jobs: they measure step times and memory of each method, in a single run with the tuned setting.

No other job runs on the machine during a timing job. The methods are measured one after another, several
times.
"""

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
from curvebench.spec.method import Method, WorkloadSpec, methods
from curvebench.stages.job import Cell, Job, basis_of, bundle_of, instance, precision_of, workload_of
from curvebench.timing.clocks import pinned
from curvebench.timing.step_times import NULL, Measured, measure_methods

MIN_STEPS = 50  # smallest number of steps in a measurement
# Number of measurements of each method.
# The 95 % interval of the median of 9 values excludes the smallest value and the largest value.
REPETITIONS = 9
NOT_PINNED = "this system cannot pin threads to processors: seconds may vary more"


def time_study(job: Job) -> None:
    """Measure the methods of a study on one backend, and write the tables `timings` and `memory`.

    Methods whose final run did not finish are left out.
    """
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
            MIN_STEPS,
            REPETITIONS,
            lambda method: progress.advance(1, f"({'no optimizer' if method == NULL.name else method})"),
            lambda method, error: job.fail(f"times of {method} on {workload.name}", error),
        )
        _charge(job, measured)
        timings.extend(_row(job, workload.name, asdict(timing)) for timing in measured.timings)
        memory.extend(_row(job, workload.name, asdict(peak)) for peak in measured.memory)

    with pinned(job.threads) as processors:
        for workload in spec.workloads:
            job.attempt(f"times of all methods on {workload.name}", partial(measure, workload))
    if not processors:
        job.own_notes.append(NOT_PINNED)
    job.write("timings", timings)
    job.write("memory", memory)


def _charge(job: Job, measured: Measured) -> None:
    """Add the measured seconds to the phases of the job's clock.

    The seconds of the warm-up steps are not added, since they belong to no phase of the clock. The table
    `jobs` has them in the column `other_seconds`.
    """
    for timing in measured.timings:
        phase = "step" if timing.phase == "null_step" else timing.phase
        if phase in PHASES:
            job.clock.seconds[phase] += timing.seconds


def _bundles(job: Job, workload: WorkloadSpec, finals: pl.DataFrame) -> dict[Method, Bundle]:
    """Build a bundle with a single run for each method: the method's final run with the seed of the job.

    Methods whose final run did not finish are left out.

    Args:
        job: the job.
        workload: the workload.
        finals: rows of the finished final runs.
    """
    spec, seed, bundles = job.spec, job.spec.seeds[0], dict[Method, Bundle]()
    with job.clock.phase("data"):
        loaded = workload_of(workload, job.training.evaluated_splits)
        problem = instance(loaded, workload.settings, seed)
        runs = {
            (run["optimizer"], run["basis"]): run
            for run in finals.filter(workload=workload.name, seed=seed).iter_rows(named=True)
        }
        for optimizer, basis in itertools.product(spec.optimizers, spec.bases):
            method = Method(optimizer.label, basis.label)
            if (run := runs.get(method)) is None:
                continue
            setting = {item["name"]: item["value"] for item in run["hyperparameters"]}
            setting["learning_rate"] = run["learning_rate"]
            cell = Cell(loaded, workload, optimizer, basis, [setting])
            bundles[method] = bundle_of(job, cell, [problem], basis_of(job, basis, [problem]))
    return bundles


def _row(job: Job, workload: str, measured: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table `timings` or `memory`.

    Args:
        job: the job.
        workload: name of the workload.
        measured: the fields of the measurement. The field `method` is the label of the method: `optimizer`
            or `optimizer @ basis`.
    """
    return {**job.columns(workload, *Method.of(measured.pop("method"))), **measured}
