"""Norms that neither overflow nor vanish, and the size below which a singular value may be rounding error."""

from __future__ import annotations

from typing import Any

import numpy as np


def normalized(ops: Any, array: Any, axis: int | tuple[int, ...]) -> tuple[Any, Any]:
    """Divide an array by its Euclidean norm, and return the quotient and the norm.

    Entries are first divided by the largest absolute value, so that squares neither overflow nor underflow.

    Args:
        array: any shape.
        axis: axes of the norm.

    Returns:
        The array scaled to norm 1, or 0 where the array is 0; and the norm, with length 1 along `axis`.
    """
    largest = ops.max(ops.abs(array), axis=axis, keepdims=True)
    scaled = array / ops.where(largest == 0, 1.0, largest)
    # If the array is not 0, some scaled entry is +-1, so that the norm is at least 1.
    # For an array of zeros, the maximum avoids the division 0 / 0.
    length = ops.maximum(ops.sqrt(ops.sum(ops.square(scaled), axis=axis, keepdims=True)), 1.0)
    return scaled / length, largest * length


def rank_cutoff(ops: Any, *lengths: int) -> float:
    """Return max(m, n) eps for a matrix with sides m and n, which are given as `lengths`.

    Singular values below this share of the largest singular value may be rounding errors; eps is the machine
    epsilon of the precision.
    """
    return max(lengths) * float(np.finfo(ops.dtype).eps)
