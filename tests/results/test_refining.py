"""Tuning protocols: grids, searches, choices, and equal budgets for every method."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from curvebench.results import tuning
from curvebench.results.tuning import Judge
from curvebench.seeding import generator
from curvebench.spec.document import Direction
from curvebench.spec.tuning import Search, Setting, Tuning, TwoStageSweep
from tests.curvebench.stages.test_jobs import TUNING
from tests.results.rows import rows, tuning_run

SWEEP = TwoStageSweep.model_validate({**dict(TUNING), "coarse": [0.01, 1.0]})
SHARED = SWEEP.model_copy(update={"shared_across": "bases"})
SPACE: dict[str, dict[str, Any]] = {
    "learning_rate": {"low": 1e-4, "high": 1.0, "scale": "log"},
    "beta1": {"low": 0.5, "high": 0.9, "scale": "linear"},
}


def frame(*given):
    """Runs from (basis, learning rate, seed, final value, outcome); the best value is half the final one."""
    runs = (
        tuning_run(f"run-{index}", value, rate, basis=basis, seed=seed, outcome=outcome, workload="toy",
                   best_metrics=[{"name": "train_loss", "value": value / 2, "step": 3}])
        for index, (basis, rate, seed, value, outcome) in enumerate(given)
    )  # fmt: skip
    return rows("runs", *runs)


def one_seed(values, basis="identity"):
    return [(basis, rate, 0, value, "budget") for rate, value in values.items()]


def coarse_rates(low: float, high: float) -> tuple[float, ...]:
    return TwoStageSweep.model_validate({**dict(SWEEP), "coarse": [low, high]}).rates


def search(protocol: str, budget: int, space: dict[str, dict[str, Any]] = SPACE) -> Search:
    shared = {"choose": TUNING.choose, "shared_across": TUNING.shared_across}
    return Search.model_validate({"protocol": protocol, "budget": budget, "space": space, **shared})


def settings(protocol: Tuning, study: str) -> tuple[Setting, ...]:
    return protocol.settings(0, generator(study, protocol.protocol), None)


def judge(protocol: Tuning = SWEEP, direction: Direction = "minimize") -> Judge:
    return Judge(protocol, lambda metric: direction, {})


def choose(runs, protocol=SWEEP, direction="minimize"):
    """The settings that are taken, by name."""
    found = tuning.groups_tried(runs, judge(protocol, direction))
    return {group: dict(zip(protocol.names, each.chosen, strict=True)) for group, each in found.items()}


def refined(runs):
    """The settings of the round after runs in the identity basis."""
    outcome = tuning.groups_tried(runs, judge())["toy", "identity"]
    return SWEEP.settings(1, generator("study", SWEEP.protocol), outcome)


def choosing(**changes: Any) -> TwoStageSweep:
    return SWEEP.model_copy(update={"choose": SWEEP.choose.model_copy(update=changes)})


def test_coarse_rates_are_the_powers_of_ten_with_both_bounds():
    assert coarse_rates(1e-3, 100) == (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)


@pytest.mark.parametrize("best", [0.01, 0.1, 1.0])
def test_refinement_surrounds_the_best_coarse_rate_with_six_new_ones(best):
    runs = frame(*one_seed({rate: float(rate != best) for rate in (0.01, 0.1, 1.0)}))
    rates = [setting["learning_rate"] for setting in refined(runs)]
    assert len(rates) == SWEEP.rounds[1] == 6
    assert not set(rates).intersection(SWEEP.rates)
    assert rates == [float(f"{best * factor:.0e}") for factor in (0.2, 0.4, 0.8, 2, 4, 8)]


def test_every_method_tries_equally_many_settings():
    for best in SWEEP.rates:
        runs = frame(*one_seed({rate: float(rate != best) for rate in SWEEP.rates}))
        tried = [*settings(SWEEP, "study"), *refined(runs)]
        assert len({setting["learning_rate"] for setting in tried}) == SWEEP.trials
    for protocol in ("random_search", "halton_search"):
        one = search(protocol, 7)
        assert len(settings(one, "study")) == one.trials == 7


@pytest.mark.parametrize("protocol", ["random_search", "halton_search"])
def test_searches_stay_in_their_space_and_repeat(protocol):
    one = search(protocol, 64)
    points = settings(one, "study")
    assert points == settings(one, "study")
    assert points != settings(one, "another study")
    for name, axis in SPACE.items():
        assert all(axis["low"] <= point[name] <= axis["high"] for point in points)
    logarithms = np.log10([point["learning_rate"] for point in points])
    assert np.median(logarithms) == pytest.approx(-2.0, abs=0.6)  # in the middle of the logarithmic scale


MEDIANS = (
    *[("identity", 0.1, seed, value, "budget") for seed, value in enumerate([0.0, 5.0, 5.0])],
    *[("identity", 1.0, seed, value, "budget") for seed, value in enumerate([4.0, 4.0, 9.0])],
)
WITHOUT_A_NUMBER = ("identity", 0.1, 0, math.nan, "budget"), ("identity", 1.0, 0, 9.0, "reached")
END = 67.91474
FAILED = [
    (("identity", 0.1, 0, 0.0, outcome), ("identity", 1.0, 0, 9.0, "budget"))
    for outcome in ("diverged", "error", "out_of_memory", "interrupted")
]


@pytest.mark.parametrize(
    ("given", "protocol", "direction", "chosen"),
    [
        (MEDIANS, SWEEP, "minimize", {"learning_rate": 1.0}),
        (WITHOUT_A_NUMBER, SWEEP, "minimize", {"learning_rate": 1.0}),
        (WITHOUT_A_NUMBER, SWEEP, "maximize", {"learning_rate": 1.0}),
        *((failed, SWEEP, "minimize", {"learning_rate": 1.0}) for failed in FAILED),
        (one_seed({1.0: 2.0, 0.01: 2.0, 0.1: 2.0}), SWEEP, "minimize", {"learning_rate": 0.01}),
        # runs that converged differ in the last digits only: the smaller rate is taken, not the luckier one
        (
            one_seed({0.1: END * (1 + 2e-14), 1.0: END, 10.0: END * (1 + 1e-6)}),
            SWEEP,
            "minimize",
            {"learning_rate": 0.1},
        ),
        (one_seed({0.1: END * (1 + 1e-9), 1.0: END}), SWEEP, "minimize", {"learning_rate": 1.0}),
        (one_seed({0.1: 1.0, 1.0: 3.0}), choosing(which="best"), "maximize", {"learning_rate": 1.0}),
        (one_seed({0.1: 1.0}), search("random_search", 7), "minimize", {"learning_rate": 0.1, "beta1": 0.9}),
    ],
)
def test_the_best_median_over_seeds_decides(given, protocol, direction, chosen):
    """A run that failed or has no number is the worst; ties go to the smaller rate."""
    assert choose(frame(*given), protocol, direction) == {("toy", "identity"): chosen}


def test_the_identity_chooses_for_all_bases_where_the_choice_is_shared():
    runs = frame(*one_seed({0.1: 1.0, 1.0: 2.0}), *one_seed({0.1: 8.0, 1.0: 7.0}, basis="egop"))
    assert choose(runs, SHARED) == {("toy", "identity"): {"learning_rate": 0.1}}
    assert [protocol.chooser("egop") for protocol in (SHARED, SWEEP)] == ["identity", "egop"]
    assert choose(runs)["toy", "egop"] == {"learning_rate": 1.0}


def test_choosing_needs_one_optimizer_and_the_metric():
    runs = frame(*one_seed({0.1: 1.0}))
    assert choose(runs.clear()) == {}, "where all is missing nothing is chosen"
    assert choose(runs.with_columns(outcome=pl.lit("interrupted"))) == {}
    two = pl.concat([runs, runs.with_columns(optimizer=pl.lit("sgd"))])
    with pytest.raises(ValueError, match=r"one optimizer, not of \['adam', 'sgd'\]"):
        choose(two)
    with pytest.raises(ValueError, match="run-0 has no final accuracy"):
        choose(runs, choosing(metric="accuracy"))
    with pytest.raises(ValueError, match="no run of toy in the identity basis"):
        choose(frame(*one_seed({0.1: 1.0}, basis="egop")), SHARED)
