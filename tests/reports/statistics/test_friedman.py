"""Friedman's test and critical differences, against all orders, published tables and libraries."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import f as f_distribution
from scipy.stats import friedmanchisquare, rankdata

from reports.statistics import friedman
from reports.statistics.friedman import (
    critical_difference,
    friedman_test,
    indifferent_groups,
    least_friedman_p,
    least_pairwise_p,
)

INFINITE = float("inf")


def by_enumeration(values: np.ndarray) -> float:
    ranks = rankdata(values, axis=1)
    observed = (ranks.sum(axis=0) ** 2).sum() - 1e-9
    orders = [list(permutations(row)) for row in ranks]
    found = [(np.sum(choice, axis=0) ** 2).sum() >= observed for choice in product(*orders)]
    return float(np.mean(found))


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(1, 4) | st.just(INFINITE), min_size=3, max_size=3), min_size=2, max_size=4)
)
def test_the_p_value_is_that_of_all_orders_but_for_chance_with_ties_too(rows):
    values = np.array(rows, dtype=float)
    found = friedman_test(values)
    assert found.null == "permutation"
    assert found.p_value == pytest.approx(by_enumeration(values), abs=0.02)


def test_published_p_values():
    # Hollander, Wolfe and Chicken, table of Friedman's distribution: k = 3, n = 4 and k = 4, n = 3.
    agree = np.array([[1, 2, 3]] * 4)
    assert friedman_test(agree).p_value == pytest.approx(0.00463, abs=2e-3)
    assert friedman_test(agree).least == pytest.approx(6.0**-3)
    assert friedman_test(agree).f_statistic == INFINITE
    one_off = np.array([[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 3, 2]])
    assert friedman_test(one_off).statistic == pytest.approx(6.5)
    assert friedman_test(one_off).p_value == pytest.approx(0.0417, abs=6e-3)


@pytest.mark.parametrize("decimals", [1, 6])
def test_the_statistic_is_scipys_with_and_without_ties(decimals: int):
    values = np.random.default_rng(4).normal(10, 1, (12, 5)).round(decimals)
    found = friedman_test(values)
    expected = friedmanchisquare(*rankdata(values, axis=1).T)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.f_statistic == pytest.approx(11 * found.statistic / (12 * 4 - found.statistic))
    assert (found.methods, found.instances) == (5, 12)


def test_drawn_orders_and_the_f_distribution_agree(monkeypatch: pytest.MonkeyPatch):
    values = np.random.default_rng(5).normal(0, 1, (60, 5)) + 0.15 * np.arange(5)
    drawn = friedman_test(values)
    assert (drawn.null, drawn.least) == ("permutation", 1e-4)
    expected = f_distribution.sf(drawn.f_statistic, 4, 4 * 59)
    assert drawn.p_value == pytest.approx(expected, rel=0.2)
    monkeypatch.setattr(friedman, "DRAWN_UP_TO", 10)
    assert friedman_test(values).null == "F"
    assert friedman_test(values).p_value == pytest.approx(expected)


def test_the_direction_and_infinities_do_not_matter_to_the_test():
    values = np.random.default_rng(6).normal(10, 1, (6, 3))
    assert friedman_test(values).p_value == pytest.approx(friedman_test(-values).p_value)
    values[:, 2] = INFINITE
    values[:, 0] = values[:, 1]
    assert friedman_test(values).p_value == pytest.approx(friedman_test(np.array([[1, 1, 2]] * 6)).p_value)


def test_methods_that_are_all_equal_do_not_differ():
    found = friedman_test(np.ones((5, 3)))
    assert (found.statistic, found.p_value) == (0.0, 1.0)


@pytest.mark.parametrize("shape", [(3, 1), (0, 3), (4,)])
def test_at_least_one_instance_and_two_methods_are_needed(shape: tuple[int, ...]):
    with pytest.raises(ValueError, match="at least 1 instance and 2 methods"):
        friedman_test(np.ones(shape))


def test_eight_workloads_and_five_optimizers_cannot_reach_five_percent():
    assert least_pairwise_p(5, 8) == pytest.approx(0.078125)
    assert least_pairwise_p(5, 8) > 0.05 > least_pairwise_p(5, 9)


def test_the_smallest_friedman_p_value_by_enumeration():
    orders = list(permutations([1, 2, 3]))
    agreement = [np.var(np.sum(chosen, axis=0)) for chosen in product(orders, repeat=3)]
    assert least_friedman_p(3, 3) == pytest.approx(np.mean(np.isclose(agreement, max(agreement))))


def test_critical_differences_are_those_that_are_published():
    # Demsar 2006, table 5(a): q = 1.960, 2.343, 2.569, 2.728, ..., 3.164 for 2 to 10 methods at 0.05.
    for methods, quantile in ((2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)):
        expected = quantile * np.sqrt(methods * (methods + 1) / (6 * 30))
        assert critical_difference(methods, 30) == pytest.approx(expected, rel=5e-4)
    with pytest.raises(ValueError, match="at least 2"):
        critical_difference(1, 5)


def test_groups_are_the_longest_runs_in_which_no_two_differ():
    means = [("a", 1.0), ("b", 1.5), ("c", 2.25), ("d", 3.0), ("e", 4.5)]
    assert indifferent_groups(means, 1.6) == [("a", "b", "c"), ("b", "c", "d"), ("d", "e")]
    assert indifferent_groups(means, 1.5) == [("a", "b", "c"), ("c", "d")]  # d and b differ by as much
    assert indifferent_groups(means, 0.25) == indifferent_groups([], 1.0) == []
