"""Matrix functions that update rules share: orthogonalization, roots, tracked bases, spectral steps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from curvebench.optimizers import matrix_functions

from .case import Arrays, KernelCase, on_backend, representable

ROWS, COLUMNS = 512, 128  # of a weight
LANES, DIMENSION = 4, 128  # of preconditioners
STEPS = 5  # of Newton-Schulz
SQUARE = 1024  # rows and columns of a larger one
ROOT, EPSILON = 1 / 4, 1e-3
RATE, ROTATION_RATE = 0.05, 0.5  # of a spectral step
DOUBLINGS = 8  # the error squares in each: enough for condition numbers of 100


# --- orthogonalization ---------------------------------------------------------------------------


def _weight(rows: int, columns: int) -> Arrays:
    return (representable(np.random.default_rng(5), (rows, columns)),)


@cache
def _orthogonalized(rows: int, columns: int) -> np.ndarray:
    """U p(S) V^T with the polynomial of each step on singular values alone."""
    u, values, vh = np.linalg.svd(_weight(rows, columns)[0], full_matrices=False)
    values /= np.linalg.norm(values)
    ((a, b, c),) = matrix_functions.COEFFICIENTS["jordan"]
    for _ in range(STEPS):
        values = a * values + b * values**3 + c * values**5
    return (u * values) @ vh


def newton_schulz_case(rows: int, columns: int, tolerance: Mapping[str, float]) -> KernelCase:
    """Five of Jordan's steps on a matrix of at least as many rows as columns."""
    return KernelCase(
        name=f"matrix.newton_schulz.{rows}x{columns}",
        sizes={"rows": rows, "columns": columns, "steps": STEPS},
        prepare=lambda backend, dtype: on_backend(
            backend,
            dtype,
            lambda ops, x: matrix_functions.newton_schulz(
                ops, x, matrix_functions.COEFFICIENTS["jordan"], STEPS
            ),
            _weight(rows, columns),
        ),
        reference=lambda: _orthogonalized(rows, columns),
        tolerance=tolerance,
    )


# --- preconditioners -----------------------------------------------------------------------------


def _second_moments() -> Arrays:
    """Means of g g^T over twice as many g as entries, which are exact in float32."""
    generator = np.random.default_rng(6)
    gradients = representable(generator, (LANES, DIMENSION, 2 * DIMENSION))
    return ((gradients @ gradients.mT / (2 * DIMENSION)).astype(np.float32).astype(np.float64),)


def _square_roots(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A^(1/2) and A^(-1/2) by the iteration of Denman and Beavers, which needs inverses only."""
    root, inverse = matrices, np.broadcast_to(np.eye(DIMENSION), matrices.shape)
    for _ in range(DOUBLINGS):
        root, inverse = (root + np.linalg.inv(inverse)) / 2, (inverse + np.linalg.inv(root)) / 2
    return root, inverse


@cache
def _inverse_roots() -> np.ndarray:
    root, _ = _square_roots(_second_moments()[0] + EPSILON * np.eye(DIMENSION))
    return _square_roots(root)[1]


def _refresh(ops: Any, matrix: Any, basis: Any) -> Any:
    return matrix_functions.align_signs(ops, matrix_functions.orthogonal_iteration(ops, matrix, basis), basis)


def _drifted() -> Arrays:
    """Second moments, and the eigenvectors of what they were before."""
    (matrices,) = _second_moments()
    generator = np.random.default_rng(7)
    change = representable(generator, matrices.shape) / (100 * DIMENSION**0.5)
    _, basis = np.linalg.eigh(matrices + change + change.mT)
    return matrices, basis[..., ::-1].astype(np.float32).astype(np.float64)


@cache
def _refreshed() -> np.ndarray:
    """The orthonormal factor of A Q by Cholesky's, twice."""
    matrices, basis = _drifted()
    factor = matrices @ basis
    for _ in range(2):
        lower = np.linalg.cholesky(factor.mT @ factor)
        factor = np.linalg.solve(lower, factor.mT).mT
    return factor * np.sign(np.sum(factor * basis, axis=-2, keepdims=True))


# --- spectral factorizations ----------------------------------------------------------------------


def _spectral() -> Arrays:
    """Eigenvectors, eigenvalues far enough apart to rotate most, and second moments in that basis."""
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
    """B Cayley(X) diag(d) with the factors of the map as they are printed, and its inverse."""
    basis, values, inside = _spectral()
    larger = np.maximum(values[..., :, None], values[..., None, :])
    gaps = values[..., :, None] - values[..., None, :]
    with np.errstate(divide="ignore"):
        upper = np.triu(np.where(np.abs(gaps) > 1e-2 * larger, inside / gaps, 0.0), 1)
    skew = upper.mT - upper
    skew = ROTATION_RATE / 2 * skew / np.linalg.norm(skew, axis=(-2, -1), keepdims=True)
    identity = np.eye(DIMENSION)
    if cayley == "exact":
        turn = (identity + skew) @ np.linalg.inv(identity - skew)
    else:
        square = skew @ skew
        turn = (identity + skew) @ (identity + skew) @ (identity + square) @ (identity + square @ square)
    curved = np.diagonal(inside, axis1=-2, axis2=-1) + EPSILON
    return basis @ turn * ((1 - RATE) * values + RATE * curved)[..., None, :]


def spectral_step_case(cayley: str) -> KernelCase:
    """A step of eigenvectors and eigenvalues along a curvature in their basis."""
    return KernelCase(
        name=f"matrix.spectral_step.{cayley}.{LANES}x{DIMENSION}x{DIMENSION}",
        sizes={"lanes": LANES, "dimension": DIMENSION},
        prepare=lambda backend, dtype: on_backend(
            backend, dtype, partial(_spectral_step, cayley=cayley), _spectral()
        ),
        reference=lambda: _spectral_stepped(cayley),
        tolerance={"float64": 5e-14, "float32": 5e-6},
    )


def matrix_cases() -> tuple[KernelCase, ...]:
    """Newton-Schulz, an inverse root, the refresh of a basis, and steps of a spectral factorization."""
    square_sizes = {"lanes": LANES, "dimension": DIMENSION}
    return (
        newton_schulz_case(ROWS, COLUMNS, {"float64": 5e-14, "float32": 1e-5}),
        newton_schulz_case(SQUARE, SQUARE, {"float64": 5e-13, "float32": 1e-4}),
        KernelCase(
            name=f"matrix.inverse_root.{LANES}x{DIMENSION}x{DIMENSION}",
            sizes=square_sizes,
            prepare=lambda backend, dtype: on_backend(
                backend,
                dtype,
                lambda ops, x: matrix_functions.inverse_root(ops, x, ROOT, EPSILON),
                _second_moments(),
            ),
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
