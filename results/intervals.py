"""The median of a sample with its distribution-free interval: pure functions without imports of the
project.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95  # nominal coverage of all intervals


@dataclass(frozen=True)
class MedianInterval:
    """Median of a sample, with an interval for the median of the population.

    Args:
        median, low, high: in the unit of the values; infinite where values are.
        level: coverage for continuous values: the nominal one, or the coverage of the whole range of the
            values where this is lower.
        count: number of values.
    """

    median: float
    low: float
    high: float
    level: float
    count: int


@lru_cache(maxsize=1024)  # every median of samples of one size needs the same result
def interval_order(count: int, level: float = LEVEL) -> tuple[int, float]:
    """Return which order statistics bound the median, the k-th smallest and the k-th largest, and their
    coverage.

    The number of values below the median has the distribution binomial(count, 1/2). Therefore [x_(k),
    x_(count+1-k)] covers the median with probability 1 - 2 P(B <= k - 1), for every continuous distribution
    (David and Nagaraja, Order Statistics, 3rd ed., section 7.1). The result is the largest k whose coverage
    is at least `level`. If even the whole range does not reach it (fewer than 6 values for 0.95), k is 1 and
    the coverage is lower.

    Args:
        count: number of independent values, at least 1.
        level: nominal coverage, between 0 and 1.

    Returns:
        k from 1 on, and the exact coverage.

    Raises:
        ValueError: for no values.
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
    """Return the median of independent values with an interval between order statistics.

    Order statistics allow only certain coverages: of 10 values, the second and the ninth cover the median
    with 97.9 %, the third and the eighth with 89.1 %. Therefore each end is interpolated between its two
    neighbours, so that the coverage is about `level` for every distribution (Hettmansperger and Sheather,
    Statistics and Probability Letters 4, 1986; measured in `docs/statistics.md`). If a neighbour is infinite,
    the end is the outer one. If even the whole range does not reach `level`, the interval is the range (see
    `interval_order`).

    Args:
        values: shape (count,); infinite values are ordered like others.
        level: nominal coverage; the result contains the actual one.

    Raises:
        ValueError: for no values, or for NaN, which must first be replaced by infinity or left out.
    """
    ordered = _ordered(values)
    order, coverage = interval_order(len(ordered), level)
    weight = _inward(len(ordered), order, coverage, level)
    return MedianInterval(
        median=_middle(ordered),
        low=_between(ordered, order - 1, order, weight),
        high=_between(ordered, len(ordered) - order, len(ordered) - order - 1, weight),
        level=min(coverage, level),
        count=len(ordered),
    )


def median(values: ArrayLike) -> float:
    """Return the median as `median_interval` does, without the interval."""
    return _middle(_ordered(values))


def _ordered(values: ArrayLike) -> np.ndarray:
    """Return the values sorted.

    Raises:
        ValueError: for NaN.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    if np.isnan(ordered).any():
        raise ValueError("NaN has no place in an order: replace it by infinity, or leave the run out")
    return ordered


def _inward(count: int, order: int, outer: float, level: float) -> float:
    """Return how far an end lies from one order statistic to the next inner one, from 0 to 1.

    Args:
        order, outer: order and coverage, as `interval_order` returns them.
    """
    if outer <= level or order >= count // 2:
        return 0.0
    inner = outer - 2 * comb(count, order) / 2**count
    share = (outer - level) / (outer - inner)
    return (count - order) * share / (order + (count - 2 * order) * share)


def _between(ordered: np.ndarray, outer: int, inner: int, weight: float) -> float:
    """Return the value at a fraction of the way from the outer to the inner order statistic.

    If one of them is infinite, the outer one is returned.

    Args:
        ordered: sorted values.
        outer, inner: indices of the two order statistics.
        weight: fraction of the way, from 0 to 1.
    """
    if weight == 0 or not np.isfinite(ordered[[outer, inner]]).all():
        return float(ordered[outer])
    ends = ordered[[outer, inner]]
    between = (1 - weight) * ends[0] + weight * ends[1]
    return float(np.clip(between, ends.min(), ends.max()))  # rounding could exceed an end


def _middle(ordered: np.ndarray) -> float:
    """Return the median of sorted values.

    Two middle values are averaged, unless they are equal; opposite infinities have the average 0.
    """
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if low == high:
        return float(low)
    return 0.0 if np.isinf(low) and np.isinf(high) else float((low + high) / 2)
