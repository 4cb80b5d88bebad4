"""Kernels of the matrix functions that update rules share.

The kernels are orthogonalization, inverse roots, orthogonal iteration, and steps of a spectral factorization.
Each reference uses another algorithm than the function that is timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from curvebench.optimizers import matrix_functions

from .case import Arrays, KernelCase, on_backend, representable

# Rows and columns of the rectangular matrix, which stands for a weight.
ROWS, COLUMNS = 512, 128
# Number of square matrices in a batch, and number of rows of each; the matrices stand for preconditioners.
LANES, DIMENSION = 4, 128
# Number of Newton-Schulz iterations.
STEPS = 5
# Number of rows, and of columns, of a larger square matrix.
SQUARE = 1024
# Exponent of the inverse root, and damping, which is added to eigenvalues.
ROOT, EPSILON = 1 / 4, 1e-3
# Step sizes of eigenvalues and of eigenvectors in a spectral step.
RATE, ROTATION_RATE = 0.05, 0.5
# Iterations of Denman and Beavers for square roots; 8 suffice for a condition number of 100.
DOUBLINGS = 8


# --- orthogonalization ---------------------------------------------------------------------------


def _weight(rows: int, columns: int) -> Arrays:
    return (representable(np.random.default_rng(5), (rows, columns)),)


@cache
def _orthogonalized(rows: int, columns: int) -> np.ndarray:
    """Return U p(S) V^T for the weight U S V^T, where p composes the polynomials of all steps."""
    u, values, vh = np.linalg.svd(_weight(rows, columns)[0], full_matrices=False)
    values /= np.linalg.norm(values)
    ((a, b, c),) = matrix_functions.COEFFICIENTS["jordan"]
    for _ in range(STEPS):
        values = a * values + b * values**3 + c * values**5
    return (u * values) @ vh


def newton_schulz_case(rows: int, columns: int, tolerance: Mapping[str, float]) -> KernelCase:
    """Return the case of five Newton-Schulz steps with Jordan's coefficients.

    The matrix must not have more columns than rows.
    """

    def iterate(ops: Any, x: Any) -> Any:
        return matrix_functions.newton_schulz(ops, x, matrix_functions.COEFFICIENTS["jordan"], STEPS)

    return KernelCase(
        name=f"matrix.newton_schulz.{rows}x{columns}",
        sizes={"rows": rows, "columns": columns, "steps": STEPS},
        prepare=lambda backend, dtype: on_backend(backend, dtype, iterate, _weight(rows, columns)),
        reference=lambda: _orthogonalized(rows, columns),
        tolerance=tolerance,
    )


# --- inverse roots and bases of preconditioners ---------------------------------------------------


def _second_moments() -> Arrays:
    """Return LANES second moments: means of g g^T over normal vectors g, rounded to float32."""
    generator = np.random.default_rng(6)
    gradients = representable(generator, (LANES, DIMENSION, 2 * DIMENSION))
    return ((gradients @ gradients.mT / (2 * DIMENSION)).astype(np.float32).astype(np.float64),)


def _square_roots(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return A^(1/2) and A^(-1/2) by the iteration of Denman and Beavers, which needs only inverses."""
    root, inverse = matrices, np.broadcast_to(np.eye(DIMENSION), matrices.shape)
    for _ in range(DOUBLINGS):
        root, inverse = (root + np.linalg.inv(inverse)) / 2, (inverse + np.linalg.inv(root)) / 2
    return root, inverse


@cache
def _inverse_roots() -> np.ndarray:
    root, _ = _square_roots(_second_moments()[0] + EPSILON * np.eye(DIMENSION))
    return _square_roots(root)[1]


def _inverse_root(ops: Any, matrix: Any) -> Any:
    return matrix_functions.inverse_root(ops, matrix, ROOT, EPSILON)


def _refresh(ops: Any, matrix: Any, basis: Any) -> Any:
    return matrix_functions.align_signs(ops, matrix_functions.orthogonal_iteration(ops, matrix, basis), basis)


def _drifted() -> Arrays:
    """Return second moments, and eigenvectors of perturbed second moments, as a basis before its refresh."""
    (matrices,) = _second_moments()
    generator = np.random.default_rng(7)
    change = representable(generator, matrices.shape) / (100 * DIMENSION**0.5)
    _, basis = np.linalg.eigh(matrices + change + change.mT)
    return matrices, basis[..., ::-1].astype(np.float32).astype(np.float64)


