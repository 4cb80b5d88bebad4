"""Searching for the instance that comes nearest to breaking a bound: an evolution strategy on its draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Share = Callable[[np.random.Generator], float]
RAISED, LOWERED = 1.5, 1.5**-0.25  # of the step after a success and a failure: even at one success in five


class Moved(np.random.Generator):
    """The generator of an instance, with its continuous draws moved.

    Integers, choices and permutations are the instance's own. Uniform numbers are the distribution function
    of normal ones; these become z cos(step) + xi sin(step), so that what is drawn keeps its distribution.

    Args:
        seed: of the instance.
        draws: z of each call, in order; of further calls, and of calls of other shapes, the instance's own.
        step: the angle, 0 to pi / 2.
        moves: xi is drawn from it.
    """

    def __init__(self, seed: list[int], draws: list[Any], step: float, moves: np.random.Generator) -> None:
        super().__init__(np.random.PCG64(seed))
        self._given, self._step, self._moves = draws, step, moves
        self.draws: list[Any] = []

    def _move(self, own: Any) -> Any:
        place = len(self.draws)
        known = place < len(self._given) and np.shape(self._given[place]) == np.shape(own)
        start = self._given[place] if known else own
        moved = start * np.cos(self._step) + self._moves.standard_normal(np.shape(own)) * np.sin(self._step)
        self.draws.append(moved)
        return moved

    def standard_normal(self, size: Any = None) -> Any:  # type: ignore[override]
        return self._move(super().standard_normal(size))

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return loc + scale * self.standard_normal(
            np.shape(np.add(loc, scale)) or None if size is None else size
        )

    def random(self, size: Any = None) -> Any:  # type: ignore[override]
        from scipy.special import ndtr, ndtri

        return ndtr(self._move(ndtri(super().random(size))))

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        shape = np.shape(np.add(low, high)) or None if size is None else size
        return low + np.subtract(high, low) * self.random(shape)


def nearest(share: Share, seed: list[int], tries: int) -> np.random.Generator:
    """A generator of the instance with the greatest share that a (1 + 1) evolution strategy finds.

    The step follows the one-fifth rule (Rechenberg 1973); the search ends where the share exceeds 1. An
    instance whose share is infinite or not a number is passed over.

    Args:
        share: of an instance, drawn from a generator.
        seed: of the instance to begin with, in which the search's own numbers are drawn too.
        tries: how many instances are drawn.
    """
    moves, step, best, draws = np.random.default_rng([*seed, tries]), 0.5, -np.inf, list[Any]()
    for number in range(tries):
        candidate = Moved(seed, draws, step if number else 0.0, moves)
        found = share(candidate)
        if np.isfinite(found) and found > best:
            best, draws, step = found, candidate.draws, min(step * RAISED, np.pi / 2)
            if best > 1:
                break
        else:
            step *= LOWERED
    return Moved(seed, draws, 0.0, moves)
