"""Tuning protocols: grids, searches, choices, and equal budgets for every method."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import tuning
from results.schema import RUNS

SWEEP = {
    "protocol": "two_stage_sweep",
    "names": ["learning_rate"],
    "coarse": [0.01, 0.1, 1.0],
    "statistic": "median",
    "which": "final",
    "metric": "train_loss",
    "direction": "minimize",
    "shared_across": "none",
}
SPACE: dict[str, dict[str, Any]] = {
    "learning_rate": {"low": 1e-4, "high": 1.0, "scale": "log"},
    "beta1": {"low": 0.5, "high": 0.9, "scale": "linear"},
}


def frame(*rows):
    """Runs from (basis, learning rate, seed, final value, outcome); the best value is half the final one."""
    return pl.DataFrame(
        [
            {
                **dict.fromkeys(RUNS),
                "run": f"run-{index}",
                "workload": "toy",
                "optimizer": "adam",
                "basis": basis,
                "stage": "sweep",
                "seed": seed,
                "learning_rate": rate,
                "hyperparameters": [{"name": "beta1", "value": 0.9}],
                "outcome": outcome,
                "final_metrics": [{"name": "train_loss", "value": value}],
                "best_metrics": [{"name": "train_loss", "value": value / 2, "step": 3}],
            }
            for index, (basis, rate, seed, value, outcome) in enumerate(rows)
        ],
        schema=RUNS,
    )


def one_seed(values, basis="identity"):
    return [(basis, rate, 0, value, "budget") for rate, value in values.items()]


def test_refined_rates_are_those_of_the_paper():
    assert tuning.refined_rates(0.01, 1.0) == (0.01, 0.02, 0.04, 0.08, 0.1, 0.2, 0.4, 0.8, 1.0)


def test_coarse_rates_are_the_powers_of_ten_with_both_bounds():
    assert tuning.coarse_rates(1e-3, 100) == (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)
    assert tuning.coarse_rates(0.1, 0.1) == (0.1,)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1.0, 0.1, "the grid is empty: its lowest rate 1 is above its highest 0.1"),
        (0.02, 1.0, "0.02 is not a power of ten"),
        (0.1, 3.0, "3 is not a power of ten"),
        (-0.1, 1.0, "-0.1 is not a power of ten"),
        (0.0, 1.0, "0 is not a power of ten"),
        (0.1, math.inf, "inf is not a power of ten"),
    ],
)
def test_bad_grids_are_named(low, high, message):
    with pytest.raises(ValueError, match=message):
        tuning.coarse_rates(low, high)


@given(st.integers(-12, 12), st.integers(0, 4))
def test_grids_are_sorted_exact_decimals(exponent, decades):
    low, high = float(f"1e{exponent}"), float(f"1e{exponent + decades}")
    rates = tuning.refined_rates(low, high)
    assert list(rates) == sorted(set(rates))
    assert len(rates) == 4 * decades + 1
    assert set(tuning.coarse_rates(low, high)) <= set(rates)
    assert all(float(f"{rate:.0e}") == rate for rate in rates)


@pytest.mark.parametrize("best", [0.01, 0.1, 1.0])
def test_refinement_surrounds_the_best_coarse_rate_with_six_new_ones(best):
    runs = frame(*one_seed({rate: float(rate != best) for rate in (0.01, 0.1, 1.0)}))
    (settings,) = tuning.refine(runs, SWEEP).values()
    rates = [setting["learning_rate"] for setting in settings]
    assert len(rates) == tuning.REFINED_RATES
    assert not set(rates).intersection(SWEEP["coarse"])
    assert rates == pytest.approx([best * factor for factor in (0.2, 0.4, 0.8, 2, 4, 8)])


def test_every_method_tries_equally_many_settings():
    for best in SWEEP["coarse"]:
        runs = frame(*one_seed({rate: float(rate != best) for rate in SWEEP["coarse"]}))
        tried = [*tuning.settings(SWEEP, "study"), *tuning.refine(runs, SWEEP)["toy", "identity"]]
        assert len({setting["learning_rate"] for setting in tried}) == tuning.trials(SWEEP)
    for protocol in ("random_search", "halton_search"):
        search = {"protocol": protocol, "names": list(SPACE), "budget": 7, "space": SPACE}
        assert len(tuning.settings(search, "study")) == tuning.trials(search) == 7


@pytest.mark.parametrize("protocol", ["random_search", "halton_search"])
def test_searches_stay_in_their_space_and_repeat(protocol):
    search = {"protocol": protocol, "names": list(SPACE), "budget": 64, "space": SPACE}
    points = tuning.settings(search, "study")
    assert points == tuning.settings(search, "study")
    assert points != tuning.settings(search, "another study")
    for name, axis in SPACE.items():
        assert all(axis["low"] <= point[name] <= axis["high"] for point in points)
    logarithms = np.log10([point["learning_rate"] for point in points])
    assert np.median(logarithms) == pytest.approx(-2.0, abs=0.6)  # in the middle of the logarithmic scale


def test_halton_points_are_more_even_than_random_ones():
    axis = {"learning_rate": {"low": 0.0, "high": 1.0, "scale": "linear"}}
    points = {
        protocol: tuning.settings(
            {"protocol": protocol, "names": ["learning_rate"], "budget": 64, "space": axis}, "study"
        )
        for protocol in ("random_search", "halton_search")
    }
    widest = {
        protocol: np.diff(np.sort([point["learning_rate"] for point in found])).max()
        for protocol, found in points.items()
    }
    assert widest["halton_search"] < 0.05 < widest["random_search"]


def test_the_median_over_seeds_decides():
    runs = frame(
        *[("identity", 0.1, seed, value, "budget") for seed, value in enumerate([0.0, 5.0, 5.0])],
        *[("identity", 1.0, seed, value, "budget") for seed, value in enumerate([4.0, 4.0, 9.0])],
    )
    assert tuning.choose(runs, SWEEP)["toy", "identity"] == {"learning_rate": 1.0}


@pytest.mark.parametrize("outcome", ["diverged", "error", "out_of_memory", "interrupted"])
def test_a_run_that_failed_counts_as_the_worst(outcome):
    runs = frame(("identity", 0.1, 0, 0.0, outcome), ("identity", 1.0, 0, 9.0, "budget"))
    assert tuning.choose(runs, SWEEP)["toy", "identity"] == {"learning_rate": 1.0}


def test_a_run_without_a_number_counts_as_the_worst_either_way():
    runs = frame(("identity", 0.1, 0, math.nan, "budget"), ("identity", 1.0, 0, 9.0, "reached"))
    for direction in ("minimize", "maximize"):
        chosen = tuning.choose(runs, SWEEP | {"direction": direction})
        assert chosen["toy", "identity"] == {"learning_rate": 1.0}


def test_ties_go_to_the_smaller_rate():
    runs = frame(*one_seed({1.0: 2.0, 0.01: 2.0, 0.1: 2.0}))
    assert tuning.choose(runs, SWEEP)["toy", "identity"] == {"learning_rate": 0.01}


def test_the_best_of_a_run_and_metrics_to_maximize():
    runs = frame(*one_seed({0.1: 1.0, 1.0: 3.0}))
    chosen = tuning.choose(runs, SWEEP | {"which": "best", "direction": "maximize"})
    assert chosen["toy", "identity"] == {"learning_rate": 1.0}


def test_the_identity_chooses_for_all_bases_where_the_choice_is_shared():
    runs = frame(*one_seed({0.1: 1.0, 1.0: 2.0}), *one_seed({0.1: 8.0, 1.0: 7.0}, basis="egop"))
    shared = SWEEP | {"shared_across": "bases"}
    assert tuning.choose(runs, shared) == {("toy", "identity"): {"learning_rate": 0.1}}
    assert [tuning.chooser(protocol, "egop") for protocol in (shared, SWEEP)] == ["identity", "egop"]
    assert tuning.choose(runs, SWEEP)["toy", "egop"] == {"learning_rate": 1.0}


def test_searched_hyperparameters_are_part_of_the_choice():
    runs = frame(*one_seed({0.1: 1.0}))
    chosen = tuning.choose(runs, SWEEP | {"names": ["learning_rate", "beta1"]})
    assert chosen["toy", "identity"] == {"learning_rate": 0.1, "beta1": 0.9}


def test_choosing_needs_one_optimizer_and_the_metric():
    runs = frame(*one_seed({0.1: 1.0}))
    with pytest.raises(ValueError, match=r"one optimizer, not of \[\]"):
        tuning.choose(runs.clear(), SWEEP)
    with pytest.raises(ValueError, match="run-0 has no final accuracy"):
        tuning.choose(runs, SWEEP | {"metric": "accuracy"})
    with pytest.raises(ValueError, match="no run of toy in the identity basis"):
        tuning.choose(frame(*one_seed({0.1: 1.0}, basis="egop")), SWEEP | {"shared_across": "bases"})


def test_what_is_equal_to_rounding_is_a_tie():
    """Runs that converged differ in the last digits only; the smaller rate is taken, not the luckier one."""
    converged = 67.91474
    tied = frame(*one_seed({0.1: converged * (1 + 2e-14), 1.0: converged, 10.0: converged * (1 + 1e-6)}))
    assert tuning.choose(tied, SWEEP)["toy", "identity"] == {"learning_rate": 0.1}
    apart = frame(*one_seed({0.1: converged * (1 + 1e-9), 1.0: converged}))
    assert tuning.choose(apart, SWEEP)["toy", "identity"] == {"learning_rate": 1.0}
