"""Eigenvectors by products and QR: power and orthogonal iteration, and a basis that follows a matrix.

X is the symmetric matrix whose eigenvectors are sought, with eigenvalues lambda_1 >= lambda_2 >= ...; V has
their estimates in m columns. Leading axes "..." are batch axes.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from typing import Any

from curvebench.optimizers.matrix_functions.scaling import normalized


def power_iteration(ops: Any, matrix: Any, vector: Any, steps: int) -> Any:
    """Return an estimate of the leading eigenvector by steps q <- X q / |X q| (002 Q.1, after eq. 141).

    A step multiplies the error by lambda_2 / lambda_1. `estimated_eigenvalues` computes the eigenvalue.

    Args:
        matrix: X, (..., n, n), symmetric and positive semi-definite.
        vector: the start, (..., n).
        steps: number of steps.

    Returns:
        q, (..., n), with norm 1; or 0 if a product X q is 0.
    """
    column = vector[..., None]
    for _ in range(steps):
        column, _ = normalized(ops, matrix @ column, -2)
    return column[..., 0]


def orthogonal_iteration(ops: Any, matrix: Any, basis: Any) -> Any:
    """Do one step V <- QR(X V) (002 eqs. 142 and 143; eqs. 144 and 145 where X drifts).

    A step multiplies the angle between the span of the m columns and the span of the m leading eigenvectors
    by lambda_{m+1} / lambda_m. With m = n, column i converges at a rate that depends on the ratios of
    lambda_i to lambda_{i-1} and lambda_{i+1}.

    Args:
        matrix: X, (..., n, n), symmetric and positive semi-definite.
        basis: V, (..., n, m), orthonormal columns.

    Returns:
        The new V, (..., n, m), with orthonormal columns. Their signs depend on the library's QR.
    """
    return ops.qr(matrix @ basis)[0]


def estimated_eigenvalues(ops: Any, matrix: Any, basis: Any) -> Any:
    """Return v^T X v, an estimate of the eigenvalue, for each column v of a basis (002 Q.2.1).

    Args:
        matrix: X, (..., n, n).
        basis: (..., n, m), orthonormal columns.

    Returns:
        (..., m).
    """
    return ops.sum(basis * (matrix @ basis), axis=-2)


def descending_order(ops: Any, values: Any) -> Any:
    """Return the indices that sort values (..., m) in descending order; equal values keep their order."""
    return ops.argsort(-values, -1)


def reorder(ops: Any, array: Any, order: Any, axis: int) -> Any:
    """Sort the columns (axis -1) or rows (axis -2) of matrices in a given order.

    An optimizer whose state is expressed in a left and a right basis, such as second moments, must sort the
    state's rows like the left basis' columns, and its columns like the right basis' columns.

    Args:
        array: (..., m, n).
        order: indices (..., n) for axis -1, (..., m) for axis -2.
        axis: -1 or -2.
    """
    return ops.take_along_axis(array, order[..., None, :] if axis == -1 else order[..., None], axis)


def align_signs(ops: Any, basis: Any, previous: Any) -> Any:
    """Choose signs such that no column has a negative inner product with its previous value (002 Q.2.1).

    Args:
        basis: the new basis, (..., n, m).
        previous: the basis of the step before, (..., n, m), with columns in the same order.
    """
    inner = ops.sum(basis * previous, axis=-2, keepdims=True)
    return ops.where(inner < 0, -basis, basis)


def online_orthogonal_iteration(ops: Any, matrix: Any, basis: Any) -> tuple[Any, Any]:
    """Do one orthogonal iteration, then align signs and sort columns (002 Q.2.1, eqs. 144 and 145).

    Args:
        matrix: X at this step, (..., n, n), symmetric and positive semi-definite.
        basis: V of the step before, (..., n, m).

    Returns:
        V of this step, (..., n, m), with its columns sorted by descending estimated eigenvalues; and the
        order (..., m). Column i of V continues column order[i] of the old V. With this order, state that is
        expressed in the basis can be reordered.
    """
    refreshed = align_signs(ops, orthogonal_iteration(ops, matrix, basis), basis)
    order = descending_order(ops, estimated_eigenvalues(ops, matrix, refreshed))
    return reorder(ops, refreshed, order, -1), order


def labelled_orthogonal_iteration(ops: Any, matrix: Any, basis: Any) -> Any:
    """Do one online orthogonal iteration that keeps the order of the columns (002 Q.2.1).

    Column i continues the old column i, so that state expressed in the basis does not have to be reordered.
    QR starts with the column that has the largest estimated eigenvalue, as in the implementation by SOAP's
    authors (Vyas et al. 2024). That implementation keeps the columns in the order of QR, and reorders the
    state instead. The result is the same up to a permutation, but for a tensor of several axes, reordering
    the state takes as long as everything else.

    Args:
        matrix: X at this step, (..., n, n), symmetric and positive semi-definite.
        basis: V of the step before, (..., n, m).

    Returns:
        V of this step, (..., n, m).
    """
    # The basis is transposed, because rows are contiguous in memory and columns are not.
    old_rows = ops.matrix_transpose(basis)
    product = old_rows @ matrix
    order = descending_order(ops, ops.sum(old_rows * product, axis=-1))
    refreshed = ops.qr(ops.matrix_transpose(reorder(ops, product, order, -2)))[0]
    rows = reorder(ops, ops.matrix_transpose(refreshed), ops.argsort(order, -1), -2)
    return align_signs(ops, ops.matrix_transpose(rows), basis)
