"""Manifolds: the verdict of the claim, and that its checks notice wrong rules."""

import numpy as np
import pytest

import curvebench.optimizers.matrix_functions
import curvebench.optimizers.spheres
import curvebench.optimizers.stiefel
from curvebench.benchmarks.claims.notes_manifold import MANIFOLD, least_dual_norm, least_nuclear_norm
from tests.benchmarks.claim_mutations import assert_noticed, mutate

FIRST = "first-order view"
UPDATES = "updates, lengths and steps along w"
TRUST = "the trust-region step is optimal"
FROZEN = "weight normalization with a frozen scale is the classical step"
DESCENT = "weight normalization is gradient descent on v and s"
LOCALLY = "weight normalization as a preconditioner"
ORTHONORMAL = "Stiefel steps stay orthonormal"
TANGENT = "Stiefel directions are tangent"
OPTIMAL = "Stiefel steps are optimal"
NEAREST = "Orth is the nearest orthonormal matrix"


def test_a_matrix_that_is_not_the_nearest_is_noticed(monkeypatch):
    monkeypatch.setattr(
        curvebench.optimizers.matrix_functions,
        "orthogonal_factor",
        lambda ops, matrix: np.linalg.qr(matrix)[0],
    )
    assert_noticed(MANIFOLD, 4, NEAREST)


@pytest.mark.parametrize(
    ("optimizer", "parts"),
    [
        ("pin_to_sphere", {FIRST, UPDATES}),
        ("riemannian_sgd", {FIRST, UPDATES, FROZEN}),
        ("trust_region_sphere", {TRUST}),
        ("weight_normalization", {FROZEN, DESCENT, LOCALLY}),
        ("manifold_muon", {OPTIMAL}),
    ],
)
def test_another_rate_is_noticed(optimizer, parts, monkeypatch):
    mutate(monkeypatch, optimizer, learning_rate=lambda rate: 1.01 * rate)
    assert_noticed(MANIFOLD, 4, *parts)


def test_a_gradient_that_is_not_projected_is_noticed(monkeypatch):
    monkeypatch.setattr(curvebench.optimizers.spheres, "tangential", lambda ops, grad, point: grad)
    assert_noticed(MANIFOLD, 3, UPDATES, FROZEN, DESCENT)


@pytest.mark.parametrize("norm", ["l1", "linfinity"])
def test_another_norms_step_is_noticed(norm, monkeypatch):
    monkeypatch.setitem(curvebench.optimizers.spheres.NORMS, norm, curvebench.optimizers.spheres.steepest_l2)
    assert_noticed(MANIFOLD, 3, TRUST)


def test_a_length_that_is_not_kept_is_noticed(monkeypatch):
    monkeypatch.setattr(curvebench.optimizers.spheres, "retracted", lambda ops, moved, radius, before: moved)
    assert_noticed(MANIFOLD, 2, UPDATES)


def test_a_scale_that_is_not_learned_is_noticed(monkeypatch):
    mutate(monkeypatch, "weight_normalization", options={"scale": "frozen"})
    assert_noticed(MANIFOLD, 2, DESCENT, LOCALLY)


def test_a_direction_that_is_not_tangent_is_noticed(monkeypatch):
    monkeypatch.setattr(curvebench.optimizers.stiefel, "symmetric", lambda ops, matrix: 0 * matrix)
    assert_noticed(MANIFOLD, 5, TANGENT, OPTIMAL)


def test_columns_that_are_not_orthonormal_are_noticed(monkeypatch):
    mutate(
        monkeypatch,
        "manifold_muon",
        options={"orthogonalization": "newton_schulz", "coefficients": "jordan", "steps": 5},
    )
    assert_noticed(MANIFOLD, 2, ORTHONORMAL)


def test_the_least_dual_norms():
    """At g = (3, 1), w = (1, 0) lambda removes the first entry alone; (1, 1) leaves the halved difference."""
    gradient = np.array([3.0, 1.0])
    for norm in ("l1", "l2", "linfinity"):
        assert least_dual_norm(gradient, np.array([1.0, 0.0]), norm) == pytest.approx(1)
    along = np.array([1.0, 1.0])
    assert least_dual_norm(gradient, along, "l1") == pytest.approx(1)
    assert least_dual_norm(gradient, along, "l2") == pytest.approx(np.sqrt(2))
    assert least_dual_norm(gradient, along, "linfinity") == pytest.approx(2)


def test_the_least_nuclear_norm_of_a_square_is_that_of_its_skew_part():
    gradient = np.random.default_rng(0).standard_normal((3, 3))
    skew = (gradient - gradient.T) / 2
    expected = np.linalg.svd(skew, compute_uv=False).sum()
    assert least_nuclear_norm(gradient, np.eye(3)) == pytest.approx(expected, rel=1e-4)
