"""Changes of basis: the verdicts of the claims, and that their checks notice wrong rules and matrices."""

import dataclasses

import numpy as np
import pytest

from benchmarks.claims import egop_bases
from benchmarks.claims._matrices import orthonormal
from benchmarks.claims.egop_bases import EQUIVARIANCE, KRONECKER_SUBSET
from harness import replaying
from tests.benchmarks.claim_mutations import failing, few, mutate, verdicts_of

COMPOSED = "a basis around a rule is the rule on f(V theta)"
ORTHOGONAL = "SGD and momentum in orthogonal bases"
SIGNED = "all four under signed permutations"
PERMUTED = "all four under permutations"
DIFFERENT = "Adam and Adagrad in orthogonal bases differ"
TWO_SIDED = "two-sided rotations are orthogonal"
NO_PRODUCT = "the V of the proof is no product"


@pytest.mark.parametrize("claim", [EQUIVARIANCE, KRONECKER_SUBSET], ids=lambda claim: claim.id)
def test_the_verdicts(claim):
    assert verdicts_of(few(claim, 3)) == {"": "reproduced"}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_a_rule_that_sees_coordinates_is_noticed(optimizer, monkeypatch):
    mutate(monkeypatch, optimizer, "adagrad")
    assert failing(few(EQUIVARIANCE, 2, {ORTHOGONAL})) == {(ORTHOGONAL, "")}


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_a_rule_that_sees_no_coordinates_is_noticed(optimizer, monkeypatch):
    mutate(monkeypatch, optimizer, "sgd", learning_rate=lambda rate: 0.01 * rate)
    assert failing(few(EQUIVARIANCE, 2, {DIFFERENT})) == {(DIFFERENT, "")}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adagrad"])
def test_a_rule_that_numbers_coordinates_is_noticed(optimizer, monkeypatch):
    right = replaying._chosen

    def wrong(name, *arguments):
        rule, values = right(name, *arguments)

        def numbered(ops, grad, state, param, hyper):
            new, state = rule.update(ops, grad, state, param, hyper)
            return param + (new - param) / (1 + np.arange(param.shape[-1])), state

        return dataclasses.replace(rule, update=numbered) if name == optimizer else rule, values

    monkeypatch.setattr(replaying, "_chosen", wrong)
    parts = {SIGNED, PERMUTED}
    assert failing(few(EQUIVARIANCE, 2, parts)) == {(part, "") for part in parts}


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_coordinates_that_are_not_only_permuted_are_noticed(optimizer, monkeypatch):
    monkeypatch.setattr(egop_bases, "BY_COORDINATES", (optimizer,))
    right = egop_bases.signed_permutation

    def wrong(random, size, signed=True):
        turn = np.eye(size)
        turn[:2, :2] = [[0.8, 0.6], [-0.6, 0.8]]
        return turn @ right(random, size, signed)

    monkeypatch.setattr(egop_bases, "signed_permutation", wrong)
    parts = {SIGNED, PERMUTED}
    assert failing(few(EQUIVARIANCE, 2, parts)) == {(part, "") for part in parts}


def test_another_basis_around_the_rule_is_noticed(monkeypatch):
    right = replaying._blocks

    def wrong(basis, params):
        return {group: matrix.T for group, matrix in right(basis, params).items()}

    monkeypatch.setattr(replaying, "_blocks", wrong)
    assert failing(few(EQUIVARIANCE, 2, {COMPOSED})) == {(COMPOSED, "")}


def test_factors_in_the_other_order_are_noticed(monkeypatch):
    right = np.kron
    monkeypatch.setattr(np, "kron", lambda a, b: right(b, a))
    assert failing(few(KRONECKER_SUBSET, 4, {TWO_SIDED})) == {(TWO_SIDED, "")}


def test_a_basis_that_is_a_product_is_noticed(monkeypatch):
    def product(random, outer, inner):
        return np.kron(orthonormal(random, outer, outer), orthonormal(random, inner, inner))

    monkeypatch.setattr(egop_bases, "proof_basis", product)
    assert failing(few(KRONECKER_SUBSET, 4, {NO_PRODUCT})) == {(NO_PRODUCT, "")}


def test_the_bound_of_the_residual_by_hand():
    """Of the two columns as 3 x 4, a leading singular value of 1.138 squared leaves 0.862 of 2."""
    matrix = np.array([[1, 1, 1, 1], [1, 1, 1, -1], [1, 1, -1, -1]]) / np.sqrt(6)
    assert 2 - np.linalg.norm(matrix, 2) ** 2 == pytest.approx(0.8619, abs=1e-4)
    for outer in (2, 3, 4, 5, 6):
        halves = np.repeat([1.0, -1.0], outer).reshape(outer, 2)
        both = np.concatenate([np.ones((outer, 2)), halves], axis=1) / np.sqrt(2 * outer)
        assert np.sqrt(2 - np.linalg.norm(both, 2) ** 2) > 0.92


def test_the_columns_of_the_proof():
    basis = egop_bases.proof_basis(np.random.default_rng(0), 3, 2)
    np.testing.assert_allclose(basis[:, 0], 1 / np.sqrt(6))
    np.testing.assert_allclose(basis[:, 1], np.array([1, 1, 1, -1, -1, -1]) / np.sqrt(6))
    np.testing.assert_allclose(basis.T @ basis, np.eye(6), atol=1e-12)
