"""Shares of runs, and of pairs of runs that one method wins, with exact intervals; means of estimates."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import ArrayLike

from curvebench.reports.statistics.values import UNDECIDED, ordered_values
from curvebench.results.intervals import LEVEL


@dataclass(frozen=True)
class Share:
    """`successes` of `count`, a tie counting half, and an interval of the chance behind them.

    Of nothing, and over workloads whose chances differ, there is no exact interval: its ends are NaN.
    """

    successes: float
    count: int
    low: float = nan
    high: float = nan
    level: float = LEVEL

    @property
    def value(self) -> float:
        """The share itself, from 0 to 1."""
        return self.successes / self.count


def share_interval(successes: float, count: int, level: float = LEVEL) -> Share:
    """Clopper and Pearson's interval (Biometrika 26, 1934): at least `level` for independent trials.

    Raises:
        ValueError: unless 0 <= successes <= count and count >= 1.
    """
    if not 0 <= successes <= count or count < 1:
        raise ValueError(f"a share of {successes} in {count} is none")
    return Share(successes, count, *clopper_pearson(successes, count, level), level)


def clopper_pearson(successes: float, count: float, level: float) -> tuple[float, float]:
    """The ends of the interval of `share_interval`; neither number need be whole: ties count half."""
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = 0.0 if successes <= 0 else float(betaincinv(successes, count - successes + 1, tail))
    high = 1.0 if successes >= count else float(betaincinv(successes + 1, count - successes, 1 - tail))
    return low, high


def probability_of_improvement(gains: ArrayLike) -> Share:
    """The probability that a run of one method beats the other's on the same seed; a tie counts half.

    Assumes independent seeds.

    Args:
        gains: shape (pairs,), above 0 where the treated method is better, 0 where the two tie; infinities
            allowed.

    Raises:
        ValueError: without a pair, or for NaN.
    """
    values = ordered_values(gains, "gains", UNDECIDED)
    wins = float((values > 0).sum() + (values == 0).sum() / 2)
    return share_interval(wins, len(values))


def joined(intervals: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """The mean of independent estimates, with an interval from those of each.

    The distances of the ends from the estimates add as standard errors do (Zou and Donner, Statistics in
    Medicine 27, 2008), which keeps intervals apart on both sides.

    Args:
        intervals: estimate, low and high of each.
    """
    estimates, lows, highs = np.array(intervals).T
    mean, count = float(estimates.mean()), len(estimates)
    below = float(np.sqrt(((estimates - lows) ** 2).sum())) / count
    above = float(np.sqrt(((highs - estimates) ** 2).sum())) / count
    return mean, mean - below, mean + above
