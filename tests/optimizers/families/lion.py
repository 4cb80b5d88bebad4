"""Lion: loop, oracle and entry of the battery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf, weighted_sum, weights
from tests.optimizers.oracles import Oracle


def lion(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    """Compute the momentum before each step as a weighted sum of all earlier gradients."""
    w, beta1, rate = leaf.start, hyper["beta1"], hyper["learning_rate"]
    for t, grad in enumerate(leaf.grads):
        mixture = (1 - beta1) * grad
        if t:
            momentum = weighted_sum(weights(hyper["beta2"], t), leaf.grads[:t]) * (1 - hyper["beta2"])
            mixture = mixture + beta1 * momentum
        w = w - rate * (np.sign(mixture) + hyper["weight_decay"] * w)
        yield w


def optax_lion(hyper: Hyper) -> Any:
    import optax

    return optax.lion(
        hyper["learning_rate"], hyper["beta1"], hyper["beta2"], weight_decay=hyper["weight_decay"]
    )


ENTRIES = {
    "lion": Entry(
        loop=lion,
        hyper={"learning_rate": 0.1, "beta1": 0.6, "beta2": 0.85, "weight_decay": 0.3},
        symmetry="signed_permutation",
        still={"weight_decay": 0.0},
        scale_free={},
        optax=Oracle(optax_lion),
    )
}
