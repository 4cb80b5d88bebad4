"""Adam and its relatives: loops, oracles and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf, weighted_sum, weights
from tests.optimizers.oracles import Oracle


def adamw(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    w, rate = leaf.start, hyper["learning_rate"]
    for t in range(1, len(leaf.grads) + 1):
        # the running means as weighted means of all gradients so far
        first, second = weights(hyper["beta1"], t), weights(hyper["beta2"], t)
        mean = weighted_sum(first, leaf.grads[:t]) / first.sum()
        square = weighted_sum(second, [g**2 for g in leaf.grads[:t]]) / second.sum()
        scale = np.sqrt(square) + hyper["epsilon"]
        w = w - rate * hyper.get("weight_decay", 0.0) * w
        w = w - rate * np.divide(mean, scale, out=np.zeros_like(mean), where=scale > 0)
        yield w


def torch_adam(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """Adam, or AdamW where there is a decay."""
    import torch

    given = {
        "lr": hyper["learning_rate"],
        "betas": (hyper["beta1"], hyper["beta2"]),
        "eps": hyper["epsilon"],
    }
    if "weight_decay" in hyper:
        return [torch.optim.AdamW(tensors, weight_decay=hyper["weight_decay"], **given)]
    return [torch.optim.Adam(tensors, **given)]


def moments(hyper: Hyper) -> dict[str, float]:
    return {"b1": hyper["beta1"], "b2": hyper["beta2"]}


def optax_adam(hyper: Hyper) -> Any:
    """eps_root 0: nothing is added inside the root."""
    import optax

    given: Mapping[str, Any] = {**moments(hyper), "eps": hyper["epsilon"], "eps_root": 0.0}
    if "weight_decay" in hyper:
        return optax.adamw(hyper["learning_rate"], weight_decay=hyper["weight_decay"], **given)
    return optax.adam(hyper["learning_rate"], **given)


ADAM = {"learning_rate": 0.1, "beta1": 0.8, "beta2": 0.95, "epsilon": 0.02}
ADAMW = {**ADAM, "weight_decay": 0.3}

ENTRIES = {
    "adam": Entry(
        optimizer="adam",
        loop=adamw,
        hyper=ADAM,
        symmetry="signed_permutation",
        still={"epsilon": 0.0},
        scale_free={"epsilon": 0.0},
        pytorch=Oracle(torch_adam),
        optax=Oracle(optax_adam),
    ),
    "adamw": Entry(
        optimizer="adamw",
        loop=adamw,
        hyper=ADAMW,
        symmetry="signed_permutation",
        still={"epsilon": 0.0, "weight_decay": 0.0},
        scale_free={"epsilon": 0.0},
        pytorch=Oracle(torch_adam),
        optax=Oracle(optax_adam),
    ),
}
