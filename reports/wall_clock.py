"""Seconds and memory: where those of final runs go, by phase of their jobs, and what a step takes."""

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
    """The jobs of final runs that hold one method on one workload, their seconds cut into `PHASES`.

    A job that makes the tuning runs too counts whole, with these runs. A basis that another job estimated
    before is charged to the job, once a seed. What a table of an earlier
    version does not tell apart is null, and among the phase that it is `curvebench.results.schema.WITHIN`.

    Returns:
        The rows of `jobs` with columns of `CELL`, runs, alone (whether its runs are made one at a time),
        steps and examples (of all runs; null where one did not take them all), and `{phase}_seconds`, whose
        sum is total_seconds.
    """
    # without a stop, runs go on past a target
    ends = ["budget"] if study.training.stop else ["budget", "reached"]
    of_final = pl.col("stage").is_in(("final", "alternative")).any().over("spec_hash", "machine")
    once = pl.col("basis_seconds").fill_null(0) / pl.len().over("spec_hash", "machine", "seed")
    runs = tables.runs.filter(of_final).with_columns(charged=once)
    whole = pl.when(pl.col("outcome").is_in(ends).all())
    batch = (pl.col("examples") / pl.col("gradient_evaluations")).max()
    held = (
        runs.group_by("spec_hash", "machine")
        .agg(
            *(pl.col(name).first() for name in CELL),
            cells=pl.struct(CELL).n_unique(),
            runs=pl.len().cast(pl.Int64),
            settings=pl.len() / pl.col("seed").n_unique(),
            alone=(pl.col("bundle_lanes") == 1).all(),
            steps=whole.then(pl.col("steps").sum()),
            examples=whole.then(pl.col("steps").sum() * batch),
            charged=pl.col("charged").sum(),
        )
        .filter(cells=1)
    )
    elsewhere = pl.col("study").is_in([one.name for one in study.joining])  # whose seconds do not count
    jobs = tables.jobs.filter(~elsewhere).drop("backend", "optimizer")
    waiting, anew, kept = (pl.col(f"{part}_seconds") for part in ("waiting", "basis", "checkpoint"))
    anew = anew if study.estimates_anew else anew.fill_null(0)
    before = (pl.col("charged") - anew / pl.col("settings")).clip(lower_bound=0)
    return (
        held.join(jobs, on=["spec_hash", "machine"], nulls_equal=True)
        .with_columns(
            data_seconds=pl.col("data_seconds") - waiting.fill_null(0),
            step_seconds=pl.col("step_seconds") - anew.fill_null(0),
            other_seconds=pl.col("other_seconds") - kept.fill_null(0),
            basis_seconds=anew + before,
            total_seconds=pl.col("total_seconds") + before.fill_null(0),
        )
        .drop("cells", "settings", "charged")
    )


