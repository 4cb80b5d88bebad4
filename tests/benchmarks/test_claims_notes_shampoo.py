"""Shampoo: the verdicts of the claim, and that its checks notice wrong rules."""

import numpy as np
import pytest

import optimizers.idealized_shampoo
import optimizers.shampoo
from benchmarks.claims import notes_shampoo
from benchmarks.claims.notes_shampoo import COSINE, IDENTITY, SHAMPOO, running_mean_weights
from harness.checks import rows
from optimizers.tensors import second_moment
from tests.benchmarks.claim_mutations import failing, few, mutate, verdicts_of

BOUND = "O^1/2 <= sqrt(r) L^1/4 (x) R^1/4, the preconditioner of the rule's step"
REGRET = "the regret is at most D sqrt(2 r) tr L^1/4 tr R^1/4"
POWER = "the power 1/2 is one step of power iteration from the identity"
EXACT = "where the rearranged matrix has rank one the decomposition and the idealized step are exact"
INEXACT = "elsewhere the decomposition is not exact"
SINGULAR = "singular statistics need a pseudo-inverse or epsilon"


def test_the_verdicts():
    assert verdicts_of(few(SHAMPOO, 8)) == {"as corrected": "reproduced", "as printed": "not reproduced"}


def test_what_fails():
    assert failing(few(SHAMPOO, 8)) == {(COSINE, "as printed"), (IDENTITY, "as printed")}


def test_statistics_of_another_size_are_noticed(monkeypatch):
    monkeypatch.setattr(
        "optimizers.shampoo.second_moment", lambda *arguments: 1.001 * second_moment(*arguments)
    )
    parts = {BOUND, POWER, SINGULAR}
    assert failing(few(SHAMPOO, 4, parts)) == {(part, "") for part in parts}


def test_another_power_is_noticed(monkeypatch):
    mutate(monkeypatch, "shampoo", options={"power": 0.26})
    parts = {BOUND, POWER, SINGULAR}
    assert failing(few(SHAMPOO, 4, parts)) == {(part, "") for part in parts}


def test_the_order_is_tight():
    """So a factor of less than sqrt(r) would fail."""
    found = [row.measure for row in rows(few(SHAMPOO, 30, {BOUND}), "quick")]
    ratios = [measure.value for measure in found if measure.quantity.startswith("least c")]
    assert max(ratios) > 0.999


@pytest.mark.parametrize("share", [0, -1], ids=["still", "ascent"])
def test_weights_that_do_not_learn_break_the_regret_bound(share, monkeypatch):
    true = optimizers.shampoo._Tensors.update

    def wrong(self, ops, grad, state, param, hyper):
        new, state = true(self, ops, grad, state, param, hyper)
        return param + share * (new - param), state

    monkeypatch.setattr(optimizers.shampoo._Tensors, "update", wrong)
    assert failing(few(SHAMPOO, 30, {REGRET})) == {(REGRET, "")}


def test_singular_vectors_in_another_order_are_noticed(monkeypatch):
    true = notes_shampoo._with_a_gap

    def wrong(random, matrices):
        rearranged, u, values, vh = true(random, matrices)
        return rearranged, u, values, vh[::-1]

    monkeypatch.setattr(notes_shampoo, "_with_a_gap", wrong)
    parts = {COSINE, IDENTITY}
    found = failing(few(SHAMPOO, 10, parts))
    assert {part for part, variant in found if variant == "as corrected"} == parts


def test_a_decomposition_that_is_exact_is_noticed(monkeypatch):
    true = notes_shampoo.Gradients.statistics

    def wrong(self, weights):
        _, left, right = true(self, weights)
        return np.kron(left, right) / np.trace(left), left, right

    monkeypatch.setattr(notes_shampoo.Gradients, "statistics", wrong)
    assert failing(few(SHAMPOO, 2, {INEXACT})) == {(INEXACT, "")}


def test_another_idealized_step_is_noticed(monkeypatch):
    mutate(monkeypatch, "idealized_shampoo", beta2=lambda beta2: beta2**1.01)
    assert failing(few(SHAMPOO, 6, {EXACT})) == {(EXACT, "")}


def test_a_root_of_the_whole_statistics_is_not_that_of_singular_ones(monkeypatch):
    mutate(monkeypatch, "shampoo", epsilon=lambda epsilon: epsilon + 1e-3)
    assert failing(few(SHAMPOO, 4, {SINGULAR})) == {(SINGULAR, "")}


def test_the_weights_are_those_of_a_corrected_running_mean():
    values, mean = [1.0, 2.0, 4.0], 0.0
    for value in values:
        mean = 0.5 * mean + 0.5 * value
    np.testing.assert_allclose(running_mean_weights(3, 0.5) @ values, mean / (1 - 0.5**3))
