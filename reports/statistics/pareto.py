"""Fronts of loss against cost: the methods that no other beats in one without losing in the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from curvebench.reports.statistics.ranks import tied


def on_front(losses: ArrayLike, costs: ArrayLike, negligible: float = 0.0) -> np.ndarray:
    """Which methods no other dominates.

    A method dominates another if it is no worse in loss and cost and better in one (Ehrgott, Multicriteria
    Optimization, 2nd ed., definition 2.1); of equal ones neither does. One whose loss or cost is infinite
    (diverged, out of memory) is on no front.

    Args:
        losses, costs: shape (methods,); less is better.
        negligible: the relative difference up to which two losses, or two costs, are equal (see `tied`):
            rounding alone would put a method that costs more on the front.

    Returns:
        Shape (methods,), whether a method is on the front.
    """
    no_worse: np.ndarray = np.ones((), dtype=bool)
    better: np.ndarray = np.zeros((), dtype=bool)
    for values in (np.asarray(losses, dtype=float), np.asarray(costs, dtype=float)):
        less, equal = values[:, None] < values, tied(values[:, None], values, negligible)
        no_worse, better = no_worse & (less | equal), better | (less & ~equal)
    dominated = (no_worse & better).any(axis=0)
    front: np.ndarray = ~dominated & np.isfinite(losses) & np.isfinite(costs)
    return front
