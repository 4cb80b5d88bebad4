"""How a run's parameters lie in one flat buffer: a basis's blocks side by side, equal leaves side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args, get_type_hints

from harness.backends.ops import Array, Ops
from optimizers.names import unknown
from workloads.workload import Role

KINDS: tuple[str, ...] = get_args(get_type_hints(Role)["kind"])


@dataclass(frozen=True)
class Stack:
    """Leaves of one shape and kind that are neighbours in the buffer: one array (*lanes, leaves, *shape).

    Args:
        kind: their role's kind, such as `weight` or `bias`.
        shape: the shape of one of them.
        start, stop: where they lie in the buffer.
        factor: of their learning rate.
    """

    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int
    factor: float = 1.0

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
        factors: factor of the learning rate by parameter name, where it is not 1.
    """

    shapes: Mapping[str, tuple[int, ...]]
    kinds: Mapping[str, str]
    blocks: tuple[tuple[int, int], ...]
    factors: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of entries, the dimension d of the problem."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Runs of neighbours of one kind, shape and learning rate, in buffer order."""
        stacks, start = [], 0
        for (kind, shape, factor), names in itertools.groupby(self.shapes, self._likeness):
            stop = start + math.prod(shape) * len(list(names))
            stacks.append(Stack(kind, shape, start, stop, factor))
            start = stop
        return tuple(stacks)

    def _likeness(self, name: str) -> tuple[str, tuple[int, ...], float]:
        return self.kinds[name], self.shapes[name], self.factors.get(name, 1.0)

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
    learning_rate_factors: Mapping[str, float] | None = None,
) -> Layout:
    """The layout with each group's parameters side by side, groups first, then those that are alike.

    Args:
        shapes: shape by parameter name.
        kinds: kind of the role by parameter name.
        groups: the names that a basis rotates together, in its order.
        learning_rate_factors: by parameter name or kind; a name counts before its kind.

    Raises:
        ValueError: when a parameter has no entries, a group names an unknown one or one that another has, a
            factor names neither parameter nor kind or is no number from 0 on, or a basis would mix
            parameters of different factors.
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
    factors = _factors(kinds, learning_rate_factors or {})
    for group in groups:
        if len({factors.get(name, 1.0) for name in group}) > 1:
            raise ValueError(
                f"the basis block {', '.join(group)} mixes parameters whose learning_rate_factors differ; "
                "give them one factor, or blocks of their own"
            )
    likeness = {name: (kinds[name], tuple(shape), factors.get(name, 1.0)) for name, shape in shapes.items()}
    alike = [name for one in dict.fromkeys(likeness.values()) for name in shapes if likeness[name] == one]
    order = [*grouped, *(name for name in alike if name not in set(grouped))]
    blocks, start = [], 0
    for group in groups:
        stop = start + sum(math.prod(shapes[name]) for name in group)
        blocks.append((start, stop))
        start = stop
    return Layout(
        {name: tuple(shapes[name]) for name in order},
        {name: kinds[name] for name in order},
        tuple(blocks),
        factors,
    )


def _factors(kinds: Mapping[str, str], given: Mapping[str, float]) -> dict[str, float]:
    """The factors that are not 1, by parameter name."""
    known = [*kinds, *dict.fromkeys(kinds.values())]
    for name, factor in given.items():
        if name not in known:
            raise ValueError(unknown("learning_rate_factors", "parameter or kind", name, known))
        if not (math.isfinite(factor) and factor >= 0):
            raise ValueError(f"learning_rate_factors: {name} = {factor!r} is no number from 0 on")
    factors = {name: given.get(name, given.get(kind, 1.0)) for name, kind in kinds.items()}
    return {name: factor for name, factor in factors.items() if factor != 1.0}


def kinds_of(shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The kinds of parameters: as given, and by their number of axes where no role is known.

    Raises:
        ValueError: for a parameter or a kind that does not exist.
    """
    for name, kind in (given or {}).items():
        if name not in shapes:
            raise ValueError(unknown("kinds", "parameter", name, shapes))
        if kind not in KINDS:
            raise ValueError(unknown(f"kinds: {name}", "kind", kind, KINDS))
    names = {0: "vector", 1: "vector", 4: "convolution"}
    return {name: names.get(len(shape), "weight") for name, shape in shapes.items()} | dict(given or {})
