"""Simulations: how often intervals of medians, ranks, shares, times and scores hold the truth."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest
from scipy.special import ndtri

from curvebench.reports.statistics import profiles
from curvebench.reports.statistics.ranks import stratified_mean
from curvebench.reports.statistics.shares import joined, probability_of_improvement, reached_shares
from curvebench.results.intervals import interval_order, median_interval
from tests.reports.statistics.simulated import SIZES, assert_between, assert_covered, assert_documented

pytestmark = pytest.mark.long
LARGE = 200_000  # draws from which a true value is taken

SHAPES: dict[str, tuple[Callable, float]] = {  # how values are drawn, and their median
    "normal": (np.random.Generator.standard_normal, 0.0),
    "lognormal": (lambda random, shape: random.lognormal(size=shape), 1.0),
    "exponential": (np.random.Generator.standard_exponential, log(2)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", SIZES)
def test_medians(shape: str, size: int):
    draw, true = SHAPES[shape]
    values = draw(np.random.default_rng(size), (2000, size))
    assert_covered(true, [(found.low, found.high) for found in map(median_interval, values)], 0.97)
    order, _ = interval_order(size)  # the order statistics that are sure to cover, 5 values' range nearly
    ordered = np.sort(values, axis=1)
    assert_covered(true, ordered[:, [order - 1, size - order]])


@pytest.mark.parametrize(
    ("methods", "workloads", "gap"),
    [(4, 1, 0.0), (4, 1, 1.0), (4, 4, 0.0), (4, 4, 1.0), (4, 4, 3.0), (8, 1, 0.0), (8, 1, 0.5)],
)
def test_mean_ranks(methods: int, workloads: int, gap: float):
    """Methods have normal noise, and each is `gap` standard deviations worse than the method before."""
    random = np.random.default_rng(0)

    def ranks_of(*shape: int) -> np.ndarray:
        noise = random.normal(size=(*shape, methods)) + gap * np.arange(methods)
        return np.argsort(np.argsort(noise, axis=-1), axis=-1) + 1.0

    true = ranks_of(LARGE).mean(axis=0)
    for size in SIZES:
        ranks = ranks_of(1000, workloads, size)
        for method in range(2):
            found = [stratified_mean(list(study), [methods] * workloads) for study in ranks[..., method]]
            assert_covered(true[method], [one[1:] for one in found])


def improvement(treated: np.ndarray, control: np.ndarray) -> tuple[float, float]:
    """Return the interval on average over workloads, of values of shape (workloads, seeds), more being
    better.
    """
    with np.errstate(invalid="ignore"):
        gains = np.where(treated == control, 0.0, treated - control)
    each = [probability_of_improvement(own) for own in gains]
    return joined([(one.value, one.low, one.high) for one in each])[1:]


@pytest.mark.parametrize("workloads", [1, 4])
@pytest.mark.parametrize("gap", [0.0, 1.0, 2.0])
def test_probabilities_of_improvement(workloads: int, gap: float):
    random, true = np.random.default_rng(0), NormalDist().cdf(gap / np.sqrt(2))
    for size in SIZES:
        draws = random.normal(size=(1000, 2, workloads, size))
        assert_covered(true, [improvement(treated + gap, control) for treated, control in draws])


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_probabilities_of_improvement_where_half_of_the_control_misses(scale: float, correlation: float):
    """Two runs that miss the target tie."""
    random = np.random.default_rng(0)

    def times(*shape: int) -> np.ndarray:
        noise = np.sqrt(correlation) * random.normal(size=(*shape[:-1], 1, shape[-1]))
        noise = noise + np.sqrt(1 - correlation) * random.normal(size=(*shape[:-1], 2, shape[-1]))
        drawn = np.exp(noise) * np.array([[scale], [1.0]])
        return np.where(drawn <= 1, drawn, np.inf)

    first, second = times(LARGE)
    true = float(((first < second) + (first == second) / 2).mean())
    for size in SIZES:
        assert_covered(
            true, [improvement(-first[None], -second[None]) for first, second in times(1000, size)]
        )


# --- times to a target ------------------------------------------------------------------------------------


@pytest.mark.parametrize("one_budget", [True, False])
def test_shares_that_have_reached_the_target(one_budget: bool):
    """Half of the runs are censored: by a common budget, or by budgets of their own, most of them early."""
    random = np.random.default_rng(0)
    for size in SIZES:
        held: dict[float, list[bool]] = {0.1: [], 0.25: [], 0.4: []}
        for _ in range(400):
            limits = np.full(size, log(2)) if one_budget else random.exponential(size=size)
            times = random.exponential(size=size)
            runs = pl.DataFrame({"time": np.minimum(times, limits), "reached": times <= limits})
            found = reached_shares(runs.with_columns(method=pl.lit("a")))
            for true, each in held.items():
                before = found.filter(pl.col("time") <= -log(1 - true)).select("low", "high").rows()
                # before the first time nobody is known to have reached it: the share is 0 of all
                low, high = before[-1] if before else (0.0, 1 - 0.025 ** (1 / size))
                each.append(low <= true <= high)
        for each in held.values():
            assert_between(0.93, each, 1.0)


# --- scores -----------------------------------------------------------------------------------------------

WORKLOADS, RESAMPLES, TRIALS = 8, 199, 100


def contest_of(submissions: int) -> profiles._Contest:
    """Submissions and workloads by numbers, without variants."""
    names = tuple(map(str, range(WORKLOADS)))
    return profiles._Contest(names[:submissions], names, (), tuple(range(WORKLOADS)), names)


@pytest.mark.parametrize(
    ("distinct", "copies", "between", "within", "missed"),
    [
        pytest.param(5, 1, 0.5, 0.3, 0.0, id="methods differ"),
        pytest.param(5, 1, 0.5, 0.3, 0.4, id="up to 40 % of runs miss"),
        pytest.param(3, 2, 0.5, 0.3, 0.0, id="three pairs of equals"),
        pytest.param(3, 2, 0.5, 0.1, 0.0, id="three pairs of equals, little noise"),
        pytest.param(5, 1, 0.0, 0.3, 0.0, id="methods equal"),
    ],
)
@pytest.mark.parametrize("paired", [True, False])
def test_scores_and_ranks(
    distinct: int, copies: int, between: float, within: float, missed: float, paired: bool
):
    """The truth is that of infinitely many studies; where paired, half of the variance is the seed's."""
    random = np.random.default_rng(0)
    for size in SIZES:
        scores, ranks = [], []
        for _ in range(TRIALS):
            logs = np.repeat(random.normal(scale=between, size=(distinct, WORKLOADS)), copies, axis=0)
            chances = missed * random.random(logs.shape)
            noise = random.normal(scale=within, size=(*logs.shape, size))
            if paired:
                noise = np.sqrt(0.5) * (noise + random.normal(scale=within, size=(WORKLOADS, size)))
            values = np.exp(logs[..., None] + noise)
            values[random.random(values.shape) < chances[..., None]] = np.inf
            # the median of all studies, those that missed it being infinitely long
            contest = contest_of(len(values))
            true_times = np.exp(logs + within * ndtri(0.5 / (1 - chances)))
            true_scores = profiles._scores(true_times, contest)
            true_ranks = profiles._ranks(true_scores)
            studies = list(np.moveaxis(values, 1, 0))
            drawn = profiles._resampled_medians(studies, contest, paired, RESAMPLES, random)
            found = profiles._bounds(studies, contest, drawn)
            scores += list((found["low"] - 1e-9 <= true_scores) & (true_scores <= found["high"] + 1e-9))
            ranks += list((found["rank_low"] <= true_ranks) & (true_ranks <= found["rank_high"]))
        assert_between(0.93, scores, 1.0)
        assert_between(0.93, ranks, 1.0)


