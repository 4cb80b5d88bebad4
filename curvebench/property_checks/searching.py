"""Search for the instance that comes nearest to violating a bound, by an evolution strategy.

An instance, such as a random matrix, is drawn from a random generator. The search varies the random numbers
from which an instance is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Share = Callable[[np.random.Generator], float]
# Factors by which the step size of the search is multiplied.
# RAISED is used after a better instance, LOWERED after a worse instance.
# The step size stays constant on average if one instance in five is better.
RAISED, LOWERED = 1.5, 1.5**-0.25


class Moved(np.random.Generator):
    """Random generator that draws an instance near an original instance.

    Continuous draws are rotated: a standard normal number z becomes z cos(step) + xi sin(step) with another
    standard normal number xi. The result is standard normal too, so that instances keep their distribution.
    A uniform number is computed as the normal distribution function of a standard normal number, which is
    rotated in the same way. Integers, choices and permutations are drawn from `seed` without change.

    Args:
        seed: seed of the original instance.
        draws: the numbers z of the original instance, an array for each call of the generator in the order of
            calls. If a call has no array in `draws`, or an array of another shape, z is drawn from `seed`.
        step: angle in radians, from 0 for the original instance to pi / 2 for an independent instance.
        moves: random generator of the numbers xi.
    """

    def __init__(self, seed: list[int], draws: list[Any], step: float, moves: np.random.Generator) -> None:
        super().__init__(np.random.PCG64(seed))
        self._given, self._step, self._moves = draws, step, moves
        self.draws: list[Any] = []

    def _move(self, z: Any) -> Any:
        index = len(self.draws)
        usable = index < len(self._given) and np.shape(self._given[index]) == np.shape(z)
        start = self._given[index] if usable else z
        moved = start * np.cos(self._step) + self._moves.standard_normal(np.shape(z)) * np.sin(self._step)
        self.draws.append(moved)
        return moved

    def standard_normal(self, size: Any = None) -> Any:  # type: ignore[override]
        return self._move(super().standard_normal(size))

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        shape = np.shape(np.add(loc, scale)) or None if size is None else size
        return loc + scale * self.standard_normal(shape)

    def random(self, size: Any = None) -> Any:  # type: ignore[override]
        from scipy.special import ndtr, ndtri

        return ndtr(self._move(ndtri(super().random(size))))

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        shape = np.shape(np.add(low, high)) or None if size is None else size
        return low + np.subtract(high, low) * self.random(shape)


def nearest(share: Share, seed: list[int], tries: int) -> np.random.Generator:
    """Search for an instance that comes near to violating a bound; return a generator that draws it.

    The share of an instance is a measured value divided by the largest accepted value; a share above 1
    violates the bound. The search is a (1 + 1) evolution strategy: it changes the best instance so far, and
    keeps the change if the share increases. The step size follows the one-fifth success rule (Rechenberg
    1973). The search ends early at a share above 1. Instances whose share is not finite are ignored.

    Args:
        share: function that draws an instance from a random generator, and returns the share of the instance.
        seed: seed of the first instance; the random numbers of the search are derived from it as well.
        tries: largest number of instances to draw.
    """
    moves, step, best, draws = np.random.default_rng([*seed, tries]), 0.5, -np.inf, list[Any]()
    for number in range(tries):
        candidate = Moved(seed, draws, step if number else 0.0, moves)
        value = share(candidate)
        if np.isfinite(value) and value > best:
            best, draws, step = value, candidate.draws, min(step * RAISED, np.pi / 2)
            if best > 1:
                break
        else:
            step *= LOWERED
    return Moved(seed, draws, 0.0, moves)
