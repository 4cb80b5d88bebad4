"""The distributions that simulated values come from, with their true means and medians, and study sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

SIZES = (5, 10, 20, 50)  # seeds


@dataclass(frozen=True)
class Shape:
    """A distribution: how it is drawn, and what its mean and median are."""

    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    mean: float
    median: float


SHAPES: Mapping[str, Shape] = {
    "normal": Shape(lambda random, shape: random.normal(size=shape), 0.0, 0.0),
    "lognormal": Shape(lambda random, shape: random.lognormal(size=shape), float(np.exp(0.5)), 1.0),
    "exponential": Shape(lambda random, shape: random.exponential(size=shape), 1.0, float(np.log(2))),
}


def settings() -> Iterator[tuple[str, Shape, int]]:
    """Every distribution with every number of seeds."""
    for name, shape in SHAPES.items():
        for size in SIZES:
            yield name, shape, size
