"""How a run's parameters lie in one flat buffer, with the blocks that a basis rotates side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.backends.ops import Array, Ops


@dataclass(frozen=True)
class Layout:
    """The order of parameters in the buffer.

    Args:
        shapes: shape by parameter name, in buffer order.
        blocks: (start, stop) of each rotated block, in order and without overlap.
    """

    shapes: Mapping[str, tuple[int, ...]]
    blocks: tuple[tuple[int, int], ...]

    @property
    def total(self) -> int:
        """The number of entries, the dimension d of the problem."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def flatten(self, ops: Ops, arrays: Mapping[str, Array], batch: int) -> Array:
        """Arrays of shape (*lanes, *shape) as one of shape (*lanes, total); `batch` counts lane axes."""
        pieces = [
            ops.reshape(arrays[name], (*arrays[name].shape[:batch], math.prod(shape)))
            for name, shape in self.shapes.items()
        ]
        return pieces[0] if len(pieces) == 1 else ops.concatenate(pieces, -1)

    def unflatten(self, ops: Ops, flat: Array) -> dict[str, Array]:
        """The inverse of `flatten`: an array of shape (*lanes, total) as named arrays."""
        arrays, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            arrays[name] = ops.reshape(flat[..., start:stop], (*flat.shape[:-1], *shape))
            start = stop
        return arrays

    def rotate(self, ops: Ops, matrices: Sequence[Array], flat: Array, subscripts: str) -> Array:
        """Apply one matrix to each block of a (*lanes, total) array; entries outside blocks stay."""
        pieces, start = [], 0
        for (low, high), matrix in zip(self.blocks, matrices, strict=True):
            if low > start:
                pieces.append(flat[..., start:low])
            pieces.append(ops.einsum(subscripts, matrix, flat[..., low:high]))
            start = high
        if start < self.total:
            pieces.append(flat[..., start:])
        return pieces[0] if len(pieces) == 1 else ops.concatenate(pieces, -1)


def layout(shapes: Mapping[str, tuple[int, ...]], groups: Sequence[Sequence[str]] = ()) -> Layout:
    """The layout that puts each group's parameters side by side, groups first.

    Raises:
        ValueError: when a group names an unknown parameter or one that another group has.
    """
    grouped = [name for group in groups for name in group]
    for name in grouped:
        if name not in shapes:
            raise ValueError(f"a basis block names the parameter {name!r} (there are: {', '.join(shapes)})")
    if len(set(grouped)) < len(grouped):
        raise ValueError(f"basis blocks overlap: {grouped}")
    order = [*grouped, *(name for name in shapes if name not in grouped)]
    blocks, start = [], 0
    for group in groups:
        stop = start + sum(math.prod(shapes[name]) for name in group)
        blocks.append((start, stop))
        start = stop
    return Layout({name: tuple(shapes[name]) for name in order}, tuple(blocks))
