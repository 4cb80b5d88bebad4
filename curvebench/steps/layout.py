"""Layout: the order of a run's parameters in one flat buffer.

A basis is a change of coordinates in which an optimizer works, computed from a matrix V of shape (n, r)
(`curvebench.optimizers.bases.change`). In the simplest case, V is square and orthogonal, and the parameters
are V times the coordinates. Parameters that a basis transforms together are adjacent in the buffer (a block),
so that one matrix product changes their coordinates. The remaining parameters of equal shape and kind (such
as weight or bias) are adjacent too (a stack), so that an update rule can update them as one array.

In shapes, `*lanes` stands for the axes over runs (lanes), usually (S, K) for S seeds and K settings. `total`
is the number of coordinates, and d the number of entries of all parameters.
"""

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
    """Leaves (single parameters) of equal shape and kind that are adjacent in the buffer.

    The leaves of a stack can be viewed as one array (*lanes, leaves, *shape).

    Args:
        roles: the role of each leaf; all have the same kind.
        shape: the shape of each leaf.
        start, stop: range of the buffer in which the entries of the leaves are.
    """

    roles: tuple[Role, ...]
    shape: tuple[int, ...]
    start: int
    stop: int

    def take(self, ops: Ops, flat: Array) -> Array:
        """Return the stack's parameters in a buffer (*lanes, total) as one array (*lanes, leaves, *shape)."""
        leaves = flat[..., self.start : self.stop]
        return ops.reshape(leaves, (*flat.shape[:-1], len(self.roles), *self.shape))

    def subset(self, first: int, last: int) -> Stack:
        """Return the stack of the leaves with the indices first, ..., last - 1 in this stack."""
        size = math.prod(self.shape)
        start, stop = self.start + first * size, self.start + last * size
        return Stack(self.roles[first:last], self.shape, start, stop)


@dataclass(frozen=True)
class Block:
    """Parameters that a basis transforms together.

    Args:
        change: the transformation between parameters and coordinates.
        start, stop: range of the buffer of parameters in which the block's entries are.
        first, last: range of the buffer of coordinates in which the block's coordinates are. Its length is
            the number of coordinates: fewer than the entries for a reduced basis, more than the entries for
            an auxiliary basis.
    """

    change: Change
    start: int
    stop: int
    first: int
    last: int


