"""Two independent samples: the shift between them, with an interval and a rank-sum test that agree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from results.intervals import LEVEL


@dataclass(frozen=True)
class Shift:
    """By how much one sample lies above another.

    Args:
        estimate, low, high: in the unit of the values.
        level: the coverage that the interval is sure to have for continuous values.
        counts: how many values the treated and the control sample have.
        p_value: two-sided, of no shift.
    """

    estimate: float
    low: float
    high: float
    level: float
    counts: tuple[int, int]
    p_value: float


def shift(treated: ArrayLike, control: ArrayLike, level: float = LEVEL) -> Shift:
    """Hodges and Lehmann's estimate of a shift, with Mann and Whitney's interval and exact p-value.

    The estimate is the median of all differences between a treated and a control value (Hodges and Lehmann,
    Annals of Mathematical Statistics 34, 1963). The interval reaches from the k-th least to the k-th greatest
    of them, k the greatest for which the null distribution of the rank sum keeps `level` (Lehmann,
    Nonparametrics, revised ed., 2006, section 2.6); where k = 1 does not reach it, as with three values
    each, it is their range and `level` says what that covers. A difference of 0 counts for neither side in
    the test, so that the p-value is at most 1 - `level` exactly where an interval that reaches its level
    excludes 0, ties or not.

    Args:
        treated: shape (first,).
        control: shape (second,), independent of the treated ones.
        level: nominal coverage; the true one is returned.

    Raises:
        ValueError: where a sample is empty, not of one axis, or has a value that is not finite.
    """
    left, right = np.asarray(treated, dtype=float), np.asarray(control, dtype=float)
    if left.ndim != 1 or right.ndim != 1 or not left.size or not right.size:
        raise ValueError(
            f"samples have shapes {left.shape} and {right.shape}; both want one axis and a value"
        )
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise ValueError("a shift is between finite values")
    differences = np.sort(np.subtract.outer(left, right), axis=None)
    tails = 2 * _chances_up_to(left.size, right.size)
    order = max(1, int(np.searchsorted(tails, (1 - level) * (1 + 1e-12), side="right")))  # but for rounding
    against = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return Shift(
        float(np.median(differences)),
        float(differences[order - 1]),
        float(differences[-order]),
        max(0.0, 1 - float(tails[order - 1])),
        (left.size, right.size),
        min(1.0, float(tails[against])),
    )


@cache
def _chances_up_to(first: int, second: int) -> np.ndarray:
    """P(U <= u) for u = 0, 1, ..., first * second, where every order of all values is equally likely.

    The orders are counted in whole numbers: those with U = u are the coefficient of q^u in the product of
    (1 - q^(second + i)) / (1 - q^i) over i = 1 to first (Mann and Whitney, Annals of Mathematical Statistics
    18, 1947, by their recursion; Andrews, The Theory of Partitions, 1976, theorem 3.1).
    """
    size = first * second + 1
    counts = [1] + [0] * (size - 1)
    for i in range(1, first + 1):
        for u in range(size - 1, second + i - 1, -1):
            counts[u] -= counts[u - second - i]
        for u in range(i, size):
            counts[u] += counts[u - i]
    orders, total, chances = comb(first + second, first), 0, []
    for count in counts:
        total += count
        chances.append(total / orders)
    return np.array(chances)
