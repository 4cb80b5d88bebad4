"""Reading of a study's tables for a report.

Categorical columns become text, and curves are read only at the steps that are shown. A group of runs,
identified by the columns `CELL`, has all runs of a study with one workload, method (an optimizer in a basis)
and backend. Final runs use the setting that tuning chose. A study joins another study if it adds methods to
that study.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from curvebench.reports.failures import blame_workloads
from curvebench.results.merging import mixed_hardware
from curvebench.results.reading import read, table_files, with_method
from curvebench.spec.plan import StudyPlan

CELL = ("workload", "backend", "method")
# Largest number of steps at which a curve is drawn. More would not be seen in a panel of about 190 points.
SHOWN_STEPS = 120


@dataclass(frozen=True)
class Tables:
    """Tables of one study, with the column `method` added.

    Attributes:
        curves: files of the table `curves`; `final_curves` reads the curves from them.
        runs: all runs, with the column `step_evaluations`: the gradient evaluations that a step costs.
        recorded_steps: steps at which the longest final run of each group recorded metrics, as the function
            `recorded_steps` reads them.
        timings: seconds of steps, measured by timing jobs.
        memory: peak memory, measured by timing jobs.
        jobs: all jobs of the study, with their seconds and failures.
        warnings: a sentence for each backend whose runs were made on more than one machine.
    """

    curves: tuple[Path, ...]
    runs: pl.DataFrame
    recorded_steps: pl.DataFrame
    timings: pl.DataFrame
    memory: pl.DataFrame
    jobs: pl.DataFrame
    warnings: tuple[str, ...] = ()


def tables_of(study: StudyPlan) -> Tables:
    """Read the tables of a study together with the tables of the studies that join it.

    A run of a joining study gets the first backend of `study` as its backend, even if it ran on another
    backend, because the problem instances are the same on all backends. Timings and memory of joining studies
    are left out. Runs on a workload that fails with every method get the outcome `WORKLOAD_FAULT`.

    Raises:
        InputError: when a table is missing or damaged.
    """
    main = read_tables(study.tables)
    joined = [read_tables(joining_study.tables) for joining_study in study.joining]
    first = pl.lit(study.backends[0]).alias("backend")
    return replace(
        main,
        curves=tuple(file for part in (main, *joined) for file in part.curves),
        runs=blame_workloads(pl.concat([main.runs, *(part.runs.with_columns(first) for part in joined)])),
        recorded_steps=pl.concat(
            [main.recorded_steps, *(part.recorded_steps.with_columns(first) for part in joined)]
        ),
        jobs=pl.concat([main.jobs, *(part.jobs for part in joined)]),
        warnings=(*main.warnings, *(warning for part in joined for warning in part.warnings)),
    )


def read_tables(folder: Path) -> Tables:
    """Read the merged tables of a study.

    Args:
        folder: folder with the merged tables.

    Raises:
        InputError: when a table is missing or damaged.
    """
    text = [pl.col("stage").cast(pl.String), pl.col("outcome").cast(pl.String)]
    runs = with_method(read(folder, "runs").with_columns(text))
    timings, memory = (with_method(read(folder, table)) for table in ("timings", "memory"))
    caution = "losses may be compared with care, seconds may not"
    mixed = [f"{sentence}; {caution}" for sentence in mixed_hardware(runs)]
    runs = with_step_evaluations(folder, runs)
    jobs, recorded = read(folder, "jobs"), recorded_steps(folder, runs)
    return Tables(tuple(table_files(folder, "curves")), runs, recorded, timings, memory, jobs, tuple(mixed))


# --- curves of final runs ------------------------------------------------------------------------


def recorded_steps(folder: Path, runs: pl.DataFrame) -> pl.DataFrame:
    """Read, for the longest final run of each cell, the steps at which the run recorded metrics.

    Args:
        folder: folder with the merged tables.
        runs: the table `runs` with `method`.

    Returns:
        Columns of `CELL`, run (the longest run of the cell) and step, sorted by cell and step.

    Raises:
        InputError: when the table `curves` is missing or damaged.
    """
    final = runs.filter(stage="final").sort("steps", "run", descending=[True, False])
    longest = final.unique(CELL, keep="first", maintain_order=True).select(*CELL, "run")
    names = longest.select("run").lazy()

    def of_longest(curves: pl.LazyFrame) -> pl.LazyFrame:
        return curves.select("run", "step").join(names, on="run", how="semi").unique()

    return longest.join(read(folder, "curves", of_longest), on="run").sort(*CELL, "step")


def with_step_evaluations(folder: Path, runs: pl.DataFrame) -> pl.DataFrame:
    """Add a column `step_evaluations` to the runs: the gradient evaluations that a step costs.

    The value is the number of gradient evaluations of a run divided by its number of steps, rounded down. A
    run that stopped early has one gradient evaluation more than its steps cost, because the last gradient
    showed that the run should stop. Rounding down removes this evaluation if the number of steps is larger
    than the number of evaluations that a step costs. (A step with a Hessian costs one evaluation per row of
    the Hessian.) For a final run with fewer steps, the table `curves` gives the number of gradient
    evaluations up to the last step, which is divided by the number of steps instead.

    Args:
        folder: folder with the merged tables.
        runs: the table `runs`.

    Raises:
        InputError: when the table `curves` is missing or damaged.
    """
    rounded = pl.col("gradient_evaluations") // pl.col("steps").clip(lower_bound=1)
    with_estimate = runs.with_columns(step_evaluations=rounded)
    uncertain = pl.col("steps") > 0, pl.col("step_evaluations") >= pl.col("steps")
    ends = with_estimate.filter(*uncertain, stage="final").select("run", step="steps").lazy()
    if ends.collect().is_empty():
        return with_estimate
    exact = pl.col("gradient_evaluations") // pl.col("step")

    def at_ends(curves: pl.LazyFrame) -> pl.LazyFrame:
        return curves.join(ends, on=["run", "step"]).select("run", exact=exact).unique()

    joined = with_estimate.join(read(folder, "curves", at_ends), on="run", how="left", maintain_order="left")
    return joined.with_columns(step_evaluations=pl.coalesce("exact", "step_evaluations")).drop("exact")


def shown_steps(recorded: pl.DataFrame) -> pl.DataFrame:
    """Choose the steps at which curves are drawn: at most `SHOWN_STEPS` of the recorded steps of each cell.

    The chosen steps are evenly spread, and include the first and the last recorded step.

    Args:
        recorded: steps of each cell at which metrics were recorded, as `recorded_steps` returns them.

    Returns:
        Columns of `CELL`, step.
    """
    position, count = pl.int_range(pl.len()).over(CELL), pl.len().over(CELL)
    spread = (position * (SHOWN_STEPS - 1)) // (count - 1).clip(lower_bound=1)
    first = (spread != spread.shift(1).over(CELL)).fill_null(True)
    return recorded.filter((count <= SHOWN_STEPS) | first).select(*CELL, "step")


def final_curves(tables: Tables, runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Read one metric of final runs at the steps that are drawn, and at the last step of each run.

    The steps are chosen by `shown_steps`. Other rows of the table `curves` are not loaded, so that memory
    stays small however long the table is.

    Args:
        tables: tables of the study.
        runs: final runs of the study, with the column `method`.
        metric: name of the metric.

    Returns:
        Columns run, step, gradient_evaluations, metric, value.

    Raises:
        InputError: when the table `curves` is missing or damaged.
    """
    grid = runs.select(*CELL, "run").join(shown_steps(tables.recorded_steps), on=CELL).select("run", "step")
    names = runs.select("run").lazy()

    def last_steps(curves: pl.LazyFrame) -> pl.LazyFrame:
        recorded = curves.filter(metric=metric).select("run", "step").join(names, on="run", how="semi")
        return recorded.group_by("run").agg(pl.col("step").max())

    selected = pl.concat([grid, read(tables.curves, "curves", last_steps)]).unique().lazy()
    columns = ("run", "step", "gradient_evaluations", "metric", "value")

    def shown(curves: pl.LazyFrame) -> pl.LazyFrame:
        return curves.filter(metric=metric).select(columns).join(selected, on=["run", "step"], how="semi")

    return read(tables.curves, "curves", shown)
