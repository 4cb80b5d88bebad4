"""Shares of runs with exact intervals: the share that one method wins, or that reached a target in time."""

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

    Args:
        successes: number of successes; a tie counts half.
        count: number of trials.
        low, high: ends of the interval. They are NaN if there are no trials, or if the trials are on several
            workloads with different probabilities, so that there is no exact interval.
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
    """Return the probability that a run of one method beats the other's on the same seed; a tie counts half.

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
    """Return the mean of independent estimates, with an interval computed from their intervals.

    The distances of the ends from the estimates add like standard errors (Zou and Donner, Statistics in
    Medicine 27, 2008), the lower and the upper ones separately.

    Args:
        intervals: each estimate with the lower and the upper end of its interval.
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
    interval at each time is Clopper and Pearson's for the number of runs that would, without censoring, have
    the variance of Greenwood's formula (Dorey and Korn, Statistics in Medicine 6, 1987). Assumes independent
    runs, and that the time at which a run was stopped is unrelated to the time at which it would have reached
    the target. A run that diverged never reaches it. Its time must be the budget of the other runs, not the
    time of divergence: otherwise it would count as a run that might have continued like them.

    Args:
        frame: one row per run with columns method, time and reached: whether the target was reached at this
            time; if not, the run was stopped then (censored).

    Returns:
        Columns method, time (all times that occur for the method), share, low, high, in the order of first
        appearance, then of time.

    Raises:
        ValueError: for no rows, a null, or a time that is not finite and above 0.
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
    """Return time, share and the ends of the share's interval, for every time in the runs of one method.

    Args:
        group: one row per run with columns time and reached, as `reached_shares` takes them, of one method.
    """
    from scipy.stats import CensoredData, ecdf

    times, reached = group["time"].to_numpy().astype(float), group["reached"].to_numpy()
    estimate = ecdf(CensoredData(uncensored=times[reached], right=times[~reached])).sf
    rows, greenwood = [], 0.0
    for time, surviving in zip(estimate.quantiles, estimate.probabilities, strict=True):
        at_risk, share = int((times >= time).sum()), float(1 - surviving)
        events = int((reached & (times == time)).sum())
        # Greenwood's formula gives no variance for a share of 0 or 1.
        # For these shares, the interval uses the number of runs that were not censored before this time.
        if share in (0.0, 1.0):
            effective_count = float(len(times) - ((times < time) & ~reached).sum())
        else:
            greenwood += events / (at_risk * (at_risk - events))
            effective_count = share / (surviving * greenwood)
        rows.append((float(time), share, *clopper_pearson(share * effective_count, effective_count, LEVEL)))
    return rows
