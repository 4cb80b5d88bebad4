"""Tensors axis by axis: matricizations, products, second moments, and the cut into blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from optimizers.matrix_functions import gram
from optimizers.rule import Array, Ops

OUTER, INNER = "abcdefgh", "ijklmnop"  # einsum's names of a cut's axes


def matricized(ops: Ops, tensor: Array, order: int, axis: int) -> Array:
    """A stack of tensors (..., n_1, ..., n_order) as matrices (..., n_axis, entries of the other axes)."""
    first = tensor.ndim - order
    moved = ops.swapaxes(tensor, first, first + axis)
    return ops.reshape(moved, (*moved.shape[: first + 1], -1))


def along_axis(ops: Ops, function: Callable[[Array], Array], tensor: Array, order: int, axis: int) -> Array:
    """A function of matrices (..., n_axis, entries of the other axes) that keeps their shape, on tensors."""
    first = tensor.ndim - order
    moved = ops.swapaxes(tensor, first, first + axis)
    changed = function(ops.reshape(moved, (*moved.shape[: first + 1], -1)))
    return ops.swapaxes(ops.reshape(changed, tuple(moved.shape)), first, first + axis)


def multiplied(ops: Ops, matrix: Array, tensor: Array, order: int, axis: int) -> Array:
    """The product of matrices (..., n_axis, n_axis) with that axis of tensors."""
    return along_axis(ops, lambda entries: matrix @ entries, tensor, order, axis)


def second_moment(ops: Ops, tensor: Array, order: int, axis: int) -> Array:
    """G G^T of the matricization G of an axis, (..., n_axis, n_axis)."""
    return gram(ops, matricized(ops, tensor, order, axis))


def beside_matrices(ops: Ops, value: Array, order: int) -> Array:
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
