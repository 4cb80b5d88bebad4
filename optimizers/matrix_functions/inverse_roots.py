"""Inverse roots of symmetric positive semi-definite matrices, by eigendecomposition."""

from __future__ import annotations

from typing import Any


def inverse_root(ops: Any, matrix: Any, exponent: float, epsilon: Any = 0.0, cutoff: Any = 0.0) -> Any:
    """Return (A + epsilon I)^(-exponent) by eigendecomposition, as Shampoo needs (002 eq. 53; 1/2 in eq. 63).

    Eigenvalues below 0 are rounding and count as 0. An eigenvalue that is 0 after damping stays 0 in the
    inverse, so that without epsilon the result is a root of the pseudo-inverse (002 Fact 2.1 needs it where
    X_t is singular).

    Args:
        matrix: A, (..., n, n); its symmetric part is used.
        exponent: above 0, such as 1/4.
        epsilon: damping, added to each eigenvalue before the root: a number or (..., 1, 1).
        cutoff: eigenvalues up to this share of the largest, both damped, get the inverse 0. A number or (...,
            1, 1); rank_cutoff gives the size of rounding.

    Returns:
        (..., n, n), symmetric up to rounding.
    """
    values, vectors = ops.eigh(matrix)
    roots = _inverse_powers(ops, values, exponent, epsilon, cutoff)
    return (vectors * roots) @ ops.matrix_transpose(vectors)


def inverse_root_product(ops: Any, matrix: Any, factor: Any, exponent: float, cutoff: Any = 0.0) -> Any:
    """Return A^(-exponent) B by eigendecomposition.

    It needs fewer products than `inverse_root` if B has few columns.

    Args:
        matrix: A, (..., n, n); its symmetric part is used.
        factor: B, (..., n, k).
        exponent, cutoff: see inverse_root.
    """
    if factor.shape[-1] >= factor.shape[-2]:
        return inverse_root(ops, matrix, exponent, cutoff=cutoff) @ factor
    values, vectors = ops.eigh(matrix)
    roots = _inverse_powers(ops, values, exponent, 0.0, cutoff)
    return (vectors * roots) @ (ops.matrix_transpose(vectors) @ factor)


def _inverse_powers(ops: Any, values: Any, exponent: float, epsilon: Any, cutoff: Any) -> Any:
    """Return (values + epsilon)^(-exponent), (..., 1, n), with 0 for values up to the cutoff."""
    damped = ops.maximum(values, 0.0)[..., None, :] + epsilon
    # A NaN counts as above the cutoff: a lane that diverged must not go on as if its roots were 0.
    counts = ~(damped <= cutoff * ops.max(damped, axis=-1, keepdims=True))
    return ops.power(ops.where(counts, damped, 1.0), -exponent) * ops.astype_float(counts)
