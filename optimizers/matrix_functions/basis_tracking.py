"""Eigenvectors by products and QR: power and orthogonal iteration, and a basis that follows a matrix."""

from __future__ import annotations

from typing import Any

from curvebench.optimizers.matrix_functions.scaling import normalized


def power_iteration(ops: Any, matrix: Any, vector: Any, steps: int) -> Any:
    """The leading eigenvector by q <- X q / |X q| (002 Q.1, after eq. 141).

    The error falls by lambda_2 / lambda_1 in a step. The eigenvalue is that of estimated_eigenvalues.

    Args:
        matrix: X, (..., n, n), symmetric and positive semi-definite.
        vector: the start, (..., n).
        steps: how many.

    Returns:
        (..., n) with norm 1; 0 where a product is 0.
    """
    column = vector[..., None]
    for _ in range(steps):
        column, _ = normalized(ops, matrix @ column, -2)
    return column[..., 0]


def orthogonal_iteration(ops: Any, matrix: Any, basis: Any) -> Any:
    """One step V <- QR(X V) (002 eqs. 142 and 143; eqs. 144 and 145 where X drifts).

    The angle between the span of V and that of the leading m eigenvectors falls by lambda_{m+1} / lambda_m in
    a step; with m = n, column i converges at the rate of its own gap.

    Args:
        matrix: X, (..., n, n), symmetric and positive semi-definite.
        basis: V, (..., n, m), orthonormal columns.

    Returns:
        (..., n, m), orthonormal columns with the signs that the library's QR gives.
    """
    return ops.qr(matrix @ basis)[0]


def estimated_eigenvalues(ops: Any, matrix: Any, basis: Any) -> Any:
    """v_i^T X v_i for each column of a basis (002 Q.2.1).

    Args:
        matrix: X, (..., n, n).
        basis: (..., n, m), orthonormal columns.

    Returns:
        (..., m).
    """
    return ops.sum(basis * (matrix @ basis), axis=-2)


def descending_order(ops: Any, values: Any) -> Any:
    """The indices (..., m) that sort values (..., m) from large to small; equal ones keep their order."""
    return ops.argsort(-values, -1)


def reorder(ops: Any, array: Any, order: Any, axis: int) -> Any:
    """Columns (axis -1) or rows (axis -2) of matrices in a given order.

    What is kept in a basis moves with it: second moments have as rows the columns of the left basis, and as
    columns those of the right one.

    Args:
        array: (..., m, n).
        order: indices (..., n) for axis -1, (..., m) for axis -2.
        axis: -1 or -2.
    """
    return ops.take_along_axis(array, order[..., None, :] if axis == -1 else order[..., None], axis)


def align_signs(ops: Any, basis: Any, previous: Any) -> Any:
    """Each column with the sign that makes its inner product with the previous one not negative (002 Q.2.1).

    Args:
        basis: (..., n, m).
        previous: (..., n, m), its columns in the same order.
    """
    inner = ops.sum(basis * previous, axis=-2, keepdims=True)
    return ops.where(inner < 0, -basis, basis)


def online_orthogonal_iteration(ops: Any, matrix: Any, basis: Any) -> tuple[Any, Any]:
    """One orthogonal iteration with its sign and order corrections (002 Q.2.1, eqs. 144 and 145).

    Args:
        matrix: X at this step, (..., n, n), symmetric and positive semi-definite.
        basis: V of the step before, (..., n, m).

    Returns:
        V of this step, (..., n, m), estimated eigenvalues descending; and the order (..., m): column i of it
        continues column order[i] of the basis before, so that what is kept in the basis can be reordered.
    """
    refreshed = align_signs(ops, orthogonal_iteration(ops, matrix, basis), basis)
    order = descending_order(ops, estimated_eigenvalues(ops, matrix, refreshed))
    return reorder(ops, refreshed, order, -1), order


def labelled_orthogonal_iteration(ops: Any, matrix: Any, basis: Any) -> Any:
    """online_orthogonal_iteration whose columns stay in their places: nothing kept in the basis has to move.

    QR begins with the column that leads in the basis before, as in SOAP's own implementation (Vyas et al.
    2024), which keeps the columns in that order and moves what is kept in the basis: the same up to a
    permutation, which costs as much as all else where a basis belongs to a tensor of several axes.

    Args:
        matrix: X at this step, (..., n, n), symmetric and positive semi-definite.
        basis: V of the step before, (..., n, m).

    Returns:
        V of this step, (..., n, m): column i continues column i of the basis before (002 Q.2.1).
    """
    # Rows lie together in memory and columns do not: X is symmetric, so rows are what is moved.
    before = ops.matrix_transpose(basis)
    product = before @ matrix
    order = descending_order(ops, ops.sum(before * product, axis=-1))
    refreshed = ops.qr(ops.matrix_transpose(reorder(ops, product, order, -2)))[0]
    rows = reorder(ops, ops.matrix_transpose(refreshed), ops.argsort(order, -1), -2)
    return align_signs(ops, ops.matrix_transpose(rows), basis)
