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


def beside(other: Hyper, ratio: float = 0.7) -> dict[str, float]:
    """Return the hyperparameters of a fallback rule, under the names of the whole rule.

    Args:
        other: hyperparameters of the fallback rule; its learning rate is not used.
        ratio: learning rate of the fallback rule, divided by the learning rate of the whole rule.
    """
    names = {f"others_{name}": value for name, value in other.items() if name != "learning_rate"}
    return {"others_ratio": ratio, **names}


def others(hyper: Hyper) -> dict[str, float]:
    """Return the hyperparameters of the fallback rule, under its own names."""
    names = {name.removeprefix("others_"): hyper[name] for name in hyper if name.startswith("others_")}
    return {"learning_rate": hyper["learning_rate"] * names.pop("ratio"), **names}


def weights(share: float, count: int) -> np.ndarray:
    """Return the factors share^(t - l) by which a running mean multiplies `count` gradients, the newest
    last.
    """
    return share ** np.arange(count - 1, -1, -1)


def weighted_sum(factors: np.ndarray, arrays: list[np.ndarray]) -> np.ndarray:
    return sum((a * g for a, g in zip(factors, arrays, strict=True)), np.zeros_like(arrays[0]))
