"""Means of groups with t and studentized bootstrap intervals, and geometric means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from reports.statistics.medians import LEVEL
from reports.statistics.ranks import MeanInterval

RESAMPLES = 999  # with it the tails of 2.5 % are whole numbers of resamples
LEAST_STUDENTIZED = 5  # values; of fewer, too many resamples hold one value only


def t_interval(values: ArrayLike, level: float = LEVEL) -> MeanInterval:
    """The mean and Student's t interval (Biometrika 6, 1908).

    Assumes independent values from a normal distribution. Of skewed values it covers too seldom
    (`docs/statistics.md`): then take `studentized_interval`, or the median.

    Args:
        values: shape (count,), finite.

    Returns:
        No interval of fewer than 2 values.

    Raises:
        ValueError: without values, or where one is not finite: a diverged run has no mean, but an order.
    """
    array = _finite(values)
    mean, count = float(array.mean()), len(array)
    if count < 2:
        return MeanInterval(mean, None, None, level, count)
    from scipy.special import stdtrit  # the quantile of scipy.stats.t, without its checks

    half = float(stdtrit(count - 1, (1 + level) / 2) * array.std(ddof=1) / np.sqrt(count))
    return MeanInterval(mean, mean - half, mean + half, level, count)


def studentized_interval(
    values: ArrayLike,
    generator: np.random.Generator,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> MeanInterval:
    """The mean and its bootstrap-t interval (Efron and Tibshirani, An Introduction to the Bootstrap, 12.5).

    The t statistic's own distribution, skewed as the values are, is taken from resamples. Assumes
    independent values with a finite variance; very long tails still make it cover too seldom
    (`docs/statistics.md`).

    Args:
        values: shape (count,), finite.
        generator: the source of resamples.

    Returns:
        No interval of fewer than 5 values.

    Raises:
        ValueError: as `t_interval`.
    """
    array = _finite(values)
    mean, count = float(array.mean()), len(array)
    if count < LEAST_STUDENTIZED:
        return MeanInterval(mean, None, None, level, count)
    drawn = array[generator.integers(0, count, (resamples, count))]
    shifts, scales = drawn.mean(axis=1) - mean, drawn.std(axis=1, ddof=1)
    # A resample of one value says nothing about the scale: it counts as the most extreme on its side.
    flat = scales <= 1e-12 * max(abs(mean), float(array.std()))
    statistics = np.divide(shifts, scales, where=~flat, out=np.copysign(np.inf, shifts))
    tail = (1 - level) / 2
    # Order statistics: infinite ones must not meet in an interpolation.
    low, high = np.quantile(
        np.where(flat & (shifts == 0), 0.0, statistics), [tail, 1 - tail], method="nearest"
    )
    scale = float(array.std(ddof=1))
    if scale == 0:
        return MeanInterval(mean, mean, mean, level, count)
    return MeanInterval(mean, mean - float(high) * scale, mean - float(low) * scale, level, count)


def means(
    frame: pl.DataFrame,
    by: Sequence[str],
    value: str,
    level: float = LEVEL,
    generator: np.random.Generator | None = None,
) -> pl.DataFrame:
    """The mean of every group, with its t interval, or with a studentized one where a generator is given.

    Args:
        frame: columns `by` and `value`; rows whose value is null are left out.
        by: columns that name a group.

    Returns:
        Columns `by`, mean, low, high (null where there are too few values), level, count, in the order of
        first appearance.

    Raises:
        ValueError: where a value is not finite.
    """
    interval = t_interval if generator is None else partial(studentized_interval, generator=generator)
    return _each(frame, by, value, lambda values: interval(values, level=level))


def geometric_means(frame: pl.DataFrame, by: Sequence[str], value: str, level: float = LEVEL) -> pl.DataFrame:
    """The geometric mean of every group, with the t interval of the mean logarithm.

    Assumes independent values whose logarithms are about normal, as ratios of losses often are.

    Args:
        frame: as in `means`; values above 0.

    Returns:
        Columns as those of `means`; "mean" is the geometric one.

    Raises:
        ValueError: where a value is not above 0, or not finite.
    """

    def interval(values: np.ndarray) -> MeanInterval:
        if (values <= 0).any():
            raise ValueError(f"column {value}: a geometric mean needs values above 0")
        found = t_interval(np.log(values), level)
        low, high = (None if end is None else float(np.exp(end)) for end in (found.low, found.high))
        return MeanInterval(float(np.exp(found.mean)), low, high, level, found.count)

    return _each(frame, by, value, interval)


def _each(
    frame: pl.DataFrame, by: Sequence[str], value: str, interval: Callable[[np.ndarray], MeanInterval]
) -> pl.DataFrame:
    rows = [
        dict(zip(by, key, strict=True)) | vars(interval(group[value].cast(pl.Float64).to_numpy()))
        for key, group in frame.drop_nulls(value).group_by(by, maintain_order=True)
    ]
    numbers = {"mean": pl.Float64, "low": pl.Float64, "high": pl.Float64, "level": pl.Float64}
    schema = {column: frame.schema[column] for column in by} | numbers | {"count": pl.Int64}
    return pl.DataFrame(rows, schema=schema)


def _finite(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if not array.size:
        raise ValueError("a mean needs at least one value")
    if not np.isfinite(array).all():
        raise ValueError("a mean needs finite values: where runs diverged, take the median")
    return array