def clock_of(problem: StudyProblem) -> dict[str, Any]:
    """What a page shows of the wall clock: of each method the job with the median total, and the machines.

    Of an even number of jobs it is the lower one, so that the parts add up; `least` and `most` are the totals
    of others. `examples_a_second` are those of the steps by the seconds of the steps.
    """
    jobs = problem.of(final_jobs(problem.study, problem.tables)).sort("total_seconds", "spec_hash")
    jobs = jobs.with_columns(examples_a_second=pl.col("examples") / pl.col("step_seconds"))
    rows = []
    for method in problem.study.methods:
        own = jobs.filter(method=method)
        if len(own):
            totals = own["total_seconds"]
            median = own.row((len(own) - 1) // 2, named=True)
            rows.append({**median, "jobs": len(own), "least": totals.min(), "most": totals.max()})
    phases = [name for name in PHASES if any(row[f"{name}_seconds"] for row in rows)]
    return {"rows": rows, "phases": phases, "machines": machines(jobs).to_dicts()}


def paces(problem: StudyProblem) -> pl.DataFrame:
    """Seconds of a step and of compiling by method: as they were timed, else as the runs' own jobs have them.

    Only jobs whose runs are made one at a time tell it; waiting for data is then part of a step.

    Returns:
        Columns of `CELL`, each, compile, timed; the methods that were timed where neither tells all.
    """
    timings = problem.of(problem.tables.timings)
    compiled = timings.filter(phase="compile").group_by(CELL).agg(compile=pl.col("seconds").median())
    steps = step_seconds(timings).unique(CELL, keep="last", maintain_order=True)
    timed = steps.select(*CELL, each="median").join(compiled, on=list(CELL), how="left")
    jobs = problem.of(final_jobs(problem.study, problem.tables)).filter("alone").drop_nulls("steps")
    taken = pl.col("step_seconds") + pl.col("waiting_seconds").fill_null(0)
    own = jobs.group_by(CELL).agg(
        each=(taken / pl.col("steps")).median(), compile=(pl.col("compile_seconds") / pl.col("runs")).median()
    )
    wanted = set(problem.final.filter(finished())["method"])
    by_jobs = not wanted <= set(timed["method"]) and wanted <= set(own["method"])
    return (own if by_jobs else timed).with_columns(timed=pl.lit(not by_jobs))


# --- a step, as it was timed ---------------------------------------------------------------------


def references(methods: Sequence[str]) -> dict[str, str]:
    """What each method's step is compared with: its optimizer in the identity basis, else the first method.

    Returns:
        The reference by method; a method that would be its own has none.
    """
    found = {}
    for method in methods:
        optimizer, basis = Method.of(method)
        reference = optimizer if basis != IDENTITY and optimizer in methods else methods[0]
        if reference != method:
            found[method] = reference
    return found


def _each(timings: pl.DataFrame, phase: str, name: str) -> pl.DataFrame:
    """Seconds a step of every repetition of a phase, in a column of that name."""
    timed = timings.filter((pl.col("phase") == phase) & (pl.col("steps") > 0))
    return timed.select(*CELL, "machine", "repetition", (pl.col("seconds") / pl.col("steps")).alias(name))


def step_pairs(timings: pl.DataFrame, reference: Mapping[str, str]) -> pl.DataFrame:
    """How long a method's step takes over its reference's, in every interleaved repetition.

    Args:
        timings: the table `timings` with `method`.
        reference: a method for each method that is compared.

    Returns:
        Columns of `CELL`, machine, repetition, reference, value; methods that were not timed, or whose
        reference was not, are missing.
    """
    each = _each(timings, "step", "step")
    names = pl.col("method").replace_strict(dict(reference), default=None, return_dtype=pl.String)
    both = each.with_columns(reference=names).join(
        each.rename({"method": "reference", "step": "reference_step"}),
        on=["workload", "backend", "machine", "repetition", "reference"],
        how="inner",
        nulls_equal=True,
        maintain_order="left",
    )
    both = both.with_columns(value=pl.col("step") / pl.col("reference_step"))
    return both.drop("step", "reference_step")


def step_ratios(timings: pl.DataFrame, reference: Mapping[str, str]) -> pl.DataFrame:
    """The median of `step_pairs` with its interval.

    Returns:
        Columns of `CELL`, machine, reference, median, low, high, level, count.
    """
    return medians(step_pairs(timings, reference), [*CELL, "machine", "reference"], "value")


def peak_memory(memory: pl.DataFrame) -> pl.DataFrame:
    """What a method needs while its steps run: host memory above the loaded process, and device memory.

    Args:
        memory: the table `memory` with `method`.

    Returns:
        Columns of `CELL`, machine, host, baseline, device, in bytes; null where it is not known.
    """
    host = pl.col("host_peak_bytes") - pl.col("host_baseline_bytes")
    return memory.select(
        *CELL, "machine", host=host, baseline="host_baseline_bytes", device="device_peak_bytes"
    )


def step_seconds(timings: pl.DataFrame) -> pl.DataFrame:
    """Seconds a step from the timing jobs: the median over repetitions with its interval.

    Args:
        timings: the table `timings` with `method`.

    Returns:
        Columns of `CELL`, machine, median, low, high, level, count.
    """
    return medians(_each(timings, "step", "value"), [*CELL, "machine"], "value")


def with_seconds(bands: pl.DataFrame, final: pl.DataFrame, paces: pl.DataFrame) -> pl.DataFrame:
    """Bands of curves with their seconds: steps times the seconds of one, and those of the basis.

    Args:
        bands: what `curve_bands` returns.
        final: the runs that they are of.
        paces: columns of `CELL`, each and compile, the seconds of a step and of compiling.

    Returns:
        The bands with columns run_seconds, charged_seconds (with the basis) and compiled_seconds (with
        compiling too), null where the seconds are not known.
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
    """An optimizer's own seconds a step: its step less the machine's null step, by repetition.

    Returns:
        Columns of `CELL`, machine, median, low, high, level, count; empty where no null step was timed.
    """
    keys = ["workload", "backend", "machine", "repetition"]
    null = _each(timings, "null_step", "null").group_by(keys).agg(pl.col("null").median())
    both = _each(timings, "step", "step").join(null, on=keys, maintain_order="left")
    both = both.with_columns(value=pl.col("step") - pl.col("null"))
    return medians(both, [*CELL, "machine"], "value")
