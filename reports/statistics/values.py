"""The one entry of values that are to be put in an order: NaN has no place in it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

DIVERGED = "a run that diverged is infinite on the bad side, one without a value is left out"
UNDECIDED = "say first which of the two is better; where both diverged they tie, with a difference of 0"


def ordered_values(values: ArrayLike, name: str, right: str = DIVERGED) -> np.ndarray:
    """Values that can be ordered, as floats; shape as given.

    NaN is a value, but neither less nor more than any other: an order would put it first or last by chance.

    Args:
        values: infinities allowed.
        name: of the column or argument that holds them.
        right: what would be right in place of NaN.

    Raises:
        ValueError: for NaN.
    """
    array = np.asarray(values, dtype=float)
    if np.isnan(array).any():
        raise ValueError(f"{name}: NaN has no place in an order: {right}")
    return array
