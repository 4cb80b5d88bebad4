"""Inverse roots of symmetric positive semi-definite matrices, by eigendecomposition.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from typing import Any


def inverse_root(ops: Any, matrix: Any, exponent: float, epsilon: Any = 0.0, cutoff: Any = 0.0) -> Any:
    """Return (A + epsilon I)^(-exponent) by eigendecomposition, as in Shampoo (002 eqs. 53 and 63).

    Negative eigenvalues are rounding errors and count as 0. An eigenvalue that is 0 after damping stays 0 in
    the inverse, so that without epsilon the result is a root of the pseudo-inverse, which 002 Fact 2.1 needs
    for a singular matrix.

    Args:
        matrix: A, (..., n, n); its symmetric part is used.
        exponent: above 0, such as 1/4.
        epsilon: damping, added to each eigenvalue before the root: a number or (..., 1, 1).
        cutoff: damped eigenvalues up to this share of the largest get the inverse 0. A number or (..., 1, 1);
            `rank_cutoff` returns the share below which an eigenvalue may be a rounding error.

    Returns:
        (..., n, n), symmetric up to rounding.
    """
    values, vectors = ops.eigh(matrix)
    roots = _inverse_powers(ops, values, exponent, epsilon, cutoff)
    return (vectors * roots) @ ops.matrix_transpose(vectors)


def inverse_root_product(ops: Any, matrix: Any, factor: Any, exponent: float, cutoff: Any = 0.0) -> Any:
    """Return A^(-exponent) B, (..., n, k), by eigendecomposition.

    If B has few columns, this is cheaper than to compute A^(-exponent) first and multiply it by B.

    Args:
        matrix: A, (..., n, n); its symmetric part is used.
        factor: B, (..., n, k).
        exponent: above 0, such as 1/4.
        cutoff: eigenvalues up to this share of the largest get the inverse 0. A number or (..., 1, 1).
    """
    if factor.shape[-1] >= factor.shape[-2]:
        return inverse_root(ops, matrix, exponent, cutoff=cutoff) @ factor
    values, vectors = ops.eigh(matrix)
    roots = _inverse_powers(ops, values, exponent, 0.0, cutoff)
    return (vectors * roots) @ (ops.matrix_transpose(vectors) @ factor)


def _inverse_powers(ops: Any, values: Any, exponent: float, epsilon: Any, cutoff: Any) -> Any:
    """Return (values + epsilon)^(-exponent), (..., 1, n), with 0 for values up to the cutoff."""
    damped = ops.maximum(values, 0.0)[..., None, :] + epsilon
    # A NaN counts as above the cutoff, so that the result is NaN and a diverged run is noticed.
    counts = ~(damped <= cutoff * ops.max(damped, axis=-1, keepdims=True))
    return ops.power(ops.where(counts, damped, 1.0), -exponent) * ops.astype_float(counts)
