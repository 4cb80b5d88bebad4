"""Regularized update descent: loop, oracles and entries of the battery.

The option determines where the gradient is taken. The battery's gradients are given, so that the path does
not depend on it (test_momentum.py has gradients of a function).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.families.gradient_descent import momentum, torch_sgd
from tests.optimizers.loops import Hyper, Leaf
from tests.optimizers.oracles import Oracle


def as_momentum(hyper: Hyper) -> dict[str, float]:
    """Return the hyperparameters with which momentum is the same at a constant rate."""
    rate = hyper["learning_rate"]
    return {"learning_rate": rate, "momentum": 1 - rate * hyper["regularization"]}


def regularized_update_descent(leaf: Leaf, hyper: Hyper, gradient: str) -> Iterator[np.ndarray]:
    return momentum(leaf, as_momentum(hyper))


def torch_momentum(tensors: list[Any], hyper: Hyper) -> list[Any]:
    return torch_sgd()(tensors, as_momentum(hyper))


def entry(**options: str) -> Entry:
    return Entry(
        loop=regularized_update_descent,
        hyper={"learning_rate": 0.2, "regularization": 1.7},
        options=options,
        symmetry="orthogonal",
        pytorch=Oracle(torch_momentum),
    )


ENTRIES = {
    "regularized_update_descent": entry(),
    "regularized_update_descent: polyak": entry(gradient="polyak"),
    "regularized_update_descent: nesterov": entry(gradient="nesterov"),
}
