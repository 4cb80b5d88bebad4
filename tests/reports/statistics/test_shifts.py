"""Shifts between two samples: estimate, interval and p-value, which agree, and coverage by simulation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from reports.statistics.shifts import shift

TIED = st.lists(st.integers(0, 12), min_size=1, max_size=9)  # so few values that many are equal


def test_three_against_two_by_hand():
    found = shift([7.0, 9.0, 14.0], [4.0, 8.0])  # differences 3, 5, 10, -1, 1, 6
    assert found.estimate == 4.0
    assert (found.low, found.high) == (-1.0, 10.0)  # so few values: the range
    assert found.level == pytest.approx(1 - 2 / 10)
    assert found.counts == (3, 2)
    assert found.p_value == pytest.approx(4 / 10)  # of the ten orders one has U = 0 and one has U = 1


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 5), (4, 3), (5, 5)])
def test_p_values_count_all_orders(first: int, second: int):
    everything = set(range(first + second))
    orders = [(list(own), sorted(everything - set(own))) for own in combinations(everything, first)]
    sums = np.array([np.greater.outer(own, rest).sum() for own, rest in orders])
    for (own, rest), observed in zip(orders, sums, strict=True):
        tail = np.mean(sums <= min(observed, first * second - observed))
        assert shift(own, rest).p_value == pytest.approx(min(1.0, 2 * tail))


@given(st.permutations(range(21)), st.integers(1, 20))
def test_without_ties_the_p_value_is_scipys(order: list[int], first: int):
    expected = mannwhitneyu(order[:first], order[first:], alternative="two-sided", method="exact").pvalue
    assert shift(order[:first], order[first:]).p_value == pytest.approx(expected)


def test_hundreds_of_values_stay_exact():
    random = np.random.default_rng(0)
    treated, control = random.normal(0.3, 1, 70), random.normal(0, 1, 50)
    expected = mannwhitneyu(treated, control, alternative="two-sided", method="exact").pvalue
    assert shift(treated, control).p_value == pytest.approx(expected)


@given(TIED, TIED, st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_the_interval_excludes_no_shift_where_the_p_value_says_so(
    treated: list[int], control: list[int], level: float
):
    found = shift(treated, control, level)
    assert found.low <= found.estimate <= found.high
    if found.level >= level:
        assert (found.low > 0 or found.high < 0) == (found.p_value <= (1 - level) * (1 + 1e-12))
    else:
        assert found.p_value > 1 - level


@given(TIED, TIED)
def test_turned_round_it_changes_sign_and_a_sample_beside_itself_does_not_differ(
    treated: list[int], control: list[int]
):
    found, turned = shift(treated, control), shift(control, treated)
    assert (turned.estimate, turned.low, turned.high) == (-found.estimate, -found.high, -found.low)
    assert (turned.p_value, turned.level) == (found.p_value, found.level)
    moved = shift(np.add(treated, 3), control)
    assert (moved.estimate, moved.low, moved.high) == (found.estimate + 3, found.low + 3, found.high + 3)
    alone = shift(treated, treated)
    assert (alone.estimate, alone.p_value) == (0.0, 1.0)


@pytest.mark.parametrize(("first", "second"), [(7, 7), (9, 9), (5, 12)])
@pytest.mark.parametrize("draw", [np.random.Generator.normal, np.random.Generator.standard_cauchy])
def test_the_interval_covers_and_the_test_errs_as_stated(first: int, second: int, draw: Callable):
    random = np.random.default_rng(first)
    found = [shift(1.3 + draw(random, size=first), draw(random, size=second)) for _ in range(2000)]
    covered = np.mean([one.low <= 1.3 <= one.high for one in found])
    assert 0.93 <= covered <= 0.99
    assert covered == pytest.approx(found[0].level, abs=0.015)  # three standard errors
    same = [shift(draw(random, size=first), draw(random, size=second)) for _ in range(2000)]
    assert np.mean([one.p_value <= 0.05 for one in same]) == pytest.approx(1 - same[0].level, abs=0.015)


@pytest.mark.parametrize("samples", [([], [1.0]), ([1.0], []), ([[1.0]], [1.0])])
def test_what_is_no_sample_is_refused(samples: tuple[list, list]):
    with pytest.raises(ValueError, match="both want one axis"):
        shift(*samples)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value: float):
    with pytest.raises(ValueError, match="finite values"):
        shift([1.0, value], [1.0])
