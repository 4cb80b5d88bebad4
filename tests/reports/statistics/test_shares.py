"""Shares of runs and of pairs that one method wins: exact intervals, ties, and means of estimates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from curvebench.reports.statistics.shares import joined, probability_of_improvement, share_interval


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
