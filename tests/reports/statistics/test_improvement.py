"""Probability of improvement: by enumeration, its symmetries, pairing, and intervals at the edges."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from benchmarks.simulations.effect_sizes import improvement_interval
from reports.statistics.improvement import (
    joined,
    probability_of_improvement,
    superiority,
    superiority_interval,
)
from reports.statistics.shares import share_interval

VALUES = st.lists(st.integers(-3, 3) | st.just(float("inf")), min_size=1, max_size=8)


@given(VALUES, VALUES)
def test_ties_count_half_and_the_sides_add_to_one(left, right):
    wins = np.mean([(a > b) + (a == b) / 2 for a in left for b in right])
    assert superiority(left, right) == pytest.approx(wins)
    assert superiority(left, right) + superiority(right, left) == pytest.approx(1)
    low, high = superiority_interval(superiority(left, right), [(len(left), len(right))])
    assert 0 <= low <= wins + 1e-9
    assert wins - 1e-9 <= high <= 1
    mirrored = superiority_interval(superiority(right, left), [(len(right), len(left))])
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-6)


def test_complete_separation_of_few_runs_is_no_certainty():
    low, high = superiority_interval(1.0, [(5, 5)])
    assert high == 1
    assert 0.5 < low < 0.8


@given(st.floats(0.02, 0.98), st.integers(2, 30))
def test_so_many_workloads_alike_shorten_the_interval_by_their_root(estimate: float, size: int):
    low, high = superiority_interval(estimate, [(size, size)])
    lower, upper = superiority_interval(estimate, [(size, size)] * 4)
    assert low <= lower <= estimate <= upper <= high
    near = superiority_interval(0.5, [(size, size)] * 10_000)
    assert near[1] - near[0] < 0.02 * np.sqrt(2 / size) + 1e-6


@pytest.mark.parametrize("gap", [0.0, 2.0])
def test_the_unpaired_interval_covers_at_five_seeds_on_four_workloads(gap: float):
    random, trials = np.random.default_rng(2), 1000
    true = float(norm.cdf(gap / np.sqrt(2)))
    draws = random.normal(size=(trials, 2, 4, 5))
    found = [improvement_interval(treated + gap, control, False) for treated, control in draws]
    assert np.mean([low <= true <= high for low, high in found]) > 0.92


@pytest.mark.parametrize("paired", [True, False])
def test_what_is_simulated_is_what_pages_show(paired: bool):
    values = np.random.default_rng(3).normal(size=(2, 4, 6))
    workload, seed = (index.ravel() for index in np.indices(values[0].shape))
    frame = pl.concat(
        pl.DataFrame({"workload": workload, "seed": seed, "method": name, "value": each.ravel()})
        for name, each in zip("ab", values, strict=True)
    )
    shown = probability_of_improvement(frame, "a", "b", "maximize", paired)
    assert (shown.low, shown.high) == pytest.approx(improvement_interval(values[0], values[1], paired))


def frame_of(**methods: list[float | None]) -> pl.DataFrame:
    return pl.concat(
        pl.DataFrame(
            {"workload": "w", "seed": range(len(values)), "method": method, "value": values},
            schema_overrides={"value": pl.Float64},
        )
        for method, values in methods.items()
    )


def test_paired_by_seed_and_unpaired_differ():
    frame = frame_of(a=[1.0, 2.0, 3.0, 4.0], b=[1.5, 2.5, 3.5, None])
    found = probability_of_improvement(frame, "a", "b", "minimize")
    assert (found.probability, found.count, found.workloads) == (1.0, 3, 1)
    expected = share_interval(3, 3)
    assert (found.low, found.high) == (expected.low, expected.high)
    free = probability_of_improvement(frame, "a", "b", "minimize", paired=False)
    assert free.probability == pytest.approx(6 / 12)
    assert probability_of_improvement(frame, "a", "b", "maximize").probability == 0


def test_a_diverged_run_loses_and_two_tie():
    frame = frame_of(a=[1.0, float("inf")], b=[float("inf"), float("inf")])
    assert probability_of_improvement(frame, "a", "b", "minimize").probability == 0.75


def test_workloads_are_averaged():
    two = pl.concat(
        [
            frame_of(a=[1.0] * 6, b=[2.0] * 6),
            frame_of(a=[2.0] * 2, b=[1.0] * 2).with_columns(workload=pl.lit("v")),
        ]
    )
    found = probability_of_improvement(two, "a", "b", "minimize")
    assert (found.probability, found.workloads, found.count) == (0.5, 2, 8)
    one = probability_of_improvement(two.filter(workload="w"), "a", "b", "minimize")
    assert found.low < one.low


def test_joined_intervals_add_as_errors_do():
    assert joined([(0.5, 0.2, 0.9), (0.5, 0.1, 0.8)]) == pytest.approx((0.5, 0.25, 0.75))


def test_methods_that_never_met_are_refused():
    for paired in (True, False):
        with pytest.raises(ValueError, match="no workload has runs of both a and c"):
            probability_of_improvement(frame_of(a=[1.0], b=[2.0]), "a", "c", "minimize", paired)
    with pytest.raises(ValueError, match="NaN"):
        superiority([float("nan")], [1.0])
