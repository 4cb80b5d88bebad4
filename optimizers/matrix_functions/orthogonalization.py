"""The orthogonal polar factor U V^T of a matrix: by a polynomial iteration, and exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optimizers.matrix_functions.polynomials import OddPolynomial
from optimizers.matrix_functions.scaling import normalized, rank_cutoff
from optimizers.matrix_functions.symmetric import gram, symmetric_product


def newton_schulz(
    ops: Any, matrix: Any, coefficients: Sequence[OddPolynomial], steps: int | None = None
) -> Any:
    """The polar factor by X <- c_1 X + c_2 (X X^T) X + c_3 (X X^T)^2 X + ... (002 eq. 147).

    It starts at the matrix over its Frobenius norm. Products with X X^T are taken on the smaller side. For a
    quintic and m <= n a step takes 4 m^2 n + 2 m^3 multiplications and additions (002 Q.3.1, Compute).

    Args:
        matrix: (..., m, n), of any scale.
        coefficients: c_1, c_2, ... of an odd polynomial by step; see COEFFICIENTS.
        steps: the last polynomial is repeated where there are fewer; one step a polynomial if not given.

    Returns:
        U p(S / |S|) V^T, (..., m, n), where p is the composed polynomial; 0 for a matrix that is 0.

    Raises:
        ValueError: where there is no polynomial or one is empty.
    """
    if not coefficients or not all(coefficients):
        raise ValueError("coefficients: give one polynomial or more, each with one coefficient or more")
    count = len(coefficients) if steps is None else steps
    rows, columns = matrix.shape[-2:]
    x, _ = normalized(ops, ops.matrix_transpose(matrix) if rows > columns else matrix, (-2, -1))
    identity = ops.eye(min(rows, columns))
    for step in range(count):
        x = _odd_polynomial(ops, x, coefficients[min(step, len(coefficients) - 1)], identity)
    return ops.matrix_transpose(x) if rows > columns else x


def _odd_polynomial(ops: Any, x: Any, polynomial: OddPolynomial, identity: Any) -> Any:
    """The even polynomial c_1 I + c_2 A + c_3 A^2 + ... of A = X X^T by Horner's rule, times X."""
    *lower, highest = polynomial
    if not lower:
        return highest * x
    squares = gram(ops, x)
    even = highest * squares + lower[-1] * identity
    for coefficient in reversed(lower[:-1]):
        even = symmetric_product(ops, squares, even) + coefficient * identity
    return even @ x


def orthogonal_factor(ops: Any, matrix: Any) -> Any:
    """The orthogonal polar factor U V^T by the singular value decomposition (002 Q.3.1).

    Singular values of at most max(m, n) eps sigma_1 count as 0: their singular vectors are arbitrary, and a
    factor that held them would differ between libraries.

    Args:
        matrix: (..., m, n).

    Returns:
        (..., m, n): the sum of u_i v_i^T over the singular values that count; 0 for a matrix that is 0.
    """
    u, values, vh = ops.svd(matrix)
    counts = values > rank_cutoff(ops, *matrix.shape[-2:]) * values[..., :1]
    return (u * ops.astype_float(counts)[..., None, :]) @ vh
