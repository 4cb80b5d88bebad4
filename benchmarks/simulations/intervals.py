"""Coverage of intervals of medians, mean ranks and shares."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from reports.statistics.ranks import stratified_mean
from reports.statistics.shares import share_interval
from results.intervals import interval_order, median_interval

from ._draws import SIZES, settings
from .experiment import COVERAGE, Experiment, Result

TRUE_RANKS = 200_000  # instances from which a true mean rank is taken


def covered(
    intervals: Iterator[tuple[float | None, float | None]], true: float, setting: str, trials: int
) -> Result:
    """The share of intervals that hold the true value."""
    hits = sum(low is not None and high is not None and low <= true <= high for low, high in intervals)
    return Result("coverage", setting, hits / trials, trials, *COVERAGE)


def medians(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of `median_interval`."""
    for name, shape, size in settings():
        found = (median_interval(values) for values in shape.draw(random, (trials, size)))
        yield covered(((one.low, one.high) for one in found), shape.median, f"{name}; {size} seeds", trials)


def order_statistics(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of the two order statistics that are sure to cover it, without interpolation."""
    for name, shape, size in settings():
        order, _ = interval_order(size)
        ordered = np.sort(shape.draw(random, (trials, size)), axis=1)
        found = zip(ordered[:, order - 1].tolist(), ordered[:, size - order].tolist(), strict=True)
        yield covered(found, shape.median, f"{name}; {size} seeds", trials)


def mean_ranks(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of `stratified_mean`: methods, each worse than the one before by some deviations."""

    def ranks_of(gap: float, *shape: int) -> np.ndarray:
        noise = random.normal(size=shape) + gap * np.arange(shape[-1])
        ranks: np.ndarray = np.argsort(np.argsort(noise, axis=-1), axis=-1) + 1.0
        return ranks

    trials = max(1, trials // 5)
    for methods, workloads, gaps in (
        (4, 1, (0.0, 1.0, 3.0)),
        (4, 4, (0.0, 1.0, 3.0)),
        (8, 1, (0.0, 0.5, 1.0)),
    ):
        for gap in gaps:
            true = ranks_of(gap, TRUE_RANKS, methods).mean(axis=0)
            for size in SIZES:
                ranks = ranks_of(gap, trials, workloads, size, methods)
                for method, place in ((0, "the best"), (1, "the second")):
                    ends = (
                        stratified_mean(list(strata), [methods] * workloads)[1:]
                        for strata in ranks[..., method]
                    )
                    setting = (
                        f"{methods} methods on {workloads} workload(s), {gap:g} deviations apart, {place}; "
                        f"{size} seeds"
                    )
                    yield covered(ends, float(true[method]), setting, trials)


def shares(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of `share_interval`."""
    for true in (0.02, 0.1, 0.3, 0.5):
        for size in SIZES:
            found = (share_interval(int(number), size) for number in random.binomial(size, true, trials))
            ends = ((one.low, one.high) for one in found)
            yield covered(ends, true, f"true share {true:g}; {size} seeds", trials)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "Median",
        "results.intervals.median_interval",
        "How often its interval holds the true median: from 6 values on interpolated between order "
        "statistics, of 5 their range.",
        medians,
    ),
    Experiment(
        "Median, not interpolated",
        "results.intervals.interval_order",
        "Not used by the site: the order statistics that are sure to cover 95 %, whatever the distribution. "
        "What differs from 95 % is the step between them.",
        order_statistics,
    ),
    Experiment(
        "Mean rank",
        "reports.statistics.ranks.stratified_mean",
        "How often it holds the true mean rank of one of several methods with normal noise, each so many "
        "deviations worse than the one before. Ranks that hardly ever change are covered more often.",
        mean_ranks,
    ),
    Experiment(
        "Share",
        "reports.statistics.shares.share_interval",
        "How often it holds the true chance of an outcome. It covers at least 95 % whatever the chance, and "
        "more where so few trials have few outcomes.",
        shares,
    ),
)
