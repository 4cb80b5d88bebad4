"""Changes of basis: the verdicts of the claims, and that their checks notice wrong rules and matrices."""

import dataclasses

import numpy as np
import pytest

from curvebench.benchmarks.claims import egop_bases
from curvebench.benchmarks.claims._matrices import orthonormal
from curvebench.benchmarks.claims.egop_bases import EQUIVARIANCE, KRONECKER_SUBSET
from curvebench.engine import replaying
from tests.benchmarks.claim_mutations import assert_noticed, mutate, wrap

COMPOSED = "a basis around a rule is the rule on f(V theta)"
ORTHOGONAL = "SGD and momentum in orthogonal bases"
SIGNED = "all four under signed permutations"
PERMUTED = "all four under permutations"
DIFFERENT = "Adam and Adagrad in orthogonal bases differ"
TWO_SIDED = "two-sided rotations are orthogonal"
NO_PRODUCT = "the V of the proof is no product"


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_a_rule_that_sees_coordinates_is_noticed(optimizer, monkeypatch):
    mutate(monkeypatch, optimizer, "adagrad")
    assert_noticed(EQUIVARIANCE, 2, ORTHOGONAL)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_a_rule_that_sees_no_coordinates_is_noticed(optimizer, monkeypatch):
    mutate(monkeypatch, optimizer, "sgd", learning_rate=lambda rate: 0.01 * rate)
    assert_noticed(EQUIVARIANCE, 2, DIFFERENT)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adagrad"])
def test_a_rule_that_numbers_coordinates_is_noticed(optimizer, monkeypatch):
    def wrong(right, name, options):
        rule = right(name, options)

        def numbered(ops, grad, state, param, hyper):
            new, state = rule.update(ops, grad, state, param, hyper)
            return param + (new - param) / (1 + np.arange(param.shape[-1])), state

        return dataclasses.replace(rule, update=numbered) if name == optimizer else rule

    wrap(monkeypatch, replaying, "chosen", wrong)
    assert_noticed(EQUIVARIANCE, 2, SIGNED, PERMUTED)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_coordinates_that_are_not_only_permuted_are_noticed(optimizer, monkeypatch):
    monkeypatch.setattr(egop_bases, "BY_COORDINATES", (optimizer,))

    def wrong(right, random, size, signed=True):
        turn = np.eye(size)
        turn[:2, :2] = [[0.8, 0.6], [-0.6, 0.8]]
        return turn @ right(random, size, signed)

    wrap(monkeypatch, egop_bases, "signed_permutation", wrong)
    assert_noticed(EQUIVARIANCE, 2, SIGNED, PERMUTED)


def test_another_basis_around_the_rule_is_noticed(monkeypatch):
    def wrong(right, *given):
        return {group: matrix.T for group, matrix in right(*given).items()}

    wrap(monkeypatch, replaying, "_blocks", wrong)
    assert_noticed(EQUIVARIANCE, 2, COMPOSED)


def test_factors_in_the_other_order_are_noticed(monkeypatch):
    wrap(monkeypatch, np, "kron", lambda right, a, b: right(b, a))
    assert_noticed(KRONECKER_SUBSET, 4, TWO_SIDED)


def test_a_basis_that_is_a_product_is_noticed(monkeypatch):
    def product(random, outer, inner):
        return np.kron(orthonormal(random, outer, outer), orthonormal(random, inner, inner))

    monkeypatch.setattr(egop_bases, "proof_basis", product)
    assert_noticed(KRONECKER_SUBSET, 4, NO_PRODUCT)


def test_the_bound_of_the_residual_by_hand():
    """Of the two columns as 3 x 4, a leading singular value of 1.138 squared leaves 0.862 of 2."""
    matrix = np.array([[1, 1, 1, 1], [1, 1, 1, -1], [1, 1, -1, -1]]) / np.sqrt(6)
    assert 2 - np.linalg.norm(matrix, 2) ** 2 == pytest.approx(0.8619, abs=1e-4)
    for outer in (2, 3, 4, 5, 6):
        halves = np.repeat([1.0, -1.0], outer).reshape(outer, 2)
        both = np.concatenate([np.ones((outer, 2)), halves], axis=1) / np.sqrt(2 * outer)
        assert np.sqrt(2 - np.linalg.norm(both, 2) ** 2) > 0.92
