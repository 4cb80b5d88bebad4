"""Shampoo: the verdicts of the claim, and that its checks notice wrong rules."""

import numpy as np
import pytest

import curvebench.optimizers.idealized_shampoo
import curvebench.optimizers.shampoo
from curvebench.benchmarks.claims import notes_shampoo
from curvebench.benchmarks.claims.notes_shampoo import COSINE, IDENTITY, SHAMPOO, running_mean_weights
from tests.benchmarks.claim_mutations import assert_noticed, few, mutate, wrap
from tests.curvebench.property_checks.claim_rows import rows

BOUND = "O^1/2 <= sqrt(r) L^1/4 (x) R^1/4, the preconditioner of the rule's step"
REGRET = "the regret is at most D sqrt(2 r) tr L^1/4 tr R^1/4"
POWER = "the power 1/2 is one step of power iteration from the identity"
EXACT = "where the rearranged matrix has rank one the decomposition and the idealized step are exact"
INEXACT = "elsewhere the decomposition is not exact"
SINGULAR = "singular statistics need a pseudo-inverse or epsilon"


def test_statistics_of_another_size_are_noticed(monkeypatch):
    wrap(
        monkeypatch,
        curvebench.optimizers.shampoo,
        "second_moment",
        lambda right, *given: 1.001 * right(*given),
    )
    assert_noticed(SHAMPOO, 4, BOUND, POWER, SINGULAR)


def test_another_power_is_noticed(monkeypatch):
    mutate(monkeypatch, "shampoo", options={"power": 0.26})
    assert_noticed(SHAMPOO, 4, BOUND, POWER, SINGULAR)


def test_the_order_is_tight():
    """So a factor of less than sqrt(r) would fail."""
    found = [row.measure for row in rows(few(SHAMPOO, 30, {BOUND}), "quick")]
    ratios = [measure.value for measure in found if measure.quantity.startswith("least c")]
    assert max(ratios) > 0.999


@pytest.mark.parametrize("share", [0, -1], ids=["still", "ascent"])
def test_weights_that_do_not_learn_break_the_regret_bound(share, monkeypatch):
    def wrong(right, self, ops, grad, state, param, hyper):
        new, state = right(self, ops, grad, state, param, hyper)
        return param + share * (new - param), state

    wrap(monkeypatch, curvebench.optimizers.shampoo._Tensors, "update", wrong)
    mutate(monkeypatch, "shampoo", options={"power": None})  # the default, but built after the change
    assert_noticed(SHAMPOO, 30, REGRET)


def test_singular_vectors_in_another_order_are_noticed(monkeypatch):
    def wrong(right, *given):
        rearranged, u, values, vh = right(*given)
        return rearranged, u, values, vh[::-1]

    wrap(monkeypatch, notes_shampoo, "_with_a_gap", wrong)
    assert_noticed(SHAMPOO, 10, COSINE, IDENTITY)


def test_a_decomposition_that_is_exact_is_noticed(monkeypatch):
    def wrong(true, *given):
        _, left, right = true(*given)
        return np.kron(left, right) / np.trace(left), left, right

    wrap(monkeypatch, notes_shampoo.Gradients, "statistics", wrong)
    assert_noticed(SHAMPOO, 2, INEXACT)


def test_another_idealized_step_is_noticed(monkeypatch):
    mutate(monkeypatch, "idealized_shampoo", beta2=lambda beta2: beta2**1.01)
    assert_noticed(SHAMPOO, 6, EXACT)


def test_a_root_of_the_whole_statistics_is_not_that_of_singular_ones(monkeypatch):
    mutate(monkeypatch, "shampoo", epsilon=lambda epsilon: epsilon + 1e-3)
    assert_noticed(SHAMPOO, 4, SINGULAR)


def test_the_weights_are_those_of_a_corrected_running_mean():
    values, mean = [1.0, 2.0, 4.0], 0.0
    for value in values:
        mean = 0.5 * mean + 0.5 * value
    np.testing.assert_allclose(running_mean_weights(3, 0.5) @ values, mean / (1 - 0.5**3))
