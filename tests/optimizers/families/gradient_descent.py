"""Gradient descent and its momenta: loops, oracles and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator
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


def torch_sgd(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """SGD; dampening 0, so that the velocity takes the whole gradient."""
    import torch

    kept = hyper.get("momentum", 0.0)
    return [torch.optim.SGD(tensors, lr=hyper["learning_rate"], momentum=kept, dampening=0.0)]


def optax_sgd(hyper: Hyper) -> Any:
    import optax

    return optax.sgd(hyper["learning_rate"], momentum=hyper.get("momentum"))


ENTRIES = {
    "sgd": Entry(
        optimizer="sgd",
        loop=sgd,
        hyper={"learning_rate": 0.3},
        symmetry="orthogonal",
        pytorch=Oracle(torch_sgd),
        optax=Oracle(optax_sgd),
    ),
    "momentum": Entry(
        optimizer="momentum",
        loop=momentum,
        hyper={"learning_rate": 0.2, "momentum": 0.7},
        symmetry="orthogonal",
        pytorch=Oracle(torch_sgd),
        optax=Oracle(optax_sgd),
    ),
}
