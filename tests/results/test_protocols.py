"""Tuning protocols: grids, searches and halvings, equal budgets per tuned hyperparameter, and the choice."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pydantic import TypeAdapter

from curvebench.results import tuning
from curvebench.results.schema import RUNS
from curvebench.results.tuning import Judge, TuningOutcome, comparable, tuning_outcomes
from curvebench.seeding import generator
from curvebench.spec.document import Direction
from curvebench.spec.method import OptimizerSpec
from curvebench.spec.tuning import PROTOCOLS, Search, Setting, SuccessiveHalving, Tuning, TwoStageSweep
from tests.curvebench.stages.test_jobs import TUNING
from tests.results.rows import rows, tuning_run

CRITERION = {"choose": "median final train_loss", "shared_across": "none"}
OF_RATES = {"space": {"learning_rate": {"low": 1e-4, "high": 1.0, "scale": "log"}}}
WRITTEN: list[dict[str, Any]] = [
    {"protocol": "two_stage_sweep", "of": "learning_rate", "coarse": [1e-3, 1.0]},
    {"protocol": "random_search", "budget_per_dimension": 5, **OF_RATES},
    {"protocol": "halton_search", "budget_per_dimension": 5, "length": "1/3", **OF_RATES},
    {"protocol": "successive_halving", "budget_per_dimension": 12, "halvings": 2, **OF_RATES},
    {"protocol": "tpe", "budget_per_dimension": 12, "at_once": 4, **OF_RATES},
]
KINDS: list[Tuning] = [TypeAdapter(Tuning).validate_python({**CRITERION, **one}) for one in WRITTEN]
HALVING = KINDS[3]
JUDGE = Judge(HALVING, lambda metric: "minimize", {})
Result = Callable[[int, Setting, int], tuple[float, str]]  # loss and outcome by round, setting and seed
Played = tuple[tuple[Setting, ...], TuningOutcome | None, pl.DataFrame]


def round_of(number: int, tried: tuple[Setting, ...], result: Result) -> pl.DataFrame:
    """Return the runs of a round at its settings, with two seeds."""
    runs = []
    for (place, setting), seed in product(enumerate(tried), (0, 1)):
        loss, outcome = result(number, setting, seed)
        about: dict[str, Any] = {"round": number, "seed": seed, "outcome": outcome, **setting}
        runs.append(tuning_run(f"{number}-{place}-{seed}", loss, workload="toy", **about))
    return rows("runs", *runs)


def played(protocol: Tuning, result: Result) -> Iterator[Played]:
    """Yield the settings of each round, and what is known after it."""
    judge, runs = Judge(protocol, lambda metric: "minimize", {}), pl.DataFrame(schema=RUNS)
    outcome: TuningOutcome | None = None
    for number in range(len(protocol.rounds)):
        tried = protocol.settings(number, generator("study", protocol.protocol), outcome)
        runs = pl.concat([runs, round_of(number, tried, result)])
        outcome = tuning_outcomes(runs, judge).get(("toy", "identity"))
        yield tried, outcome, runs


def arbitrary(random: Random) -> Result:
    """Results without a rule, with ties, runs that diverge and runs that fail."""

    def result(number: int, setting: Setting, seed: int) -> tuple[float, str]:
        loss = random.choice([0.0, 1.0, 1.0 + 1e-14, random.random(), math.nan])
        return loss, random.choice(["budget", "budget", "reached", "diverged", "error"])

    return result


def distance(rate: float) -> Result:
    """Return a loss that is 0 at a learning rate, and depends on neither round nor seed."""
    return lambda number, setting, seed: (abs(math.log(setting["learning_rate"] / rate)), "budget")


def test_every_protocol_is_played_here():
    assert {type(one) for one in KINDS} == set(PROTOCOLS)


@pytest.mark.parametrize("protocol", KINDS, ids=lambda one: one.protocol)
@given(st.randoms(use_true_random=False))
@examples(max_examples=10, deadline=None)
def test_budgets_are_equal_whatever_the_results_are(protocol: Tuning, random: Random):
    seed = random.random()
    rounds = list(played(protocol, arbitrary(Random(seed))))
    again = list(played(protocol, arbitrary(Random(seed))))
    assert [tried for tried, *_ in rounds] == [tried for tried, *_ in again]
    tried = [[setting["learning_rate"] for setting in settings] for settings, *_ in rounds]
    assert tuple(map(len, tried)) == tuple(len(set(one)) for one in tried) == protocol.rounds
    assert len(set().union(*tried)) == protocol.trials
    assert all(1e-4 <= rate <= 8.0 for one in tried for rate in one)
    spent = sum(share * len(one) for share, one in zip(protocol.shares, tried, strict=True))
    assert spent == protocol.cost
    (*_, (last, outcome, _)) = rounds
    assert outcome is not None
    if protocol is HALVING:
        assert set(outcome.settings) == {tuple(setting.values()) for setting in last}
    assert sorted(outcome.ranked) == sorted(outcome.settings)
    assert outcome.ranked[0] == outcome.chosen


@pytest.mark.parametrize("rate", [1e-4, 3e-3, 1.0])
def test_halving_keeps_the_best_half_and_ends_in_the_best_of_all(rate: float):
    result = distance(rate)
    rounds = list(played(HALVING, result))
    order = sorted(rounds[0][0], key=lambda setting: result(0, setting, 0))
    assert [list(tried) for tried, *_ in rounds[1:]] == [order[:6], order[:3]]
    outcome = rounds[-1][1]
    assert outcome is not None
    assert outcome.chosen == tuple(order[0].values())


def test_results_of_short_runs_choose_nothing():
    """A rate that is good early and bad in the end goes on, and is not taken."""
    late = distance(1e-2)

    def result(number: int, setting: Setting, seed: int) -> tuple[float, str]:
        loss, outcome = late(number, setting, seed)
        return (-1000.0 - loss if number < 2 else loss), outcome

    (*_, (last, outcome, runs)) = played(HALVING, result)
    assert outcome is not None
    assert outcome.chosen == tuple(min(last, key=lambda setting: late(2, setting, 0)).values())
    assert set(comparable(runs, HALVING)["round"]) == {2}
    lost = pl.when(pl.col("round") == 2).then(pl.lit("interrupted")).otherwise("outcome")
    known = tuning_outcomes(runs.with_columns(outcome=lost.cast(RUNS["outcome"])), JUDGE)
    assert known == {}, "where the last round is missing, shorter runs are no substitute"


def test_of_settings_that_tie_or_all_diverge_the_smallest_go_on():
    for result in (lambda *_: (1.0, "budget"), lambda *_: (math.nan, "diverged")):
        first, second, _ = (tried for tried, *_ in played(HALVING, result))
        assert list(second) == sorted(first, key=lambda setting: setting["learning_rate"])[:6]


def test_every_round_of_a_halving_has_its_number_of_runs_where_settings_are_equal():
    """As of a method that is not tuned, whose space is one point."""
    fixed = HALVING.sized({"space": {"learning_rate": {"low": 0.1, "high": 0.1, "scale": "log"}}})
    assert tuple(len(tried) for tried, *_ in played(fixed, distance(1.0))) == fixed.rounds


def test_halving_takes_a_share_of_the_length_and_costs_the_same_in_every_round():
    assert HALVING.shares == (Fraction(1, 4), Fraction(1, 2), Fraction(1))
    assert {share * count for share, count in zip(HALVING.shares, HALVING.rounds, strict=True)} == {3}
    assert HALVING.cost == 9
    short = HALVING.sized({"length": "1/5"})
    assert isinstance(short, SuccessiveHalving)
    assert short.shares == (Fraction(1, 20), Fraction(1, 10), Fraction(1, 5))
    short.check_lengths({"epochs": 40}, 20)
    with pytest.raises(ValueError, match=r"runs of 1/20 .* 1/20 of 10 evaluations.* a multiple of 20"):
        short.check_lengths({"epochs": 40}, 10)


def test_a_size_that_names_the_same_protocol_keeps_the_rest():
    assert HALVING.sized({"protocol": "successive_halving", "budget_per_dimension": 8}) == HALVING.sized(
        {"budget_per_dimension": 8}
    )


def test_a_parzen_search_draws_other_settings_in_each_round():
    (*_, (_, outcome, _)) = played(KINDS[4], distance(0.01))
    drawn = [KINDS[4].settings(number, generator("study", "tpe"), outcome) for number in (1, 2)]
    assert not {*map(str, drawn[0])} & {*map(str, drawn[1])}


def test_a_parzen_search_comes_nearer_to_the_best_rate():
    rate = 3e-4
    rounds = played(KINDS[4].sized({"budget_per_dimension": 24}), distance(rate))
    distances = [abs(math.log(setting["learning_rate"] / rate)) for tried, *_ in rounds for setting in tried]
    assert sum(distances[12:]) < 0.6 * sum(distances[:12])


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
    keys = {"protocol": protocol, "budget_per_dimension": budget, "space": space}
    return Search.model_validate({**keys, **shared})


def settings(protocol: Tuning, study: str) -> tuple[Setting, ...]:
    return protocol.settings(0, generator(study, protocol.protocol), None)


def judge(protocol: Tuning = SWEEP, direction: Direction = "minimize") -> Judge:
    return Judge(protocol, lambda metric: direction, {})


def choose(runs, protocol=SWEEP, direction="minimize"):
    """Return the settings that tuning chooses, by workload and basis."""
    found = tuning.tuning_outcomes(runs, judge(protocol, direction))
    return {group: dict(zip(protocol.names, each.chosen, strict=True)) for group, each in found.items()}


def refined(runs):
    """Return the settings of the round that follows runs in the identity basis."""
    outcome = tuning.tuning_outcomes(runs, judge())["toy", "identity"]
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


def test_every_method_tries_equally_many_settings_per_tuned_hyperparameter():
    for best in SWEEP.rates:
        runs = frame(*one_seed({rate: float(rate != best) for rate in SWEEP.rates}))
        tried = [*settings(SWEEP, "study"), *refined(runs)]
        assert len({setting["learning_rate"] for setting in tried}) == SWEEP.trials
    for protocol in ("random_search", "halton_search"):
        fixed: dict[str, Any] = {"beta2": {"low": 0.9, "high": 0.9, "scale": "linear"}}
        for space in (dict[str, Any](OF_RATES["space"]), SPACE, {**SPACE, **fixed}):
            one = search(protocol, 7, space)
            tuned = sum(axis["low"] < axis["high"] for axis in space.values())
            assert len({*map(str, settings(one, "study"))}) == one.trials == 7 * tuned


@pytest.mark.parametrize("protocol", KINDS, ids=lambda one: one.protocol)
def test_known_settings_are_tried_in_the_longest_runs_beside_those_of_the_search(protocol: Tuning):
    known = ({"learning_rate": 0.0123}, {"learning_rate": 50.0})
    with_known = protocol.for_optimizer(OptimizerSpec("adam", also_try=known))
    rounds, more = ([tried for tried, *_ in played(one, distance(0.0123))] for one in (protocol, with_known))
    assert more[:-1] == rounds[:-1]
    assert more[-1] == (*rounds[-1], *known)
    assert tuple(map(len, more)) == with_known.rounds
    (*_, (_, outcome, _)) = played(with_known, distance(0.0123))
    assert outcome is not None
    assert outcome.chosen == (0.0123,)


def test_an_old_plan_gives_every_method_the_same_number_of_settings():
    """As sets that were published before the number of settings grew with the number of hyperparameters."""
    choice = TUNING.choose.model_dump()
    keys = {
        "protocol": "halton_search",
        "budget": 7,
        "space": SPACE,
        "shared_across": "none",
        "choose": choice,
    }
    text = json.dumps(keys)
    old = TypeAdapter[Any](Tuning).validate_json(text)
    assert (old.trials, len(settings(old, "study"))) == (7, 7)
    with pytest.raises(ValueError, match="is no key of study files; give budget_per_dimension"):
        TypeAdapter[Any](Tuning).validate_python({**keys, "choose": CRITERION["choose"]})


@pytest.mark.parametrize("protocol", ["random_search", "halton_search"])
def test_searches_stay_in_their_space_and_repeat(protocol):
    one = search(protocol, 64)
    points = settings(one, "study")
    assert points == settings(one, "study")
    assert points != settings(one, "another study")
    for name, axis in SPACE.items():
        assert all(axis["low"] <= point[name] <= axis["high"] for point in points)
    logarithms = np.log10([point["learning_rate"] for point in points])
    # The median is the middle of the logarithmic scale.
    assert np.median(logarithms) == pytest.approx(-2.0, abs=0.6)


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
    assert [protocol.tuning_basis("egop") for protocol in (SHARED, SWEEP)] == ["identity", "egop"]
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
