"""Adafactor: loop, oracles and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.families.adam import optax_epsilon_inside_root
from tests.optimizers.loops import Hyper, Leaf, weighted_sum, weights
from tests.optimizers.oracles import Oracle


def adafactor(
    leaf: Leaf,
    hyper: Hyper,
    factored: bool,
    first_moment: bool,
    clipping: bool,
    parameter_scaling: bool,
    beta2_schedule: bool,
) -> Iterator[np.ndarray]:
    """Compute the second moment as a weighted mean of all squares so far, and factor it only then (002 eq.
    52).
    """
    w = leaf.start
    for t in range(1, len(leaf.grads) + 1):
        if beta2_schedule:
            decays = 1 - np.arange(1, t + 1) ** -hyper["beta2_exponent"]
            shares = np.array([(1 - decays[index]) * np.prod(decays[index + 1 :]) for index in range(t)])
        else:
            shares = weights(hyper["beta2"], t) / weights(hyper["beta2"], t).sum()
        moment = weighted_sum(shares, [g**2 + hyper["epsilon"] for g in leaf.grads[:t]])
        if factored and w.ndim > 1:
            matrix = moment.reshape(len(w), -1)
            total = matrix.sum() or 1.0
            moment = np.outer(matrix.sum(axis=1) / total, matrix.sum(axis=0)).reshape(w.shape)
        mean = leaf.grads[t - 1]
        if first_moment:
            first = weights(hyper["beta1"], t)
            mean = weighted_sum(first, leaf.grads[:t]) / first.sum()
        step = np.divide(mean, np.sqrt(moment), out=np.zeros_like(mean), where=moment > 0)
        if clipping:
            size = np.linalg.norm(step) / np.sqrt(step.size)
            step = step * min(1.0, hyper["clipping_threshold"] / (size or 1.0))
        rate = hyper["learning_rate"]
        if parameter_scaling:
            rate *= max(np.linalg.norm(w) / np.sqrt(w.size), hyper["parameter_scale_floor"])
        w = w - rate * step
        yield w


def torch_adafactor(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """Return PyTorch's Adafactor.

    Its epsilon_1 bounds factors and the moment from below; it is 0, and so must be ours. Its rate is at most
    1 / sqrt(t), so that ours must be below that at every step, and its threshold is at least 1. It factors
    the last two axes of a convolution, whereas this project factors outputs x all other axes.
    """
    import torch

    return [
        torch.optim.Adafactor(
            tensors,
            lr=hyper["learning_rate"],
            beta2_decay=-hyper["beta2_exponent"],
            eps=(0.0, hyper["parameter_scale_floor"]),
            d=hyper["clipping_threshold"],
            weight_decay=0.0,
        )
    ]


NONE_OF_THE_CHANGES = {
    "factored": False,
    "first_moment": True,
    "clipping": False,
    "parameter_scaling": False,
    "beta2_schedule": False,
}

# Rows and columns could be exchanged, but sums would then round differently, so that the trait is omitted.
NUMBERS = {
    "learning_rate": 0.2,
    "epsilon": 0.03,
    "beta2_exponent": 0.6,
    "clipping_threshold": 1.05,
    "parameter_scale_floor": 0.9,
}
ADAFACTOR_ENTRY = Entry(
    loop=adafactor,
    hyper=NUMBERS,
    still={"epsilon": 0.0},
    scale_free={"epsilon": 0.0},
    pytorch=Oracle(torch_adafactor, hyper={"epsilon": 0.0}, orders=(0, 1, 2)),
)
ENTRIES = {
    "adafactor": ADAFACTOR_ENTRY,
    "adafactor: not clipped": replace(
        ADAFACTOR_ENTRY,
        hyper={name: value for name, value in NUMBERS.items() if name != "clipping_threshold"},
        options={"clipping": False},
        pytorch=None,
    ),
    "adafactor: none of its changes": replace(
        ADAFACTOR_ENTRY,
        hyper={"learning_rate": 0.1, "epsilon": 0.03, "beta1": 0.8, "beta2": 0.95},
        options=NONE_OF_THE_CHANGES,
        pytorch=None,
        # The mean of g^2 + epsilon is the mean of g^2 plus epsilon.
        optax=Oracle(optax_epsilon_inside_root),
    ),
    "adafactor: factored Adam": replace(
        ADAFACTOR_ENTRY,
        hyper={
            "learning_rate": 0.1,
            "epsilon": 0.03,
            "beta1": 0.8,
            "beta2": 0.95,
            "parameter_scale_floor": 0.05,
        },
        options={"first_moment": True, "clipping": False, "beta2_schedule": False},
        pytorch=None,
    ),
}
