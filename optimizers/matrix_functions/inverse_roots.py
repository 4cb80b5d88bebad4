"""Inverse roots of symmetric positive semi-definite matrices: by eigendecomposition, or products alone."""

from __future__ import annotations

from typing import Any

from curvebench.optimizers.matrix_functions.basis_tracking import estimated_eigenvalues
from curvebench.optimizers.matrix_functions.scaling import normalized


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
    return _inverse_root(ops, values, vectors, exponent, epsilon, cutoff)


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


def inverse_root_in_basis(
    ops: Any, matrix: Any, basis: Any, exponent: float, epsilon: Any = 0.0, cutoff: float = 0.0
) -> Any:
    """inverse_root with a given basis for the eigenvectors and v_i^T A v_i for the eigenvalues (002 Q.2.1).

    Args:
        matrix: A, (..., n, n), symmetric and positive semi-definite.
        basis: V, (..., n, n), orthonormal columns.
        exponent, epsilon, cutoff: as in inverse_root.
    """
    values = estimated_eigenvalues(ops, matrix, basis)
    return _inverse_root(ops, values, basis, exponent, epsilon, cutoff)


def _inverse_root(ops: Any, values: Any, vectors: Any, exponent: float, epsilon: Any, cutoff: Any) -> Any:
    """V diag(values + epsilon)^(-exponent) V^T, values in any order."""
    roots = _inverse_powers(ops, values, exponent, epsilon, cutoff)
    return (vectors * roots) @ ops.matrix_transpose(vectors)


def _inverse_powers(ops: Any, values: Any, exponent: float, epsilon: Any, cutoff: Any) -> Any:
    """(values + epsilon)^(-exponent), (..., 1, n), with 0 for what is up to the cutoff."""
    damped = ops.maximum(values, 0.0)[..., None, :] + epsilon
    # what is not a number counts: a lane that diverged must not go on as if its roots were 0
    counts = ~(damped <= cutoff * ops.max(damped, axis=-1, keepdims=True))
    return ops.power(ops.where(counts, damped, 1.0), -exponent) * ops.astype_float(counts)


def coupled_newton_inverse_root(ops: Any, matrix: Any, root: int, steps: int, epsilon: Any = 0.0) -> Any:
    """(A + epsilon I)^(-1 / root) by the coupled Newton iteration: products only, no decomposition.

    X <- X T and M <- T^p M with T = ((p + 1) I - M) / p keep M = X^p (A + epsilon I); M tends to I, and X to
    the inverse root (Iannazzo 2006, "On the Newton method for the matrix pth root"; start by Guo and Higham
    2006). An eigenvalue small beside the Frobenius norm grows at most by (1 + 1/p)^p < e in a step of M, so a
    condition number k needs about log(k) steps and then 4 or 5 more.

    Args:
        matrix: A, (..., n, n), symmetric and positive semi-definite.
        root: p, at least 1.
        steps: how many.
        epsilon: damping, a number or (..., 1, 1).

    Returns:
        (..., n, n); 0 for a matrix that is 0 without damping. Where A + epsilon I is singular, its null space
        grows by 1 + 1/p in each step.
    """
    identity = ops.eye(matrix.shape[-1])
    m, norm = normalized(ops, matrix + epsilon * identity, (-2, -1))
    scale = (root + 1) / 2
    m = scale * m
    # scale / norm alone would overflow in float32 for a tiny norm
    x = ops.power(ops.where(norm == 0, 1.0, norm), -1 / root) * scale ** (1 / root) * identity
    x = x * ops.astype_float(norm != 0)
    for _ in range(steps):
        t = ((root + 1) * identity - m) / root
        x, m = x @ t, _power(t, root) @ m
    return x


def newton_schulz_inverse_root(ops: Any, matrix: Any, halvings: int, steps: int, epsilon: Any = 0.0) -> Any:
    """(A + epsilon I)^(-1 / 2^halvings) by coupled Newton-Schulz iterations: products only.

    Y <- Y T and Z <- T Z with T = (3 I - Z Y) / 2, from the matrix over its Frobenius norm and I: Y tends to
    the square root and Z to the inverse one (Higham 2008, "Functions of Matrices", Sec. 6.3; the coupling
    keeps rounding errors bounded). Each further halving does the same with the square root found. An
    eigenvalue of Y grows by up to 3/2 in a step and the error is squared near 1: a condition number k needs
    about log(k) / (2 log(3/2)) steps and then 4 or 5 more, and half of the first at each further halving.

    Args:
        matrix: A, (..., n, n), symmetric and positive definite once damped.
        halvings: 1 for the exponent 1/2, 2 for 1/4, and so on.
        steps: how many, at each halving.
        epsilon: damping, a number or (..., 1, 1).

    Returns:
        (..., n, n); 0 for a matrix that is 0 without damping. Where A + epsilon I is singular, its null space
        grows by 3/2 in each step.
    """
    identity = ops.eye(matrix.shape[-1])
    root = matrix + epsilon * identity
    inverse = identity
    for _ in range(halvings):
        root, norm = normalized(ops, root, (-2, -1))
        inverse = identity
        for _ in range(steps):
            t = (3 * identity - inverse @ root) / 2
            root, inverse = root @ t, t @ inverse
        scale = ops.sqrt(norm)
        root = root * scale
        inverse = inverse * ops.astype_float(norm != 0) / ops.where(norm == 0, 1.0, scale)
    return inverse


def _power(matrix: Any, exponent: int) -> Any:
    """A whole power of at least 1 by repeated squaring."""
    if exponent == 1:
        return matrix
    half = _power(matrix, exponent // 2)
    return half @ half if exponent % 2 == 0 else half @ half @ matrix
