"""How tuning judges what was tried: scores of runs and of settings, which of them tie, and which is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import polars as pl

from documents.document import Direction
from results.outcomes import failed, missing
from results.reading import named

EQUAL_TO_ROUNDING = 1e-12  # relative; results of tuning that differ by less are a tie


def worst(direction: Direction) -> float:
    """The value of a run that diverged: infinitely bad, whichever way the metric counts."""
    return float("inf") if direction == "minimize" else float("-inf")


def tuning_scores(runs: pl.DataFrame, metric: str, which: str, direction: Direction) -> pl.DataFrame:
    """What tuning judges runs by: the rows not missing with a column `value`, the worst of failed ones.

    Args:
        runs: rows of the table `runs`.
        which: "final" or "best" value of the metric.
    """
    score = pl.when(failed() | pl.col("value").is_nan()).then(None).otherwise(pl.col("value"))
    recorded = runs.filter(~missing()).with_columns(named(metric, f"{which}_metrics").alias("value"))
    return recorded.with_columns(score.fill_null(worst(direction)).alias("value"))


def tied_settings(runs: pl.DataFrame, metric: str, which: str, direction: Direction) -> pl.DataFrame:
    """The settings that are the best ones by a tuning criterion, or tie with it.

    A setting's score is the median of `tuning_scores` over its runs.

    Args:
        runs: the tuning runs of one method on one workload and backend.

    Returns:
        Columns learning_rate, hyperparameters, value (the score); no rows where there are no runs.
    """
    scores = (
        tuning_scores(runs, metric, which, direction)
        .group_by("learning_rate", pl.col("hyperparameters").hash().alias("others"))
        .agg(pl.col("hyperparameters").first(), pl.col("value").quantile(0.5, "midpoint"))
        .drop("others")
    )
    cost = pl.col("value") if direction == "minimize" else -pl.col("value")
    return scores.filter(cost <= cost.min() + EQUAL_TO_ROUNDING * cost.min().abs())


def setting_of(row: Mapping[str, Any], names: Sequence[str]) -> tuple[float, ...]:
    """The values of the tuned hyperparameters of a row that has them; NaN of one that it lacks."""
    values = {item["name"]: item["value"] for item in row["hyperparameters"] or []}
    values["learning_rate"] = row["learning_rate"]
    return tuple(values.get(name, nan) for name in names)


def chosen_setting(
    runs: pl.DataFrame, names: Sequence[str], metric: str, which: str, direction: Direction
) -> tuple[float, ...]:
    """The setting that tuning takes: of those that tie the least one, by the first of the names first.

    Args:
        runs: the tuning runs of one method on one workload and backend, at least one.
        names: the tuned hyperparameters, the learning rate first.
    """
    tied = tied_settings(runs, metric, which, direction)
    return min(setting_of(row, names) for row in tied.iter_rows(named=True))
