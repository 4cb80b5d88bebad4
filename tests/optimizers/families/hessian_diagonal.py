"""Sophia and AdaHessian: loops and entries of the battery, whose estimates are given like its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf, weighted_sum, weights

Needs = list[dict[str, np.ndarray]]


def estimates(needs: Needs, step: int, every: int) -> list[np.ndarray]:
    """Return the estimates of the diagonal up to a step, the first of which has the number 1."""
    return [np.prod(needed["diagonal_factors"], axis=0) for needed in needs[:step:every]]


def sophia(leaf: Leaf, hyper: Hyper, needs: Needs, hessian_every: int, **probe: Any) -> Iterator[np.ndarray]:
    """Compute both running means as weighted sums, and limit each entry of the step to the learning rate."""
    w, rate = leaf.start, hyper["learning_rate"]
    for t in range(1, len(leaf.grads) + 1):
        seen = estimates(needs, t, hessian_every)
        mean = (1 - hyper["beta1"]) * weighted_sum(weights(hyper["beta1"], t), leaf.grads[:t])
        diagonal = (1 - hyper["beta2"]) * weighted_sum(weights(hyper["beta2"], len(seen)), seen)
        scale = np.where(
            hyper["gamma"] * diagonal > hyper["epsilon"], hyper["gamma"] * diagonal, hyper["epsilon"]
        )
        step = np.sign(mean) * np.fmin(np.abs(rate * mean / scale), rate)
        w = w - rate * hyper["weight_decay"] * w - np.where(np.isnan(mean), np.nan, step)
        yield w


def adahessian(
    leaf: Leaf, hyper: Hyper, needs: Needs, hessian_every: int, **probe: Any
) -> Iterator[np.ndarray]:
    """Compute bias-corrected means as weighted means; the given estimates are averaged already."""
    w, rate = leaf.start, hyper["learning_rate"]
    for t in range(1, len(leaf.grads) + 1):
        squares = [estimate**2 for estimate in estimates(needs, t, hessian_every)]
        first, second = weights(hyper["beta1"], t), weights(hyper["beta2"], len(squares))
        mean = weighted_sum(first, leaf.grads[:t]) / first.sum()
        square = weighted_sum(second, squares) / second.sum()
        scale = np.sqrt(square) ** hyper["hessian_power"] + hyper["epsilon"]
        w = w - rate * hyper["weight_decay"] * w - rate * mean / scale
        yield w


SOPHIA = {
    "learning_rate": 0.3,
    "beta1": 0.8,
    "beta2": 0.7,
    "gamma": 2.0,
    "epsilon": 1e-3,
    "weight_decay": 0.1,
}
ADAHESSIAN = {
    "learning_rate": 0.3,
    "beta1": 0.8,
    "beta2": 0.7,
    "hessian_power": 0.6,
    "epsilon": 1e-3,
    "weight_decay": 0.1,
}
STILL = {"weight_decay": 0.0}
ENTRIES = {
    "sophia_h": Entry(loop=sophia, hyper=SOPHIA, still=STILL),
    "sophia_h: rademacher every 2": Entry(
        loop=sophia, hyper=SOPHIA, options={"probe": "rademacher", "hessian_every": 2}, still=STILL
    ),
    "sophia_g": Entry(loop=sophia, hyper=SOPHIA, still=STILL),
    "sophia_g: every 3": Entry(loop=sophia, hyper=SOPHIA, options={"hessian_every": 3}, still=STILL),
    "adahessian": Entry(loop=adahessian, hyper=ADAHESSIAN, still=STILL),
    "adahessian: averaged every 2": Entry(
        loop=adahessian,
        hyper=ADAHESSIAN,
        options={"probe": "gaussian", "spatial_averaging": True, "hessian_every": 2},
        still=STILL,
    ),
}
