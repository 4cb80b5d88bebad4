"""Paired comparison: the tests against enumeration and scipy, effects and pairs."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from curvebench.reports.statistics.paired import (
    effect_for,
    paired_values,
    sign_p_value,
)

INFINITE = float("inf")


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60))
def test_the_sign_test_is_the_binomials(differences: list[int]):
    signs = [value < 0 for value in differences if value]
    expected = binomtest(sum(signs), len(signs), alternative="greater").pvalue if signs else 1.0
    assert sign_p_value(differences) == pytest.approx(expected, rel=1e-12)


def test_no_difference_is_no_evidence():
    assert sign_p_value([0.0, 0.0]) == 1.0


def test_losses_compare_by_ratio_and_what_may_be_negative_by_difference():
    assert effect_for([0.0, 2.0, INFINITE], "minimize") == "ratio"
    assert effect_for([-1.0, 2.0], "minimize") == "difference"
    assert effect_for([0.5, 0.9], "maximize") == "difference"


def test_only_seeds_that_both_ran_are_paired():
    frame = pl.DataFrame(
        {
            "seed": [1, 2, 3, 2, 1],
            "method": ["a", "a", "a", "b", "b"],
            "value": [1.0, 2.0, 9.0, 4.0, None],
        }
    )
    found = paired_values(frame, "value", "a", "b")
    assert found.rows() == [(2, 2.0, 4.0)]
    apart = frame.filter((pl.col("method") == "a") | (pl.col("seed") == 1))
    assert paired_values(apart, "value", "a", "b").is_empty()


def test_a_pair_counts_once():
    frame = pl.DataFrame({"seed": [1, 1, 1], "method": ["a", "b", "b"], "value": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match="more than one value"):
        paired_values(frame, "value", "a", "b")