@dataclass(frozen=True)
class Layout:
    """Order of a run's coordinates in one flat buffer, and of its parameters in another.

    Without a basis, the two buffers are the same.

    Args:
        shapes: a mapping from names to the shapes of the arrays that the update rule receives, in buffer
            order. Without a basis, or with a square matrix V, the arrays have the shapes of the parameters. A
            reduced basis replaces the arrays of a block by one vector. An auxiliary basis adds a vector
            before the arrays of a block.
        roles: a mapping from the same names to the roles of the arrays.
        parameters: a mapping from parameter names to shapes, in buffer order.
        blocks: the blocks that a basis transforms, in buffer order and without overlap.
    """

    shapes: Shapes
    roles: Mapping[str, Role]
    parameters: Shapes
    blocks: tuple[Block, ...] = ()

    @property
    def total(self) -> int:
        """Number of coordinates, which is the length of the buffer of coordinates."""
        return _size(self.shapes)

    @property
    def entries(self) -> int:
        """Number d of entries of all parameters: the dimension of the problem."""
        return _size(self.parameters)

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The stacks in buffer order. All adjacent arrays of equal shape and kind are in one stack."""
        stacks, start = [], 0
        for (_, shape), names in itertools.groupby(self.shapes, self._kind_and_shape):
            roles = tuple(self.roles[name] for name in names)
            stop = start + math.prod(shape) * len(roles)
            stacks.append(Stack(roles, shape, start, stop))
            start = stop
        return tuple(stacks)

    def _kind_and_shape(self, name: str) -> tuple[str, tuple[int, ...]]:
        return self.roles[name].kind, self.shapes[name]

    def flatten(self, ops: Ops, arrays: Mapping[str, Array], batch: int) -> Array:
        """Concatenate arrays (*lanes, *shape) to a buffer (*lanes, total).

        Args:
            ops: array functions.
            arrays: a mapping from names to the arrays.
            batch: number of axes of `*lanes`.
        """
        return end_to_end(ops, self.shapes, arrays, batch)

    def unflatten(self, ops: Ops, flat: Array) -> dict[str, Array]:
        """Split a buffer (*lanes, total) into arrays (*lanes, *shape) by name: the inverse of `flatten`."""
        return by_name(ops, self.shapes, flat)

    def to_parameters(self, ops: Ops, matrices: Sequence[Array], coordinates: Array) -> Array:
        """Compute the buffer of parameters (S, K, d) from coordinates (S, K, total).

        Args:
            ops: array functions.
            matrices: the matrix V of each block for all seeds, (S, n, r).
            coordinates: the buffer of coordinates. Entries outside of blocks are copied.
        """
        blocks = [(block.first, block.last, block.change.to_parameters) for block in self.blocks]
        return _transformed(ops, blocks, matrices, coordinates)

    def to_coordinates(self, ops: Ops, matrices: Sequence[Array], flat: Array) -> Array:
        """Compute coordinates (S, K, total) from a buffer (S, K, d) of parameters or of a gradient.

        Args:
            ops: array functions.
            matrices: the matrix V of each block for all seeds, (S, n, r).
            flat: the buffer.
        """
        blocks = [(block.start, block.stop, block.change.to_coordinates) for block in self.blocks]
        return _transformed(ops, blocks, matrices, flat)


def _transformed(
    ops: Ops, blocks: Sequence[tuple[int, int, Any]], matrices: Sequence[Array], flat: Array
) -> Array:
    """Transform the section of each block in a buffer, and copy the entries outside of blocks.

    Args:
        ops: array functions.
        blocks: for each block, a tuple (first, last, transform): the range of the block's section in the
            buffer, and the function `transform(ops, matrix, section) -> section`.
        matrices: the matrix of each block.
        flat: the buffer.
    """
    sections, start = [], 0
    for (first, last, transform), matrix in zip(blocks, matrices, strict=True):
        sections += [flat[..., start:first], transform(ops, matrix, flat[..., first:last])]
        start = last
    return side_by_side(ops, [*sections, flat[..., start:]])


def end_to_end(ops: Ops, shapes: Shapes, arrays: Mapping[str, Array], batch: int) -> Array:
    """Concatenate named arrays (*lanes, *shape) to (*lanes, entries), in the order of `shapes`.

    Args:
        ops: array functions.
        shapes: a mapping from names to the shapes of the arrays.
        arrays: a mapping from the same names to the arrays.
        batch: number of axes of `*lanes`.
    """

    def section(name: str) -> Array:
        return ops.reshape(arrays[name], (*arrays[name].shape[:batch], math.prod(shapes[name])))

    return side_by_side(ops, list(map(section, shapes)))


def by_name(ops: Ops, shapes: Shapes, flat: Array) -> dict[str, Array]:
    """Split an array (*lanes, entries) into named arrays (*lanes, *shape): the inverse of `end_to_end`.

    Args:
        ops: array functions.
        shapes: a mapping from names to the shapes of the arrays, in the order of their entries in `flat`.
        flat: the array, with any leading axes `*lanes`.
    """
    arrays, start = {}, 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        arrays[name] = ops.reshape(flat[..., start:stop], (*flat.shape[:-1], *shape))
        start = stop
    return arrays


def side_by_side(ops: Ops, sections: Sequence[Array]) -> Array:
    """Concatenate arrays along their last axis; if only one array is not empty, return it without a copy."""
    sections = [section for section in sections if section.shape[-1]]
    return sections[0] if len(sections) == 1 else ops.concatenate(sections, -1)


def _size(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def leading_name(group: Sequence[str]) -> str:
    """Return the name of a block's leading vector, which is an array of coordinates.

    A block consists of parameters that a basis transforms together. The leading vector has a coordinate for
    each column of the matrix V of the basis.

    Args:
        group: names of the block's parameters.
    """
    return f"leading {' + '.join(group)}"


def layout(
    shapes: Shapes,
    roles: Mapping[str, Role],
    groups: Sequence[Sequence[str]] = (),
    changes: Mapping[tuple[str, ...], tuple[Change, int]] | None = None,
) -> Layout:
    """Lay out parameters: first the blocks of a basis, then the other parameters, grouped by kind and shape.

    Args:
        shapes: a mapping from parameter names to shapes.
        roles: a mapping from parameter names to roles.
        groups: for each block of the basis, the names of its parameters in the order of the rows of V.
        changes: for each group, a tuple of the transformation and the number of columns of V. A group that is
            missing in `changes` is rotated by a square V.

    Raises:
        ValueError: if a parameter has no entries, or a group names an unknown parameter, or a parameter that
            belongs to another group.
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
    types = {name: (roles[name].kind, tuple(shape)) for name, shape in shapes.items()}
    by_type = [name for type_ in dict.fromkeys(types.values()) for name in shapes if types[name] == type_]
    ungrouped = [name for name in by_type if name not in set(grouped)]
    update_shapes: dict[str, tuple[int, ...]] = {}
    update_roles, blocks, start, first = dict(roles), [], 0, 0
    for group in map(tuple, groups):
        entries = sum(math.prod(shapes[name]) for name in group)
        change, columns = (changes or {}).get(group, (ROTATION, entries))
        if change.leading:
            leading = leading_name(group)
            update_shapes[leading], update_roles[leading] = (columns,), Role("vector")
        if change.entries:
            update_shapes |= {name: tuple(shapes[name]) for name in group}
        last = first + change.coordinates(entries, columns)
        blocks.append(Block(change, start, start + entries, first, last))
        start, first = start + entries, last
    update_shapes |= {name: tuple(shapes[name]) for name in ungrouped}
    return Layout(
        update_shapes,
        {name: update_roles[name] for name in update_shapes},
        {name: tuple(shapes[name]) for name in (*grouped, *ungrouped)},
        tuple(blocks),
    )