@pytest.mark.parametrize(
    ("methods", "workloads", "missed"), [(6, 1, 0.0), (6, 8, 0.0), (6, 8, 0.4), (20, 1, 0.0), (20, 8, 0.0)]
)
@pytest.mark.parametrize("size", SIZES[:3])
def test_tiers(methods: int, workloads: int, missed: float, size: int):
    """Equal methods are one tier in 95 % of studies; on eight workloads a clear difference opens another."""
    random, equal, parted = np.random.default_rng(0), [], []
    names = tuple(map(str, range(max(methods, workloads))))
    scored = tuple(range(workloads))
    contest = profiles._Contest(names[:methods], names[:workloads], (), scored, names[:workloads])
    slower = np.where(np.arange(methods) < methods // 2, 1.0, 2.0)[:, None]
    for _ in range(TRIALS):
        noise = random.normal(scale=0.3, size=(workloads, methods, size))
        noise += random.normal(scale=0.3, size=(workloads, 1, size))
        times = np.exp(np.sqrt(0.5) * noise)
        times[random.random(times.shape) < missed] = np.inf
        tiers, halves = (
            profiles._tiers(
                each, contest, profiles._resampled_medians(each, contest, True, RESAMPLES, random)
            )
            for each in (list(times), list(times * slower))
        )
        equal.append(tiers.max() == 1)
        parted.append(halves[: methods // 2].max() < halves[methods // 2 :].min())
    if (methods, workloads, size) == (20, 1, 5):
        assert_documented(0.83, equal)
    else:
        assert_between(0.95, equal, 1.0)
    if workloads > 1 and not missed:
        assert_between(0.95, parted, 1.0)
