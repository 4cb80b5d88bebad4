"""Majorization and smoothness: the verdict of the claim, and that its checks notice what is wrong."""

import dataclasses

import numpy as np
import pytest

from curvebench.benchmarks.claims import notes_majorize
from curvebench.benchmarks.claims.notes_majorize import MAJORIZE, operator_norm
from tests.benchmarks.claim_mutations import assert_noticed, mutate, wrap

DESCENT = "the loss never rises and stays under its surrogate"
QUADRATICS = "(132) = (133) => (134), quadratics"
LIMITS = "(132) = (133) => (134), cosines and limits"
STRICT = "(134) is weaker outside the Euclidean norm"


@pytest.mark.parametrize("optimizer", ["sgd", "steepest_descent"])
def test_a_rate_above_1_over_L_is_noticed(optimizer, monkeypatch):
    mutate(monkeypatch, optimizer, learning_rate=lambda rate: 3 * rate)
    assert_noticed(MAJORIZE, 6, DESCENT)


@pytest.mark.parametrize("norm", ["frobenius", "max", "spectral"])
def test_a_constant_that_is_too_small_is_noticed(norm, monkeypatch):
    def wrong(right, *given):
        function = right(*given)
        return dataclasses.replace(
            function, constants={**function.constants, norm: 0.5 * function.constants[norm]}
        )

    wrap(monkeypatch, notes_majorize, "_quadratic", wrong)
    assert_noticed(MAJORIZE, 8, DESCENT)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_another_constant_is_noticed(factor, monkeypatch):
    def wrong(right, *given):
        constant, extreme = right(*given)
        return factor * constant, extreme

    wrap(monkeypatch, notes_majorize, "operator_norm", wrong)
    assert_noticed(MAJORIZE, 3, QUADRATICS, LIMITS, STRICT)


def test_the_operator_norms_of_a_matrix_by_hand():
    hessian = np.array([[1.0, 2.0], [2.0, -3.0]])
    assert operator_norm(hessian, "l1")[0] == pytest.approx(3)  # the greatest entry
    assert operator_norm(hessian, "l2")[0] == pytest.approx(1 + np.sqrt(8))
    assert operator_norm(hessian, "linfinity")[0] == pytest.approx(6)  # at (1, -1): |-1| + |5|
