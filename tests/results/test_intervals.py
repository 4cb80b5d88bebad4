"""Intervals: the median's order statistics, their coverage by simulation, infinities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.results.intervals import interval_order, median_interval

INFINITE_TOO = st.floats(allow_nan=False, width=32)


@pytest.mark.parametrize(
    ("count", "order", "level"),
    [(1, 1, 0.0), (2, 1, 0.5), (5, 1, 0.9375), (6, 1, 0.96875), (10, 2, 0.978515625), (20, 6, 0.95861053)],
)
def test_the_order_statistics_are_those_of_the_tables(count: int, order: int, level: float):
    # Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2: binomial with p = 1/2
    found, coverage = interval_order(count)
    assert found == order
    assert coverage == pytest.approx(level, abs=1e-8)


@pytest.mark.parametrize("count", [5, 20])
def test_the_interval_covers_the_median_as_often_as_it_says(count: int):
    random = np.random.default_rng(7)
    trials, median = 4000, 1.0
    samples = random.lognormal(size=(trials, count))
    intervals = [median_interval(sample) for sample in samples]
    covered = np.mean([each.low <= median <= each.high for each in intervals])
    level = intervals[0].level
    assert abs(covered - level) < 4 * math.sqrt(level * (1 - level) / trials)
    assert covered >= (0.95 if count >= 6 else 0.92) - 0.01


@given(st.lists(INFINITE_TOO, min_size=1, max_size=40))
def test_the_interval_holds_the_median_and_lies_in_the_sample(values: list[float]):
    found = median_interval(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert found.count == len(values)


def test_the_ends_of_ten_values_lie_between_two_order_statistics():
    # Hettmansperger and Sheather: 97.85 % outside, 89.06 % inside, so that 0.324 of the step is to spare
    found = median_interval(np.arange(1.0, 11.0))
    share = (0.978515625 - 0.95) / (0.978515625 - 0.890625)
    inward = 8 * share / (2 + 6 * share)
    assert (found.low, found.high) == pytest.approx((2 + inward, 9 - inward))
    assert found.level == 0.95


def test_few_values_have_their_range_and_say_what_it_covers():
    found = median_interval([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (found.low, found.high, found.level) == (1.0, 5.0, 0.9375)


def test_between_a_number_and_infinity_the_end_is_the_outer_one():
    infinite = float("inf")
    found = median_interval([1.0, 2, 3, 4, 5, 6, 7, 8, infinite, infinite])
    assert found.high == infinite
    assert 2 < found.low < 3
    assert median_interval([-infinite] * 5 + [infinite] * 5).low == -infinite


@given(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=30), st.floats(0.1, 10), st.floats(-5, 5))
def test_units_and_signs_do_not_matter(values: list[float], scale: float, shift: float):
    found, mirrored = median_interval(values), median_interval([-value for value in values])
    assert (found.low, found.high) == pytest.approx((-mirrored.high, -mirrored.low))
    moved = median_interval([scale * value + shift for value in values])
    assert moved.low == pytest.approx(scale * found.low + shift, abs=1e-6)


def test_runs_that_diverged_push_the_median_up_and_are_not_dropped():
    infinite = float("inf")
    assert median_interval([1, 2, infinite]).median == 2
    assert median_interval([1, infinite, infinite]).median == infinite
    assert median_interval([1, 2, infinite, infinite]).median == infinite


def test_nan_and_nothing_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        median_interval([1.0, float("nan")])
    with pytest.raises(ValueError, match="at least one"):
        median_interval([])
