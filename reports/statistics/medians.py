"""Medians with distribution-free intervals, and quartile bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

LEVEL = 0.95


@dataclass(frozen=True)
class MedianInterval:
    """A sample median and an interval for the population's median.

    Args:
        median, low, high: in the unit of the values; infinite where values are.
        level: the coverage that the interval is sure to have for continuous values.
        count: how many values there are.
    """

    median: float
    low: float
    high: float
    level: float
    count: int


def interval_order(count: int, level: float = LEVEL) -> tuple[int, float]:
    """The order statistics that bound the median: the k-th least and the k-th greatest, and their coverage.

    The number of values below the median is binomial(count, 1/2), so [x_(k), x_(count+1-k)] covers it with
    probability 1 - 2 P(B <= k - 1), whatever the continuous distribution (David and Nagaraja, Order
    Statistics, 3rd ed., section 7.1). The greatest k that keeps `level` is taken; where even the whole
    range does not reach it (fewer than 6 values for 0.95), k = 1 and the coverage says what it does reach.

    Args:
        count: number of independent values, at least 1.
        level: nominal coverage, between 0 and 1.

    Returns:
        k from 1 on, and the exact coverage.
    """
    if count < 1:
        raise ValueError("a median needs at least one value")
    order, coverage, tail = 1, 1 - 2 / 2**count, 1 / 2**count
    for k in range(2, count // 2 + 1):
        tail += comb(count, k - 1) / 2**count
        if 1 - 2 * tail < level:
            break
        order, coverage = k, 1 - 2 * tail
    return order, max(coverage, 0.0)


def median_interval(values: ArrayLike, level: float = LEVEL) -> MedianInterval:
    """The median of independent values and its order-statistic interval (see `interval_order`).

    Args:
        values: shape (count,); infinite values are ordered like others.
        level: nominal coverage; the true one is returned.

    Raises:
        ValueError: for no values, or NaN among them (say first whether it is worst or missing).
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    if np.isnan(ordered).any():
        raise ValueError("NaN has no place in an order: replace it by infinity, or leave the run out")
    order, coverage = interval_order(len(ordered), level)
    return MedianInterval(
        median=_middle(ordered),
        low=float(ordered[order - 1]),
        high=float(ordered[len(ordered) - order]),
        level=coverage,
        count=len(ordered),
    )


def _middle(ordered: np.ndarray) -> float:
    """The median of sorted values; two middle ones are averaged unless they are equal (or both infinite)."""
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float(low) if low == high else float((low + high) / 2)


def medians(frame: pl.DataFrame, by: Sequence[str], value: str, level: float = LEVEL) -> pl.DataFrame:
    """The median interval of every group.

    Args:
        frame: columns `by` and `value`; rows whose value is null are left out.
        by: columns that name a group.

    Returns:
        Columns `by`, median, low, high, level, count, in the order of first appearance.
    """
    rows = [
        dict(zip(by, key, strict=True)) | vars(median_interval(group[value].to_numpy(), level))
        for key, group in frame.drop_nulls(value).group_by(by, maintain_order=True)
    ]
    numbers = {"median": pl.Float64, "low": pl.Float64, "high": pl.Float64, "level": pl.Float64}
    schema = {column: frame.schema[column] for column in by} | numbers | {"count": pl.Int64}
    return pl.DataFrame(rows, schema=schema)


def quartile_bands(frame: pl.DataFrame, by: Sequence[str], value: str) -> pl.DataFrame:
    """Median and quartiles of every group: the spread over seeds, not an interval of the median.

    The quartiles are order statistics (the lower one rounded down, the upper one rounded up), so that
    infinite values never meet in an interpolation.

    Returns:
        Columns `by`, lower_quartile, median, upper_quartile, count, sorted by `by`.
    """
    column = pl.col(value)
    return (
        frame.drop_nulls(value)
        .group_by(by)
        .agg(
            column.quantile(0.25, interpolation="lower").alias("lower_quartile"),
            column.quantile(0.5, interpolation="midpoint").alias("median"),
            column.quantile(0.75, interpolation="higher").alias("upper_quartile"),
            pl.len().cast(pl.Int64).alias("count"),
        )
        .sort(by)
    )
