"""Gradient descent and its momenta: loops, oracles and entries of the battery.

The battery's gradients are given. Therefore rules that evaluate the gradient at a look-ahead point move like
rules that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf, weighted_sum, weights
from tests.optimizers.oracles import Oracle


def sgd(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    w = leaf.start
    for g in leaf.grads:
        w = w - hyper["learning_rate"] * g
        yield w


def momentum(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    w = leaf.start
    for t in range(1, len(leaf.grads) + 1):
        w = w - hyper["learning_rate"] * weighted_sum(weights(hyper["momentum"], t), leaf.grads[:t])
        yield w


def nesterov(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    """Sum all gradients: g + mu v contains the newest gradient 1 + mu times, the others as in the next
    velocity.
    """
    w = leaf.start
    for t in range(1, len(leaf.grads) + 1):
        factors = hyper["momentum"] * weights(hyper["momentum"], t)
        factors[-1] += 1
        w = w - hyper["learning_rate"] * weighted_sum(factors, leaf.grads[:t])
        yield w


def torch_sgd(nesterov: bool = False) -> Callable[[list[Any], Hyper], list[Any]]:
    """Return a constructor of SGD with dampening 0, so that the velocity takes the whole gradient."""

    def make(tensors: list[Any], hyper: Hyper) -> list[Any]:
        import torch

        momentum, rate = hyper.get("momentum", 0.0), hyper["learning_rate"]
        return [torch.optim.SGD(tensors, lr=rate, momentum=momentum, dampening=0.0, nesterov=nesterov)]

    return make


MOMENTUM = {"learning_rate": 0.2, "momentum": 0.7}

ENTRIES = {
    "sgd": Entry(loop=sgd, hyper={"learning_rate": 0.3}, symmetry="orthogonal", pytorch=Oracle(torch_sgd())),
    "momentum": Entry(loop=momentum, hyper=MOMENTUM, symmetry="orthogonal", pytorch=Oracle(torch_sgd())),
    "nesterov": Entry(
        loop=nesterov, hyper=MOMENTUM, symmetry="orthogonal", pytorch=Oracle(torch_sgd(nesterov=True))
    ),
    "nesterov_lookahead": Entry(
        loop=momentum, hyper=MOMENTUM, symmetry="orthogonal", pytorch=Oracle(torch_sgd())
    ),
}
