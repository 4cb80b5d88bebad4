"""Smallest reachable p-values, against the tests themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.statistics.decisions import holm
from reports.statistics.paired import TESTS
from results.least_p import least_paired_p, least_pairs


@pytest.mark.parametrize("test", TESTS)
def test_all_pairs_leaning_one_way_give_the_smallest_p_value(test: str):
    smallest = TESTS[test](-np.arange(1.0, 9.0))
    assert smallest == pytest.approx(least_paired_p(8))
    assert holm([smallest, *[1.0] * 9])[0] == pytest.approx(least_paired_p(8, family=10))


@given(st.floats(1e-4, 0.5), st.integers(1, 30))
def test_so_many_pairs_can_reach_it_and_one_less_cannot(alpha, family):
    pairs = least_pairs(alpha, family)
    assert least_paired_p(pairs, family) <= alpha * (1 + 1e-9)
    assert pairs == 1 or least_paired_p(pairs - 1, family) > alpha


def test_impossible_questions_are_refused():
    for wrong in (
        lambda: least_paired_p(0),
        lambda: least_pairs(0.0),
        lambda: least_pairs(1.5),
        lambda: least_pairs(0.05, family=0),
    ):
        with pytest.raises(ValueError, match="at least"):
            wrong()
