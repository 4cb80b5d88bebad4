"""ADOPT and LaProp: loops, oracles and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.families.adam import ADAMW, given, moments, over
from tests.optimizers.loops import Hyper, Leaf, weighted_sum, weights
from tests.optimizers.oracles import Oracle


def adopt(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    """Compute Taniguchi et al. (2024), Alg. 2: the square of the first gradient starts the second moment."""
    w, rate, beta1, beta2 = leaf.start, hyper["learning_rate"], hyper["beta1"], hyper["beta2"]
    yield w
    squares, normalized = [g**2 for g in leaf.grads], []
    for t in range(1, len(leaf.grads)):
        # The first square has the weight that the initial value of a running mean has.
        factors = weights(beta2, t) * np.array([1.0, *[1 - beta2] * (t - 1)])
        root = np.maximum(np.sqrt(weighted_sum(factors, squares[:t])), hyper["epsilon"])
        bound = t ** hyper["clipping_exponent"]
        normalized.append(np.clip(over(leaf.grads[t], root), -bound, bound))
        mean = (1 - beta1) * weighted_sum(weights(beta1, t), normalized)
        w = w - rate * (mean + hyper["weight_decay"] * w)
        yield w


def laprop(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    """Compute the weighted mean of gradients, each over its own weighted root mean square."""
    w, rate, normalized = leaf.start, hyper["learning_rate"], []
    for t in range(1, len(leaf.grads) + 1):
        first, second = weights(hyper["beta1"], t), weights(hyper["beta2"], t)
        square = weighted_sum(second / second.sum(), [g**2 for g in leaf.grads[:t]])
        normalized.append(over(leaf.grads[t - 1], np.sqrt(square) + hyper["epsilon"]))
        w = w - rate * (weighted_sum(first / first.sum(), normalized) + hyper["weight_decay"] * w)
        yield w


def optax_adopt(hyper: Hyper) -> Any:
    """Return Optax's ADOPT, whose first step averages a gradient over an epsilon that is clipped to 0."""
    from optax import contrib

    return contrib.adopt(
        hyper["learning_rate"],
        **moments(hyper),
        eps=hyper["epsilon"],
        clip_value_fn=lambda count: count ** hyper["clipping_exponent"],
    )


def torch_adopt(tensors: list[Any], hyper: Hyper) -> list[Any]:
    import pytorch_optimizer

    bound = hyper["clipping_exponent"]
    return [
        pytorch_optimizer.ADOPT(
            tensors, **given(hyper), weight_decouple=True, clip_lambda=lambda step: (step - 1) ** bound
        )
    ]


def torch_laprop(tensors: list[Any], hyper: Hyper) -> list[Any]:
    import pytorch_optimizer

    return [pytorch_optimizer.LaProp(tensors, **given(hyper), foreach=False)]


ENTRIES = {
    "adopt": Entry(
        loop=adopt,
        hyper={**ADAMW, "epsilon": 0.5, "clipping_exponent": 0.4},
        symmetry="signed_permutation",
        still={"epsilon": 0.0, "weight_decay": 0.0},
        pytorch=Oracle(torch_adopt, hyper={"weight_decay": 0.0}),
        optax=Oracle(optax_adopt, hyper={"weight_decay": 0.0}),
    ),
    "laprop": Entry(
        loop=laprop,
        hyper=ADAMW,
        symmetry="signed_permutation",
        still={"epsilon": 0.0, "weight_decay": 0.0},
        scale_free={"epsilon": 0.0},
        # It adds epsilon before bias correction, 1e-15 to squares, and subtracts the decay after the step.
        pytorch=Oracle(torch_laprop, hyper={"epsilon": 0.0, "weight_decay": 0.0}),
        tolerance=1e-11,
    ),
}