@cache
def _refreshed() -> np.ndarray:
    """Return the orthonormal factor of A Q, for second moments A and old bases Q.

    The factor is computed by two steps of Cholesky QR, with the signs of Q.
    """
    matrices, basis = _drifted()
    factor = matrices @ basis
    for _ in range(2):
        lower = np.linalg.cholesky(factor.mT @ factor)
        factor = np.linalg.solve(lower, factor.mT).mT
    return factor * np.sign(np.sum(factor * basis, axis=-2, keepdims=True))


# --- spectral factorizations ----------------------------------------------------------------------


def _spectral() -> Arrays:
    """Return eigenvectors B, eigenvalues d, and second moments that stand for the curvature B^T H B.

    The differences between eigenvalues are large enough for most pairs of eigenvectors to rotate.
    """
    matrices, basis = _drifted()
    values = np.broadcast_to(np.arange(1, DIMENSION + 1) / 32, matrices.shape[:-1])
    return basis, values.copy(), matrices


def _spectral_maps(cayley: str) -> matrix_functions.SpectralMaps:
    return matrix_functions.SpectralMaps("first_order", cayley, normalized=True, tie_tolerance=1e-2)


def _spectral_step(ops: Any, basis: Any, values: Any, inside: Any, *, cayley: str) -> Any:
    spectrum, maps = matrix_functions.Spectrum(basis, values), _spectral_maps(cayley)
    stepped = matrix_functions.spectral_step_inside(
        ops, spectrum, inside, RATE, 1.0, maps, EPSILON, ROTATION_RATE
    )
    return stepped.basis * stepped.values[..., None, :]


@cache
def _spectral_stepped(cayley: str) -> np.ndarray:
    """Return B Cayley(X) diag(d), the result of a spectral step.

    B has the eigenvectors before the step, X is the generator of their rotation, and d has the eigenvalues
    after the step. The exact Cayley map is computed by an inverse, and the truncated map as a product of
    factors.
    """
    basis, values, inside = _spectral()
    larger = np.maximum(values[..., :, None], values[..., None, :])
    gaps = values[..., :, None] - values[..., None, :]
    with np.errstate(divide="ignore"):
        upper = np.triu(np.where(np.abs(gaps) > 1e-2 * larger, inside / gaps, 0.0), 1)
    skew = upper.mT - upper
    skew = ROTATION_RATE / 2 * skew / np.linalg.norm(skew, axis=(-2, -1), keepdims=True)
    identity = np.eye(DIMENSION)
    if cayley == "exact":
        rotation = (identity + skew) @ np.linalg.inv(identity - skew)
    else:
        square = skew @ skew
        rotation = (identity + skew) @ (identity + skew) @ (identity + square) @ (identity + square @ square)
    curved = np.diagonal(inside, axis1=-2, axis2=-1) + EPSILON
    return basis @ rotation * ((1 - RATE) * values + RATE * curved)[..., None, :]


def spectral_step_case(cayley: str) -> KernelCase:
    """Return the kernel case of one step of a spectral factorization.

    Args:
        cayley: map that rotates the eigenvectors, a key of CAYLEYS.
    """
    step = partial(_spectral_step, cayley=cayley)
    return KernelCase(
        name=f"matrix.spectral_step.{cayley}.{LANES}x{DIMENSION}x{DIMENSION}",
        sizes={"lanes": LANES, "dimension": DIMENSION},
        prepare=lambda backend, dtype: on_backend(backend, dtype, step, _spectral()),
        reference=lambda: _spectral_stepped(cayley),
        tolerance={"float64": 5e-14, "float32": 5e-6},
    )


def matrix_cases() -> tuple[KernelCase, ...]:
    """Return the cases of Newton-Schulz, an inverse root, the refresh of a basis, and spectral steps."""
    square_sizes = {"lanes": LANES, "dimension": DIMENSION}
    return (
        newton_schulz_case(ROWS, COLUMNS, {"float64": 5e-14, "float32": 1e-5}),
        newton_schulz_case(SQUARE, SQUARE, {"float64": 5e-13, "float32": 1e-4}),
        KernelCase(
            name=f"matrix.inverse_root.{LANES}x{DIMENSION}x{DIMENSION}",
            sizes=square_sizes,
            prepare=lambda backend, dtype: on_backend(backend, dtype, _inverse_root, _second_moments()),
            reference=_inverse_roots,
            tolerance={"float64": 5e-14, "float32": 5e-6},
        ),
        KernelCase(
            name=f"matrix.orthogonal_iteration.{LANES}x{DIMENSION}x{DIMENSION}",
            sizes=square_sizes,
            prepare=lambda backend, dtype: on_backend(backend, dtype, _refresh, _drifted()),
            reference=_refreshed,
            tolerance={"float64": 5e-14, "float32": 5e-6},
        ),
        *map(spectral_step_case, matrix_functions.CAYLEYS),
    )
