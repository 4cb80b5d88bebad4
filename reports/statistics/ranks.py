"""Ranks of methods on the problem instances that all of them met, and their mean with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from reports.statistics.medians import LEVEL


@dataclass(frozen=True)
class MeanInterval:
    """A stratified mean, its interval (null where no stratum repeats), and how many values it rests on."""

    mean: float
    low: float | None
    high: float | None
    level: float
    count: int


def average_ranks(values: ArrayLike) -> np.ndarray:
    """Ranks from 1 (least) on, ties averaged; shape (n,) in and out; infinities tie with each other."""
    array = np.asarray(values, dtype=float)
    ordered = np.sort(array)
    first = np.searchsorted(ordered, array, side="left")
    last = np.searchsorted(ordered, array, side="right")
    ranks: np.ndarray = (first + last + 1) / 2
    return ranks


def instance_ranks(
    frame: pl.DataFrame, instance: Sequence[str], method: str, value: str, descending: bool = False
) -> pl.DataFrame:
    """Rank the methods of every instance that all methods of the frame have a value on; 1 is best.

    Args:
        frame: columns `instance`, `method`, `value`; rows with a null value count as absent.
        instance: columns that name a problem instance (workload and seed).
        descending: whether more is better.

    Returns:
        Columns `instance`, `method`, rank.
    """
    present = frame.drop_nulls(value)
    methods = frame[method].n_unique()
    counted = present.with_columns(pl.len().over(instance).alias("_methods"))
    whole = counted.filter(pl.col("_methods") == methods)
    rank = pl.col(value).rank("average", descending=descending).over(instance)
    return whole.select(*instance, method, rank.cast(pl.Float64).alias("rank"))


def stratified_mean(strata: Sequence[ArrayLike], level: float = LEVEL) -> MeanInterval:
    """The mean over strata of the mean inside each, with a t interval.

    Assumes independent values inside a stratum, independent strata, and means that are close to normal
    (ranks are bounded, so 5 values a stratum serve: see the coverage test). The variance is
    sum(s_w^2 / n_w) / W^2, the degrees of freedom are Satterthwaite's (Biometrics Bulletin 2, 1946).

    Args:
        strata: arrays of shape (n_w,), each with at least one value.

    Raises:
        ValueError: without strata.
    """
    arrays = [np.asarray(stratum, dtype=float) for stratum in strata]
    if not arrays:
        raise ValueError("a stratified mean needs at least one stratum")
    mean = float(np.mean([array.mean() for array in arrays]))
    count = sum(len(array) for array in arrays)
    if any(len(array) < 2 for array in arrays):
        return MeanInterval(mean, None, None, level, count)
    variances = np.array([array.var(ddof=1) / len(array) for array in arrays])
    if variances.sum() == 0:
        return MeanInterval(mean, mean, mean, level, count)
    from scipy.stats import t

    freedom = variances.sum() ** 2 / sum(
        variance**2 / (len(array) - 1) for variance, array in zip(variances, arrays, strict=True)
    )
    half = float(t.ppf((1 + level) / 2, freedom) * np.sqrt(variances.sum()) / len(arrays))
    return MeanInterval(mean, mean - half, mean + half, level, count)


def mean_ranks(
    ranks: pl.DataFrame, stratum: Sequence[str], method: str, level: float = LEVEL
) -> pl.DataFrame:
    """The mean rank of every method: over the seeds of a stratum first, then over strata, equally weighted.

    Args:
        ranks: what `instance_ranks` returns, of one stratum or stacked over several.
        stratum: columns that name a workload.

    Returns:
        Columns `method`, mean, low, high (within 1 and the number of methods), level, count, strata;
        those of the most strata first, best first among them.
    """
    most = ranks["rank"].max() if len(ranks) else None
    rows = []
    for (name,), group in ranks.group_by([method], maintain_order=True):
        parts = [part["rank"].to_numpy() for part in group.partition_by(stratum, maintain_order=True)]
        interval = stratified_mean(parts, level)
        rows.append(
            {
                method: name,
                "mean": interval.mean,
                "low": None if interval.low is None else max(1.0, interval.low),
                "high": None if interval.high is None else min(float(most or 1), interval.high),  # type: ignore[arg-type]
                "level": interval.level,
                "count": interval.count,
                "strata": len(parts),
            }
        )
    schema = {
        method: ranks.schema[method],
        "mean": pl.Float64(),
        "low": pl.Float64(),
        "high": pl.Float64(),
        "level": pl.Float64(),
        "count": pl.Int64(),
        "strata": pl.Int64(),
    }
    return pl.DataFrame(rows, schema=schema).sort("strata", "mean", descending=[True, False])
