"""Times to target that some runs miss, as censored data: the share that has reached it by each time."""

from __future__ import annotations

from typing import Any

import polars as pl

from curvebench.reports.statistics.shares import clopper_pearson
from curvebench.results.intervals import LEVEL


def reached_shares(frame: pl.DataFrame) -> pl.DataFrame:
    """The share of runs that have reached the target by each time: 1 minus Kaplan and Meier's estimate.

    Kaplan and Meier, Journal of the American Statistical Association 53, 1958, by `scipy.stats.ecdf`. The
    intervals, each for one time, are Clopper and Pearson's of as many runs as would, without censoring, have
    the variance that Greenwood's formula gives (Dorey and Korn, Statistics in Medicine 6, 1987). Assumes
    independent runs, and that a run was stopped for no reason that has to do with when it would have reached
    the target. A run that diverged never reaches it: its time is the budget that the others had, not when it
    diverged, or it would count as one that might have gone on like them.

    Args:
        frame: a row a run with columns method, time and reached: whether the target was reached then, else
            the run was stopped then without it (censored).

    Returns:
        Columns method, time (all that occur of the method), share, low, high, in the order of first
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
    """Time, share and its interval, for every time of one group."""
    from scipy.stats import CensoredData, ecdf

    times, reached = group["time"].to_numpy().astype(float), group["reached"].to_numpy()
    estimate = ecdf(CensoredData(uncensored=times[reached], right=times[~reached])).sf
    rows, greenwood = [], 0.0
    for time, left in zip(estimate.quantiles, estimate.probabilities, strict=True):
        at_risk, share = int((times >= time).sum()), float(1 - left)
        events = int((reached & (times == time)).sum())
        if share in (0.0, 1.0):  # as many runs as are known to have got so far, all of one kind
            known = float(len(times) - ((times < time) & ~reached).sum())
        else:
            greenwood += events / (at_risk * (at_risk - events))
            known = share / (left * greenwood)
        rows.append((float(time), share, *clopper_pearson(share * known, known, LEVEL)))
    return rows
