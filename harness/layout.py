"""How a run's parameters lie in one flat buffer: a basis's blocks side by side, equal leaves side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.backends.ops import Array, Ops


@dataclass(frozen=True)
class Stack:
    """Leaves of one shape and kind that are neighbours in the buffer: one array (*lanes, leaves, *shape).

    Args:
        kind: their role's kind, such as `weight` or `bias`.
        shape: the shape of one of them.
        start, stop: where they lie in the buffer.
    """

    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int

    def take(self, ops: Ops, flat: Array) -> Array:
        """Its leaves (*lanes, leaves, *shape) out of a buffer (*lanes, total)."""
        leaves = (self.stop - self.start) // math.prod(self.shape)
        return ops.reshape(flat[..., self.start : self.stop], (*flat.shape[:-1], leaves, *self.shape))


@dataclass(frozen=True)
class Layout:
    """The order of parameters in the buffer.

    Args:
        shapes: shape by parameter name, in buffer order.
        kinds: kind of the role by parameter name.
        blocks: (start, stop) of each rotated block, in order and without overlap.
    """

    shapes: Mapping[str, tuple[int, ...]]
    kinds: Mapping[str, str]
    blocks: tuple[tuple[int, int], ...]

    @property
    def total(self) -> int:
        """The number of entries, the dimension d of the problem."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Runs of neighbours of one kind and shape, in buffer order."""
        stacks, start = [], 0
        for (kind, shape), names in itertools.groupby(self.shapes, self._likeness):
            stop = start + math.prod(shape) * len(list(names))
            stacks.append(Stack(kind, shape, start, stop))
            start = stop
        return tuple(stacks)

    def _likeness(self, name: str) -> tuple[str, tuple[int, ...]]:
        return self.kinds[name], self.shapes[name]

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


def layout(
    shapes: Mapping[str, tuple[int, ...]],
    kinds: Mapping[str, str],
    groups: Sequence[Sequence[str]] = (),
) -> Layout:
    """The layout with each group's parameters side by side, groups first, then leaves of a kind and shape.

    Args:
        shapes: shape by parameter name.
        kinds: kind of the role by parameter name.
        groups: the names that a basis rotates together, in its order.

    Raises:
        ValueError: when a parameter has no entries, or a group names an unknown one or one that another has.
    """
    for name, shape in shapes.items():
        if 0 in shape:
            raise ValueError(
                f"the parameter {name!r} has the shape {tuple(shape)} and no entries; leave it out"
            )
    grouped = [name for group in groups for name in group]
    for name in grouped:
        if name not in shapes:
            raise ValueError(f"a basis block names the parameter {name!r} (there are: {', '.join(shapes)})")
    if len(set(grouped)) < len(grouped):
        raise ValueError(f"basis blocks overlap: {grouped}")
    likenesses = {(kinds[name], tuple(shape)): None for name, shape in shapes.items()}
    alike = [
        name
        for likeness in likenesses
        for name, shape in shapes.items()
        if (kinds[name], tuple(shape)) == likeness
    ]
    order = [*grouped, *(name for name in alike if name not in set(grouped))]
    blocks, start = [], 0
    for group in groups:
        stop = start + sum(math.prod(shapes[name]) for name in group)
        blocks.append((start, stop))
        start = stop
    return Layout(
        {name: tuple(shapes[name]) for name in order}, {name: kinds[name] for name in order}, tuple(blocks)
    )


def kinds_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """The kinds of parameters of which no roles are known: by their number of axes."""
    names = {0: "vector", 1: "vector", 4: "convolution"}
    return {name: names.get(len(shape), "weight") for name, shape in shapes.items()}
