"""Compiled programs of a cell, which its rounds use one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from curvebench.engine.bundle import Bundle
from curvebench.engine.inputs import segment_lengths
from curvebench.engine.memory import lanes_per_bundle, tile_of
from curvebench.engine.tiles import Tile, cuts
from curvebench.steps.engine import Engine, Segment
from curvebench.steps.program import Inputs, Loaded

Made = TypeVar("Made")


@dataclass
class Programs:
    """The compiled programs of a cell, which all of its rounds use.

    A cell is one workload, rule and basis, trained in one way; rounds may differ in lanes and in steps. What
    is compiled is looked up by the shapes that it was compiled for.

    Args:
        tile: the shape into which the lanes of every round are padded; None: each has its own.
        room: the most steps that one call of the compiled segment takes. It grows with longer rounds, which
            compile again: give the one of the longest round.
        steps: of the longest round, by which compiling may be worth its time.
    """

    tile: Tile | None = None
    room: int = 0
    steps: int = 0
    made: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of_rounds(
        cls, bundle: Bundle, rounds: Sequence[tuple[int, int]], engine: Engine, memory_limit_bytes: int
    ) -> Programs:
        """Those of a cell whose rounds are known (`tile_of`)."""
        tile = tile_of(bundle, rounds, engine, memory_limit_bytes)
        return cls(tile, max(segment_lengths(replace(bundle, tile=tile))), len(bundle.schedule))

    def parts(self, bundle: Bundle, engine: Engine, memory_limit_bytes: int) -> list[tuple[slice, slice]]:
        """Return the seeds and the settings of a round that are run together, one after the other.

        Without a tile no part has more settings than `lanes_per_bundle` says, however many seeds would fit:
        a basis that is estimated anew belongs to one setting.
        """
        if self.tile is not None:
            return self.tile.parts(*bundle.lanes)
        most = lanes_per_bundle(bundle, engine.itemsize, memory_limit_bytes)
        seeds, settings = map(cuts, bundle.lanes, most)
        return list(itertools.product(seeds, settings))

    def extend(self, steps: int, room: int) -> None:
        """Make room for a run of so many steps, of which so many are one segment."""
        self.steps, self.room = max(self.steps, steps), max(self.room, room)

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What was made for a key before, else what is made now."""
        if key not in self.made:
            self.made[key] = make()
        made: Made = self.made[key]
        return made


def shapes_of(engine: Engine, arguments: Any) -> Hashable:
    """The form of arguments, and shapes and types of their arrays: what a function is compiled for."""
    leaves, form = engine.tree.tree_flatten(arguments)
    arrays = [(getattr(leaf, "shape", None), str(getattr(leaf, "dtype", ""))) for leaf in leaves]
    return str(form), tuple(arrays)


def segment_of(engine: Engine, loaded: Loaded, inputs: Inputs, programs: Programs) -> Segment:
    """The compiled steps for a run, of its cell's programs; a copy, which holds on to this run's arrays."""
    shapes = shapes_of(engine, (loaded.carry, loaded.constants, inputs))
    key = ("segment", shapes, engine.values_in_segment(loaded))
    return copy(programs.get(key, lambda: engine.segment(loaded, inputs, programs.steps)))
