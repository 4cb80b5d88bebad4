"""The median of a sample and its distribution-free interval: pure, shared by harness and reports."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95


@dataclass(frozen=True)
class MedianInterval:
    """A sample median and an interval for the population's median.

    Args:
        median, low, high: in the unit of the values; infinite where values are.
        level: the coverage for continuous values: the nominal one, or that of the whole range where even
            it has less.
        count: how many values there are.
    """

    median: float
    low: float
    high: float
    level: float
    count: int


@lru_cache(maxsize=1024)  # asked for again at every median
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
    """The median of independent values and its interval between order statistics.

    Order statistics come in steps: of 10 values the second and the ninth cover with 97.9 %, the third and the
    eighth with 89.1 %. Each end is interpolated between its two neighbours so that the coverage is about
    `level` whatever the distribution (Hettmansperger and Sheather, Statistics and Probability Letters 4,
    1986; measured in `docs/statistics.md`). Where a neighbour is infinite the end is the outer one, and where
    even the whole range does not reach `level` the interval is the range (see `interval_order`).

    Args:
        values: shape (count,); infinite values are ordered like others.
        level: nominal coverage; what is reached is returned.

    Raises:
        ValueError: for no values, or NaN among them (say first whether it is worst or missing).
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
    """The median as `median_interval` has it, without the interval."""
    return _middle(_ordered(values))


def _ordered(values: ArrayLike) -> np.ndarray:
    ordered = np.sort(np.asarray(values, dtype=float))
    if np.isnan(ordered).any():
        raise ValueError("NaN has no place in an order: replace it by infinity, or leave the run out")
    return ordered


def _inward(count: int, order: int, outer: float, level: float) -> float:
    """How far from one order statistic to the next inner one an end lies, from 0 to 1.

    Args:
        order, outer: what `interval_order` returns.
    """
    if outer <= level or order >= count // 2:
        return 0.0
    inner = outer - 2 * comb(count, order) / 2**count
    share = (outer - level) / (outer - inner)
    return (count - order) * share / (order + (count - 2 * order) * share)


def _between(ordered: np.ndarray, outer: int, inner: int, weight: float) -> float:
    """The value so far from the outer place to the inner one; the outer one beside infinity."""
    if weight == 0 or not np.isfinite(ordered[[outer, inner]]).all():
        return float(ordered[outer])
    ends = ordered[[outer, inner]]
    between = (1 - weight) * ends[0] + weight * ends[1]
    return float(np.clip(between, ends.min(), ends.max()))  # rounding may leave them


def _middle(ordered: np.ndarray) -> float:
    """The median of sorted values; two middle ones are averaged unless equal, opposite infinities to 0."""
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if low == high:
        return float(low)
    return 0.0 if np.isinf(low) and np.isinf(high) else float((low + high) / 2)
