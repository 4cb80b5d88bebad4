"""The median of a sample with a distribution-free confidence interval.

The functions are pure, and this module imports no other module of the project.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb, isfinite

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95  # nominal coverage of all intervals


@dataclass(frozen=True)
class MedianInterval:
    """Median of a sample, with a confidence interval for the median of the population.

    Args:
        median: median of the sample.
        low, high: ends of the interval. An end, or the median, is infinite if the values that determine it
            are infinite.
        level: coverage of the interval for values with a continuous distribution. The coverage is less than
            the nominal level if there are so few values that even the interval from the smallest to the
            largest value has a lower coverage.
        count: number of values.
    """

    median: float
    low: float
    high: float
    level: float
    count: int


# Results are cached, because all samples of the same size need the same result.
@lru_cache(maxsize=1024)
def interval_order(count: int, level: float = LEVEL) -> tuple[int, float]:
    """Return the k for which the k-th smallest and the k-th largest value bound the median, and the coverage.

    The number B of values below the median has the distribution binomial(count, 1/2). Therefore the interval
    from the k-th smallest to the k-th largest value covers the median with probability 1 - 2 P(B <= k - 1),
    for every continuous distribution (David and Nagaraja, Order Statistics, 3rd ed., section 7.1). The result
    is the largest k whose coverage is at least `level`. If the coverage of the whole range is less than
    `level` (for 0.95, if there are fewer than 6 values), k is 1.

    Args:
        count: number of independent values, at least 1.
        level: nominal coverage, between 0 and 1.

    Returns:
        k, which is at least 1, and the exact coverage.

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

    Intervals between two values of the sample have only certain coverages: of 10 sorted values, the second
    and the ninth cover the median with 97.9 %, the third and the eighth with 89.1 %. Therefore each end of
    the interval is interpolated between two neighbouring values, so that the coverage is about `level` for
    every distribution (Hettmansperger and Sheather, Statistics and Probability Letters 4, 1986; measured in
    `docs/statistics.md`). If one of the two neighbouring values is infinite, the end is the outer of both. If
    the coverage of the whole range of the sample is less than `level`, the interval is the whole range (see
    `interval_order`).

    Args:
        values: the sample, of shape (count,); infinite values are sorted like finite values.
        level: nominal coverage; the result contains the actual coverage.

    Raises:
        ValueError: for an empty sample, or for NaN, which must first be replaced by infinity or left out.
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
    """Return the median of a sample, as `median_interval` computes it."""
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
    """Return the position of an end of the interval between two neighbouring values of the sorted sample.

    The outer of the two values is farther from the median, the inner value is nearer.

    Args:
        count: number of values.
        order: rank of the outer value, counted from the nearer end of the sorted sample (see
            `interval_order`).
        outer: coverage of the interval between the outer values at both ends.
        level: nominal coverage.

    Returns:
        Fraction of the way from the outer to the inner value, from 0 to 1.
    """
    if outer <= level or order >= count // 2:
        return 0.0
    inner = outer - 2 * comb(count, order) / 2**count
    share = (outer - level) / (outer - inner)
    return (count - order) * share / (order + (count - 2 * order) * share)


def _between(ordered: np.ndarray, outer: int, inner: int, weight: float) -> float:
    """Interpolate between two neighbouring values of a sorted sample.

    Args:
        ordered: the sorted sample.
        outer, inner: indices of the two values; the outer value is farther from the median. If one of the
            values is infinite, the outer value is returned.
        weight: fraction of the way from the outer to the inner value, from 0 to 1.
    """
    first = float(ordered[outer])
    if weight == 0 or not (isfinite(first) and isfinite(second := float(ordered[inner]))):
        return first
    between = (1 - weight) * first + weight * second
    # Because of rounding, `between` may be outside of the interval between the two values.
    return sorted((first, between, second))[1]


def _middle(ordered: np.ndarray) -> float:
    """Return the median of sorted values.

    If the number of values is even, the result is the average of the two middle values, which is 0 for
    opposite infinities.
    """
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if low == high:
        return float(low)
    return 0.0 if np.isinf(low) and np.isinf(high) else float((low + high) / 2)
