"""Pairs of values: no NaN among what is ordered, and the sign test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from curvebench.reports.statistics.decisions import holm
from curvebench.reports.statistics.paired import effect_for, ordered_values, paired_values, sign_p_value
from curvebench.reports.statistics.ranks import instance_ranks, tolerant_ranks, wins
from curvebench.reports.statistics.selection import best_set
from curvebench.reports.statistics.shares import probability_of_improvement

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
        {"seed": [1, 2, 3, 2, 1], "method": ["a", "a", "a", "b", "b"], "value": [1.0, 2.0, 9.0, 4.0, None]}
    )
    found = paired_values(frame, "value", "a", "b")
    assert found.rows() == [(2, 2.0, 4.0)]
    apart = frame.filter((pl.col("method") == "a") | (pl.col("seed") == 1))
    assert paired_values(apart, "value", "a", "b").is_empty()


def test_a_pair_counts_once():
    frame = pl.DataFrame({"seed": [1, 1, 1], "method": ["a", "b", "b"], "value": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match="more than one value"):
        paired_values(frame, "value", "a", "b")


NAN = float("nan")
FRAME = pl.DataFrame(
    {"seed": [1, 2, 3] * 2, "method": ["a"] * 3 + ["b"] * 3, "value": [1.0, 2.0, NAN, 2.0, 3.0, 4.0]}
)

OF_FRAMES: dict[str, Callable[[pl.DataFrame], object]] = {
    "instance_ranks": instance_ranks,
    "wins": wins,
    "paired_values": lambda frame: paired_values(frame, "value", "a", "b"),
    "best_set": lambda frame: best_set(frame, "minimize", 0.05),
}
OF_ARRAYS: dict[str, tuple[str, Callable[[list[float]], object]]] = {
    "tolerant_ranks": ("values", tolerant_ranks),
    "holm": ("p_values", holm),
    "sign_p_value": ("differences", sign_p_value),
    "probability_of_improvement": ("gains", probability_of_improvement),
}


@pytest.mark.parametrize("name", OF_FRAMES)
def test_nan_in_a_column_is_refused_by_its_name(name: str):
    with pytest.raises(ValueError, match=r"value: NaN .* infinite on the bad side"):
        OF_FRAMES[name](FRAME)
    OF_FRAMES[name](FRAME.with_columns(pl.col("value").fill_nan(float("inf"))))
    OF_FRAMES[name](FRAME.with_columns(pl.col("value").fill_nan(None)))


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_nan_in_an_array_is_refused_by_the_arguments_name(name: str):
    argument, called = OF_ARRAYS[name]
    with pytest.raises(ValueError, match=f"{argument}: NaN has no place in an order: "):
        called([NAN, 0.01])
    called([0.02, 0.01])


def test_infinities_are_ordered():
    values = ordered_values([1, -np.inf, np.inf], "value")
    assert values.dtype == float
    assert values.tolist() == [1.0, -np.inf, np.inf]
