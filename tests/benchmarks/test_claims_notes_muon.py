"""Muon: the verdicts of the claims, and that their checks notice wrong rules and polynomials."""

import numpy as np
import pytest

import optimizers.steepest_descent
from benchmarks.claims.notes_muon import FLATTENS, MUON, ORDER, counted_operations
from optimizers.matrix_functions import COEFFICIENTS, polynomials
from optimizers.matrix_functions.polynomials import CUBIC, JORDAN
from tests.benchmarks.claim_mutations import failing, few, mutate, verdicts_of

TRUST = "the trust-region principle"
MAJORIZATION = "the majorization-minimization principle"
DIRECTIONS = "directions, vectors and Muon's"
CONVERGE = "their iterations converge to the polar factor"
RISING = "the first two polynomials rise to 1"
CONDITIONS = "the conditions at 1 give both polynomials"
ORDERS = "local orders 2 and 3"
FIXED = "Jordan's polynomial has no fixed point at 1"
COST = "5 steps cost about 30 m^3 operations"


def test_the_verdicts():
    assert verdicts_of(few(MUON, 5)) == {"as corrected": "reproduced", "as printed": "not reproduced"}
    assert verdicts_of(few(ORDER, 4)) == {"": "reproduced"}


def test_what_fails():
    assert failing(few(MUON, 3)) == {(FLATTENS, "as printed")}


def test_directions_that_are_not_steepest_are_noticed(monkeypatch):
    def flat(ops, grad):
        return ops.where(ops.abs(grad) > 0.5 * ops.max(ops.abs(grad)), ops.sign(grad), 0.0)

    monkeypatch.setitem(optimizers.steepest_descent.DIRECTIONS, "max", flat)
    parts = {TRUST, MAJORIZATION}
    assert failing(few(MUON, 5, parts)) == {(part, "") for part in parts}


@pytest.mark.parametrize("optimizer", ["steepest_descent", "muon", "sgd", "sign_descent"])
def test_another_rate_is_noticed(optimizer, monkeypatch):
    mutate(monkeypatch, optimizer, learning_rate=lambda rate: 1.001 * rate)
    assert failing(few(MUON, 2, {DIRECTIONS})) == {(DIRECTIONS, "")}


@pytest.mark.parametrize("rate", [0.999, 1.001])
def test_steps_of_another_length_are_noticed(rate, monkeypatch):
    mutate(monkeypatch, "steepest_descent", learning_rate=lambda given: rate * given)
    parts = {TRUST, MAJORIZATION}
    assert failing(few(MUON, 2, parts)) == {(part, "") for part in parts}


def test_a_polynomial_that_does_not_converge_is_noticed(monkeypatch):
    monkeypatch.setitem(COEFFICIENTS, "quintic", (JORDAN,))
    assert failing(few(MUON, 3, {CONVERGE})) == {(CONVERGE, "")}


def test_a_polynomial_that_is_slow_is_noticed(monkeypatch):
    monkeypatch.setitem(COEFFICIENTS, "jordan", (CUBIC,))
    assert (FLATTENS, "as corrected") in failing(few(MUON, 1, {FLATTENS}))
    parts = {FIXED, COST}
    assert failing(few(ORDER, 2, parts)) == {(part, "") for part in parts}


@pytest.mark.parametrize("name", ["CUBIC", "QUINTIC"])
def test_other_coefficients_are_noticed(name, monkeypatch):
    wrong = tuple(1.001 * number for number in getattr(polynomials, name))
    monkeypatch.setattr(polynomials, name, wrong)
    assert failing(few(MUON, 1, {RISING})) == {(RISING, "")}
    assert failing(few(ORDER, 1, {CONDITIONS})) == {(CONDITIONS, "")}


def test_an_order_too_low_is_noticed(monkeypatch):
    monkeypatch.setitem(COEFFICIENTS, "quintic", (CUBIC,))
    assert failing(few(ORDER, 2, {ORDERS})) == {(ORDERS, "")}


def test_products_are_counted():
    """Five steps of three products, each of 2 m^3; all else is below."""
    count = counted_operations(64, 64, np.random.default_rng(0))
    assert 30 * 64**3 < count < 31 * 64**3
