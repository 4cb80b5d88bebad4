"""Medians of groups with distribution-free intervals, and quartile bands."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from curvebench.results.intervals import median_interval


def medians(frame: pl.DataFrame, by: Sequence[str], value: str) -> pl.DataFrame:
    """Return the median of a column in every group of rows, with its interval (`median_interval`).

    Args:
        frame: rows with the columns `by` and `value`; rows whose value is null are left out.
        by: columns that identify a group.
        value: name of the column whose median is computed.

    Returns:
        One row per group, in the order in which groups first appear. Columns: `by`, median, low and high
        (ends of the interval), level (coverage of the interval) and count (number of values).
    """
    rows = [
        dict(zip(by, key, strict=True)) | vars(median_interval(group[value].to_numpy()))
        for key, group in frame.drop_nulls(value).group_by(by, maintain_order=True)
    ]
    numbers = {"median": pl.Float64, "low": pl.Float64, "high": pl.Float64, "level": pl.Float64}
    schema = {column: frame.schema[column] for column in by} | numbers | {"count": pl.Int64}
    return pl.DataFrame(rows, schema=schema)


def quartile_bands(frame: pl.DataFrame, by: Sequence[str], value: str) -> pl.DataFrame:
    """Return the median and the quartiles of a column in every group of rows.

    Each quartile is one of the values, since interpolation between infinite values is not defined. If a
    quartile lies between two values, the lower quartile is the smaller one and the upper quartile the larger.

    Args:
        frame: rows with the columns `by` and `value`; rows whose value is null are left out.
        by: columns that identify a group.
        value: name of the column with the values.

    Returns:
        One row per group, sorted by `by`. Columns: `by`, lower_quartile, median, upper_quartile and count
        (number of values).
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
