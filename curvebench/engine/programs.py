"""Compiled programs that all rounds of a method on a workload share.

A method is an optimizer in a basis. The tuning rounds and the final round of a method are bundles with
different numbers of runs (lanes): S seeds x K settings. A segment is a number of steps that one call of a
compiled function computes. A tile (`engine.tiles`) is a shape to which the lanes of all rounds are padded.
"""

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

Result = TypeVar("Result")


@dataclass
class Programs:
    """Compiled programs of a method on a workload, shared by all rounds.

    The rounds have the same workload, rule, basis and training protocol, but different numbers of lanes and
    of steps. A program is looked up by the shapes of its arguments.

    Args:
        tile: shape to which the lanes of each round are padded; None if each round keeps its own shape.
        room: number of steps for which segments are compiled: the number of steps in the longest segment so
            far. If a bundle has longer segments, `room` is increased, and segments are compiled again.
            `of_rounds` avoids a second compilation, since it sets `room` for the longest round.
        steps, evaluations: numbers of steps and evaluations of the longest round, from which the engine
            decides whether compilation is worth its time. The longest round is used in all rounds, so that a
            job that resumes in a later round decides in the same way.
        compiled: the compiled programs, and other objects that bundles share, by key (see `get`).
    """

    tile: Tile | None = None
    room: int = 0
    steps: int = 0
    evaluations: int = 0
    compiled: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of_rounds(
        cls, bundle: Bundle, rounds: Sequence[tuple[int, int]], engine: Engine, memory_limit_bytes: int
    ) -> Programs:
        """Choose a tile and a segment length for all rounds. No program is compiled yet.

        Args:
            bundle: bundle with the lanes of one round and the schedule of the longest round.
            rounds: numbers of seeds and settings of each round.
            engine: the backend.
            memory_limit_bytes: limit for the memory of a bundle on the device.
        """
        tile = tile_of(bundle, rounds, engine, memory_limit_bytes)
        room = max(segment_lengths(replace(bundle, tile=tile)))
        return cls(tile, room, len(bundle.schedule), bundle.evaluations)

    def parts(self, bundle: Bundle, engine: Engine, memory_limit_bytes: int) -> list[tuple[slice, slice]]:
        """Divide the lanes of a round into parts that run one after another, each as one bundle.

        Returns:
            The range of seeds and the range of settings of each part. Each part fits into the tile. Without a
            tile, a part has at most the numbers of seeds and settings that `memory.lanes_per_bundle` returns.
        """
        if self.tile is not None:
            return self.tile.parts(*bundle.lanes)
        most = lanes_per_bundle(bundle, engine.itemsize, memory_limit_bytes)
        seeds, settings = map(cuts, bundle.lanes, most)
        return list(itertools.product(seeds, settings))

    def extend(self, steps: int, room: int) -> None:
        """Increase the attributes `steps` and `room` to the values of the arguments, if these are larger."""
        self.steps, self.room = max(self.steps, steps), max(self.room, room)

    def get(self, key: Hashable, make: Callable[[], Result]) -> Result:
        """Return the object that is stored for a key.

        If no object is stored, call `make` and store its result.
        """
        if key not in self.compiled:
            self.compiled[key] = make()
        return self.compiled[key]


def shapes_of(engine: Engine, arguments: Any) -> Hashable:
    """Return the key of a compiled function: the structure, shapes and types of the function's arguments."""
    leaves, form = engine.tree.tree_flatten(arguments)
    arrays = [(getattr(leaf, "shape", None), str(getattr(leaf, "dtype", ""))) for leaf in leaves]
    return str(form), tuple(arrays)


def segment_of(engine: Engine, loaded: Loaded, inputs: Inputs, programs: Programs) -> Segment:
    """Return the function that computes the steps of a segment, compiled now or for an earlier bundle.

    The function that is stored in `programs` must not refer to arrays of a run, because the arrays would then
    stay in memory as long as the programs. Therefore the result is a copy of the stored function; the copy
    may refer to arrays of its run.

    Args:
        engine: the engine of the run.
        loaded: the bundle on its device.
        inputs: inputs of a segment, for whose shapes the function is compiled.
        programs: compiled programs, to which the function is added.
    """
    shapes = shapes_of(engine, (loaded.carry, loaded.constants, inputs))
    key = ("segment", shapes, engine.values_in_segment(loaded))
    return copy(programs.get(key, lambda: engine.segment(loaded, inputs, programs.steps)))
