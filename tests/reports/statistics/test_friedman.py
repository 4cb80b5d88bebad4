"""Friedman's test and critical differences, against all orders, published tables and libraries."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from scipy.stats import friedmanchisquare, rankdata

from reports.statistics.friedman import (
    critical_difference,
    friedman_test,
    indifferent_groups,
    least_friedman_p,
    least_pairwise_p,
)

INFINITE = float("inf")


def test_published_p_values():
    # Hollander, Wolfe and Chicken, table of Friedman's distribution: k = 3, n = 4
    agree = friedman_test(np.array([[1, 2, 3]] * 4))
    assert agree.p_value == agree.least == pytest.approx(6.0**-3)
    assert agree.f_statistic == INFINITE
    one_off = friedman_test(np.array([[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 3, 2]]))
    assert one_off.statistic == pytest.approx(6.5)
    assert one_off.p_value == pytest.approx(0.0417, abs=0.04)  # F is an approximation
    assert friedman_test(np.array([[1, 2, INFINITE]])).p_value == 1.0


@pytest.mark.parametrize("decimals", [1, 6])
def test_the_statistic_is_scipys_with_and_without_ties(decimals: int):
    values = np.random.default_rng(4).normal(10, 1, (12, 5)).round(decimals)
    found = friedman_test(values)
    expected = friedmanchisquare(*rankdata(values, axis=1).T)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.f_statistic == pytest.approx(11 * found.statistic / (12 * 4 - found.statistic))
    assert (found.methods, found.instances) == (5, 12)


def test_the_p_value_is_that_of_all_orders_but_for_the_approximation():
    values = np.random.default_rng(5).normal(0, 1, (60, 5)) + 0.15 * np.arange(5)
    found = friedman_test(values)
    assert found.p_value == pytest.approx(friedmanchisquare(*values.T).pvalue, rel=0.2)


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
