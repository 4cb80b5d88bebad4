"""How a run's parameters lie in one flat buffer: a basis's blocks side by side, equal leaves side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from curvebench.arrays.ops import Array, Ops
from curvebench.optimizers.bases.basis import Shapes
from curvebench.optimizers.bases.change import ROTATION, Change
from curvebench.optimizers.layers import LAYER_KINDS
from curvebench.spec.errors import unknown
from curvebench.workloads.workload import Role

KINDS: tuple[str, ...] = get_args(get_type_hints(Role)["kind"])


@dataclass(frozen=True)
class Stack:
    """Leaves of one shape and kind that are neighbours in the buffer: one array (*lanes, leaves, *shape).

    Args:
        roles: of each of them; their kind is the same.
        shape: the shape of one of them.
        start, stop: where they lie in the buffer.
    """

    roles: tuple[Role, ...]
    shape: tuple[int, ...]
    start: int
    stop: int

    def take(self, ops: Ops, flat: Array) -> Array:
        """Its leaves (*lanes, leaves, *shape) out of a buffer (*lanes, total)."""
        leaves = flat[..., self.start : self.stop]
        return ops.reshape(leaves, (*flat.shape[:-1], len(self.roles), *self.shape))

    def subset(self, first: int, last: int) -> Stack:
        """The leaves from the first up to the last, which is not one of them."""
        size = math.prod(self.shape)
        start, stop = self.start + first * size, self.start + last * size
        return Stack(self.roles[first:last], self.shape, start, stop)


@dataclass(frozen=True)
class Block:
    """Parameters that a basis changes together.

    Args:
        change: how.
        start, stop: where their entries lie in the buffer of parameters.
        first, last: where their coordinates lie in the buffer.
    """

    change: Change
    start: int
    stop: int
    first: int
    last: int


@dataclass(frozen=True)
class Layout:
    """The order of a run's coordinates in the buffer, and of its parameters where a basis changes them.

    Args:
        shapes: of the arrays that an update sees, by name, in buffer order: without a basis, and in one that
            has as many coordinates as entries, those of the parameters.
        roles: by the same names.
        parameters: shape by parameter name, in the order of their buffer.
        blocks: what a basis changes, in order and without overlap.
    """

    shapes: Shapes
    roles: Mapping[str, Role]
    parameters: Shapes
    blocks: tuple[Block, ...] = ()

    @property
    def total(self) -> int:
        """The number of coordinates."""
        return _size(self.shapes)

    @property
    def entries(self) -> int:
        """The number of the parameters' entries, the dimension d of the problem."""
        return _size(self.parameters)

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Runs of neighbours of one kind and shape, in buffer order."""
        stacks, start = [], 0
        for (_, shape), names in itertools.groupby(self.shapes, self._likeness):
            roles = tuple(self.roles[name] for name in names)
            stop = start + math.prod(shape) * len(roles)
            stacks.append(Stack(roles, shape, start, stop))
            start = stop
        return tuple(stacks)

    def _likeness(self, name: str) -> tuple[str, tuple[int, ...]]:
        return self.roles[name].kind, self.shapes[name]

    def flatten(self, ops: Ops, arrays: Mapping[str, Array], batch: int) -> Array:
        """Arrays of shape (*lanes, *shape) as one of shape (*lanes, total); `batch` counts lane axes."""
        return end_to_end(ops, self.shapes, arrays, batch)

    def unflatten(self, ops: Ops, flat: Array) -> dict[str, Array]:
        """The inverse of `flatten`: an array of shape (*lanes, total) as named arrays."""
        return by_name(ops, self.shapes, flat)

    def to_parameters(self, ops: Ops, matrices: Sequence[Array], coordinates: Array) -> Array:
        """The buffer of parameters (S, K, d) at coordinates (S, K, total); outside blocks they are equal.

        Args:
            matrices: V of each block, (S, n, r); none where there is no basis.
        """
        blocks = [(one.first, one.last, one.change.to_parameters) for one in self.blocks]
        return _changed(ops, blocks, matrices, coordinates)

    def to_coordinates(self, ops: Ops, matrices: Sequence[Array], flat: Array) -> Array:
        """Coordinates (S, K, total) of parameters, or of a gradient, (S, K, d)."""
        blocks = [(one.start, one.stop, one.change.to_coordinates) for one in self.blocks]
        return _changed(ops, blocks, matrices, flat)


def _changed(
    ops: Ops, blocks: Sequence[tuple[int, int, Any]], matrices: Sequence[Array], flat: Array
) -> Array:
    """A buffer with each block, from its first entry up to its last, changed by its matrix."""
    pieces, start = [], 0
    for (first, last, change), matrix in zip(blocks, matrices, strict=True):
        pieces += [flat[..., start:first], change(ops, matrix, flat[..., first:last])]
        start = last
    return side_by_side(ops, [*pieces, flat[..., start:]])


def end_to_end(ops: Ops, shapes: Shapes, arrays: Mapping[str, Array], batch: int) -> Array:
    """Named arrays (*lanes, *shape) end to end, (*lanes, entries); `batch` counts lane axes."""
    return side_by_side(
        ops,
        [
            ops.reshape(arrays[name], (*arrays[name].shape[:batch], math.prod(shape)))
            for name, shape in shapes.items()
        ],
    )


def by_name(ops: Ops, shapes: Shapes, flat: Array) -> dict[str, Array]:
    """The inverse of `end_to_end`: an array (*lanes, entries) as named arrays."""
    arrays, start = {}, 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        arrays[name] = ops.reshape(flat[..., start:stop], (*flat.shape[:-1], *shape))
        start = stop
    return arrays


def side_by_side(ops: Ops, pieces: Sequence[Array]) -> Array:
    """Arrays (*lanes, any number) as one; those without entries are left out."""
    pieces = [piece for piece in pieces if piece.shape[-1]]
    return pieces[0] if len(pieces) == 1 else ops.concatenate(pieces, -1)


def _size(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def leading_name(group: Sequence[str]) -> str:
    """What the coordinates along the columns of a group's V are called."""
    return f"leading {' + '.join(group)}"


