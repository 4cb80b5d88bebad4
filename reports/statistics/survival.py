"""Times to target that some runs miss, as censored data: shares over time, restricted means, tests.

Frames have a row a run: `time`, and `reached`, whether the target was reached then; else the run was stopped
then without it (censored). A run that diverged never reaches the target: its time is the budget that the
others had, not when it diverged, or it would count as one that might have gone on like them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, Literal

import numpy as np
import polars as pl

from reports.statistics.paired import paired_values
from reports.statistics.shares import Share, clopper_pearson, probability_of_improvement, share_interval
from results.intervals import LEVEL

Null = Literal["exact", "permutation", "normal"]

SPLITS = 20_000  # of runs into two groups that are gone through
DRAWS = 9_999  # of splits, where there are more
DRAWN_UP_TO = 200  # runs; above, the normal distribution is close


@dataclass(frozen=True)
class LogRankTest:
    """Whether one method reaches the target sooner than another.

    Args:
        excess: runs of the treated method that reached the target, minus those expected if both were alike.
        p_value: one-sided, for the treated method reaching it sooner.
        null: where the p-value comes from: all splits of the runs, drawn ones, or the normal distribution.
        least: the smallest p-value that the data (for "exact") or their number permits.
        count: runs of both.
    """

    excess: float
    p_value: float
    null: Null
    least: float
    count: int


def common_horizon(frame: pl.DataFrame) -> float:
    """The time up to which every run is known: the shortest one of a run that missed, or the longest of all.

    Args:
        frame: columns time, reached.

    Raises:
        ValueError: for no rows, a null, or a time that is not finite and above 0.
    """
    _check(frame)
    missed = frame.filter(~pl.col("reached"))
    times = missed["time"].min() if len(missed) else frame["time"].max()
    return float(times)  # type: ignore[arg-type]


def reached_shares(frame: pl.DataFrame, level: float = LEVEL) -> pl.DataFrame:
    """The share of runs that have reached the target by each time: 1 minus Kaplan and Meier's estimate.

    Kaplan and Meier, Journal of the American Statistical Association 53, 1958, by `scipy.stats.ecdf`. The
    intervals, each for one time, are Clopper and Pearson's of as many runs as would, without censoring, have
    the variance that Greenwood's formula gives (Dorey and Korn, Statistics in Medicine 6, 1987). Assumes
    independent runs, and that a run was stopped for no reason that has to do with when it would have reached
    the target.

    Args:
        frame: columns method, time, reached.

    Returns:
        Columns method, time (all that occur of the method), share, low, high, at_risk (runs not yet over just
        before), in the order of first appearance, then of time.

    Raises:
        ValueError: see `common_horizon`.
    """
    _check(frame)
    rows: list[tuple[Any, ...]] = []
    for key, group in frame.group_by("method", maintain_order=True):
        rows += [(*key, *row) for row in _shares(group, level)]
    numbers = dict.fromkeys(("time", "share", "low", "high"), pl.Float64())
    schema = {"method": frame.schema["method"], **numbers, "at_risk": pl.Int64()}
    return pl.DataFrame(rows, schema=schema, orient="row")


def restricted_means(frame: pl.DataFrame, horizon: float | None = None, level: float = LEVEL) -> pl.DataFrame:
    """The mean time to target up to a horizon, a run that takes longer counting as the horizon.

    The area under Kaplan and Meier's estimate (Royston and Parmar, BMC Medical Research Methodology 13,
    2013). Both ends of its interval lie within 0 and the horizon.

    Where all runs of a group reached the target by the horizon it is the mean of their times. Times are
    skewed, and a few of them do not show the long ones: the interval holds Student's and that of a lognormal
    mean by Cox's method with a t quantile (Zhou and Gao, Statistics in Medicine 16, 1997; Olsson, Journal of
    Statistics Education 13, 2005), which is about as wide where times vary little.

    Where some missed it, it is the t interval of the jackknife's pseudo-values (Efron and Tibshirani, An
    Introduction to the Bootstrap, 1993, chapter 11). Few runs show neither all who may miss the target nor
    how soon it may be reached, so two runs are added, one that misses and one as fast as the fastest, while
    the standard error stays that of n runs (after Agresti and Coull, The American Statistician 52, 1998).
    There are as many degrees of freedom as runs that reached the target, at most n - 1.

    Where the times show no spread (all equal, or no run reached the target before the horizon) the bounds
    come from the largest share of runs that could have another time, anywhere from 0 to the horizon (Clopper
    and Pearson).

    The coverage of all three is in `docs/statistics.md`. Assumes what
    `reached_shares` does. The horizon is part of the result: means of two horizons do not compare.

    Args:
        frame: columns method, time, reached.
        horizon: in the unit of time; `common_horizon` of the frame if None.

    Returns:
        Columns method, mean, low, high (null for one run that reached the target before the horizon),
        horizon, reached (runs that did, within it), count.

    Raises:
        ValueError: see `common_horizon`; or where all runs of a group ended before the horizon and the last
            one missed, so that nothing is known of the rest.
    """
    end = common_horizon(frame) if horizon is None else horizon
    _check(frame)
    rows = []
    for key, group in frame.group_by("method", maintain_order=True):
        times, reached = group["time"].to_numpy().astype(float), group["reached"].to_numpy()
        if times.max() < end and not reached[times == times.max()].all():
            raise ValueError(f"{key[0]}: the last run ended at {times.max():g}, before {end:g}")
        within = int((reached & (times <= end)).sum())
        rows.append((*key, *restricted_mean(times, reached, end, level), end, within, len(group)))
    numbers = dict.fromkeys(("mean", "low", "high", "horizon"), pl.Float64())
    counts = {"reached": pl.Int64(), "count": pl.Int64()}
    schema = {"method": frame.schema["method"], **numbers, **counts}
    return pl.DataFrame(rows, schema=schema, orient="row")


def log_rank_test(frame: pl.DataFrame, treated: str, control: str) -> LogRankTest:
    """The one-sided log-rank test that a method reaches the target sooner.

    Mantel, Cancer Chemotherapy Reports 50, 1966. Every split of the runs into groups of these sizes is gone
    through, or some are drawn, the one that is there included; with more than 200 runs it is the normal
    approximation (`scipy.stats.logrank`). Under the null both methods have the same times and were stopped
    alike: give them the same budget. Runs count as independent; shared seeds make it conservative. It is most
    powerful where one method's rate of reaching the target is a multiple of the other's, and may see nothing
    where the shares over time cross.

    Args:
        frame: columns method, time, reached.
        treated, control: two values of method.

    Raises:
        ValueError: see `common_horizon`; or where one of the methods has no run.
    """
    _check(frame)
    both = pl.concat([frame.filter(method=treated), frame.filter(method=control)])
    first, count = len(frame.filter(method=treated)), len(both)
    if not 0 < first < count:
        raise ValueError(f"no runs of {control if first else treated}")
    times, reached = both["time"].to_numpy().astype(float), both["reached"].to_numpy()
    scores = _log_rank_scores(times, reached)
    excess = float(scores[:first].sum())
    return LogRankTest(excess, *_p_value(scores, times, reached, first), count)


def win_probability(
    frame: pl.DataFrame, treated: str, control: str, horizon: float | None = None, level: float = LEVEL
) -> Share:
    """The probability that a run of one method reaches the target before that of another on the same seed.

    Two that miss it tie, as do two equal times, and a tie counts half (Gehan, Biometrika 52, 1965, with every
    run cut at one horizon, so that no comparison is unknown); see `probability_of_improvement`.

    Args:
        frame: columns seed, method, time, reached; one row a seed and method.
        treated, control: two values of method.
        horizon: later times count as missed; `common_horizon` if None.

    Raises:
        ValueError: see `common_horizon`; or where the two share no seed, or have two runs on one.
    """
    end = common_horizon(frame) if horizon is None else horizon
    _check(frame)
    known = pl.col("reached") & (pl.col("time") <= end)
    values = frame.with_columns(value=pl.when(known).then(pl.col("time")).otherwise(float("inf")))
    pairs = paired_values(values, "value", treated, control)
    return probability_of_improvement(-pairs["difference"].to_numpy(), level)


def _check(frame: pl.DataFrame) -> None:
    if frame.is_empty():
        raise ValueError("no runs: a time to target needs at least one")
    if frame["time"].has_nulls() or frame["reached"].has_nulls():
        raise ValueError("null among times or reached: a run that missed has the time when it was stopped")
    times = frame["time"].cast(pl.Float64)
    if not (times.is_finite() & (times > 0)).all():
        raise ValueError("a time must be finite and above 0; one that missed has reached = false")


def _survival(times: np.ndarray, reached: np.ndarray) -> Any:
    """Scipy's Kaplan-Meier estimate of the share that has not reached the target."""
    from scipy.stats import CensoredData, ecdf

    return ecdf(CensoredData(uncensored=times[reached], right=times[~reached])).sf


