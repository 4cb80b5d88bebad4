"""Tiles: one shape of computed lanes for all rounds of a cell, to which the lanes of each round are padded.

A program is compiled for a number of seeds and a number of settings. The rounds of a cell have different
numbers, for example 2 seeds x 9 settings and 2 x 6 in tuning rounds and 10 x 1 in the final round, and each
would compile the same step again. A tile has `slots` x `width` lanes: a slot contains one seed with up to
`width` of its settings. Lanes that are not needed repeat other lanes, and their results are dropped.
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
        seeds: (slots,) index of the seed of each slot.
        settings: (slots, width) index of the setting of each computed lane.
        lanes: two arrays (S, K), the slot and the column of each lane. Indexing an array (slots, width) with
            them returns the values of the lanes.
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
        """Divide S seeds x K settings into rectangles that each fit the tile."""
        at_once = min(settings, self.slots * self.width)
        rows = max(1, self.slots // math.ceil(at_once / self.width))
        return list(itertools.product(cuts(seeds, rows), cuts(settings, at_once)))

    def placement(self, seeds: int, settings: int) -> Placement:
        """Assign S seeds x K settings, which must fit the tile, to its lanes.

        A seed takes as many slots as its settings fill. Unused slots repeat the last slot, and unused columns
        of a slot repeat the last setting. Padding lanes are therefore copies of real runs, and cannot diverge
        by themselves.
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
