"""Wall-clock time and memory of final runs: seconds by phase of their jobs, and seconds per step.

Seconds of a run come from two sources. The jobs that made the runs record seconds by phase, such as steps,
compilation and waiting for data. Timing jobs measure single steps of all methods alternately (interleaved),
in several repetitions. In this module, a cell is the group of all runs of a study that have the same
workload, method (an optimizer in a basis) and backend; `CELL` has the names of these three columns. Final
runs use the setting that tuning chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from curvebench.reports.measures import StudyProblem
from curvebench.reports.statistics.medians import medians
from curvebench.reports.tables import CELL, Tables
from curvebench.results.merging import machines
from curvebench.results.outcomes import finished
from curvebench.spec.method import IDENTITY, Method
from curvebench.spec.plan import StudyPlan

PHASES = ("import", "data", "compile", "waiting", "step", "evaluation", "basis", "checkpoint", "other")


def final_jobs(study: StudyPlan, tables: Tables) -> pl.DataFrame:
    """Return the jobs that made final runs of only one method on one workload, with seconds by phase.

    If a job made tuning runs as well as final runs, the seconds of all its runs count. If another job
    estimated a basis (coordinates of the parameters), the seconds of the basis-estimation job are added to
    every job that uses the basis, once per seed. Tables of earlier versions do not distinguish some phases:
    the column of such a phase is null, and its seconds are part of another phase
    (`curvebench.results.schema.WITHIN`).

    Returns:
        Rows of the table `jobs` with these additional columns: the columns of `CELL`; runs (number of runs of
        the job); unbatched (whether each run was computed by itself, not in one program with other runs);
        steps and examples (totals over all runs of the job; null if a run ended early); and
        `{phase}_seconds` for each of `PHASES`. The sum over the phases is total_seconds.
    """
    # A run with the outcome "budget" made all planned steps.
    # A run with the outcome `reached` also made all steps, if the study's runs do not stop at a threshold.
    complete = ["budget"] if study.training.stop else ["budget", "reached"]
    made_final = pl.col("stage").is_in(("final", "alternative")).any().over("spec_hash", "machine")
    per_run = pl.col("basis_seconds").fill_null(0) / pl.len().over("spec_hash", "machine", "seed")
    runs = tables.runs.filter(made_final).with_columns(charged=per_run)
    if_all_complete = pl.when(pl.col("outcome").is_in(complete).all())
    batch = (pl.col("examples") / pl.col("gradient_evaluations")).max()
    by_job = runs.group_by("spec_hash", "machine").agg(
        *(pl.col(name).first() for name in CELL),
        cells=pl.struct(CELL).n_unique(),
        runs=pl.len().cast(pl.Int64),
        settings=pl.len() / pl.col("seed").n_unique(),
        unbatched=(pl.col("bundle_lanes") == 1).all(),
        steps=if_all_complete.then(pl.col("steps").sum()),
        examples=if_all_complete.then(pl.col("steps").sum() * batch),
        charged=pl.col("charged").sum(),
    )
    # The jobs of studies that join this study ran on other machines, so that their seconds do not count.
    elsewhere = pl.col("study").is_in([joining_study.name for joining_study in study.joining])
    jobs = tables.jobs.filter(~elsewhere).drop("backend", "optimizer")
    waiting, fresh, checkpoints = (pl.col(f"{phase}_seconds") for phase in ("waiting", "basis", "checkpoint"))
    fresh = fresh if study.re_estimates_bases else fresh.fill_null(0)
    earlier_basis = (pl.col("charged") - fresh / pl.col("settings")).clip(lower_bound=0)
    return (
        by_job.filter(cells=1)
        .join(jobs, on=["spec_hash", "machine"], nulls_equal=True)
        .with_columns(
            data_seconds=pl.col("data_seconds") - waiting.fill_null(0),
            step_seconds=pl.col("step_seconds") - fresh.fill_null(0),
            other_seconds=pl.col("other_seconds") - checkpoints.fill_null(0),
            basis_seconds=fresh + earlier_basis,
            total_seconds=pl.col("total_seconds") + earlier_basis.fill_null(0),
        )
        .drop("cells", "settings", "charged")
    )


def clock_of(problem: StudyProblem) -> dict[str, Any]:
    """Return the numbers that a page shows about the wall-clock time on a problem.

    Returns:
        rows: one row per method: the job whose total of seconds is the median over the method's jobs. With an
            even number of jobs, it is the lower of the two middle jobs. The row is a single job, not a mean,
            so that the phases add up to the total. Additional keys are `jobs` (the number of jobs of the
            method), `least` and `most` (smallest and largest total seconds of these jobs), and
            `examples_a_second` (examples of the job divided by seconds of its steps).
        phases: the phases that take more than 0 seconds in at least one row.
        machines: the machines of all jobs.
    """
    jobs = problem.of(final_jobs(problem.study, problem.tables)).sort("total_seconds", "spec_hash")
    jobs = jobs.with_columns(examples_a_second=pl.col("examples") / pl.col("step_seconds"))
    rows = []
    for method in problem.study.methods:
        of_method = jobs.filter(method=method)
        if len(of_method):
            totals = of_method["total_seconds"]
            median = of_method.row((len(of_method) - 1) // 2, named=True)
            rows.append({**median, "jobs": len(of_method), "least": totals.min(), "most": totals.max()})
    phases = [name for name in PHASES if any(row[f"{name}_seconds"] for row in rows)]
    return {"rows": rows, "phases": phases, "machines": machines(jobs).to_dicts()}


def paces(problem: StudyProblem) -> pl.DataFrame:
    """Return the seconds of a step and the seconds of compilation for each method of a problem.

    The numbers come from the timing jobs if every method with finished final runs was timed. Otherwise they
    come from the jobs of the final runs, if these jobs cover all methods with finished final runs. In that
    case, only jobs that computed their runs one at a time count, and the seconds of waiting for data are part
    of a step.

    Returns:
        Columns of `CELL`, each (seconds of a step), compile (seconds of compilation), and timed (whether the
        numbers come from timing jobs).
    """
    timings = problem.of(problem.tables.timings)
    compiled = timings.filter(phase="compile").group_by(CELL).agg(compile=pl.col("seconds").median())
    steps = step_seconds(timings).unique(CELL, keep="last", maintain_order=True)
    timed = steps.select(*CELL, each="median").join(compiled, on=list(CELL), how="left")
    jobs = problem.of(final_jobs(problem.study, problem.tables)).filter("unbatched").drop_nulls("steps")
    spent = pl.col("step_seconds") + pl.col("waiting_seconds").fill_null(0)
    from_jobs = jobs.group_by(CELL).agg(
        each=(spent / pl.col("steps")).median(), compile=(pl.col("compile_seconds") / pl.col("runs")).median()
    )
    needed = set(problem.final.filter(finished())["method"])
    by_jobs = not needed <= set(timed["method"]) and needed <= set(from_jobs["method"])
    return (from_jobs if by_jobs else timed).with_columns(timed=pl.lit(not by_jobs))


def timed_final(problem: StudyProblem) -> pl.DataFrame:
    """Return the final runs of a problem with the column `each`: seconds of a step, null if not measured."""
    each = paces(problem).select("method", "each")
    return problem.final.join(each, on="method", how="left", maintain_order="left")


# --- a step, as it was timed ---------------------------------------------------------------------


def references(methods: Sequence[str]) -> dict[str, str]:
    """Return, for each method, its reference: the method with which its step time is compared.

    The reference of a method in another basis than the identity is the same optimizer in the identity basis,
    if `methods` has it. In all other cases it is the first of `methods`.

    Returns:
        The reference by method. A method that would be its own reference is left out.
    """
    reference_of = {}
    for method in methods:
        optimizer, basis = Method.of(method)
        reference = optimizer if basis != IDENTITY and optimizer in methods else methods[0]
        if reference != method:
            reference_of[method] = reference
    return reference_of


def _each(timings: pl.DataFrame, phase: str, name: str) -> pl.DataFrame:
    """Return the seconds per step in every repetition of a timing job.

    Args:
        timings: the table `timings` with `method`.
        phase: phase of the timing job, such as "step" or "null_step".
        name: name of the column with the seconds per step.

    Returns:
        Columns of `CELL`, machine, repetition and `name`.
    """
    timed = timings.filter((pl.col("phase") == phase) & (pl.col("steps") > 0))
    return timed.select(*CELL, "machine", "repetition", (pl.col("seconds") / pl.col("steps")).alias(name))


def step_pairs(timings: pl.DataFrame, reference: Mapping[str, str]) -> pl.DataFrame:
    """Return step times divided by the step time of a reference method, for every repetition of a timing job.

    Args:
        timings: the table `timings` with `method`.
        reference: the method with which each method is compared, by method.

    Returns:
        Columns of `CELL`, machine, repetition, reference and value (step time of the method divided by the
        step time of its reference). There is no row for a method if the method or its reference was not
        timed.
    """
    step_times = _each(timings, "step", "step")
    names = pl.col("method").replace_strict(dict(reference), default=None, return_dtype=pl.String)
    others = step_times.rename({"method": "reference", "step": "reference_step"})
    keys = ["workload", "backend", "machine", "repetition", "reference"]
    named = step_times.with_columns(reference=names)
    pairs = named.join(others, on=keys, nulls_equal=True, maintain_order="left")
    pairs = pairs.with_columns(value=pl.col("step") / pl.col("reference_step"))
    return pairs.drop("step", "reference_step")


def step_ratios(timings: pl.DataFrame, reference: Mapping[str, str]) -> pl.DataFrame:
    """Return the step time of each method divided by the step time of its reference method.

    The ratio is computed for every repetition of the timing job. The result is the median over repetitions.

    Args:
        timings: the table `timings` with `method`.
        reference: the method with which each method is compared, by method.

    Returns:
        Columns of `CELL`, machine, reference, median, low and high (ends of the median's interval), level
        (coverage of the interval) and count (number of repetitions).
    """
    return medians(step_pairs(timings, reference), [*CELL, "machine", "reference"], "value")


def peak_memory(memory: pl.DataFrame) -> pl.DataFrame:
    """Return the peak memory of each method while its steps run.

    Args:
        memory: the table `memory` with `method`.

    Returns:
        Columns of `CELL` and machine, and in bytes: host (peak memory of the process above `baseline`),
        baseline (memory of the process before the run) and device (peak memory of the device). A number that
        was not measured is null.
    """
    host = pl.col("host_peak_bytes") - pl.col("host_baseline_bytes")
    return memory.select(
        *CELL, "machine", host=host, baseline="host_baseline_bytes", device="device_peak_bytes"
    )


def step_seconds(timings: pl.DataFrame) -> pl.DataFrame:
    """Return the seconds per step of each method: the median over the repetitions of the timing jobs.

    Args:
        timings: the table `timings` with `method`.

    Returns:
        Columns of `CELL`, machine, median, low and high (ends of the median's interval), level (coverage of
        the interval) and count (number of repetitions).
    """
    return medians(_each(timings, "step", "value"), [*CELL, "machine"], "value")


def with_seconds(bands: pl.DataFrame, final: pl.DataFrame, paces: pl.DataFrame) -> pl.DataFrame:
    """Add to each step of the median curves the seconds that a run takes up to the step.

    Args:
        bands: median and quartiles of the curves of each cell at each step, as `curve_bands` returns them.
        final: the final runs that have these curves.
        paces: columns of `CELL`, each (seconds of a step) and compile (seconds of compilation).

    Returns:
        The bands with three additional columns: run_seconds (number of steps times the seconds of a step),
        charged_seconds (run_seconds and the seconds for estimating the basis) and compiled_seconds
        (charged_seconds and the seconds of compilation). They are null if no step of the method was timed.
    """
    bases = final.group_by(CELL).agg(basis=pl.col("basis_seconds").fill_null(0).median())
    return (
        bands.join(paces.select(*CELL, "each", "compile"), on=list(CELL), how="left")
        .join(bases, on=list(CELL), how="left")
        .with_columns(run_seconds=pl.col("step") * pl.col("each"))
        .with_columns(charged_seconds=pl.col("run_seconds") + pl.col("basis"))
        .with_columns(compiled_seconds=pl.col("charged_seconds") + pl.col("compile"))
        .drop("each", "basis", "compile")
        .sort(*CELL, "step")
    )


def optimizer_overhead_seconds(timings: pl.DataFrame) -> pl.DataFrame:
    """Return the seconds per step that each method spends on its update.

    This is the time of a step of the method minus the time of a null step, which computes the gradient and
    leaves the parameters unchanged. The difference is computed for each repetition of the timing job. The
    result is the median over repetitions.

    Args:
        timings: the table `timings` with `method`.

    Returns:
        Columns of `CELL`, machine, median, low and high (ends of the median's interval), level (coverage of
        the interval) and count (number of repetitions). A method is left out if no null step was timed on its
        workload.
    """
    keys = ["workload", "backend", "machine", "repetition"]
    null = _each(timings, "null_step", "null").group_by(keys).agg(pl.col("null").median())
    steps = _each(timings, "step", "step").join(null, on=keys, maintain_order="left")
    steps = steps.with_columns(value=pl.col("step") - pl.col("null"))
    return medians(steps, [*CELL, "machine"], "value")
