"""Reading a study's tables for the report: plain text columns, final curves at the shown steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from curvebench.reports.failures import blame_workloads
from curvebench.results.merging import mixed_hardware
from curvebench.results.reading import read, table_files, with_method
from curvebench.spec.plan import StudyPlan

CELL = ("workload", "backend", "method")
SHOWN_STEPS = 120  # of a curve; a panel is some 190 points wide


@dataclass(frozen=True)
class Tables:
    """The tables of one study, with `method` added; curves stay on disk (`final_curves`).

    `curves` are the files of that table, `recorded_steps` says at which steps metrics were recorded,
    `warnings` where runs come from several machines. `runs` has `step_evaluations` too, the gradient
    evaluations that a step costs.
    """

    curves: tuple[Path, ...]
    runs: pl.DataFrame
    recorded_steps: pl.DataFrame
    timings: pl.DataFrame
    memory: pl.DataFrame
    jobs: pl.DataFrame
    warnings: tuple[str, ...] = ()


def tables_of(study: StudyPlan) -> Tables:
    """The tables of a study with those of the studies that join it; workloads at fault are marked.

    Their runs count on the study's first backend, whose instances are the same; their seconds do not count.

    Raises:
        InputError: when a table is missing or damaged.
    """
    own = read_tables(study.tables)
    joined = [read_tables(one.tables) for one in study.joining]
    on_it = pl.lit(study.backends[0]).alias("backend")
    return replace(
        own,
        curves=tuple(file for one in (own, *joined) for file in one.curves),
        runs=blame_workloads(pl.concat([own.runs, *(one.runs.with_columns(on_it) for one in joined)])),
        recorded_steps=pl.concat(
            [own.recorded_steps, *(one.recorded_steps.with_columns(on_it) for one in joined)]
        ),
        jobs=pl.concat([own.jobs, *(one.jobs for one in joined)]),
        warnings=(*own.warnings, *(said for one in joined for said in one.warnings)),
    )


def read_tables(folder: Path) -> Tables:
    """Read the merged tables of a study.

    Raises:
        InputError: when a table is missing or damaged.
    """
    text = [pl.col("stage").cast(pl.String), pl.col("outcome").cast(pl.String)]
    runs = with_method(read(folder, "runs").with_columns(text))
    timings, memory = (with_method(read(folder, table)) for table in ("timings", "memory"))
    mixed = [
        f"{sentence}; losses may be compared with care, seconds may not" for sentence in mixed_hardware(runs)
    ]
    runs = with_step_evaluations(folder, runs)
    jobs, recorded = read(folder, "jobs"), recorded_steps(folder, runs)
    return Tables(tuple(table_files(folder, "curves")), runs, recorded, timings, memory, jobs, tuple(mixed))


# --- curves of final runs ------------------------------------------------------------------------


def recorded_steps(folder: Path, runs: pl.DataFrame) -> pl.DataFrame:
    """At which steps metrics were recorded: those of the longest final run of each cell.

    Args:
        folder: of the merged tables.
        runs: the table `runs` with `method`.

    Returns:
        Columns of `CELL`, run, step, sorted.

    Raises:
        InputError: when the table is missing or damaged.
    """
    longest = (
        runs.filter(stage="final")
        .sort("steps", "run", descending=[True, False])
        .unique(CELL, keep="first", maintain_order=True)
        .select(*CELL, "run")
    )
    of_longest = longest.select("run").lazy()
    steps = read(
        folder,
        "curves",
        lambda curves: curves.select("run", "step").join(of_longest, on="run", how="semi").unique(),
    )
    return longest.join(steps, on="run").sort(*CELL, "step")


def with_step_evaluations(folder: Path, runs: pl.DataFrame) -> pl.DataFrame:
    """The runs with a column `step_evaluations`: the gradient evaluations that a step costs.

    A run that stopped has taken one more gradient than steps, the one by which it noticed. That is less than
    one a step, and left out, but where a step costs as many as there are steps: a Hessian counts as one for
    each of its rows. What such a final run's curve has at its last step is then divided by its steps.

    Args:
        folder: of the merged tables.
        runs: the table `runs`.

    Raises:
        InputError: when the table is missing or damaged.
    """
    about = pl.col("gradient_evaluations") // pl.col("steps").clip(lower_bound=1)
    found = runs.with_columns(step_evaluations=about)
    several = pl.col("steps") > 0, pl.col("step_evaluations") >= pl.col("steps")
    ends = found.filter(*several, stage="final").select("run", step="steps").lazy()
    if ends.collect().is_empty():
        return found
    exact = pl.col("gradient_evaluations") // pl.col("step")
    of_ends = read(
        folder,
        "curves",
        lambda curves: curves.join(ends, on=["run", "step"]).select("run", exact=exact).unique(),
    )
    joined = found.join(of_ends, on="run", how="left", maintain_order="left")
    return joined.with_columns(step_evaluations=pl.coalesce("exact", "step_evaluations")).drop("exact")


def shown_steps(recorded: pl.DataFrame) -> pl.DataFrame:
    """At most `SHOWN_STEPS` of the steps of each cell, evenly spread, the first and the last among them.

    Args:
        recorded: as `recorded_steps` gives them.

    Returns:
        Columns of `CELL`, step.
    """
    place, count = pl.int_range(pl.len()).over(CELL), pl.len().over(CELL)
    spread = (place * (SHOWN_STEPS - 1)) // (count - 1).clip(lower_bound=1)
    first = (spread != spread.shift(1).over(CELL)).fill_null(True)
    return recorded.filter((count <= SHOWN_STEPS) | first).select(*CELL, "step")


def final_curves(tables: Tables, runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """One metric of final runs at the shown steps, and at the last step of runs that ended before others.

    No more than that is in memory, however long the table is.

    Args:
        tables: the study's.
        runs: the final runs, with `method`.

    Returns:
        Columns run, step, gradient_evaluations, metric, value.

    Raises:
        InputError: when the table is missing or damaged.
    """
    shown = runs.select(*CELL, "run").join(shown_steps(tables.recorded_steps), on=CELL).select("run", "step")
    names = runs.select("run").lazy()

    def last_steps(curves: pl.LazyFrame) -> pl.LazyFrame:
        own = curves.filter(metric=metric).select("run", "step").join(names, on="run", how="semi")
        return own.group_by("run").agg(pl.col("step").max())

    kept = pl.concat([shown, read(tables.curves, "curves", last_steps)]).unique().lazy()
    columns = ("run", "step", "gradient_evaluations", "metric", "value")
    return read(
        tables.curves,
        "curves",
        lambda curves: (
            curves.filter(metric=metric).select(columns).join(kept, on=["run", "step"], how="semi")
        ),
    )
