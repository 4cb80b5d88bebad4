"""Operations on tensors along their axes: matricizations, products, second moments, division into blocks.

Tensors have shape (..., n_1, ..., n_order), where "..." are batch axes. The matricization along an axis is
the matrix whose rows belong to the indices of that axis; all other axes are joined into its columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from curvebench.optimizers.arrays import Array, Ops
from curvebench.optimizers.matrix_functions import gram

# Einsum's letters for the axes of a tensor that is divided into blocks.
# The letters in OUTER count blocks, and the letters in INNER count entries within a block.
OUTER, INNER = "abcdefgh", "ijklmnop"


def matricized(ops: Ops, tensor: Array, order: int, axis: int) -> Array:
    """Return tensors (..., n_1, ..., n_order) as matrices (..., n_axis, entries of the other axes)."""
    leading, lengths = tensor.shape[: tensor.ndim - order], tensor.shape[tensor.ndim - order :]
    if axis == 0:
        return ops.reshape(tensor, (*leading, lengths[0], -1))
    rows_before, length = math.prod(lengths[:axis]), lengths[axis]
    if axis == order - 1:
        return ops.matrix_transpose(ops.reshape(tensor, (*leading, rows_before, length)))
    around = ops.reshape(tensor, (*leading, rows_before, length, math.prod(lengths[axis + 1 :])))
    return ops.reshape(ops.swapaxes(around, -3, -2), (*leading, length, -1))


def multiplied(ops: Ops, matrices: Sequence[Array | None], tensor: Array) -> Array:
    """Multiply each axis of tensors (..., n_1, ..., n_k) by a matrix: sum_j M_ij T_j for M (..., n, n).

    Each product moves the last axis to the front, so that after k products all axes are in their original
    order. The tensor is always the second operand of the product, transposed. For a short axis, this is
    faster than a product with the tensor as first operand.

    Args:
        matrices: one matrix per axis; None leaves the axis as it is.
    """
    order = len(matrices)
    leading, lengths = tuple(tensor.shape[: tensor.ndim - order]), list(tensor.shape[tensor.ndim - order :])
    for matrix in reversed(matrices):
        columns = ops.matrix_transpose(ops.reshape(tensor, (*leading, -1, lengths[-1])))
        tensor = columns if matrix is None else matrix @ columns
        lengths = [lengths[-1], *lengths[:-1]]
    return ops.reshape(tensor, (*leading, *lengths))


def second_moment(ops: Ops, tensor: Array, order: int, axis: int) -> Array:
    """Return G G^T, (..., n_axis, n_axis), for the matricization G of tensors along an axis."""
    return gram(ops, matricized(ops, tensor, order, axis))


def hyper_for_matrices(ops: Ops, value: Array, order: int) -> Array:
    """Reshape a hyperparameter for tensors of `order` axes, so that it broadcasts against matrices."""
    return ops.reshape(value, (*value.shape[: value.ndim - order], 1, 1))


@dataclass(frozen=True)
class Blocks:
    """Division of tensors into blocks of equal shape; the last block of an axis is padded with zeros.

    The second moment of a padded block is block-diagonal: one part for the entries of the tensor, and zeros
    for the padding. Roots of the second moment have the same form. The padding, which `joined` removes,
    therefore never influences the entries of the tensor.

    Args:
        shape: shape of a tensor.
        size: maximum length of an axis of a block.
    """

    shape: tuple[int, ...]
    size: int

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of blocks along each axis, the smallest that `size` permits."""
        return tuple(math.ceil(length / self.size) for length in self.shape)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Shape of a block: the smallest with which `counts` blocks along each axis cover the tensor."""
        return tuple(math.ceil(length / count) for length, count in zip(self.shape, self.counts, strict=True))

    @property
    def _names(self) -> tuple[str, str]:
        """Two texts of einsum's letters, for two orders of the axes of a tensor that is divided into blocks.

        The axes of a tensor (n_1, n_2) are count_1, length_1, count_2 and length_2: the number of blocks
        along each axis, and the length of a block. The first text has this order, and the second text the
        order count_1, count_2, length_1, length_2.
        """
        outer, inner = OUTER[: len(self.shape)], INNER[: len(self.shape)]
        return "".join(map("".join, zip(outer, inner, strict=True))), outer + inner

    def cut(self, ops: Ops, tensor: Array) -> Array:
        """Divide tensors (..., *shape) into blocks, as arrays (..., *counts, *lengths)."""
        leading = tuple(tensor.shape[: tensor.ndim - len(self.shape)])
        pairs = list(zip(self.counts, self.lengths, strict=True))
        ends = [(0, c * n - length) for (c, n), length in zip(pairs, self.shape, strict=True)]
        if any(end for _, end in ends):
            tensor = ops.pad(tensor, (*((0, 0),) * len(leading), *ends))
        split = ops.reshape(tensor, (*leading, *(number for pair in pairs for number in pair)))
        alternating, counts_first = self._names
        return ops.einsum(f"...{alternating}->...{counts_first}", split)

    def joined(self, ops: Ops, blocks: Array) -> Array:
        """Join blocks (..., *counts, *lengths) to tensors (..., *shape)."""
        leading = tuple(blocks.shape[: blocks.ndim - 2 * len(self.shape)])
        alternating, counts_first = self._names
        split = ops.einsum(f"...{counts_first}->...{alternating}", blocks)
        padded = [c * n for c, n in zip(self.counts, self.lengths, strict=True)]
        tensor = ops.reshape(split, (*leading, *padded))
        return tensor[(..., *(slice(0, length) for length in self.shape))]