def layout(
    shapes: Shapes,
    roles: Mapping[str, Role],
    groups: Sequence[Sequence[str]] = (),
    changes: Mapping[tuple[str, ...], tuple[Change, int]] | None = None,
) -> Layout:
    """The layout with each group's parameters side by side, groups first, then those that are alike.

    Args:
        shapes: shape by parameter name.
        roles: by parameter name.
        groups: the names that a basis changes together, in its order.
        changes: how a group is changed, and the columns of its V; a group that is not named is rotated.

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
    likeness = {name: (roles[name].kind, tuple(shape)) for name, shape in shapes.items()}
    alike = [name for one in dict.fromkeys(likeness.values()) for name in shapes if likeness[name] == one]
    rest = [name for name in alike if name not in set(grouped)]
    seen: dict[str, tuple[int, ...]] = {}
    seen_roles, blocks, start, first = dict(roles), [], 0, 0
    for group in map(tuple, groups):
        entries = sum(math.prod(shapes[name]) for name in group)
        change, columns = (changes or {}).get(group, (ROTATION, entries))
        if change.leading:
            leading = leading_name(group)
            seen[leading], seen_roles[leading] = (columns,), Role("vector")
        if change.entries:
            seen |= {name: tuple(shapes[name]) for name in group}
        last = first + change.coordinates(entries, columns)
        blocks.append(Block(change, start, start + entries, first, last))
        start, first = start + entries, last
    seen |= {name: tuple(shapes[name]) for name in rest}
    return Layout(
        seen,
        {name: seen_roles[name] for name in seen},
        {name: tuple(shapes[name]) for name in (*grouped, *rest)},
        tuple(blocks),
    )


def roles_of(shapes: Shapes, kinds: Mapping[str, Any] | None = None) -> dict[str, Role]:
    """The roles of parameters by what is known of them: their kinds, else their numbers of axes, and order.

    Weights and convolutions are the layers, in their order. Where there are as many biases, the first belongs
    to the first of them and so on. Any other parameter, and a bias where there are fewer, belongs to the one
    before it.

    Args:
        shapes: by parameter name, inputs to outputs.
        kinds: by parameter name, its kind, or the whole role where the layer is known too.

    Raises:
        ValueError: for a parameter or a kind that does not exist.
    """
    given = kinds or {}
    for name, kind in given.items():
        if name not in shapes:
            raise ValueError(unknown("kinds", "parameter", name, shapes))
        if not isinstance(kind, Role) and kind not in KINDS:
            raise ValueError(unknown(f"kinds: {name}", "kind", kind, KINDS))
    by_axes = {0: "vector", 1: "vector", 4: "convolution"}
    found: dict[str, Any] = {
        name: given.get(name, by_axes.get(len(shape), "weight")) for name, shape in shapes.items()
    }
    biases = [name for name, kind in found.items() if kind == "bias"]
    weights = [name for name, kind in found.items() if kind in LAYER_KINDS]
    layer_of: dict[str, int] = {}
    for name, kind in found.items():
        if kind == "bias" and len(biases) == len(weights):
            layer_of[name] = biases.index(name)
        else:
            before = sum(other in layer_of for other in weights)
            layer_of[name] = before if kind in LAYER_KINDS else max(before - 1, 0)
    return {
        name: kind if isinstance(kind, Role) else Role(kind, layer_of[name]) for name, kind in found.items()
    }
