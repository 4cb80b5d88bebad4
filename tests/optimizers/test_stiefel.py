"""Manifold Muon alone: the direction, its tolerance, orthonormal columns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers.matrix_functions import COEFFICIENTS, newton_schulz, orthogonal_factor
from curvebench.optimizers.stiefel import clipped_by, clipped_by_svd, tangency_error, tangential_direction
from tests.optimizers.paths import path_of_one

OPS = numpy_ops("float64")
SHAPES = [(3, 2), (5, 3), (4, 4), (6, 5), (10, 8), (16, 8), (40, 32)]
shapes = st.integers(1, 5).flatmap(lambda d: st.tuples(st.integers(d, 2 * d + 2), st.just(d)))


def orthonormal(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return np.asarray(np.linalg.qr(rng.standard_normal((rows, columns)))[0])


def direction(g: np.ndarray, w: np.ndarray, steps: int, tolerance: float = 0.0) -> np.ndarray:
    """Z with exact polar factors."""
    found = tangential_direction(
        OPS, g, w, np.full((1, 1), tolerance), steps, orthogonal_factor, clipped_by_svd
    )
    return np.asarray(found)


after = partial(path_of_one, "manifold_muon")


def error(z: np.ndarray, w: np.ndarray) -> float:
    return float(tangency_error(OPS, z, w).squeeze())


# --- the direction (002 eqs. 78-79, Lemma S.22) -------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_few_iterations_bring_it_near_the_tangent_space(shape: tuple[int, int]) -> None:
    """The default number of iterations comes near it, although the polar factor of G is far from it."""
    rng = np.random.default_rng(1)
    errors = []
    for _ in range(10):
        w, g = orthonormal(rng, *shape), rng.standard_normal(shape)
        errors.append([error(direction(g, w, steps), w) for steps in (12, 100)])
        if shape[0] > shape[1]:
            assert error(np.asarray(orthogonal_factor(OPS, g)), w) > 0.2
    first, second = np.median(errors, axis=0)
    assert first < 0.01 * np.sqrt(shape[1])
    assert second < 2e-4


def test_a_matrix_within_the_tolerance_is_frozen_while_others_go_on() -> None:
    rng = np.random.default_rng(3)
    w = np.stack([orthonormal(rng, 6, 4), np.eye(6, 4)])
    g = rng.standard_normal((2, 6, 4))
    g[1, :4] = 0.0  # the skew part is 0, so that the direction does not change
    tolerance = np.array([1e-9, 1e-2]).reshape(2, 1, 1)
    both = tangential_direction(OPS, g, w, tolerance, 60, orthogonal_factor, clipped_by_svd)
    np.testing.assert_array_equal(both[1], direction(g[1], w[1], 1))
    np.testing.assert_allclose(both[0], direction(g[0], w[0], 60), atol=1e-8)
    assert np.abs(both[0] - direction(g[0], w[0], 1)).max() > 1e-3
    coarse = direction(g[0], w[0], 60, 0.05)
    assert 1e-6 < error(coarse, w[0]) <= 0.05


@given(seed=st.integers(0, 2**31), shape=shapes)
@settings(max_examples=30)
def test_clipping_by_polar_factors_is_clipping_of_singular_values(seed: int, shape: tuple[int, int]) -> None:
    matrix = 2 * np.random.default_rng(seed).standard_normal(shape)
    u, s, vh = np.linalg.svd(matrix, full_matrices=False)
    wanted = (u * np.minimum(s, 1)) @ vh
    np.testing.assert_allclose(clipped_by_svd(OPS, matrix), wanted, atol=1e-12)
    np.testing.assert_allclose(clipped_by(OPS, orthogonal_factor, matrix), wanted, atol=1e-12)

    def iterated(ops: Any, matrix: Any) -> Any:
        return newton_schulz(ops, matrix, COEFFICIENTS["quintic"], 40)

    np.testing.assert_allclose(clipped_by(OPS, iterated, matrix), wanted, atol=1e-9)


# --- the manifold --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(6, 3), (3, 6), (4, 4), (5, 1), (4, 2, 3, 3)], ids=lambda shape: "x".join(map(str, shape))
)
def test_columns_stay_orthonormal(shape: tuple[int, ...]) -> None:
    """For 200 steps; rows of a wide matrix; a convolution as outputs x the rest."""
    rng = np.random.default_rng(4)
    path = after(rng.standard_normal(shape), rng.standard_normal((200, *shape)), 0.2, {"dual_steps": 3})
    for found in path[::50] + path[-1:]:
        matrix = found.reshape(shape[0], -1)
        matrix = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
        np.testing.assert_allclose(matrix.T @ matrix, np.eye(matrix.shape[1]), rtol=0, atol=1e-12)
    assert np.abs(path[-1] - path[0]).max() > 0.1


@pytest.mark.parametrize("shape", [(4, 4), (8, 5), (64, 32)], ids=str)
def test_the_default_iteration_is_nearly_svd(shape: tuple[int, int]) -> None:
    """Eight steps of Polar Express fall short of the smallest singular values alone."""
    rng = np.random.default_rng(5)
    w, grads = orthonormal(rng, *shape), rng.standard_normal((3, *shape))
    exact = after(w, grads, 0.1)
    iterated = after(w, grads, 0.1, {"orthogonalization": "newton_schulz"})
    np.testing.assert_allclose(iterated, exact, rtol=0, atol=1e-6)


def test_a_gradient_that_the_constraint_takes_away_moves_nothing() -> None:
    """G = W S with a symmetric S has no tangential part, though rounding leaves one."""
    rng = np.random.default_rng(6)
    for _ in range(20):
        w, s = orthonormal(rng, 5, 3), rng.standard_normal((3, 3))
        np.testing.assert_allclose(after(w, [w @ (s + s.T)])[0], w, atol=1e-14)
    np.testing.assert_allclose(after(np.eye(1), [np.ones((1, 1))])[0], 1, atol=1e-15)
