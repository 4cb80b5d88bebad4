"""Adafactor: the verdicts of the claims, and that their checks notice wrong rules."""

import numpy as np
import pytest

import curvebench.optimizers.adafactor
import curvebench.optimizers.adam_nmf
from curvebench.benchmarks.claims import notes_adafactor
from curvebench.benchmarks.claims.notes_adafactor import (
    ADAFACTOR,
    CLIP,
    NEVER_RAISES,
    state_numbers,
)
from tests.benchmarks.claim_mutations import assert_noticed, mutate, wrap

OPTIMUM = "for one fixed G^2 the factors are the optimum under the I-divergence"
BOUND = "the change's root mean square is at most eta RMS(W)"
REACHED = "the bound is reached"
CLIPPING = "it is the clipping that gives the bound"
STATE = "the state is m + n numbers for Adafactor and (m + n) r for AdamNMF"
UNBIASED = "beta_2 = 1 - t^-c leaves no bias to correct"


def test_a_second_moment_of_another_size_is_noticed(monkeypatch):
    def wrong(right, *given):
        root, state = right(*given)
        return 1.001 * root, state

    wrap(monkeypatch, curvebench.optimizers.adafactor._Adafactor, "second_moment", wrong)
    assert_noticed(ADAFACTOR, 3, OPTIMUM)


def test_a_second_moment_without_factors_is_noticed(monkeypatch):
    mutate(monkeypatch, "adafactor", options={"factored": False})
    assert_noticed(ADAFACTOR, 6, OPTIMUM, "the factors of a moving average are biased")


def test_the_numbers_of_the_state():
    assert state_numbers("adafactor", (7, 5), {}) == 12
    assert state_numbers("adafactor", (7, 5), {"factored": False}) == 35
    assert state_numbers("adafactor", (7, 5), {"first_moment": True}) == 47
    assert state_numbers("adam_nmf", (7, 5), {"rank": 3}) == 36


def test_a_first_moment_in_the_state_is_noticed(monkeypatch):
    def wrong(right, optimizer, shape, options):
        return right(optimizer, shape, {"first_moment": True} if optimizer == "adafactor" else options)

    wrap(monkeypatch, notes_adafactor, "state_numbers", wrong)
    assert_noticed(ADAFACTOR, 2, STATE)


def test_other_multiplicative_steps_are_noticed(monkeypatch):
    def wrong(true, *given, **named):
        left, right = true(*given, **named)
        return curvebench.optimizers.adam_nmf.MultiplicativeFactors(left, np.roll(right, 1, axis=-1))

    wrap(monkeypatch, curvebench.optimizers.adam_nmf, "multiplicative_round", wrong)
    assert_noticed(ADAFACTOR, 3, NEVER_RAISES)


@pytest.mark.parametrize(
    ("numbers", "options", "parts"),
    [
        ({"clipping_threshold": lambda threshold: 1.01}, {}, {BOUND, CLIPPING}),
        ({"learning_rate": lambda rate: 0.99 * rate}, {}, {REACHED}),
        ({"parameter_scale_floor": lambda floor: 1e3}, {}, {BOUND, REACHED, CLIPPING}),
        ({}, {"clipping": False}, {BOUND, CLIPPING}),
    ],
    ids=["threshold", "rate", "floor", "clipping"],
)
def test_another_bound_is_noticed(numbers, options, parts, monkeypatch):
    mutate(monkeypatch, "adafactor", options=options, **numbers)
    assert_noticed(CLIP, 12, *parts)


def test_a_constant_beta_2_without_correction_is_noticed(monkeypatch):
    def wrong(right, self, ops, grad, state, hyper):
        return right(self, ops, grad, state, {**hyper, "step": hyper["step"] + 1})

    wrap(monkeypatch, curvebench.optimizers.adafactor._Adafactor, "second_moment", wrong)
    assert_noticed(CLIP, 4, UNBIASED)
