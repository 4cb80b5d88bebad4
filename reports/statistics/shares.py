"""Shares with exact intervals: the share of pairs that a method wins, or of runs that reached a target."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from curvebench.reports.statistics.paired import UNDECIDED, ordered_values
from curvebench.results.intervals import LEVEL


@dataclass(frozen=True)
class Share:
    """Share of successes among trials, with a confidence interval of the probability of a success.

    A trial is, for example, a run that reaches a target or not, or a pair of runs that a method wins or not.

    Args:
        successes: number of successes; a tie counts half.
        count: number of trials.
        low, high: ends of the interval. They are NaN if there is no exact interval: without trials, or for
            trials on several workloads, whose probabilities of success differ.
        level: coverage of the interval.
    """

    successes: float
    count: int
    low: float = nan
    high: float = nan
    level: float = LEVEL

    @property
    def value(self) -> float:
        """Share of successes, from 0 to 1."""
        return self.successes / self.count


def share_interval(successes: float, count: int, level: float = LEVEL) -> Share:
    """Return a share with Clopper and Pearson's interval (Biometrika 26, 1934).

    The interval has a coverage of at least `level` for independent trials.

    Args:
        successes: number of successes; a tie counts half.
        count: number of trials.
        level: coverage of the interval.

    Raises:
        ValueError: unless 0 <= successes <= count and count >= 1.
    """
    if not 0 <= successes <= count or count < 1:
        raise ValueError(f"a share of {successes} in {count} is none")
    return Share(successes, count, *clopper_pearson(successes, count, level), level)


def clopper_pearson(successes: float, count: float, level: float) -> tuple[float, float]:
    """Return the ends of Clopper and Pearson's interval (see `share_interval`).

    Args:
        successes, count: numbers of successes and trials; fractions are allowed, since ties count half.
        level: coverage of the interval.
    """
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = 0.0 if successes <= 0 else float(betaincinv(successes, count - successes + 1, tail))
    high = 1.0 if successes >= count else float(betaincinv(successes + 1, count - successes, 1 - tail))
    return low, high


def probability_of_improvement(gains: ArrayLike) -> Share:
    """Return the share of pairs that the treated method wins, with its interval; a tie counts half.

    A pair consists of two runs with the same seed, one of the treated method and one of the control. The
    share estimates the probability that the treated method wins on a new seed. Assumes independent seeds.

    Args:
        gains: gain of each pair, shape (pairs,): above 0 where the treated method is better, 0 where the two
            runs tie; infinities allowed.

    Raises:
        ValueError: without a pair, or for NaN.
    """
    values = ordered_values(gains, "gains", UNDECIDED)
    wins = float((values > 0).sum() + (values == 0).sum() / 2)
    return share_interval(wins, len(values))


def joined(intervals: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Return the mean of independent estimates, with an interval computed from the estimates' intervals.

    The distance from the mean to its lower end is the root of the sum of squares of the distances from each
    estimate to its lower end, divided by the number of estimates, as for standard errors. The same holds for
    the upper ends (Zou and Donner, Statistics in Medicine 27, 2008).

    Args:
        intervals: for each estimate, a tuple of the estimate and the lower and the upper end of its interval.

    Returns:
        The mean and the lower and the upper end of its interval.
    """
    estimates, lows, highs = np.array(intervals).T
    mean, count = float(estimates.mean()), len(estimates)
    below = float(np.sqrt(((estimates - lows) ** 2).sum())) / count
    above = float(np.sqrt(((highs - estimates) ** 2).sum())) / count
    return mean, mean - below, mean + above


# --- shares over time, from censored data ---------------------------------------------------------


def reached_shares(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the share of runs that reached the target by each time: 1 minus Kaplan and Meier's estimate.

    Kaplan and Meier, Journal of the American Statistical Association 53, 1958, by `scipy.stats.ecdf`. The
    interval at each time is Clopper and Pearson's, for an effective number of runs: without censoring, the
    share among so many runs would have the variance of Greenwood's formula (Dorey and Korn, Statistics in
    Medicine 6, 1987).
    Assumes independent runs, and that the time at which a run was stopped is unrelated to the time at which
    it would have reached the target. A run that diverged never reaches the target. Its time must be the
    budget of the other runs, not the time of divergence: with the time of divergence, it would count as a run
    that might still have reached the target.

    Args:
        frame: one row per run with columns method, time and reached. If `reached` is true, the run reached
            the target at this time. If it is false, the run was stopped at this time (censored).

    Returns:
        Columns method, time (all times that occur for the method), share, low, high. Methods are in the order
        in which they first appear; the rows of a method are sorted by time.

    Raises:
        ValueError: when the frame has no rows or a null, or a time is not finite or not above 0.
    """
    if frame.is_empty() or frame["time"].has_nulls() or frame["reached"].has_nulls():
        raise ValueError(
            "no runs, or null among times or reached: a run that missed has the time of its stop"
        )
    times = frame["time"].cast(pl.Float64)
    if not (times.is_finite() & (times > 0)).all():
        raise ValueError("a time must be finite and above 0; one that missed has reached = false")
    rows: list[tuple[Any, ...]] = []
    for key, group in frame.group_by("method", maintain_order=True):
        rows += [(*key, *row) for row in _shares(group)]
    numbers = dict.fromkeys(("time", "share", "low", "high"), pl.Float64())
    return pl.DataFrame(rows, schema={"method": frame.schema["method"], **numbers}, orient="row")


def _shares(group: pl.DataFrame) -> list[tuple[float, float, float, float]]:
    """Return the share of one method's runs that reached the target by each time that occurs.

    Args:
        group: one row per run of the method with columns time and reached, as `reached_shares` takes them.

    Returns:
        Tuples of time, share, and the lower and the upper end of the share's interval, sorted by time.
    """
    from scipy.stats import CensoredData, ecdf

    times, reached = group["time"].to_numpy().astype(float), group["reached"].to_numpy()
    estimate = ecdf(CensoredData(uncensored=times[reached], right=times[~reached])).sf
    rows, greenwood = [], 0.0
    for time, surviving in zip(estimate.quantiles, estimate.probabilities, strict=True):
        at_risk, share = int((times >= time).sum()), float(1 - surviving)
        events = int((reached & (times == time)).sum())
        # Greenwood's formula gives no variance for a share of 0 or 1.
        # The interval of a share of 0 or 1 uses the number of runs that were not censored before `time`.
        if share in (0.0, 1.0):
            effective_count = float(len(times) - ((times < time) & ~reached).sum())
        else:
            greenwood += events / (at_risk * (at_risk - events))
            effective_count = share / (surviving * greenwood)
        rows.append((float(time), share, *clopper_pearson(share * effective_count, effective_count, LEVEL)))
    return rows
