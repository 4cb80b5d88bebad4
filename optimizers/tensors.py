"""Tensors axis by axis: matricizations, products, second moments, and the cut into blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from curvebench.optimizers.matrix_functions import gram
from curvebench.optimizers.rule import Array, Ops

OUTER, INNER = "abcdefgh", "ijklmnop"  # einsum's names of a cut's axes


def matricized(ops: Ops, tensor: Array, order: int, axis: int) -> Array:
    """A stack of tensors (..., n_1, ..., n_order) as matrices (..., n_axis, entries of the other axes)."""
    leading, lengths = tensor.shape[: tensor.ndim - order], tensor.shape[tensor.ndim - order :]
    if axis == 0:
        return ops.reshape(tensor, (*leading, lengths[0], -1))
    before, length = math.prod(lengths[:axis]), lengths[axis]
    if axis == order - 1:
        return ops.matrix_transpose(ops.reshape(tensor, (*leading, before, length)))
    around = ops.reshape(tensor, (*leading, before, length, math.prod(lengths[axis + 1 :])))
    return ops.reshape(ops.swapaxes(around, -3, -2), (*leading, length, -1))


def multiplied(ops: Ops, matrices: Sequence[Array | None], tensor: Array) -> Array:
    """The products sum_j M_ij T_j of each axis of tensors (..., n_1, ..., n_k) with its matrix M (..., n, n).

    Each product takes the last axis away and puts it in front: after k of them all are in their places, and
    no axis was moved but as the transposed side of a product, which is faster for a short axis than its first
    side would be.

    Args:
        matrices: one for each axis; None leaves its axis as it is.
    """
    order = len(matrices)
    leading, lengths = tuple(tensor.shape[: tensor.ndim - order]), list(tensor.shape[tensor.ndim - order :])
    for matrix in reversed(matrices):
        columns = ops.matrix_transpose(ops.reshape(tensor, (*leading, -1, lengths[-1])))
        tensor = columns if matrix is None else matrix @ columns
        lengths = [lengths[-1], *lengths[:-1]]
    return ops.reshape(tensor, (*leading, *lengths))


def second_moment(ops: Ops, tensor: Array, order: int, axis: int) -> Array:
    """G G^T of the matricization G of an axis, (..., n_axis, n_axis)."""
    return gram(ops, matricized(ops, tensor, order, axis))


def hyper_for_matrices(ops: Ops, value: Array, order: int) -> Array:
    """A hyperparameter that broadcasts against tensors of so many axes as one that does against matrices."""
    return ops.reshape(value, (*value.shape[: value.ndim - order], 1, 1))


@dataclass(frozen=True)
class Blocks:
    """The cut of tensors into blocks of one shape; the last of an axis is filled up with zeros.

    Zeros at the end of an axis add zeros to second moments, and stay zeros under a matrix that is block
    diagonal like those: what is cut off by `joined` never reaches the rest.

    Args:
        shape: of a tensor.
        size: the longest that an axis of a block may be.
    """

    shape: tuple[int, ...]
    size: int

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of blocks along each axis, the least that `size` permits."""
        return tuple(math.ceil(length / self.size) for length in self.shape)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The shape of a block: the shortest of so many."""
        return tuple(math.ceil(length / count) for length, count in zip(self.shape, self.counts, strict=True))

    @property
    def _names(self) -> tuple[str, str]:
        """einsum's names of the axes: of the cut tensor, and with the counts in front."""
        outer, inner = OUTER[: len(self.shape)], INNER[: len(self.shape)]
        return "".join(map("".join, zip(outer, inner, strict=True))), outer + inner

    def cut(self, ops: Ops, tensor: Array) -> Array:
        """Tensors (..., *shape) as blocks (..., *counts, *lengths)."""
        leading = tuple(tensor.shape[: tensor.ndim - len(self.shape)])
        pairs = list(zip(self.counts, self.lengths, strict=True))
        ends = [(0, c * n - length) for (c, n), length in zip(pairs, self.shape, strict=True)]
        if any(end for _, end in ends):
            tensor = ops.pad(tensor, (*((0, 0),) * len(leading), *ends))
        split = ops.reshape(tensor, (*leading, *(number for pair in pairs for number in pair)))
        before, after = self._names
        return ops.einsum(f"...{before}->...{after}", split)

    def joined(self, ops: Ops, blocks: Array) -> Array:
        """Blocks (..., *counts, *lengths) as tensors (..., *shape)."""
        leading = tuple(blocks.shape[: blocks.ndim - 2 * len(self.shape)])
        before, after = self._names
        split = ops.einsum(f"...{after}->...{before}", blocks)
        whole = [c * n for c, n in zip(self.counts, self.lengths, strict=True)]
        tensor = ops.reshape(split, (*leading, *whole))
        return tensor[(..., *(slice(0, length) for length in self.shape))]
