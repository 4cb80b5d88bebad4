"""Common parts of the plain loops: a leaf with its gradients, and weighted sums of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

Hyper = Mapping[str, float]


class Leaf(NamedTuple):
    """One parameter: the kind of its role, its initial value, and its gradient at each step."""

    kind: str
    start: np.ndarray
    grads: list[np.ndarray]


def weights(share: float, count: int) -> np.ndarray:
    """Return the factors share^(t - l) by which a running mean multiplies `count` gradients, the newest
    last.
    """
    return share ** np.arange(count - 1, -1, -1)


def weighted_sum(factors: np.ndarray, arrays: list[np.ndarray]) -> np.ndarray:
    return sum((a * g for a, g in zip(factors, arrays, strict=True)), np.zeros_like(arrays[0]))
