"""Steps of a history: where the level of a noisy series changes, and by how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST = 3  # values on each side of a step
# a step must gain so much, and so much more for each unit of the logarithm of the number of values
PENALTY, PENALTY_GROWTH = 1.3, 0.52


@dataclass(frozen=True)
class Step:
    """A change of level.

    Args:
        at: the index of the first value after it.
        ratio, low, high: the level after it over the level before, with Welch's 95 % interval.
    """

    at: int
    ratio: float
    low: float
    high: float


def find_steps(values: Sequence[float]) -> list[Step]:
    """The steps of a series of positive values, in its order.

    Their places are those of the segmentation whose parts are most alike inside, measured by a Gaussian
    kernel on logarithms (Arlot, Celisse and Harchaoui, Journal of Machine Learning Research 20, 2019; by
    `ruptures`), with a penalty by which at most 1 % of histories of independent noise without a step show
    one, normal or with outliers (docs/decisions/0023-steps-over-commits.md). Levels are means of logarithms
    between neighbouring places; where the interval of their ratio holds 1, the noise changed and no level.
    Fewer than 2 `LEAST` values have no step.
    """
    import ruptures  # type: ignore[import-untyped]

    logarithms = np.log(np.asarray(values, dtype=float))
    if len(logarithms) < 2 * LEAST or np.ptp(logarithms) == 0:
        return []
    penalty = PENALTY + PENALTY_GROWTH * math.log(len(logarithms))
    segments = ruptures.KernelCPD(kernel="rbf", min_size=LEAST).fit(logarithms[:, None])
    ends = [0, *map(int, segments.predict(pen=penalty))]
    steps = (
        _step(logarithms[first:at], logarithms[at:last], at)
        for first, at, last in zip(ends, ends[1:], ends[2:], strict=False)
    )
    return [step for step in steps if not step.low <= 1 <= step.high]


def _step(before: np.ndarray, after: np.ndarray, at: int) -> Step:
    """The change from one level to the next."""
    change = float(after.mean() - before.mean())
    if np.ptp(before) == np.ptp(after) == 0:
        return Step(at, *[math.exp(change)] * 3)
    from scipy.stats import ttest_ind

    interval = ttest_ind(after, before, equal_var=False).confidence_interval(0.95)
    return Step(at, *(math.exp(float(each)) for each in (change, interval.low, interval.high)))
