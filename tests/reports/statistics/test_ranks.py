"""Ranks: ties, incomplete instances, and the coverage of the mean rank's interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from reports.statistics.ranks import average_ranks, instance_ranks, mean_ranks, stratified_mean


@given(st.lists(st.integers(-3, 3) | st.just(float("inf")), min_size=1, max_size=20))
def test_ties_take_the_average_rank(values: list[float]):
    assert average_ranks(values).tolist() == rankdata(values).tolist()


FRAME = pl.DataFrame(
    {
        "seed": [1, 1, 1, 2, 2, 2, 3, 3, 3],
        "method": ["a", "b", "c"] * 3,
        "value": [1.0, 2.0, float("inf"), 2.0, 1.0, 1.0, 1.0, None, 2.0],
    }
)


def test_an_instance_counts_only_if_every_method_has_a_value():
    found = instance_ranks(FRAME, ["seed"], "method", "value")
    assert found.sort("seed", "method").rows() == [
        (1, "a", 1.0), (1, "b", 2.0), (1, "c", 3.0), (2, "a", 3.0), (2, "b", 1.5), (2, "c", 1.5),
    ]  # fmt: skip


def test_more_can_be_better():
    found = instance_ranks(FRAME.filter(pl.col("seed") == 1), ["seed"], "method", "value", descending=True)
    assert dict(found.select("method", "rank").rows()) == {"a": 3.0, "b": 2.0, "c": 1.0}


def test_workloads_weigh_the_same_however_many_seeds_they_have():
    found = stratified_mean([[1, 1, 1, 1], [3, 3]])
    assert (found.mean, found.low, found.high, found.count) == (2.0, 2.0, 2.0, 6)


def test_one_seed_gives_no_interval():
    found = stratified_mean([[1.0], [2.0, 3.0]])
    assert (found.mean, found.low, found.high) == (1.75, None, None)
    with pytest.raises(ValueError, match="stratum"):
        stratified_mean([])


@pytest.mark.parametrize("seeds", [5, 10])
def test_the_interval_of_the_mean_rank_covers_at_few_seeds(seeds: int):
    # Equal methods: every true mean rank is 2.5 of 4.
    random = np.random.default_rng(11)
    ranks = np.argsort(random.random((3000, 3, seeds, 4)), axis=-1)[..., 0] + 1.0
    intervals: list[Any] = [stratified_mean(list(strata)) for strata in ranks]
    covered = np.mean([each.low <= 2.5 <= each.high for each in intervals])
    assert 0.935 < covered < 0.975


def test_methods_are_ordered_by_coverage_of_workloads_then_by_rank():
    ranks = pl.DataFrame(
        {
            "stratum": ["w", "w", "w", "w", "v", "v", "v", "v", "v", "v"],
            "method": ["a", "b", "a", "b", "a", "b", "c", "a", "b", "c"],
            "rank": [2.0, 1.0, 2.0, 1.0, 3.0, 2.0, 1.0, 2.0, 3.0, 1.0],
        }
    )
    found = mean_ranks(ranks, ["stratum"], "method")
    assert found.select("method", "mean", "strata", "count").rows() == [
        ("b", 1.75, 2, 4), ("a", 2.25, 2, 4), ("c", 1.0, 1, 2),
    ]  # fmt: skip
    assert (found["low"] >= 1).all()
    assert (found["high"] <= 3).all()
