"""Adagrad: loops, oracles and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf
from tests.optimizers.oracles import Oracle


def adagrad(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    w = leaf.start
    total = np.full(w.shape, hyper["initial_accumulator"])
    for g in leaf.grads:
        total = total + g * g
        scale = np.sqrt(total) + hyper["epsilon"]
        w = w - hyper["learning_rate"] * np.divide(g, scale, out=np.zeros_like(g), where=scale > 0)
        yield w


def torch_adagrad(tensors: list[Any], hyper: Hyper) -> list[Any]:
    import torch

    return [
        torch.optim.Adagrad(
            tensors,
            lr=hyper["learning_rate"],
            initial_accumulator_value=hyper["initial_accumulator"],
            eps=hyper["epsilon"],
        )
    ]


def optax_adagrad(hyper: Hyper) -> Any:
    """Epsilon is inside the root there: the same algorithm only at 0."""
    import optax

    return optax.adagrad(
        hyper["learning_rate"],
        initial_accumulator_value=hyper["initial_accumulator"],
        eps=hyper["epsilon"],
    )


ENTRIES = {
    "adagrad": Entry(
        optimizer="adagrad",
        loop=adagrad,
        hyper={"learning_rate": 0.4, "epsilon": 0.05, "initial_accumulator": 0.3},
        symmetry="signed_permutation",
        still={"epsilon": 0.0, "initial_accumulator": 0.0},
        scale_free={"epsilon": 0.0, "initial_accumulator": 0.0},
        pytorch=Oracle(torch_adagrad),
        optax=Oracle(optax_adagrad, hyper={"epsilon": 0.0}),
    ),
}
