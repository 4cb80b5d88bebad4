"""EGOP: the matrix by brute force, and the eigenbasis by what defines it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.optimizers.bases import OptionError
from curvebench.optimizers.bases.estimators import egop_matrix, eigenbasis


def brute_force(gradients: np.ndarray) -> np.ndarray:
    """Return the mean of g g^T, sample by sample."""
    total = np.zeros((gradients.shape[1], gradients.shape[1]))
    for g in gradients:
        total += np.outer(g, g)
    return total / len(gradients)


def sample(seed: int, samples: int, dimension: int, dead: int = 0) -> np.ndarray:
    """Gradients with a decaying spectrum in a random basis, zero in some coordinates."""
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
    gradients = rng.standard_normal((samples, dimension)) * 0.7 ** np.arange(dimension) @ rotation.T
    gradients[:, rng.permutation(dimension)[:dead]] = 0.0
    return np.asarray(gradients)


@given(seed=st.integers(0, 2**32 - 1), samples=st.integers(1, 20), dimension=st.integers(1, 12))
def test_matrix_is_the_mean_of_outer_products(seed: int, samples: int, dimension: int):
    gradients = sample(seed, samples, dimension)
    matrix = egop_matrix(gradients)
    np.testing.assert_allclose(matrix, brute_force(gradients), rtol=0, atol=1e-14)
    np.testing.assert_array_equal(matrix, matrix.T)


@given(
    seed=st.integers(0, 2**32 - 1),
    samples=st.integers(1, 25),
    dimension=st.integers(1, 15),
    dead=st.integers(0, 15),
)
def test_eigenbasis_is_orthonormal_and_diagonalizes(seed: int, samples: int, dimension: int, dead: int):
    gradients = sample(seed, samples, dimension, min(dead, dimension))
    basis, eigenvalues = eigenbasis(gradients)
    matrix = brute_force(gradients)
    scale = max(np.trace(matrix), 1e-300)
    assert basis.dtype == eigenvalues.dtype == np.float64
    np.testing.assert_allclose(basis.T @ basis, np.eye(dimension), rtol=0, atol=1e-12)
    np.testing.assert_allclose(basis.T @ matrix @ basis, np.diag(eigenvalues), rtol=0, atol=1e-13 * scale)
    assert (eigenvalues >= 0).all()
    assert (np.diff(eigenvalues) <= 0).all()
    # lambda_i is the mean squared derivative along v_i (000 Sec. 2)
    np.testing.assert_allclose(
        np.mean((gradients @ basis) ** 2, axis=0), eigenvalues, rtol=0, atol=1e-13 * scale
    )
    largest = np.argmax(np.abs(basis), axis=0)
    assert (basis[largest, np.arange(dimension)] > 0).all()


def test_both_ways_give_the_same_basis():
    """M >= d goes by the matrix and M < d by the SVD; repeated gradients have the same EGOP."""
    few = sample(3, 9, 10)
    many = np.tile(few, (2, 1))
    basis_of_few, eigenvalues_of_few = eigenbasis(few)
    basis_of_many, eigenvalues_of_many = eigenbasis(many)
    np.testing.assert_allclose(eigenvalues_of_few, eigenvalues_of_many, rtol=0, atol=1e-14)
    # the tenth direction is unique too: what nine leave over
    np.testing.assert_allclose(basis_of_few, basis_of_many, rtol=0, atol=1e-7)


def test_null_eigenvalues_are_never_negative():
    gradients = np.tile(sample(8, 3, 20), (10, 1))
    basis, eigenvalues = eigenbasis(gradients)
    assert np.linalg.eigvalsh(egop_matrix(gradients)).min() < 0
    assert (eigenvalues >= 0).all()
    assert np.abs(basis.T @ basis - np.eye(20)).max() < 1e-12


def test_dead_coordinates_keep_their_unit_vectors():
    gradients = sample(4, 30, 6)
    gradients[:, [1, 4]] = 0.0
    basis, eigenvalues = eigenbasis(gradients)
    np.testing.assert_array_equal(basis[:, 4:], np.eye(6)[:, [1, 4]])
    np.testing.assert_array_equal(basis[[1, 4], :4], 0.0)
    np.testing.assert_array_equal(eigenvalues[4:], 0.0)


@pytest.mark.parametrize("samples", [150, 450])
def test_orthonormal_in_a_few_hundred_dimensions(samples: int):
    basis, _ = eigenbasis(sample(7, samples, 300, dead=20))
    assert np.abs(basis.T @ basis - np.eye(300)).max() < 1e-12


def test_wrong_gradients_are_refused():
    spoilt = np.ones((4, 2))
    spoilt[1, 0], spoilt[3, 1] = np.nan, np.inf
    with pytest.raises(OptionError, match=r"2 of 4 .*not finite; .*sampling"):
        eigenbasis(spoilt)
    with pytest.raises(OptionError, match=r"shape \(0, 3\); \(samples, dimension\)"):
        eigenbasis(np.zeros((0, 3)))
    with pytest.raises(OptionError, match=r"shape \(3,\)"):
        eigenbasis(np.zeros(3))
