"""Results of tuning from a table of runs: costs, settings that tie, the chosen setting, and the settings that
other tuning seeds would choose.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvebench.results import tuning
from tests.results.rows import judge, rows, tuning_run

TARGET = {"metric": "train_loss", "threshold": 1e-6}


def of(*runs: dict[str, Any], **changes: Any) -> tuning.TuningOutcome:
    found = tuning.tuning_outcome(rows("runs", *runs), ["learning_rate"], judge(**changes))
    assert found is not None
    return found


def by_seed(rate: float, *finals: float, **changes: Any) -> list[dict[str, Any]]:
    """Runs at a learning rate that end at these losses, by seed."""
    return [
        tuning_run(f"{rate}-{seed}", final, rate, seed=seed, **changes) for seed, final in enumerate(finals)
    ]


def test_tuning_judges_what_did_not_finish_as_the_worst():
    table = rows(
        "runs",
        tuning_run("a", 1.0),
        tuning_run("b", 0.5, outcome="diverged"),
        tuning_run("c", 0.5, outcome="error"),
        tuning_run("d", math.nan),
        tuning_run("e", 0.5, outcome="interrupted"),
    )
    assert judge().costs(table)["first"].to_list() == [1.0, math.inf, math.inf, math.inf]
    assert judge("maximize").costs(table)["first"].to_list() == [-1.0, math.inf, math.inf, math.inf]


def test_settings_that_tie_are_found_and_the_least_is_taken():
    lost = [tuning_run("d", 0.5, 0.4, outcome="diverged"), tuning_run("e", math.nan, 0.05)]
    every = [tuning_run("a", 1.0 + 1e-14, 0.2), tuning_run("b", 1.0, 0.3), tuning_run("c", 1.1, 0.1), *lost]
    assert of(*every).tied == ((0.2,), (0.3,))
    assert of(*every).chosen == (0.2,)
    assert of(*every, direction="maximize").tied == ((0.1,),)
    assert of(*lost).tied == ((0.05,), (0.4,))


def test_below_its_floor_a_criterion_ties_and_another_one_decides():
    """Losses of rounding, of which the least would be the edge of the grid; the second needs fewest steps."""
    ended = ((1e-31, 0.8, 90), (4e-30, 0.2, 20), (2e-30, 0.1, 40), (1e-3, 0.4, 10))
    every = [
        tuning_run(str(rate), loss, rate, targets=[TARGET | {"steps": steps}]) for loss, rate, steps in ended
    ]
    assert of(*every).tied == ((0.8,),)
    assert of(*every, floor=1e-20, tie_break="median final train_accuracy").tied == ((0.1,), (0.2,), (0.8,))
    assert of(*every, floor=1e-20, tie_break="median steps_to_target train_loss").tied == ((0.2,),)


@pytest.mark.parametrize(
    ("steps", "losses", "chosen"),
    [
        # The setting that reaches the target first is chosen, although another one ends lower.
        ({0.1: [40, 40, 40], 0.2: [30, 20, 30], 0.4: [None] * 3}, (0.1, 0.3, 0.2), 0.2),
        # On most seeds the second setting never reaches the target.
        ({0.1: [50, 50, None], 0.2: [None, 10, None]}, (0.2, 0.1), 0.1),
        # No setting reaches it, so that the lowest loss decides.
        ({0.1: [None] * 3, 0.2: [None] * 3, 0.4: [None] * 3}, (0.5, 0.3, 0.4), 0.2),
    ],
)
def test_steps_to_a_target_are_a_criterion(steps: Any, losses: tuple[float, ...], chosen: float):
    runs = [
        tuning_run(f"{rate}-{seed}", loss, rate, seed=seed, targets=[TARGET | {"steps": reached}])
        for (rate, of_seeds), loss in zip(steps.items(), losses, strict=True)
        for seed, reached in enumerate(of_seeds)
    ]
    criteria: Any = {"choose": "median steps_to_target train_loss", "tie_break": "median final train_loss"}
    assert of(*runs, **criteria).chosen == (chosen,)
    (outcome,) = tuning.tuning_outcomes(rows("runs", *runs), judge(**criteria)).values()
    assert outcome.chosen == (chosen,)


@pytest.mark.parametrize(
    ("floor", "ended"),
    [
        (1e-8, [(0.9e-8, 0.1, 300), (0.5e-8, 0.2, 100), (2e-8, 0.4, 50)]),
        # A run that met no stop counts as needing more steps than any that did.
        (1e-3, [(1e-6, 0.1, 5), (0.5e-8, 0.2, 100)]),
    ],
)
def test_fewest_steps_to_a_stop_decide_between_runs_that_met_it(floor: float, ended: list[Any]):
    runs = [tuning_run(str(rate), loss, rate, steps=steps) for loss, rate, steps in ended]
    assert of(*runs, floor=floor, stop=1e-8, tie_break="median steps_to_stop train_loss").tied == ((0.2,),)


def test_more_than_rounding_is_no_tie_and_a_floor_of_what_is_maximized_is_a_ceiling():
    assert of(tuning_run("a", 1.0, 0.1), tuning_run("b", 1.0 + 1e-9, 0.2)).tied == ((0.1,),)
    ceiling = {"floor": 0.95, "direction": "maximize", "tie_break": "median best train_loss"}
    best = [{"name": "train_loss", "value": 0.97}]
    every = [
        tuning_run(str(rate), end, rate, best_metrics=best)
        for rate, end in ((0.1, 0.97), (0.2, 0.99), (0.3, 0.9))
    ]
    assert of(*every, **ceiling).tied == ((0.1,), (0.2,))


def test_settings_that_tie_are_likely_whatever_is_drawn():
    """The second rate ties and is the larger one, so that no draw takes it."""
    found = of(*by_seed(0.1, 1.0, 1.0, 1.0), *by_seed(0.2, 1.0, 1.0, 1.0))
    assert tuning.shares_of_choices([found]) == {((0.1,),): pytest.approx(1.0)}
    assert found.candidate_settings == ((0.1,), (0.2,))


def test_what_other_seeds_would_choose():
    """Of three seeds one prefers the second rate: the median does where two of three draws are that one."""
    found = of(*by_seed(0.1, 1.0, 1.0, 1.0), *by_seed(0.2, 0.5, 2.0, 2.0), *by_seed(0.3, 3.0, 3.0, 3.0))
    assert found.chosen == (0.1,)
    assert tuning.shares_of_choices([found]) == pytest.approx({((0.1,),): 20 / 27, ((0.2,),): 7 / 27})
    assert found.candidate_settings == ((0.1,), (0.2,))


COSTS = st.sampled_from([0.0, 1.0, 1.0 + 1e-14, 1.5, 2.0, 3.0, math.inf])


def chosen_by(costs: np.ndarray, least: float, draws: np.ndarray) -> list[int]:
    """Return the first of the settings that are the best by both criteria (2, settings, seeds), by draw of
    seeds.
    """
    found = []
    for first, second in np.median(costs[:, :, draws], axis=-1).transpose(2, 0, 1):
        held = np.maximum(first, least)
        best = [at for at, cost in enumerate(held) if cost == held.min() or cost < held.min() + 1e-13]
        fewest = min(second[best])
        found.append(next(at for at in best if second[at] == fewest or second[at] < fewest + 1e-13))
    return found


@given(
    st.data(),
    st.integers(1, 4),
    st.sampled_from([(4, 4), (5, 5), (3, 6), (6, 3)]),
    st.sampled_from([-math.inf, 1.2]),
)
@settings(max_examples=40)
def test_shares_count_every_draw(data: st.DataObject, number: int, sizes: tuple[int, int], least: float):
    """Of two methods, which share the draws; with ties, floors and runs that failed."""
    seeds, size = sizes
    both = [
        np.reshape(data.draw(st.lists(COSTS, min_size=count, max_size=count)), (2, number, seeds))
        for count in [2 * number * seeds] * 2
    ]
    found = [
        tuning.TuningOutcome(tuple((float(at),) for at in range(number)), costs, least) for costs in both
    ]
    draws = np.array(list(product(range(seeds), repeat=size)))
    counts = Counter(zip(*(chosen_by(costs, least, draws) for costs in both), strict=True))
    right = {tuple((float(at),) for at in places): count / len(draws) for places, count in counts.items()}
    given_size = None if size == seeds else size
    assert tuning.shares_of_choices(found, given_size) == pytest.approx(right, rel=1e-9)


@pytest.mark.parametrize(
    ("seeds", "size", "draws"),
    [(1, 7, 1), (2, 300, 301), (10, 10, 92_378), (11, 10, tuning.RESAMPLES), (150, 150, tuning.RESAMPLES)],
)
def test_resamples_are_all_multisets_or_so_many_at_random(seeds: int, size: int, draws: int):
    counts, weights = tuning.resamples(seeds, size)
    assert counts.shape == (seeds, draws)
    assert (counts.sum(axis=0, dtype=np.int64) == size).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)
    assert (weights > 0).all()
    if draws != tuning.RESAMPLES:
        assert len(set(map(bytes, np.ascontiguousarray(counts.T)))) == draws, "each of them once"


def test_methods_with_other_numbers_of_seeds_are_drawn_independently():
    """One takes the second rate in 7 of 27 draws; the other, of two seeds, in one of four."""
    rates = ((0.1,), (0.2,))
    three, two = (
        tuning.TuningOutcome(
            rates, np.stack([np.array([[1.0] * len(own), own]), np.zeros((2, len(own)))]), -math.inf
        )
        for own in ([0.5, 2.0, 2.0], [0.5, 2.0])
    )
    shares = tuning.shares_of_choices([three, two, three])
    assert shares == pytest.approx(
        {
            (a, b, a): p * q
            for a, p in zip(rates, (20 / 27, 7 / 27), strict=True)
            for b, q in zip(rates, (0.75, 0.25), strict=True)
        }
    )


@pytest.mark.parametrize(
    ("costs", "positions"),
    [
        ([1.0, 1.0, 2.0, 2.0], [1]),
        ([1.0, 2.0, 1.0, 2.0], [0]),
        ([1.0, 1.0, 1.0, 1.0], [0, 1]),
        ([1.0, 1.0, 2.0, 2.0 + 1e-15], []),
        ([math.inf] * 4, []),
    ],
)
def test_a_hyperparameter_without_an_effect_is_found(costs: list[float], positions: list[int]):
    settings = ((0.1, 0.8), (0.1, 0.9), (0.2, 0.8), (0.2, 0.9))
    first = np.array(costs)[:, None] + np.array([[0.0, 1.0]])
    assert (
        tuning.TuningOutcome(settings, np.array([first, np.zeros((4, 2))]), 0.0).without_effect == positions
    )


def test_a_missing_run_says_nothing():
    missing = by_seed(0.2, 1.5, 2.5, outcome="interrupted")
    found = of(*by_seed(0.1, 1.0, 2.0, 3.0), *missing, tuning_run("b2", 1.5, 0.2, seed=2))
    assert found.costs[0].tolist() == [[1.0, 2.0, 3.0], [1.5, 1.5, 1.5]]


def test_a_setting_that_lacks_a_hyperparameter_is_no_other_one():
    (setting,) = tuning.settings_of(
        rows("runs", tuning_run("a", 1.0, hyperparameters=None)), ["learning_rate", "beta1"]
    )
    assert setting[0] == 0.1
    assert math.isnan(setting[1])


def test_of_settings_that_tie_the_least_by_the_first_hyperparameter_is_taken():
    ended = [(0.1, 0.9, 1.0), (0.1, 0.5, 1.0 + 1e-14), (1.0, 0.4, 1.0), (0.01, 0.3, 1.1)]
    every = [
        tuning_run(f"{rate} {beta}", loss, rate, hyperparameters=[{"name": "beta1", "value": beta}])
        for rate, beta, loss in ended
    ]
    found = tuning.tuning_outcome(rows("runs", *every), ["learning_rate", "beta1"], judge())
    assert found is not None
    assert found.tied == ((0.1, 0.5), (0.1, 0.9), (1.0, 0.4))
    assert found.chosen == (0.1, 0.5)
