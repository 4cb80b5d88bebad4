"""Intervals: the median's order statistics, their coverage by simulation, infinities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.intervals import interval_order, median_interval

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


@pytest.mark.parametrize("count", [5, 10, 20])
@pytest.mark.parametrize("draw", ["normal", "lognormal"])
def test_the_interval_covers_the_median_as_often_as_it_says(count: int, draw: str):
    random = np.random.default_rng(7)
    trials = 4000
    samples = getattr(random, draw)(size=(trials, count))
    median = {"normal": 0.0, "lognormal": 1.0}[draw]
    intervals = [median_interval(sample) for sample in samples]
    covered = np.mean([each.low <= median <= each.high for each in intervals])
    level = intervals[0].level
    assert abs(covered - level) < 4 * math.sqrt(level * (1 - level) / trials)
    assert covered >= (0.95 if count >= 6 else 0.92) - 0.01


@given(st.lists(INFINITE_TOO, min_size=1, max_size=40))
def test_the_interval_holds_the_median_and_lies_in_the_sample(values: list[float]):
    found = median_interval(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert {found.low, found.high} <= set(values)
    assert found.count == len(values)


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
