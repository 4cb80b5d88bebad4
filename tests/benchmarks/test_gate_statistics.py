"""The gate's statistics: exact intervals, few false alarms, enough power, and honest doubt."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.benchmarks.gate_statistics import (
    LEVEL,
    decide,
    least_rounds,
    log_ratios,
    rank_sum_tail,
    rounds_for,
    rounds_to_add,
    shown_by,
    signed_rank_interval,
    within_side_noise,
)
from curvebench.reports.statistics.paired import signed_rank_p_value

ROUNDS, BLOCKS = 12, 8


def machine(
    generator: np.random.Generator, noise: float, rounds: int = ROUNDS, load: float = 0.2
) -> np.ndarray:
    """Four equal processes a round: rounds under different load, drifts, noise of processes, outliers."""
    drift = np.cumsum(generator.normal(0, 0.02, (rounds, 1, BLOCKS)), axis=2)
    level = generator.normal(0, load, (rounds, 1, 1)) + generator.normal(0, noise, (rounds, 4, 1))
    outliers = np.where(generator.random((rounds, 4, BLOCKS)) < 0.05, 0.5, 0.0)
    return np.exp(level + drift + generator.normal(0, 0.03, (rounds, 4, BLOCKS)) + outliers)


def shares(noise: float, slowdown: float, comparisons: int) -> dict[str, float]:
    generator = np.random.default_rng(0)
    found = dict.fromkeys(("slower", "faster", "equal", "undecided"), 0.0)
    for _ in range(comparisons):
        seconds = machine(generator, noise)
        found[decide(seconds[:, :2], seconds[:, 2:] * (1 + slowdown), 0.05).outcome] += 1 / comparisons
    return found


# --- intervals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [9, 20])
def test_the_interval_holds_the_shifts_that_the_exact_test_does_not_reject(count: int):
    values = np.random.default_rng(count).standard_t(3, size=count)
    estimate, low, high = signed_rank_interval(values, LEVEL)
    assert low < estimate < high

    def p_value(shift: float) -> float:
        moved = values - shift
        return 2 * min(signed_rank_p_value(moved), signed_rank_p_value(-moved))

    for bound, inwards in ((low, 1e-9), (high, -1e-9)):
        assert p_value(bound + inwards) > 1 - LEVEL >= p_value(bound - inwards)


def test_the_tail_of_the_rank_sum_is_the_tables():
    # Two-sided critical values of Hollander, Wolfe and Chicken are one less.
    assert [rank_sum_tail(count, 0.95) for count in (5, 6, 8, 10, 12)] == [0, 1, 4, 9, 14]
    assert [rank_sum_tail(count, 0.99) for count in (7, 8, 10, 12)] == [0, 1, 4, 8]


@given(noise=st.floats(0.0, 0.5), effect=st.floats(0.01, 1.0))
def test_the_rounds_that_would_do_are_the_least_that_do(noise: float, effect: float):
    rounds = rounds_for(effect, noise, LEVEL)
    assert shown_by(rounds, noise, LEVEL) <= math.log1p(effect)
    assert rounds == least_rounds(LEVEL) or shown_by(rounds - 1, noise, LEVEL) > math.log1p(effect)


# --- noise ---------------------------------------------------------------------------------------


def test_a_rounds_ratio_is_that_of_neighbouring_blocks():
    load = np.array([1.0, 5.0, 2.0])
    base = np.ones((4, 2, 1)) * load
    assert log_ratios(base, 1.25 * base) == pytest.approx(np.full(4, math.log(1.25)))


def test_noise_within_sides_is_the_noise_of_the_ratio_and_knows_no_difference_of_the_sides():
    seconds = machine(np.random.default_rng(1), noise=0.03, rounds=400)
    base, head = seconds[:, :2], seconds[:, 2:]
    noise = within_side_noise(base, head)
    assert noise == pytest.approx(log_ratios(base, head).std(), rel=0.15)
    assert within_side_noise(base, 3 * head) == pytest.approx(noise)
    assert within_side_noise(base, base[:, ::-1]) == pytest.approx(
        np.quantile(np.abs(_contrasts(base)), 0.8) / 1.2816, rel=1e-4
    )


def _contrasts(base: np.ndarray) -> np.ndarray:
    difference = np.median(np.log(base[:, 0] / base[:, 1]), axis=-1)
    return np.concatenate([np.zeros(len(difference)), difference])


# --- verdicts ------------------------------------------------------------------------------------


def test_equal_sides_are_equal_and_a_large_change_is_told_by_its_direction():
    seconds = machine(np.random.default_rng(2), noise=0.01)
    base, head = seconds[:, :2], seconds[:, 2:]
    assert decide(base, head, 0.05).outcome == "equal"
    slower = decide(base, 1.2 * head, 0.05)
    assert slower.outcome == "slower"
    assert slower.low < 1.2 < slower.high
    assert decide(1.2 * base, head, 0.05).outcome == "faster"
    assert str(slower).startswith("slower: +")


def test_a_sure_change_below_the_effect_is_equal():
    seconds = machine(np.random.default_rng(3), noise=0.002, load=0.0)
    verdict = decide(seconds[:, :2], 1.03 * seconds[:, 2:], 0.10)
    assert verdict.low > 1
    assert verdict.outcome == "equal"
    assert str(verdict).startswith("equal within 10 %: +")


def test_a_sample_that_could_not_show_the_effect_says_what_could():
    generator = np.random.default_rng(4)
    seconds = machine(generator, noise=0.06)
    doubtful = decide(seconds[:, :2], seconds[:, 2:], 0.05)
    assert doubtful.outcome == "undecided"
    assert doubtful.rounds == ROUNDS < doubtful.rounds_needed < 100
    assert f"{doubtful.rounds_needed} would do" in str(doubtful)
    more = machine(generator, noise=0.06, rounds=2 * doubtful.rounds_needed)
    assert decide(more[:, :2], more[:, 2:], 0.05).outcome == "equal"


def test_a_change_far_beyond_the_effect_is_told_whatever_the_noise():
    seconds = machine(np.random.default_rng(5), noise=0.06)
    verdict = decide(seconds[:, :2], 2 * seconds[:, 2:], 0.05)
    assert verdict.rounds < verdict.rounds_needed
    assert verdict.outcome == "slower"


def test_too_few_rounds_decide_nothing():
    base = np.ones((8, 2, 3))
    assert decide(base, 2 * base, 0.05).outcome == "undecided"
    assert decide(base, base, 0.05).rounds_needed == 9


# --- error rates ---------------------------------------------------------------------------------


def enlarged(generator: np.random.Generator, noise: float, slowdown: float) -> str:
    """The outcome after as many more rounds as the noise of the first asks for, as the gate takes them."""
    sides, more = np.empty((0, 4, BLOCKS)), ROUNDS
    while more:
        sides = np.concatenate([sides, machine(generator, noise, more)])
        verdict = decide(sides[:, :2], sides[:, 2:] * (1 + slowdown), 0.05)
        more = rounds_to_add(verdict, 100)
    return verdict.outcome


def test_noise_that_hides_a_slowdown_takes_more_rounds_and_no_more_alarms():
    assert shares(0.06, slowdown=0.10, comparisons=100)["slower"] < 0.5
    generator = np.random.default_rng(9)
    found = [enlarged(generator, 0.06, slowdown=0.10) for _ in range(100)]
    assert found.count("slower") >= 90
    calm = [enlarged(generator, 0.06, slowdown=0.0) for _ in range(1000)]
    assert calm.count("slower") + calm.count("faster") <= 10


def test_more_rounds_are_asked_for_by_the_noise_alone():
    seconds = machine(np.random.default_rng(11), noise=0.06)
    equal, changed = (decide(seconds[:, :2], factor * seconds[:, 2:], 0.05) for factor in (1, 3))
    assert equal.outcome != changed.outcome
    assert rounds_to_add(equal, 1000) == rounds_to_add(changed, 1000) > 0
    assert rounds_to_add(equal, ROUNDS + 1) == 1
    calm = machine(np.random.default_rng(12), noise=0.005)
    assert rounds_to_add(decide(calm[:, :2], calm[:, 2:], 0.05), 1000) == 0


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_false_alarms_stay_below_one_in_a_hundred(noise: float):
    found = shares(noise, slowdown=0.0, comparisons=2500)
    assert found["slower"] + found["faster"] <= 0.01


def test_a_slowdown_of_a_tenth_is_found_nine_times_of_ten():
    assert shares(0.02, slowdown=0.10, comparisons=1000)["slower"] >= 0.9
