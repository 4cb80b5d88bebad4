"""Alternative steps of a learned curvature: default update, inverse-free Cholesky, projection, retraction.

S is the learned curvature, a symmetric positive definite matrix whose inverse root preconditions gradients. H
is the curvature measured at one step, such as g g^T for the gradient g. C is a Cholesky factor of S^-1, C C^T
= S^-1. If S is a Kronecker product S_C x S_K, C_C and C_K are Cholesky factors of S_C^-1 and S_K^-1.

The default update learns S itself, and its roots have to be computed by eigendecomposition (`inverse_root`).

In citations, 003 is Lin et al. (2025), "Spectral-factorized Positive-definite Curvature Learning for NN
Training" (docs/sources.md).
"""

from __future__ import annotations

from typing import Any


def default_step(
    ops: Any, matrix: Any, curvature: Any, rate: Any, gamma: Any = 1.0, damping: Any = 0.0
) -> Any:
    """Return (1 - rate gamma) S + rate (H + lambda I), the curvature after a step (003 eq. 3; Fig. 5, left).

    Args:
        matrix: S, (..., n, n), symmetric and positive definite.
        curvature: H, (..., n, n), symmetric.
        rate: beta_2, a number or (..., 1, 1); gamma and damping may have these shapes too.
        gamma: 1 if S is a running mean, 0 if it is a sum.
        damping: lambda.

    Returns:
        (..., n, n), positive definite if H + lambda I is and rate gamma is at most 1.
    """
    return (1 - rate * gamma) * matrix + rate * (curvature + damping * ops.eye(matrix.shape[-1]))


def cholesky_step(
    ops: Any, factor: Any, curvature: Any, rate: Any, gamma: Any = 1.0, damping: Any = 0.0
) -> Any:
    """Return C of S = (C C^T)^-1 after a step along a curvature: C h(-rate L), without an inverse.

    L + L^T = C^T (H + lambda I) C - gamma I. L is lower triangular and h(X) = I + X + X^2 / 2, so that the
    diagonal of C stays positive (Lin et al. 2023, 2024; 003 Sec. 4.1). To first order in the rate, S takes
    the default step.

    Args:
        factor: C, (..., n, n), lower triangular with a positive diagonal.
        curvature: H, (..., n, n), symmetric.
        rate, gamma, damping: beta_2, gamma (1 if S is a running mean, 0 if it is a sum) and lambda.
    """
    transposed = ops.matrix_transpose(factor)
    inside = transposed @ curvature @ factor + damping * (transposed @ factor)
    return _moved_factor(ops, factor, inside - gamma * ops.eye(factor.shape[-1]), rate)


def kronecker_cholesky_step(
    ops: Any,
    factors: tuple[Any, Any],
    gradient: Any,
    rate: Any,
    gamma: Any = 1.0,
    damping: Any = 0.0,
    shares_scale: bool = False,
) -> tuple[Any, Any]:
    """Return the factors C_C and C_K of S after a step along g g^T + lambda I, without inverses.

    S = (C_C C_C^T)^-1 x (C_K C_K^T)^-1. In the printed rule (003 Fig. 6, left; Lin et al. 2024), both factors
    take the whole change of scale, so that the change enters S twice. With `shares_scale`, each factor takes
    half of the change of scale. To first order in the rate, S then moves as in `kronecker_spectral_step`.

    Args:
        factors: C_C (..., m, m) and C_K (..., n, n), lower triangular with positive diagonals.
        gradient: G, (..., m, n), g row by row.
        rate, gamma, damping: beta_2, gamma (1 if S is a running mean, 0 if it is a sum) and lambda.
        shares_scale: whether each factor takes half of the change of scale.
    """
    inside = ops.matrix_transpose(factors[0]) @ gradient @ factors[1]
    products = [ops.matrix_transpose(factor) @ factor for factor in factors]
    size_of_rows, size_of_columns = gradient.shape[-2:]
    means = (
        inside @ ops.matrix_transpose(inside) / size_of_columns
        + damping * _mean_trace(ops, products[1]) * products[0],
        ops.matrix_transpose(inside) @ inside / size_of_rows
        + damping * _mean_trace(ops, products[0]) * products[1],
    )
    moved = []
    for factor, mean in zip(factors, means, strict=True):
        identity = ops.eye(factor.shape[-1])
        change = mean - gamma * identity
        if shares_scale:
            change = change - _mean_trace(ops, change) / 2 * identity
        moved.append(_moved_factor(ops, factor, change, rate))
    return moved[0], moved[1]


