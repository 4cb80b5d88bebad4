"""Sudden changes of the level of a time series, such as benchmark times over commits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MIN_VALUES = 3  # minimum number of values before and after a step
# A sudden change of the level counts only if it improves the fit by at least a penalty.
# The penalty is PENALTY + PENALTY_GROWTH * log(number of values).
PENALTY, PENALTY_GROWTH = 1.3, 0.52


@dataclass(frozen=True)
class Step:
    """A sudden change of the level of a series.

    Args:
        at: index of the first value after the change.
        ratio: level after the change divided by the level before the change.
        low, high: ends of Welch's 95 % interval of `ratio`.
    """

    at: int
    ratio: float
    low: float
    high: float


def find_steps(values: Sequence[float]) -> list[Step]:
    """Return the steps of a series: the sudden changes of its level, in the order of the series.

    The series is divided into the segments that are most homogeneous, measured by a Gaussian kernel on
    logarithms (Arlot, Celisse and Harchaoui, Journal of Machine Learning Research 20, 2019; by `ruptures`). A
    penalty for each further segment makes steps in pure noise rare: at most 1 % of series of independent
    values, normal or with outliers, show a step (docs/decisions/0023-steps-over-commits.md). The level of a
    segment is the mean of the logarithms of its values. If the interval of a step's ratio contains 1, the
    level may not have changed, and the step is left out. A series with fewer than 2 * `MIN_VALUES` values has
    no step.

    Args:
        values: the values of the series, positive.
    """
    import ruptures  # type: ignore[import-untyped]

    logarithms = np.log(np.asarray(values, dtype=float))
    if len(logarithms) < 2 * MIN_VALUES or np.ptp(logarithms) == 0:
        return []
    penalty = PENALTY + PENALTY_GROWTH * math.log(len(logarithms))
    segments = ruptures.KernelCPD(kernel="rbf", min_size=MIN_VALUES).fit(logarithms[:, None])
    ends = [0, *map(int, segments.predict(pen=penalty))]
    steps = (
        _step(logarithms[first:at], logarithms[at:last], at)
        for first, at, last in zip(ends, ends[1:], ends[2:], strict=False)
    )
    return [step for step in steps if not step.low <= 1 <= step.high]


def _step(earlier: np.ndarray, later: np.ndarray, at: int) -> Step:
    """Return the step between two neighbouring segments.

    Args:
        earlier, later: logarithms of the values in the two segments.
        at: index of the first value of the later segment.
    """
    change = float(later.mean() - earlier.mean())
    if np.ptp(earlier) == np.ptp(later) == 0:
        return Step(at, *[math.exp(change)] * 3)
    from scipy.stats import ttest_ind

    interval = ttest_ind(later, earlier, equal_var=False).confidence_interval(0.95)
    return Step(at, *(math.exp(float(logarithm)) for logarithm in (change, interval.low, interval.high)))
