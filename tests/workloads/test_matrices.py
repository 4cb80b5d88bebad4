"""Random matrices: orthonormality, the singular values asked for, and their uniform law."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from curvebench.workloads.matrices import orthonormal, power_law_matrix

SIZES = st.integers(1, 12)


@given(SIZES, SIZES, st.integers(0, 10))
def test_columns_are_orthonormal(more, columns, seed):
    q = orthonormal(columns + more, columns, np.random.default_rng(seed))
    np.testing.assert_allclose(q.T @ q, np.eye(columns), atol=1e-13)


@given(SIZES, SIZES, st.floats(0.0, 3.0), st.integers(0, 10))
def test_singular_values_are_powers(rows, columns, alpha, seed):
    matrix = power_law_matrix(rows, columns, alpha, np.random.default_rng(seed))
    expected = [k**-alpha for k in range(1, min(rows, columns) + 1)]
    assert matrix.shape == (rows, columns)
    np.testing.assert_allclose(np.linalg.svd(matrix, compute_uv=False), expected, atol=1e-12)


def test_directions_are_uniform():
    """Every entry of a uniform orthonormal basis has mean 0 and mean square 1/n; plain QR has not."""
    draws = np.stack([orthonormal(3, 3, np.random.default_rng(seed)) for seed in range(4000)])
    np.testing.assert_allclose(draws.mean(axis=0), 0.0, atol=5 * np.sqrt(1 / 3 / 4000))
    np.testing.assert_allclose((draws**2).mean(axis=0), 1 / 3, atol=5 * np.sqrt(0.09 / 4000))
