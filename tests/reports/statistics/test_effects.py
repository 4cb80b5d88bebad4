"""Effect sizes: by hand, bounds, and exact intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import nct

from reports.statistics.effects import cliffs_delta, effect_sizes, rank_biserial, standardized_mean
from reports.statistics.paired import paired_values


def test_the_rank_biserial_correlation_by_hand():
    assert rank_biserial([1, -2, 3, 4]).effect == pytest.approx((8 - 2) / 10)
    assert rank_biserial([0.0, 0.0]).effect == 0
    assert rank_biserial([np.inf, 1.0, 2.0]).effect == 1


@given(st.lists(st.integers(-5, 5) | st.just(float("inf")), min_size=1, max_size=12))
def test_it_is_bounded_and_turns_with_its_sign(differences):
    found: Any = rank_biserial(differences)
    turned: Any = rank_biserial([-value for value in differences])
    assert -1 <= found.low <= found.effect + 1e-12
    assert found.effect - 1e-12 <= found.high <= 1
    assert (turned.effect, turned.low) == pytest.approx((-found.effect, -found.high))


def test_a_standardized_mean_has_the_noncentral_interval():
    values = np.array([0.1, 0.4, 0.2, 0.9, 0.3, 0.6])
    found: Any = standardized_mean(values)
    raw = values.mean() / values.std(ddof=1)
    assert found.effect == pytest.approx(raw * (1 - 3 / (4 * 5 - 1)), rel=0.01)  # Hedges' correction, nearly
    statistic = np.sqrt(6) * raw
    assert nct.cdf(statistic, 5, np.sqrt(6) * found.low) == pytest.approx(0.975, abs=1e-6)
    assert nct.cdf(statistic, 5, np.sqrt(6) * found.high) == pytest.approx(0.025, abs=1e-6)


def test_equal_differences_have_no_scale():
    assert standardized_mean([0.1, 0.1, 0.1]).effect == np.inf
    assert standardized_mean([0.0, 0.0]).effect == 0
    for bad in ([1.0], [1.0, np.inf]):
        with pytest.raises(ValueError, match="at least 2 differences"):
            standardized_mean(bad)


def test_cliffs_delta_goes_from_minus_one_to_one():
    assert cliffs_delta([3, 4], [1, 2]).effect == 1
    assert cliffs_delta([1, 2], [3, 4]).effect == -1
    assert cliffs_delta([1, 3], [2]).effect == 0


def test_the_effect_sizes_of_a_frame():
    frame = pl.DataFrame(
        {
            "workload": ["v"] * 4 + ["w"] * 4,
            "seed": [1, 2, 1, 2] * 2,
            "method": ["a", "a", "b", "b"] * 2,
            "value": [1.0, 2.0, 2.0, 4.0, 1.0, np.inf, 2.0, 1.0],
        }
    )
    pairs = paired_values(frame, ["workload"], ["seed"], "method", "value", "a", "b")
    assert pairs.select("difference", "ratio").rows()[:2] == [(-1.0, 0.5), (-2.0, 0.5)]
    found = effect_sizes(pairs, ["workload"])
    assert found["measure"].to_list() == [
        "rank_biserial", "standardized_mean", "cliffs_delta", "rank_biserial", "cliffs_delta",
    ]  # fmt: skip
    assert found["effect"].to_list()[0] == -1
