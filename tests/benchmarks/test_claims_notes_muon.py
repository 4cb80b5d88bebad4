"""Muon: the verdicts of the claims, and that their checks notice wrong rules and polynomials."""

import numpy as np
import pytest

import curvebench.optimizers.steepest_descent
from curvebench.benchmarks.claims.notes_muon import FLATTENS, MUON, ORDER, counted_operations
from curvebench.optimizers.matrix_functions import COEFFICIENTS, polynomials
from curvebench.optimizers.matrix_functions.polynomials import CUBIC, JORDAN
from tests.benchmarks.claim_mutations import assert_noticed, mutate

TRUST = "the trust-region principle"
MAJORIZATION = "the majorization-minimization principle"
DIRECTIONS = "directions, vectors and Muon's"
CONVERGE = "their iterations converge to the polar factor"
RISING = "the first two polynomials rise to 1"
CONDITIONS = "the conditions at 1 give both polynomials"
ORDERS = "local orders 2 and 3"
FIXED = "Jordan's polynomial has no fixed point at 1"
COST = "5 steps cost about 30 m^3 operations"


def test_directions_that_are_not_steepest_are_noticed(monkeypatch):
    def flat(ops, grad):
        return ops.where(ops.abs(grad) > 0.5 * ops.max(ops.abs(grad)), ops.sign(grad), 0.0)

    monkeypatch.setitem(curvebench.optimizers.steepest_descent.DIRECTIONS, "max", flat)
    assert_noticed(MUON, 5, TRUST, MAJORIZATION)


@pytest.mark.parametrize("optimizer", ["steepest_descent", "muon", "sgd", "sign_descent"])
def test_another_rate_is_noticed(optimizer, monkeypatch):
    mutate(monkeypatch, optimizer, learning_rate=lambda rate: 1.001 * rate)
    assert_noticed(MUON, 2, DIRECTIONS)


@pytest.mark.parametrize("rate", [0.999, 1.001])
def test_steps_of_another_length_are_noticed(rate, monkeypatch):
    mutate(monkeypatch, "steepest_descent", learning_rate=lambda given: rate * given)
    assert_noticed(MUON, 2, TRUST, MAJORIZATION)


def test_a_polynomial_that_does_not_converge_is_noticed(monkeypatch):
    monkeypatch.setitem(COEFFICIENTS, "quintic", (JORDAN,))
    assert_noticed(MUON, 3, CONVERGE)


def test_a_polynomial_that_is_slow_is_noticed(monkeypatch):
    monkeypatch.setitem(COEFFICIENTS, "jordan", (CUBIC,))
    assert_noticed(MUON, 1, FLATTENS)
    assert_noticed(ORDER, 2, FIXED, COST)


@pytest.mark.parametrize("name", ["CUBIC", "QUINTIC"])
def test_other_coefficients_are_noticed(name, monkeypatch):
    wrong = tuple(1.001 * number for number in getattr(polynomials, name))
    monkeypatch.setattr(polynomials, name, wrong)
    assert_noticed(MUON, 1, RISING)
    assert_noticed(ORDER, 1, CONDITIONS)


def test_an_order_too_low_is_noticed(monkeypatch):
    monkeypatch.setitem(COEFFICIENTS, "quintic", (CUBIC,))
    assert_noticed(ORDER, 2, ORDERS)


def test_products_are_counted():
    """Five steps of three products, each of 2 m^3; all else is below."""
    count = counted_operations(64, 64, np.random.default_rng(0))
    assert 30 * 64**3 < count < 31 * 64**3
