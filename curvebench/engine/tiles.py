"""Tiles: a tile is a shape to which the lanes of all rounds of a method on a workload are padded.

Lanes are the runs that one program computes together, one for each seed and setting. Tuning rounds and the
final round have different numbers of lanes, for example 2 seeds x 9 settings and 2 x 6 in tuning rounds and
10 x 1 in the final round. A program is compiled for fixed numbers of seeds and settings, so without padding
each round would compile the same step again. A tile has `slots` x `width` lanes: a slot contains one seed
with up to `width` of its settings. Lanes of the tile that a round does not need repeat other lanes, and the
results of these copies are dropped.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Placement(NamedTuple):
    """Assignment of S seeds x K settings to the lanes of a tile.

    Args:
        seeds: index of the seed of each slot, (slots,).
        settings: index of the setting of each lane of the tile, (slots, width).
        lanes: two arrays (S, K): the slot of each lane, and the lane's column in the slot. As indices, the
            two arrays select the values of all lanes from an array (slots, width).
    """

    seeds: np.ndarray
    settings: np.ndarray
    lanes: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Tile:
    """Shape of the lanes that are computed together.

    Args:
        slots: number of slots. Several slots may have the same seed.
        width: number of settings of each slot.
    """

    slots: int
    width: int

    def parts(self, seeds: int, settings: int) -> list[tuple[slice, slice]]:
        """Divide numbers of seeds and settings into parts that each fit into the tile.

        Returns:
            The range of seeds and the range of settings of each part.
        """
        at_once = min(settings, self.slots * self.width)
        rows = max(1, self.slots // math.ceil(at_once / self.width))
        return list(itertools.product(cuts(seeds, rows), cuts(settings, at_once)))

    def placement(self, seeds: int, settings: int) -> Placement:
        """Assign the given numbers of seeds and settings, which must fit into the tile, to lanes of the tile.

        The settings of a seed fill one slot or several. Unused slots repeat the last slot, and unused columns
        of a slot repeat the last setting. Padding lanes are therefore copies of real runs, and diverge only
        if the real runs diverge.
        """
        rows = math.ceil(settings / self.width)  # number of slots per seed
        slot = np.minimum(np.arange(self.slots), seeds * rows - 1)
        first = slot % rows * self.width
        setting = np.arange(settings)
        return Placement(
            seeds=slot // rows,
            settings=np.minimum(first[:, None] + np.arange(self.width), settings - 1),
            lanes=(
                np.arange(seeds)[:, None] * rows + setting // self.width,
                np.broadcast_to(setting % self.width, (seeds, settings)),
            ),
        )


def cuts(length: int, most: int) -> list[slice]:
    """Divide a range of `length` into nearly equal slices with at most `most` elements."""
    bounds = np.linspace(0, length, math.ceil(length / most) + 1).round().astype(int)
    return [slice(int(low), int(high)) for low, high in itertools.pairwise(bounds)]
