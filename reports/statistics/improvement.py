"""Probability of improvement: how often one method beats another, over seeds and workloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from reports.statistics.medians import LEVEL
from reports.statistics.paired import Direction, paired_values
from reports.statistics.shares import clopper_pearson
from reports.statistics.values import ordered_values

EDGE = 1e-9  # of probabilities


@dataclass(frozen=True)
class Improvement:
    """The chance that the treated method beats the control, and its interval.

    Args:
        probability: from 0 to 1; a tie counts half.
        workloads: over how many it is averaged.
        count: pairs of runs on one seed; without pairing, the runs of the method that has fewer.
    """

    probability: float
    low: float
    high: float
    level: float
    workloads: int
    count: int


def probability_of_improvement(
    frame: pl.DataFrame,
    treated: str,
    control: str,
    direction: Direction,
    paired: bool = True,
    level: float = LEVEL,
) -> Improvement:
    """The probability that a run of one method beats another's on a workload, averaged over workloads.

    Paired, runs of one seed meet, and each workload's interval is Clopper and Pearson's. Unpaired, every run
    meets every other (Mann and Whitney, Annals of Mathematical Statistics 18, 1947; over workloads as in
    Agarwal and others, Deep Reinforcement Learning at the Edge of the Statistical Precipice, 2021), and the
    interval is Newcombe's score interval (`superiority_interval`). Paired intervals of several workloads are
    joined as independent ones (`joined`).

    Assumes independent seeds; unpaired, independent runs of the two methods too.

    Args:
        frame: columns workload, seed, method, value, one row each; a diverged run is infinite on the bad
            side, rows with a null value count as absent.
        treated, control: two values of the column method.
        direction: whether less is better.

    Raises:
        ValueError: where no workload has runs of both, a value is NaN, or one seed has two of a method.
    """
    sign = 1.0 if direction == "maximize" else -1.0
    pairs = paired_values(frame, ["workload"], ["seed"], "method", "value", treated, control)
    if paired:
        found: list[tuple[float, float, float]] = []
        count = 0
        for _, group in pairs.group_by(["workload"], maintain_order=True):
            left, right = (sign * group[side].to_numpy() for side in ("treated", "control"))
            wins = float((left > right).sum() + (left == right).sum() / 2)
            found.append((wins / len(left), *clopper_pearson(wins, len(left), level)))
            count += len(left)
        if found:
            return Improvement(*joined(found), level, len(found), count)
    else:
        estimates, sizes = [], []
        for _, group in frame.drop_nulls("value").group_by(["workload"], maintain_order=True):
            left, right = (
                sign * group.filter(method=method)["value"].to_numpy() for method in (treated, control)
            )
            if min(len(left), len(right)):
                estimates.append(superiority(left, right))
                sizes.append((len(left), len(right)))
        if estimates:
            probability = float(np.mean(estimates))
            low, high = superiority_interval(probability, sizes, level)
            return Improvement(probability, low, high, level, len(sizes), sum(map(min, sizes)))
    raise ValueError(f"no workload has runs of both {treated} and {control}")


def superiority(left: ArrayLike, right: ArrayLike) -> float:
    """The share of pairs of a left and a right value in which the left one is larger; ties count half.

    Args:
        left, right: shapes (m,) and (n,), infinities allowed.

    Raises:
        ValueError: for NaN, or no values.
    """
    first, second = ordered_values(left, "left"), np.sort(ordered_values(right, "right"))
    if not min(len(first), len(second)):
        raise ValueError("a probability of improvement needs runs of both methods")
    below, upto = (np.searchsorted(second, first, side=side).mean() for side in ("left", "right"))
    return float((below + upto) / 2 / len(second))


def superiority_interval(
    estimate: float, sizes: Sequence[tuple[int, int]], level: float = LEVEL
) -> tuple[float, float]:
    """Newcombe's score interval of `superiority` (Statistics in Medicine 25, 2006, method 5).

    It holds the probabilities p that lie within a normal quantile of the estimate, measured by the
    standard error that two exponential distributions with that p have (Hanley and McNeil, Radiology 143,
    1982). Of a mean over workloads it is the standard error if all had that p: where they differ, theirs is
    less, and the interval covers more.

    Args:
        estimate: the mean over workloads.
        sizes: of each workload, how many values there are on the left and on the right.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtri

    first, second = np.array(sizes, dtype=float).T
    further, z = (first + second) / 2 - 1, float(ndtri((1 + level) / 2))

    def beyond(p: float) -> float:
        spread = 1 + further * ((1 - p) / (2 - p) + p / (1 + p))
        variance = (p * (1 - p) * spread / (first * second)).sum() / len(first) ** 2
        return abs(p - estimate) - z * float(np.sqrt(variance))

    inside = min(max(estimate, EDGE), 1 - EDGE)  # at 0 and 1 themselves the standard error vanishes
    low = 0.0 if estimate == 0 else float(brentq(beyond, 0.0, inside))
    high = 1.0 if estimate == 1 else float(brentq(beyond, inside, 1.0))
    return low, high


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