def _shares(group: pl.DataFrame, level: float) -> list[tuple[float, float, float, float, int]]:
    """Time, share, its interval and the runs at risk, for every time of one group."""
    times, reached = group["time"].to_numpy().astype(float), group["reached"].to_numpy()
    estimate = _survival(times, reached)
    rows, greenwood = [], 0.0
    for time, left in zip(estimate.quantiles, estimate.probabilities, strict=True):
        at_risk, share = int((times >= time).sum()), float(1 - left)
        events = int((reached & (times == time)).sum())
        if share in (0.0, 1.0):  # as many runs as are known to have got so far, all of one kind
            known = float(len(times) - ((times < time) & ~reached).sum())
        else:
            greenwood += events / (at_risk * (at_risk - events))
            known = share / (left * greenwood)
        rows.append((float(time), share, *clopper_pearson(share * known, known, level), at_risk))
    return rows


def _area(times: np.ndarray, reached: np.ndarray, end: float) -> float:
    """Below the estimated share that has not reached the target, from 0 to the end."""
    if reached[times < end].all():  # nobody was stopped before: it is a mean
        return float(np.minimum(times, end).mean())
    estimate = _survival(times, reached)
    before = estimate.quantiles < end
    knots = np.concatenate([[0.0], estimate.quantiles[before], [end]])
    heights = np.concatenate([[1.0], estimate.probabilities[before]])
    return float((heights * np.diff(knots)).sum())


