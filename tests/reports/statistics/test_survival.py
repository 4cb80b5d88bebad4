"""Censored times to target: against statsmodels, by hand, by all splits, and coverage at half censored."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta
from statsmodels.duration.survfunc import SurvfuncRight, survdiff

from reports.statistics import survival
from reports.statistics.shares import share_interval
from reports.statistics.survival import (
    common_horizon,
    log_rank_test,
    reached_shares,
    restricted_mean,
    restricted_means,
    win_probability,
)

Run = tuple[float, bool]


def runs(**methods: list[Run]) -> pl.DataFrame:
    """Runs on one workload; the n-th of each method has seed n."""
    rows = [
        ("w", number, method, *run) for method, group in methods.items() for number, run in enumerate(group)
    ]
    return pl.DataFrame(rows, schema=["workload", "seed", "method", "time", "reached"], orient="row")


def some(random: np.random.Generator, count: int, budget: float = 2.0, scale: float = 1.0) -> list[Run]:
    """Times in tenths, so that there are ties; censored at the budget, and some at half of it."""
    times = np.maximum(0.1, (scale * random.exponential(1, count)).round(1))
    budgets = np.where(random.random(count) < 0.2, budget / 2, budget)
    return [(float(min(t, b)), bool(t <= b)) for t, b in zip(times, budgets, strict=True)]


MIXED: list[Run] = [(3.0, True), (5.0, True), (5.0, True), (6.0, False), (7.0, True), (10.0, False)]


def test_the_share_that_reached_the_target_by_hand():
    found = reached_shares(runs(a=MIXED))
    assert found["time"].to_list() == [3, 5, 6, 7, 10]
    assert found["at_risk"].to_list() == [6, 5, 3, 2, 1]
    assert found["share"].to_list() == pytest.approx([1 / 6, 1 / 2, 1 / 2, 3 / 4, 3 / 4])


def test_shares_and_their_intervals_are_those_of_statsmodels():
    random = np.random.default_rng(2)
    group = some(random, 25)
    found = reached_shares(runs(a=group))
    times, reached = (np.array(column) for column in zip(*group, strict=True))
    oracle = SurvfuncRight(times, reached.astype(int))
    events = found.filter(pl.col("time").is_in(oracle.surv_times.tolist()))
    assert events["share"].to_list() == pytest.approx((1 - oracle.surv_prob).tolist())
    assert events["at_risk"].to_list() == oracle.n_risk.astype(int).tolist()
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


def test_without_censoring_before_the_horizon_the_restricted_mean_is_a_mean():
    group = [(1.0, True), (2.0, True), (4.0, False), (4.0, False)]
    found = restricted_means(runs(a=group)).row(0, named=True)
    assert (found["mean"], found["horizon"], found["reached"], found["count"]) == (2.75, 4.0, 2, 4)
    assert found["high"] == 4.0
    cut = restricted_means(runs(a=group), horizon=1.5).row(0, named=True)
    assert (cut["mean"], cut["reached"]) == (1.375, 1)


def test_where_some_missed_two_runs_are_added_and_those_that_reached_it_are_the_degrees_of_freedom():
    group = [(3.0, True), (3.2, True), (3.5, True), (3.6, True), (4.0, False), (4.0, False)]
    found = restricted_means(runs(a=group)).row(0, named=True)
    values = np.array([3, 3.2, 3.5, 3.6, 4, 4, 4, 3])  # the last two: one that missed, one as the fastest
    half = 2.776445 * values.std(ddof=1) / np.sqrt(6)  # the standard error of 6, the t quantile of 4
    assert found["low"] == pytest.approx(values.mean() - half)
    assert found["high"] == pytest.approx(min(4.0, values.mean() + half))


def test_where_nothing_is_censored_the_restricted_mean_has_two_intervals_joined():
    times = np.array([50.0, 60, 70, 75, 80, 85, 95, 105, 115, 125])
    group = [(float(time), True) for time in times]
    found = restricted_means(runs(a=group), horizon=2000.0).row(0, named=True)
    half = 2.262157 * times.std(ddof=1) / np.sqrt(10)
    assert (found["mean"], found["reached"]) == (86.0, 10)
    logs = np.log(times)
    center, variance = logs.mean() + logs.var(ddof=1) / 2, logs.var(ddof=1)
    other = 2.262157 * np.sqrt(variance / 10 + variance**2 / 18)
    assert found["low"] == pytest.approx(min(86 - half, np.exp(center - other)))
    assert found["high"] == pytest.approx(np.exp(center + other))
    assert 86 + half < found["high"] < 86 + 1.3 * half  # these times vary little
    near = restricted_means(runs(a=[(1.0, True), (9.0, True)]), horizon=10.0).row(0, named=True)
    assert (near["low"], near["high"]) == (0.0, 10.0)


@pytest.mark.parametrize(("time", "horizon"), [(100.0, 100.0), (100.0, 400.0)])
def test_equal_times_do_not_make_the_restricted_mean_certain(time: float, horizon: float):
    found = restricted_means(runs(a=[(time, True)] * 4), horizon=horizon).row(0, named=True)
    others = 1 - 0.025**0.25  # the share of runs that 4 may all have missed
    assert (found["mean"], found["reached"]) == (time, 4)
    assert found["low"] == pytest.approx(time * (1 - others))
    assert found["high"] == pytest.approx(time + (horizon - time) * others)


def test_the_restricted_mean_is_the_area_below_the_curve():
    found = restricted_means(runs(a=MIXED), horizon=9.0)["mean"].item()
    assert found == pytest.approx(3 + 2 * 5 / 6 + 2 / 2 + 2 / 4)


def test_a_group_that_never_reached_the_target_has_a_bound():
    frame = runs(a=[(8.0, False)] * 5, b=[(2.0, True)] * 5, c=[(3.0, True)])
    found = restricted_means(frame)
    assert found["mean"].to_list() == [8.0, 2.0, 3.0]
    assert found["low"].to_list()[0] == pytest.approx(8 * 0.025**0.2)
    assert found["high"].to_list()[0] == 8.0
    assert found["low"].to_list()[2] is None


def test_what_is_unknown_is_refused():
    with pytest.raises(ValueError, match="a: the last run ended at 10, before 12"):
        restricted_means(runs(a=MIXED), horizon=12.0)
    assert restricted_means(runs(a=[(1.0, True), (2.0, True)]), horizon=5.0)["mean"].item() == 1.5
    for frame, message in (
        (runs(a=[(0.0, True)]), "above 0"),
        (runs(a=[(float("inf"), False)]), "finite"),
        (runs(a=MIXED).with_columns(time=pl.lit(None, pl.Float64)), "null"),
        (runs(a=MIXED).clear(), "no runs"),
    ):
        with pytest.raises(ValueError, match=message):
            common_horizon(frame)
        with pytest.raises(ValueError, match=message):
            reached_shares(frame)
    with pytest.raises(ValueError, match="no runs of b"):
        log_rank_test(runs(a=MIXED), "a", "b")


def test_the_horizon_is_the_shortest_budget_of_a_run_that_missed():
    assert common_horizon(runs(a=MIXED)) == 6.0
    assert common_horizon(runs(a=[(3.0, True), (5.0, True)])) == 5.0


# --- log-rank ------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 4).map(float), st.booleans()), min_size=4, max_size=7), st.data())
def test_the_exact_log_rank_test_goes_through_all_splits(group, data):
    first = data.draw(st.integers(1, len(group) - 1))
    found = log_rank_test(runs(a=group[:first], b=group[first:]), "a", "b")

    def excess(chosen: tuple[int, ...]) -> float:
        total = 0.0
        for time in {t for t, reached in group if reached}:
            events = [i for i, (t, reached) in enumerate(group) if t == time and reached]
            at_risk = [i for i, (t, _) in enumerate(group) if t >= time]
            total += sum(i in chosen for i in events)
            total -= len(events) * sum(i in chosen for i in at_risk) / len(at_risk)
        return total

    observed = excess(tuple(range(first)))
    splits = [excess(chosen) for chosen in combinations(range(len(group)), first)]
    assert found.excess == pytest.approx(observed, abs=1e-9)
    assert found.p_value == pytest.approx(np.mean([each >= observed - 1e-9 for each in splits]))
    assert found.least == pytest.approx(np.mean([each >= max(splits) - 1e-9 for each in splits]))
    assert (found.null, found.count) == ("exact", len(group))


def test_with_many_runs_the_log_rank_test_is_that_of_statsmodels(monkeypatch: pytest.MonkeyPatch):
    random = np.random.default_rng(3)
    fast, slow = some(random, 120, scale=0.75), some(random, 110)
    frame = runs(fast=fast, slow=slow)
    found = log_rank_test(frame, "fast", "slow")
    times, reached = (np.array(column) for column in zip(*fast, *slow, strict=True))
    _, both_sides = survdiff(times, reached.astype(int), np.arange(230) < 120)
    assert found.null == "normal"
    assert found.p_value == pytest.approx(both_sides / 2)
    assert log_rank_test(frame, "slow", "fast").p_value == pytest.approx(1 - both_sides / 2)
    monkeypatch.setattr(survival, "DRAWN_UP_TO", 1000)
    drawn = log_rank_test(frame, "fast", "slow")
    assert (drawn.null, drawn.least) == ("permutation", 1e-4)
    assert drawn.p_value == pytest.approx(both_sides / 2, abs=0.01)
    nobody = runs(a=[(1.0, False)] * 600, b=[(1.0, False)] * 600)
    assert log_rank_test(nobody, "a", "b").p_value == 1.0


def test_runs_that_all_missed_leave_nothing_to_find():
    found = log_rank_test(runs(a=[(9.0, False)] * 4, b=[(9.0, False)] * 4), "a", "b")
    assert (found.excess, found.p_value, found.least) == (0.0, 1.0, 1.0)


def test_five_against_five_that_never_reach_it_is_one_split_of_252():
    frame = runs(a=[(1.0, True), (2.0, True), (3.0, True), (4.0, True), (5.0, True)], b=[(9.0, False)] * 5)
    found = log_rank_test(frame, "a", "b")
    assert found.p_value == found.least == pytest.approx(1 / 252)


# --- win probability -----------------------------------------------------------------------------


def test_two_that_missed_tie_and_later_than_the_horizon_is_missed():
    frame = runs(
        a=[(1.0, True), (6.0, True), (5.0, False), (2.0, True)],
        b=[(2.0, True), (5.0, False), (5.0, False), (2.0, True)],
    )
    found = win_probability(frame, "a", "b")  # win, tie (6 is beyond 5), tie, tie
    assert (found.value, found.count) == (0.625, 4)
    assert win_probability(frame, "a", "b", horizon=7.0).value == 0.75


# --- coverage ------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.1, 9.0), min_size=2, max_size=12), st.integers(0, 5))
def test_the_restricted_mean_lies_in_its_interval_and_both_below_the_horizon(times, missed: int):
    values = np.array(times + [10.0] * missed)
    mean, low, high = restricted_mean(values, values < 10, 10.0)
    assert low is not None
    assert high is not None
    assert 0 <= low <= mean <= high <= 10
    assert mean == pytest.approx(values.mean())