def kronecker_projection_step(
    ops: Any, factors: tuple[Any, Any], gradient: Any, rate: Any, gamma: Any = 1.0, rounds: int = 12
) -> tuple[Any, Any]:
    """Return the factors of the Kronecker product nearest to the default step of S_C x S_K along g g^T.

    The distance is the Frobenius norm. The new factors are the leading pair of singular vectors of a matrix:
    the default step, with its entries rearranged (Van Loan and Pitsianis 1993; 003 Sec. 4.1). They are
    computed by power iteration from the old factors, without forming the matrix, and stay positive definite.

    Args:
        factors: S_C (..., m, m) and S_K (..., n, n), symmetric and positive definite.
        gradient: G, (..., m, n), g row by row.
        rate, gamma: beta_2, and 1 if S is a running mean or 0 if it is a sum; rate gamma must be below 1.
        rounds: rounds of power iteration. A round multiplies the error by the square of sigma_2 / sigma_1,
            the ratio of the second to the first singular value of the rearranged matrix.

    Returns:
        S_C and S_K, with equal Frobenius norms.
    """
    rows, columns = factors
    transposed = ops.matrix_transpose(gradient)
    decay = 1 - rate * gamma
    right = columns / _frobenius_norm(ops, columns)
    for _ in range(rounds):
        left = decay * _inner(ops, columns, right) * rows + rate * (gradient @ right @ transposed)
        left = left / _frobenius_norm(ops, left)
        right = decay * _inner(ops, rows, left) * columns + rate * (transposed @ left @ gradient)
        value = _frobenius_norm(ops, right)
        right = right / value
    root = ops.sqrt(value)
    return root * left, root * right


def retraction_step(ops: Any, matrix: Any, curvature: Any, rate: Any) -> Any:
    """Return S + X + X S^-1 X / 2 with X = rate H, a step of Riemannian gradient descent.

    The result is positive definite for every H. The step is the second-order retraction of the
    affine-invariant metric (Absil et al. 2009; Boumal et al. 2014; 003 Sec. 4.2). To first order in the rate,
    S takes the default step with gamma 0.

    Args:
        matrix: S, (..., n, n), symmetric and positive definite.
        curvature: H, (..., n, n), symmetric: -2 S (dl / dS) S for a loss l of S.
        rate: beta_2, a number or (..., 1, 1).
    """
    move = rate * curvature
    return matrix + move + move @ ops.solve(matrix, move) / 2


def _moved_factor(ops: Any, factor: Any, change: Any, rate: Any) -> Any:
    """Return C h(-rate L), where L is lower triangular and L + L^T is the symmetric matrix `change`."""
    lower = ops.tril(change) - change * ops.eye(change.shape[-1]) / 2
    step = -rate * lower
    return factor + factor @ (step + step @ step / 2)


def _mean_trace(ops: Any, matrix: Any) -> Any:
    """Return the mean of the diagonal of matrices, as (..., 1, 1)."""
    return ops.mean(ops.diagonal(matrix), axis=-1, keepdims=True)[..., None]


def _inner(ops: Any, a: Any, b: Any) -> Any:
    """Return the inner product of matrices, the sum of products of entries, as (..., 1, 1)."""
    return ops.sum(a * b, axis=(-2, -1), keepdims=True)


def _frobenius_norm(ops: Any, matrix: Any) -> Any:
    """Return the Frobenius norm of matrices, as (..., 1, 1)."""
    return ops.sqrt(_inner(ops, matrix, matrix))