def restricted_mean(
    times: np.ndarray, reached: np.ndarray, end: float, level: float = LEVEL
) -> tuple[float, float | None, float | None]:
    """Estimate and interval of one group: see `restricted_means`.

    Args:
        times, reached: shape (runs,).
        end: the horizon.
    """
    mean, count = _area(times, reached, end), len(times)
    sooner, uncensored = bool((reached & (times < end)).any()), bool((reached & (times <= end)).all())
    if count == 1 and sooner:
        return mean, None, None
    if not sooner or (uncensored and np.ptp(times) == 0):
        others = share_interval(0, count, level).high
        return mean, mean * (1 - others), mean + (end - mean) * others
    from scipy.special import stdtrit  # the quantile of scipy.stats.t, without its checks

    freedom = count - 1 if uncensored else min(count - 1, int((reached & (times < end)).sum()))
    quantile = float(stdtrit(freedom, (1 + level) / 2))
    center, pseudo = (mean, times) if uncensored else _pseudo_values(times, reached, end)
    half = quantile * float(pseudo.std(ddof=1)) / np.sqrt(count)
    low, high = center - half, center + half
    if uncensored:
        other = _lognormal_mean(times, quantile)
        low, high = min(low, other[0]), max(high, other[1])
    return mean, max(0.0, min(mean, low)), min(end, max(mean, high))


def _lognormal_mean(times: np.ndarray, quantile: float) -> tuple[float, float]:
    """The ends of Cox's interval of the mean of a lognormal distribution, infinite where they overflow."""
    logarithms = np.log(times)
    variance, count = float(logarithms.var(ddof=1)), len(times)
    center = float(logarithms.mean()) + variance / 2
    half = quantile * np.sqrt(variance / count + variance**2 / (2 * (count - 1)))
    with np.errstate(over="ignore"):
        return float(np.exp(center - half)), float(np.exp(center + half))


def _pseudo_values(times: np.ndarray, reached: np.ndarray, end: float) -> tuple[float, np.ndarray]:
    """The restricted mean with two runs more, one that missed and one as fast as the fastest.

    Returns:
        The mean, and the jackknife's pseudo-values, shape (runs + 2,).
    """
    times = np.append(times, [end, times[reached].min()])
    reached = np.append(reached, [False, True])
    center, runs = _area(times, reached, end), len(times)
    if reached[times < end].all():
        return center, np.minimum(times, end)
    one_less = np.array([_area(np.delete(times, run), np.delete(reached, run), end) for run in range(runs)])
    return center, runs * center - (runs - 1) * one_less


def _log_rank_scores(times: np.ndarray, reached: np.ndarray) -> np.ndarray:
    """Whether a run reached the target, minus what was expected of it until it ended (Nelson and Aalen).

    Sums over a group are the observed number minus the expected one of the log-rank test.

    Args:
        times, reached: shape (runs,).
    """
    known, which = np.unique(times, return_inverse=True)
    events = np.bincount(which, reached, len(known))
    at_risk = np.cumsum(np.bincount(which, minlength=len(known))[::-1])[::-1]
    scores: np.ndarray = reached - np.cumsum(events / at_risk)[which]
    return scores


def _p_value(
    scores: np.ndarray, times: np.ndarray, reached: np.ndarray, first: int
) -> tuple[float, Null, float]:
    """The one-sided p-value of the sum of the first scores, where it comes from, and the least possible."""
    count, near = len(scores), 1e-9  # sums in another order differ by less
    observed = float(scores[:first].sum()) - near
    splits = comb(count, first)
    if splits <= SPLITS:
        chosen = np.array(list(combinations(range(count), first)))
        sums = scores[chosen].sum(axis=1)
        return float((sums >= observed).mean()), "exact", float((sums >= sums.max() - near).mean())
    if count <= DRAWN_UP_TO:
        random = np.random.default_rng(0)
        drawn = random.permuted(np.tile(scores, (DRAWS, 1)), axis=1)[:, :first].sum(axis=1)
        as_large = int((drawn >= observed).sum())
        return (1 + as_large) / (1 + DRAWS), "permutation", max(1 / splits, 1 / (1 + DRAWS))
    if not reached.any():
        return 1.0, "normal", 1 / splits
    from scipy.stats import CensoredData, logrank

    groups = (
        CensoredData(uncensored=times[group][reached[group]], right=times[group][~reached[group]])
        for group in (np.arange(count) < first, np.arange(count) >= first)
    )
    found = logrank(*groups, alternative="greater")
    return float(found.pvalue), "normal", 1 / splits
