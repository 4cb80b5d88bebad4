"""Curves of final runs from tables of any length: metric by metric, at as many steps as a figure shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from curvebench.reports.measures import CELL
from curvebench.results.reading import files_of, naming_damage, scan, table_files

SHOWN_STEPS = 120  # of a curve; a panel is some 190 points wide


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
        runs.filter(pl.col("stage") == "final")
        .sort("steps", "run", descending=[True, False])
        .unique(CELL, keep="first", maintain_order=True)
        .select(*CELL, "run")
    )
    with naming_damage(table_files(folder, "curves")):
        steps = (
            scan(folder, "curves")
            .select("run", "step")
            .join(longest.select("run").lazy(), on="run", how="semi")
            .unique()
            .collect(engine="streaming")
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
    dear = found.filter(
        pl.col("stage") == "final", pl.col("steps") > 0, pl.col("step_evaluations") >= pl.col("steps")
    )
    if dear.is_empty():
        return found
    with naming_damage(table_files(folder, "curves")):
        ends = (
            scan(folder, "curves")
            .join(dear.select("run", "steps").lazy(), left_on=["run", "step"], right_on=["run", "steps"])
            .select("run", exact=pl.col("gradient_evaluations") // pl.col("step"))
            .unique()
            .collect(engine="streaming")
        )
    exact = pl.coalesce("exact", "step_evaluations").alias("step_evaluations")
    return found.join(ends, on="run", how="left", maintain_order="left").with_columns(exact).drop("exact")


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


def final_curves(
    place: Path | Sequence[Path], runs: pl.DataFrame, recorded: pl.DataFrame, metric: str
) -> pl.DataFrame:
    """One metric of final runs at the shown steps, and at the last step of runs that ended before others.

    No more than that is in memory, however long the table is.

    Args:
        place: the folder of the merged tables, or files of the table `curves`.
        runs: the final runs, with `method`.
        recorded: as `recorded_steps` gives them.

    Returns:
        Columns run, step, gradient_evaluations, metric, value.

    Raises:
        InputError: when the table is missing or damaged.
    """
    files = files_of(place, "curves")
    lazy = scan(files, "curves").filter(pl.col("metric") == metric)
    lazy = lazy.select("run", "step", "gradient_evaluations", "metric", "value")
    shown = runs.select(*CELL, "run").join(shown_steps(recorded), on=list(CELL)).select("run", "step")
    with naming_damage(files):
        last = (
            lazy.join(runs.select("run").lazy(), on="run", how="semi")
            .group_by("run")
            .agg(pl.col("step").max())
            .collect(engine="streaming")
        )
        kept = pl.concat([shown, last]).unique()
        return lazy.join(kept.lazy(), on=["run", "step"], how="semi").collect(engine="streaming")
