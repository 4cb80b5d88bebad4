"""Medians of groups with distribution-free intervals, and quartile bands."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from curvebench.results.intervals import median_interval


def medians(frame: pl.DataFrame, by: Sequence[str], value: str) -> pl.DataFrame:
    """Return the median of every group with its interval (`median_interval`).

    Args:
        frame: columns `by` and `value`; rows whose value is null are left out.
        by: columns that identify a group.

    Returns:
        Columns `by`, median, low, high, level, count, in the order of first appearance.
    """
    rows = [
        dict(zip(by, key, strict=True)) | vars(median_interval(group[value].to_numpy()))
        for key, group in frame.drop_nulls(value).group_by(by, maintain_order=True)
    ]
    numbers = {"median": pl.Float64, "low": pl.Float64, "high": pl.Float64, "level": pl.Float64}
    schema = {column: frame.schema[column] for column in by} | numbers | {"count": pl.Int64}
    return pl.DataFrame(rows, schema=schema)


def quartile_bands(frame: pl.DataFrame, by: Sequence[str], value: str) -> pl.DataFrame:
    """Return median and quartiles of every group; quartiles show the spread of the values.

    The quartiles are order statistics (the lower one rounded down, the upper one rounded up), since
    interpolation between infinite values is not defined.

    Returns:
        Columns `by`, lower_quartile, median, upper_quartile, count, sorted by `by`.
    """
    column = pl.col(value)
    groups = frame.drop_nulls(value).group_by(by)
    bands = groups.agg(
        column.quantile(0.25, interpolation="lower").alias("lower_quartile"),
        column.quantile(0.5, interpolation="midpoint").alias("median"),
        column.quantile(0.75, interpolation="higher").alias("upper_quartile"),
        pl.len().cast(pl.Int64).alias("count"),
    )
    return bands.sort(by)
