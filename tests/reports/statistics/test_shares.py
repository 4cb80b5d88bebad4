"""Shares with exact intervals, and by each time where runs are censored."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom
from statsmodels.duration.survfunc import SurvfuncRight

from curvebench.reports.statistics.shares import (
    joined,
    probability_of_improvement,
    reached_shares,
    share_interval,
)


def test_none_and_all_keep_their_end():
    assert share_interval(0, 10).low == 0.0
    assert share_interval(10, 10).high == 1.0
    assert share_interval(0, 10).high == pytest.approx(1 - 0.025 ** (1 / 10))


@pytest.mark.parametrize("count", [3, 10])
@pytest.mark.parametrize("chance", [0.02, 0.3, 0.5, 0.9])
def test_the_interval_covers_every_chance_at_least_as_often_as_it_says(count: int, chance: float):
    shares = [share_interval(successes, count) for successes in range(count + 1)]
    covered = sum(
        binom.pmf(share.successes, count, chance) for share in shares if share.low <= chance <= share.high
    )
    assert covered >= 0.95


def test_what_is_no_share_is_refused():
    for successes, count in ((-1, 3), (4, 3), (0, 0)):
        with pytest.raises(ValueError, match="share"):
            share_interval(successes, count)


@given(st.lists(st.integers(-3, 3) | st.just(float("inf")), min_size=1, max_size=8))
def test_ties_count_half_and_the_sides_add_to_one(gains):
    found, other = probability_of_improvement(gains), probability_of_improvement(-np.array(gains))
    assert found.value == pytest.approx(np.mean([(gain > 0) + (gain == 0) / 2 for gain in gains]))
    assert (found.value + other.value, found.low + other.high) == pytest.approx((1, 1))
    assert (found.count, 0 <= found.low <= found.value <= found.high <= 1) == (len(gains), True)


def test_joined_intervals_add_as_errors_do():
    assert joined([(0.5, 0.2, 0.9), (0.5, 0.1, 0.8)]) == pytest.approx((0.5, 0.25, 0.75))


Run = tuple[float, bool]


def runs(**methods: list[Run]) -> pl.DataFrame:
    rows = [(method, *run) for method, group in methods.items() for run in group]
    return pl.DataFrame(rows, schema=["method", "time", "reached"], orient="row")


def some(random: np.random.Generator, count: int) -> list[Run]:
    """Times in tenths, so that there are ties; censored at the budget, and some at half of it."""
    times = np.maximum(0.1, random.exponential(1, count).round(1))
    budgets = np.where(random.random(count) < 0.2, 1.0, 2.0)
    return [(float(min(t, b)), bool(t <= b)) for t, b in zip(times, budgets, strict=True)]


MIXED: list[Run] = [(3.0, True), (5.0, True), (5.0, True), (6.0, False), (7.0, True), (10.0, False)]


def test_the_share_that_reached_the_target_by_hand():
    found = reached_shares(runs(a=MIXED))
    assert found["time"].to_list() == [3, 5, 6, 7, 10]
    assert found["share"].to_list() == pytest.approx([1 / 6, 1 / 2, 1 / 2, 3 / 4, 3 / 4])


def test_shares_and_their_intervals_are_those_of_statsmodels():
    random = np.random.default_rng(2)
    group = some(random, 25)
    found = reached_shares(runs(a=group))
    times, reached = (np.array(column) for column in zip(*group, strict=True))
    oracle = SurvfuncRight(times, reached.astype(int))
    events = found.filter(pl.col("time").is_in(oracle.surv_times.tolist()))
    assert events["share"].to_list() == pytest.approx((1 - oracle.surv_prob).tolist())
    # Clopper and Pearson's of as many runs as have the variance of statsmodels' standard errors
    share, error = 1 - oracle.surv_prob, oracle.surv_prob_se
    known = share * (1 - share) / error**2
    low = beta.ppf(0.025, share * known, (1 - share) * known + 1)
    high = beta.ppf(0.975, share * known + 1, (1 - share) * known)
    assert events["low"].to_list() == pytest.approx(low.tolist())
    assert events["high"].to_list() == pytest.approx(high.tolist())


@given(st.integers(1, 12), st.integers(0, 12))
def test_without_censoring_before_it_the_share_has_the_interval_of_a_share(reached: int, missed: int):
    group = [(1.0, True)] * reached + [(2.0, False)] * missed
    low, high = reached_shares(runs(a=group)).select("low", "high").row(0)
    expected = share_interval(reached, reached + missed)
    assert (low, high) == pytest.approx((expected.low, expected.high))


def test_before_the_first_and_after_the_last_run_the_interval_is_exact():
    found = reached_shares(runs(a=[(1.0, False), (2.0, True), (3.0, True)], b=[(4.0, False)] * 5))
    of_a, of_b = (found.filter(method=name) for name in "ab")
    assert of_a["share"].to_list() == [0.0, 0.5, 1.0]
    assert of_a.select("low", "high").row(2) == (share_interval(2, 2).low, 1.0)
    assert of_a.select("low", "high").row(0) == (0.0, share_interval(0, 3).high)
    assert of_b.select("low", "high").row(0) == (0.0, share_interval(0, 5).high)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (runs(a=[(0.0, True)]), "above 0"),
        (runs(a=[(float("inf"), False)]), "finite"),
        (runs(a=MIXED).with_columns(time=pl.lit(None, pl.Float64)), "null"),
        (runs(a=MIXED).clear(), "no runs"),
    ],
)
def test_what_is_no_time_is_refused(frame: pl.DataFrame, message: str):
    with pytest.raises(ValueError, match=message):
        reached_shares(frame)
