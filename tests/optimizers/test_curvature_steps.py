"""The default update and inverse-free Cholesky: against whole matrices, and what they have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers import matrix_functions as mf
from curvebench.optimizers.matrix_functions import SpectralMaps
from tests.optimizers.test_matrix_functions import BACKENDS, calculated
from tests.optimizers.test_spectral_steps import curvature, kronecker, matrix, outer_product, spectrum, ways

OPS = numpy_ops("float64")
DAMPING = 0.3
SHAPES = [(3, 4), (4, 3), (1, 3), (3, 1)]
seeds = st.integers(0, 10**6)


def cholesky_of_inverse(given: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky(np.linalg.inv(given))


def of_factors(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """S_C x S_K of lower triangular C_C and C_K."""
    inverses = [np.linalg.inv(factor @ factor.T) for factor in (one, other)]
    return np.kron(*inverses)


# --- one matrix ----------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_the_default_step_is_the_running_mean_or_the_sum(gamma: float):
    begun, outer = matrix(spectrum(1, 4)), outer_product(1, 4)
    found = mf.default_step(OPS, begun, outer, 0.2, gamma, DAMPING)
    np.testing.assert_allclose(found, (1 - 0.2 * gamma) * begun + 0.2 * outer + 0.06 * np.eye(4), rtol=1e-14)


@given(seeds, st.integers(1, 6), st.sampled_from([0.0, 1.0]))
def test_cholesky_takes_the_default_step_to_first_order(seed: int, size: int, gamma: float):
    begun, curved = matrix(spectrum(seed, size)), curvature(seed, size)
    factor = cholesky_of_inverse(begun)

    def gap(rate: float) -> float:
        moved = mf.cholesky_step(OPS, factor, curved, rate, gamma, DAMPING)
        default = mf.default_step(OPS, begun, curved, rate, gamma, DAMPING)
        return float(np.linalg.norm(np.linalg.inv(moved @ moved.T) - default))

    assert gap(1e-5) / 1e-10 == pytest.approx(gap(1e-4) / 1e-8, rel=0.05, abs=1e-3)


@given(seeds, st.integers(1, 6))
def test_a_cholesky_factor_stays_triangular_with_a_positive_diagonal(seed: int, size: int):
    """However long the step is: h(x) = 1 + x + x^2 / 2 is at least 1/2."""
    factor = cholesky_of_inverse(matrix(spectrum(seed, size)))
    moved = mf.cholesky_step(OPS, factor, 100 * curvature(seed, size), 5.0)
    np.testing.assert_array_equal(moved, np.tril(moved))
    assert (np.diag(moved) >= np.diag(factor) / 2 * (1 - 1e-12)).all()


# --- Kronecker products --------------------------------------------------------------------------


@given(seeds, st.sampled_from(SHAPES))
def test_with_half_the_scale_each_they_take_the_first_order_spectral_step(seed: int, shape: tuple[int, int]):
    begun, gradient = kronecker(seed, shape), np.random.default_rng(seed).standard_normal(shape)
    factors = (cholesky_of_inverse(begun.scale * begun.factor(0)), cholesky_of_inverse(begun.factor(1)))

    def gap(rate: float) -> float:
        found = mf.kronecker_cholesky_step(OPS, factors, gradient, rate, 1.0, DAMPING, True)
        spectral = begun.stepped(gradient, ways(SpectralMaps(), rate, 1.0, DAMPING))
        return float(np.linalg.norm(of_factors(*found) - spectral.whole()))

    assert gap(1e-5) / 1e-10 == pytest.approx(gap(1e-4) / 1e-8, rel=0.05, abs=1e-2)


@given(seeds, st.sampled_from(SHAPES))
def test_as_printed_the_scale_moves_twice(seed: int, shape: tuple[int, int]):
    begun, gradient = kronecker(seed, shape), np.random.default_rng(seed).standard_normal(shape)
    factors = (cholesky_of_inverse(begun.scale * begun.factor(0)), cholesky_of_inverse(begun.factor(1)))
    before, rate = np.linalg.slogdet(begun.whole())[1], 1e-6
    curved = np.outer(gradient.ravel(), gradient.ravel()) + DAMPING * np.eye(gradient.size)
    growth = np.trace(begun.whole(-1.0) @ curved) - gradient.size
    for shares_scale, times in ((False, 2), (True, 1)):
        found = mf.kronecker_cholesky_step(OPS, factors, gradient, rate, 1.0, DAMPING, shares_scale)
        after = np.linalg.slogdet(of_factors(*found))[1]
        assert (after - before) / rate == pytest.approx(times * growth, rel=1e-2, abs=1e-2)


# --- projected and retracted ---------------------------------------------------------------------


def nearest_product(given: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return the nearest Kronecker product to a matrix, by a singular value decomposition of the rearranged
    matrix (Van Loan and Pitsianis 1993).
    """
    blocks = given.reshape(rows, columns, rows, columns).swapaxes(1, 2).reshape(rows**2, columns**2)
    left, values, right = np.linalg.svd(blocks, full_matrices=False)
    return values[0] * np.kron(left[:, 0].reshape(rows, rows), right[0].reshape(columns, columns))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_a_projected_step_is_the_nearest_product_to_the_default_step(rate: float, shape, backend: str):
    begun, gradient = kronecker(2, shape), np.random.default_rng(2).standard_normal(shape)
    whole = np.kron(begun.factor(0), begun.factor(1))
    default = mf.default_step(OPS, whole, np.outer(gradient.ravel(), gradient.ravel()), rate, 0.7)

    def stepped(ops: Any, rows: Any, columns: Any, grad: Any) -> Any:
        return mf.kronecker_projection_step(ops, (rows, columns), grad, rate, 0.7)

    found = calculated(backend, "float64", stepped, begun.factor(0), begun.factor(1), gradient)
    np.testing.assert_allclose(np.kron(*found), nearest_product(default, *shape), rtol=1e-8, atol=1e-9)
    for factor in found:
        assert np.linalg.eigvalsh(factor)[0] > 0


@given(seeds, st.integers(1, 6))
def test_a_retracted_step_is_positive_definite_and_the_exponential_to_second_order(seed: int, size: int):
    begun, curved = matrix(spectrum(seed, size)), curvature(seed, size)
    moved = mf.retraction_step(OPS, begun, 100 * curved, 1.0)
    assert np.linalg.eigvalsh(moved)[0] >= np.linalg.eigvalsh(begun)[0] / 2 * (1 - 1e-9)
    root = np.linalg.cholesky(begun)
    values, vectors = np.linalg.eigh(np.linalg.solve(root, np.linalg.solve(root, curved).T))

    def gap(rate: float) -> float:
        exponential = root @ (vectors * np.exp(rate * values)) @ vectors.T @ root.T
        return float(np.linalg.norm(mf.retraction_step(OPS, begun, curved, rate) - exponential))

    assert gap(1e-3) / 1e-9 == pytest.approx(gap(1e-2) / 1e-6, rel=0.1, abs=1e-2)
