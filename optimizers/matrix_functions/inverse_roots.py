"""Inverse roots of symmetric positive semi-definite matrices, by eigendecomposition."""

from __future__ import annotations

from typing import Any


def inverse_root(ops: Any, matrix: Any, exponent: float, epsilon: Any = 0.0, cutoff: Any = 0.0) -> Any:
    """(A + epsilon I)^(-exponent) by eigendecomposition, as Shampoo needs (002 eq. 53; 1/2 in eq. 63).

    Eigenvalues below 0 are rounding and count as 0. What is 0 after damping stays 0 in the inverse, so that
    without epsilon the result is a root of the pseudo-inverse (002 Fact 2.1 needs it where X_t is singular).

    Args:
        matrix: A, (..., n, n); its symmetric part is taken.
        exponent: above 0, such as 1/4.
        epsilon: damping, added to each eigenvalue before the root: a number or (..., 1, 1).
        cutoff: eigenvalues of at most this times the largest, both damped, have the inverse 0, a number or
            (..., 1, 1); rank_cutoff gives the size of rounding.

    Returns:
        (..., n, n), symmetric up to rounding.
    """
    values, vectors = ops.eigh(matrix)
    roots = _inverse_powers(ops, values, exponent, epsilon, cutoff)
    return (vectors * roots) @ ops.matrix_transpose(vectors)


def inverse_root_product(ops: Any, matrix: Any, other: Any, exponent: float, cutoff: Any = 0.0) -> Any:
    """A^(-exponent) B by eigendecomposition, with fewer products than `inverse_root` where B has few columns.

    Args:
        matrix: A, (..., n, n); its symmetric part is taken.
        other: B, (..., n, k).
        exponent, cutoff: as in inverse_root.
    """
    if other.shape[-1] >= other.shape[-2]:
        return inverse_root(ops, matrix, exponent, cutoff=cutoff) @ other
    values, vectors = ops.eigh(matrix)
    roots = _inverse_powers(ops, values, exponent, 0.0, cutoff)
    return (vectors * roots) @ (ops.matrix_transpose(vectors) @ other)


def _inverse_powers(ops: Any, values: Any, exponent: float, epsilon: Any, cutoff: Any) -> Any:
    """(values + epsilon)^(-exponent), (..., 1, n), with 0 for what is up to the cutoff."""
    damped = ops.maximum(values, 0.0)[..., None, :] + epsilon
    # what is not a number counts: a lane that diverged must not go on as if its roots were 0
    counts = ~(damped <= cutoff * ops.max(damped, axis=-1, keepdims=True))
    return ops.power(ops.where(counts, damped, 1.0), -exponent) * ops.astype_float(counts)
