"""Coverage of intervals of medians, means, mean ranks and shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import comb

import numpy as np

from reports.statistics.means import studentized_interval, t_interval
from reports.statistics.medians import interval_order, median_interval
from reports.statistics.ranks import MeanInterval, stratified_mean
from reports.statistics.shares import share_interval

from ._draws import SHAPES, SIZES, settings
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


def interpolated_medians(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of the interval between those of two neighbouring order statistics."""
    for name, shape, size in settings():
        found = (interpolated(np.sort(values)) for values in shape.draw(random, (trials, size)))
        yield covered(found, shape.median, f"{name}; {size} seeds", trials)


def interpolated(ordered: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Hettmansperger and Sheather's interval of the median (Statistics and Probability Letters 4, 1986).

    Args:
        ordered: sorted values, shape (count,).
    """
    count = len(ordered)
    order, outer = interval_order(count, level)
    if outer <= level or order == count // 2:
        return float(ordered[order - 1]), float(ordered[count - order])
    inner = outer - 2 * comb(count, order) / 2**count
    share = (outer - level) / (outer - inner)
    weight = (count - order) * share / (order + (count - 2 * order) * share)
    low = (1 - weight) * ordered[order - 1] + weight * ordered[order]
    high = (1 - weight) * ordered[count - order] + weight * ordered[count - order - 1]
    return float(low), float(high)


def means(
    interval: Callable[[np.ndarray, np.random.Generator], MeanInterval], share: float
) -> Callable[[np.random.Generator, int], Iterator[Result]]:
    """The experiment on an interval of the mean, with so large a share of the trials."""

    def run(random: np.random.Generator, trials: int) -> Iterator[Result]:
        trials = max(1, round(share * trials))
        for name, shape, size in settings():
            found = (interval(values, random) for values in shape.draw(random, (trials, size)))
            ends = ((one.low, one.high) for one in found)
            yield covered(ends, shape.mean, f"{name}; {size} seeds", trials)

    return run


def geometric_means(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of the t interval of logarithms."""
    for name, true in (("lognormal", 0.0), ("exponential", -float(np.euler_gamma))):
        for size in SIZES:
            found = map(t_interval, np.log(SHAPES[name].draw(random, (trials, size))))
            ends = ((one.low, one.high) for one in found)
            yield covered(ends, true, f"{name}; {size} seeds", trials)


def mean_ranks(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of `stratified_mean` of ranks: four methods, each worse than the one before by some deviations."""

    def ranks_of(gap: float, *shape: int) -> np.ndarray:
        noise = random.normal(size=(*shape, 4)) + gap * np.arange(4)
        ranks: np.ndarray = np.argsort(np.argsort(noise, axis=-1), axis=-1) + 1.0
        return ranks

    trials = max(1, trials // 5)
    for workloads in (1, 4):
        for gap in (0.0, 1.0, 3.0):
            true = ranks_of(gap, TRUE_RANKS).mean(axis=0)
            for size in SIZES:
                ranks = ranks_of(gap, trials, workloads, size)
                for method, place in ((0, "the best"), (1, "the second")):
                    found = (stratified_mean(list(strata)) for strata in ranks[..., method])
                    setting = f"{workloads} workload(s), {gap:g} deviations apart, {place}; {size} seeds"
                    ends = ((one.low, one.high) for one in found)
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
        "How often the order-statistic interval holds the true median. It is exact for any continuous "
        "distribution: what differs from 95 % is the step between order statistics.",
        medians,
    ),
    Experiment(
        "Median, interpolated",
        "benchmarks.simulations.intervals.interpolated",
        "Not used by the site: between two order-statistic intervals, one above and one below 95 %.",
        interpolated_medians,
    ),
    Experiment(
        "Mean, t interval",
        "reports.statistics.means.t_interval",
        "How often it holds the true mean.",
        means(lambda values, _: t_interval(values), 1.0),
    ),
    Experiment(
        "Mean, studentized bootstrap",
        "reports.statistics.means.studentized_interval",
        "How often it holds the true mean.",
        means(studentized_interval, 0.3),
    ),
    Experiment(
        "Geometric mean",
        "reports.statistics.means.geometric_means",
        "How often the t interval of logarithms holds the true geometric mean.",
        geometric_means,
    ),
    Experiment(
        "Mean rank",
        "reports.statistics.ranks.stratified_mean",
        "How often it holds the true mean rank of one of four methods with normal noise, each so many "
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
