"""Smallest reachable p-values against the tests themselves, and numbers of pairs."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.statistics.decisions import holm
from reports.statistics.paired import TESTS
from reports.statistics.power import (
    least_friedman_p,
    least_paired_p,
    least_pairs,
    least_pairwise_p,
    pairs_for,
)


@pytest.mark.parametrize("test", TESTS)
def test_all_pairs_leaning_one_way_give_the_smallest_p_value(test: str):
    smallest = TESTS[test](-np.arange(1.0, 9.0))
    assert smallest == pytest.approx(least_paired_p(8))
    assert holm([smallest, *[1.0] * 9])[0] == pytest.approx(least_paired_p(8, family=10))


def test_eight_workloads_and_five_optimizers_cannot_reach_five_percent():
    assert least_pairwise_p(5, 8) == pytest.approx(0.078125)
    assert least_pairwise_p(5, 8) > 0.05 > least_pairwise_p(5, 9)


@given(st.floats(1e-4, 0.5), st.integers(1, 30), st.sampled_from([1, 2]))
def test_so_many_pairs_can_reach_it_and_one_less_cannot(alpha, family, sides):
    pairs = least_pairs(alpha, family, sides)
    assert least_paired_p(pairs, family, sides) <= alpha * (1 + 1e-9)
    assert pairs == 1 or least_paired_p(pairs - 1, family, sides) > alpha


def test_the_smallest_friedman_p_value_by_enumeration():
    orders = list(permutations([1, 2, 3]))
    agreement = [np.var(np.sum(chosen, axis=0)) for chosen in product(orders, repeat=3)]
    assert least_friedman_p(3, 3) == pytest.approx(np.mean(np.isclose(agreement, max(agreement))))


def test_published_numbers_of_pairs_for_the_t_test():
    # Cohen, Statistical Power Analysis, and G*Power: one-sided 0.05, power 0.8.
    assert [pairs_for(effect, "t") for effect in (0.2, 0.5, 0.8)] == [156, 27, 12]


def test_weaker_tests_and_families_need_more():
    t, signed_rank, sign = (pairs_for(0.5, test) for test in ("t", "wilcoxon", "sign"))
    assert t <= signed_rank < sign
    assert pairs_for(0.5, "wilcoxon", family=10) > signed_rank
    assert pairs_for(5.0, "wilcoxon") == pairs_for(5.0, "sign") == least_pairs(0.05)


@pytest.mark.parametrize(
    ("effect", "power", "message"), [(0.0, 0.8, "effect > 0"), (0.5, 1.0, "power < 1"), (1e-3, 0.8, "10000")]
)
def test_impossible_questions_are_refused(effect, power, message):
    with pytest.raises(ValueError, match=message):
        pairs_for(effect, "t", power)
    for wrong in (
        lambda: least_paired_p(0),
        lambda: least_friedman_p(1, 3),
        lambda: least_pairs(0.0),
        lambda: least_pairs(1.5),
        lambda: least_pairs(0.05, family=0),
    ):
        with pytest.raises(ValueError, match="at least"):
            wrong()
