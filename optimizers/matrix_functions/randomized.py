"""The leading singular triplets of a matrix from a random range."""

from __future__ import annotations

from typing import Any


def randomized_svd(ops: Any, matrix: Any, test_matrix: Any, iterations: int) -> tuple[Any, Any, Any]:
    """Leading singular triplets (000 C.6, after Halko, Martinsson, Tropp 2011, Algorithms 4.4 and 5.1).

    An orthonormal basis of A Omega is refined by products with A^T and A, each followed by QR, and A is
    decomposed inside it. Each iteration multiplies the share of small singular values in the basis by
    (sigma_{l+1} / sigma_i)^2. The random test matrix is an argument, so that every backend has the same.

    Args:
        matrix: A, (..., m, n).
        test_matrix: Omega, (..., n, l), independent standard normal entries; l is the rank that is wanted
            plus some (5 or 10), of which the caller drops the last.
        iterations: power iterations; 0 is Algorithm 4.1.

    Returns:
        u (..., m, k), values descending (..., k) and vh (..., k, n), k the least of m, n and l.
    """
    transposed = ops.matrix_transpose(matrix)
    basis, _ = ops.qr(matrix @ test_matrix)
    for _ in range(iterations):
        other, _ = ops.qr(transposed @ basis)
        basis, _ = ops.qr(matrix @ other)
    u, values, vh = ops.svd(ops.matrix_transpose(basis) @ matrix)
    return basis @ u, values, vh