def roles_of(shapes: Shapes, kinds: Mapping[str, Any] | None = None) -> dict[str, Role]:
    """Return the role of each parameter (its kind and its layer), derived from its kind or from its shape.

    If the kind of a parameter is not given, it follows from the shape: a parameter with at most one axis is a
    vector, a parameter with four axes a convolution, and any other parameter a weight. Each weight or
    convolution is a layer; layers are numbered in the order of `shapes`. If there are as many biases as
    layers, the k-th bias belongs to the k-th layer. Otherwise a bias, like every other parameter, belongs to
    the layer before it.

    Args:
        shapes: a mapping from parameter names to shapes, in order from inputs to outputs.
        kinds: a mapping from names of some parameters to kinds. If the layer of a parameter is also known,
            give a complete `Role` instead of the kind.

    Raises:
        ValueError: if `kinds` names a parameter or a kind that does not exist.
    """
    kinds = kinds or {}
    for name, kind in kinds.items():
        if name not in shapes:
            raise ValueError(unknown("kinds", "parameter", name, shapes))
        if not isinstance(kind, Role) and kind not in KINDS:
            raise ValueError(unknown(f"kinds: {name}", "kind", kind, KINDS))
    by_axes = {0: "vector", 1: "vector", 4: "convolution"}
    kind_of: dict[str, Any] = {name: by_axes.get(len(shape), "weight") for name, shape in shapes.items()}
    kind_of |= kinds
    biases = [name for name, kind in kind_of.items() if kind == "bias"]
    weights = [name for name, kind in kind_of.items() if kind in LAYER_KINDS]
    layer_of: dict[str, int] = {}
    for name, kind in kind_of.items():
        if kind == "bias" and len(biases) == len(weights):
            layer_of[name] = biases.index(name)
        else:
            previous = sum(weight in layer_of for weight in weights)
            layer_of[name] = previous if kind in LAYER_KINDS else max(previous - 1, 0)
    return {
        name: kind if isinstance(kind, Role) else Role(kind, layer_of[name]) for name, kind in kind_of.items()
    }
