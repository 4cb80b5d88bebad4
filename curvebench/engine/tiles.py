"""Tiles: one shape of compiled lanes for all rounds of a cell, into which the lanes of each round are padded.

A program is compiled for a number of seeds and settings. A cell's rounds have different numbers, such as
2 x 9 and 2 x 6 settings while it is tuned and 10 x 1 at the end, and would each compile the same step anew.
In a tile each slot holds one seed and up to `width` of its settings; what is left over repeats other lanes.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Placement(NamedTuple):
    """The lanes that a tile computes for S seeds and K settings, and where the lane of each is found.

    Args:
        seeds: (slots,) index of the seed of each slot.
        settings: (slots, width) index of the setting of each computed lane.
        lanes: two arrays (S, K): the slot and the column in which a lane is computed.
    """

    seeds: np.ndarray
    settings: np.ndarray
    lanes: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Tile:
    """Shape of the lanes that are computed together.

    Args:
        slots: number of seeds, of which several may be the same.
        width: number of settings of each slot.
    """

    slots: int
    width: int

    def parts(self, seeds: int, settings: int) -> list[tuple[slice, slice]]:
        """Cut S seeds x K settings into rectangles of seeds and settings that each fit the tile."""
        at_once = min(settings, self.slots * self.width)
        rows = max(1, self.slots // math.ceil(at_once / self.width))
        return list(itertools.product(cuts(seeds, rows), cuts(settings, at_once)))

    def placement(self, seeds: int, settings: int) -> Placement:
        """Return where the lanes of S seeds and K settings, which fit the tile, are computed.

        The settings of a seed take as many slots as they fill. Slots that are left repeat the last one, and
        columns that are left in a slot repeat the last setting, so that no lane computes what no run does.
        """
        rows = math.ceil(settings / self.width)  # slots of a seed
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
    """Cut a number of lanes into nearly equal stretches of at most `most`."""
    bounds = np.linspace(0, length, math.ceil(length / most) + 1).round().astype(int)
    return [slice(int(low), int(high)) for low, high in itertools.pairwise(bounds)]
