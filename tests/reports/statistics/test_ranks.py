"""Ranks: ties, incomplete instances, and the coverage of the mean rank's interval."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from curvebench.reports.statistics.ranks import (
    instance_ranks,
    mean_ranks,
    stratified_mean,
    tolerant_ranks,
    wins,
)

FRAME = pl.DataFrame(
    {
        "seed": [1, 1, 1, 2, 2, 2, 3, 3, 3],
        "method": ["a", "b", "c"] * 3,
        "value": [1.0, 2.0, float("inf"), 2.0, 1.0, 1.0, 1.0, None, 2.0],
    }
)


def test_an_instance_counts_only_if_every_method_has_a_value():
    found = instance_ranks(FRAME)
    assert found.sort("seed", "method").rows() == [
        (1, "a", 1.0), (1, "b", 2.0), (1, "c", 3.0), (2, "a", 3.0), (2, "b", 1.5), (2, "c", 1.5),
    ]  # fmt: skip


def test_all_that_tie_with_the_best_win_and_nobody_wins_where_all_diverged():
    assert wins(FRAME).rows() == [("a", 1, 2), ("b", 1, 2), ("c", 1, 2)]
    near = FRAME.with_columns(pl.Series("value", [1.0, 1.0005, 3.0, *[float("inf")] * 3, 2.0, 1.0, 1.0]))
    assert wins(near).rows() == [("a", 1, 3), ("b", 2, 3), ("c", 1, 3)]
    more = FRAME.filter(pl.col("seed") == 2)
    assert wins(more, descending=True).rows() == [
        ("a", 1, 1), ("b", 0, 1), ("c", 0, 1),
    ]  # fmt: skip
    assert wins(FRAME.filter(pl.col("seed") == 3)).is_empty()


def test_workloads_weigh_the_same_however_many_seeds_they_have():
    assert stratified_mean([[1] * 7, [3] * 5], [3, 3])[0] == 2.0


def test_ranks_that_never_changed_are_not_certain():
    mean, low, high = stratified_mean([[1.0] * 10], [4])
    assert low is not None
    assert high is not None
    half = 2.262 * (12 / 49 / 2 / 10) ** 0.5
    assert mean - low == pytest.approx(half, rel=1e-3)
    # Two more ranks, 1 and 2: a method that was always the best may differ by one rank at most.
    added = np.array([1.0] * 11 + [2.0])
    other = added.mean() - 1 + 2.262 * added.std(ddof=1) / 10**0.5
    assert high - mean == pytest.approx(max(half, other), rel=1e-3)


@given(st.lists(st.lists(st.integers(1, 6), min_size=5, max_size=9), min_size=1, max_size=3))
def test_the_interval_holds_the_mean(strata: list[list[int]]):
    mean, low, high = stratified_mean(strata, [6] * len(strata))
    assert low is not None
    assert high is not None
    assert low < mean < high


@given(st.lists(st.floats(0.1, 10) | st.just(float("inf")), min_size=1, max_size=12))
def test_tolerant_ranks_sum_to_the_same_and_near_values_tie(values: list[float]):
    assert tolerant_ranks(values).sum() == len(values) * (len(values) + 1) / 2
    assert tolerant_ranks(values, 0.0).tolist() == rankdata(values).tolist()
    assert tolerant_ranks([1.0, 1.0005, 1.1, float("inf"), float("inf")]).tolist() == [1.5, 1.5, 3, 4.5, 4.5]


def test_rounding_splits_no_rank_and_a_method_counts_once():
    frame = pl.DataFrame({"seed": [1, 1], "method": ["a", "b"], "value": [1.0, 1.0 + 1e-9]})
    assert instance_ranks(frame)["rank"].to_list() == [1.5, 1.5]
    with pytest.raises(ValueError, match="more than one value"):
        instance_ranks(pl.concat([frame, frame]))


def test_methods_are_ordered_by_coverage_of_workloads_then_by_rank():
    ranks = pl.DataFrame(
        {
            "stratum": ["w", "w", "w", "w", "v", "v", "v", "v", "v", "v"],
            "method": ["a", "b", "a", "b", "a", "b", "c", "a", "b", "c"],
            "rank": [2.0, 1.0, 2.0, 1.0, 3.0, 2.0, 1.0, 2.0, 3.0, 1.0],
        }
    )
    found = mean_ranks(ranks)
    assert found.select("method", "mean", "strata").rows() == [("b", 1.75, 2), ("a", 2.25, 2), ("c", 1.0, 1)]
    assert found["low"].to_list() == [None, None, None]
    certain = pl.DataFrame({"stratum": ["w"] * 12, "method": ["a", "b"] * 6, "rank": [1.0, 2.0] * 6})
    bounds = mean_ranks(certain)
    assert bounds["low"].to_list()[0] == 1
    assert bounds["high"].to_list()[1] == 2
    assert bounds["seeds"].to_list() == [6, 6]
