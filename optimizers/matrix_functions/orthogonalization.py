"""Orthogonal polar factor U V^T of a matrix, by a polynomial iteration or exactly.

U S V^T is the singular value decomposition of the matrix. X is the iterate, with m rows and n columns. c_1,
c_2, ... are the coefficients of an odd polynomial c_1 x + c_2 x^3 + ...

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from curvebench.optimizers.matrix_functions.polynomials import OddPolynomial
from curvebench.optimizers.matrix_functions.scaling import normalized, rank_cutoff
from curvebench.optimizers.matrix_functions.symmetric import gram, symmetric_product

# TOGETHER steps are computed on X X^T at a time, if the longer side of X is at least WIDE times the shorter.
TOGETHER, WIDE = 3, 2


def newton_schulz(
    ops: Any,
    matrix: Any,
    coefficients: Sequence[OddPolynomial],
    steps: int | None = None,
    precision: str | None = None,
) -> Any:
    """Return the polar factor by X <- c_1 X + c_2 (X X^T) X + c_3 (X X^T)^2 X + ... (002 eq. 147).

    The iteration starts at the matrix divided by its Frobenius norm. If m > n, X is transposed, so that X X^T
    has the smaller size. For a quintic and m <= n, a step needs 4 m^2 n + 2 m^3 multiplications and additions
    (002 Q.3.1, Compute). From n = 2 m on, three steps are computed on X X^T before X is multiplied. Together
    these three steps need 4 m^2 n + 18 m^3 operations.

    Args:
        matrix: (..., m, n), of any scale.
        coefficients: c_1, c_2, ... of an odd polynomial for each step; see COEFFICIENTS.
        steps: number of steps. If there are more steps than polynomials, the last polynomial is repeated.
            None for one step per polynomial.
        precision: precision of the matrix products, but not of the division by the norm before them; None
            for the precision of the matrix.

    Returns:
        U p(S / |S|) V^T, (..., m, n), where p is the composed polynomial; 0 for a matrix that is 0.

    Raises:
        ValueError: if there is no polynomial, or a polynomial without coefficients.
    """
    if not coefficients or not all(coefficients):
        raise ValueError("coefficients: give one polynomial or more, each with one coefficient or more")
    count = len(coefficients) if steps is None else steps
    rows, columns = matrix.shape[-2:]
    tall = rows > columns
    x, _ = normalized(ops, ops.matrix_transpose(matrix) if tall else matrix, (-2, -1))
    x = x if precision is None else ops.cast(x, precision)
    polynomials = [coefficients[min(step, len(coefficients) - 1)] for step in range(count)]
    together = TOGETHER if max(rows, columns) >= WIDE * min(rows, columns) else 1
    for first in range(0, count, together):
        x = _composed(ops, x, polynomials[first : first + together])
    return ops.cast_like(ops.matrix_transpose(x) if tall else x, matrix)


def _composed(ops: Any, x: Any, polynomials: Sequence[OddPolynomial]) -> Any:
    """Apply odd polynomials P to X one after the other, computed on X X^T.

    P(X) = Q X with a matrix Q that is a polynomial of X X^T, and P(X) P(X)^T = Q (X X^T) Q.

    A few polynomials at a time are as accurate as single steps. Many would be less accurate: each polynomial
    multiplies the smallest eigenvalues of X X^T by c_1^2, and the rounding errors of X X^T with them.
    """
    identity = ops.cast_like(ops.eye(x.shape[-2]), x)
    squares = gram(ops, x)
    total = None
    for number, polynomial in enumerate(polynomials):
        even = _even_polynomial(ops, squares, polynomial, identity)
        total = even if total is None else symmetric_product(ops, even, total)
        if number < len(polynomials) - 1:
            squares = symmetric_product(ops, symmetric_product(ops, even, squares), even)
    return total @ x


def _even_polynomial(ops: Any, squares: Any, polynomial: OddPolynomial, identity: Any) -> Any:
    """Return c_1 I + c_2 A + c_3 A^2 + ... for A = X X^T (`squares`), by Horner's rule."""
    *lower, highest = polynomial
    if not lower:
        return highest * identity
    even = highest * squares + lower[-1] * identity
    for coefficient in reversed(lower[:-1]):
        even = symmetric_product(ops, squares, even) + coefficient * identity
    return even


def orthogonal_factor(ops: Any, matrix: Any) -> Any:
    """Return the orthogonal polar factor U V^T by the singular value decomposition (002 Q.3.1).

    Singular values of at most max(m, n) eps sigma_1 count as 0, where sigma_1 is the largest. Their singular
    vectors are arbitrary, so that a polar factor that included them would differ between libraries.

    Args:
        matrix: (..., m, n).

    Returns:
        (..., m, n): the sum of u_i v_i^T over the singular values that count; 0 for a matrix that is 0.
    """
    u, values, vh = ops.svd(matrix)
    counts = values > rank_cutoff(ops, *matrix.shape[-2:]) * values[..., :1]
    return (u * ops.astype_float(counts)[..., None, :]) @ vh
