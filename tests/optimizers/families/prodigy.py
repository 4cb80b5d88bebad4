"""Prodigy: loop, oracles and entries of the battery.

The authors' package is not installed for tests: Prodigy was compared with prodigyopt 1.1.2 once, and the loop
is written from the paper's equations. Optax has the variant with bias correction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.families.adam import ADAMW, over
from tests.optimizers.loops import Hyper, Leaf, weighted_sum, weights
from tests.optimizers.oracles import Oracle


def prodigy(leaf: Leaf, hyper: Hyper, bias_correction: bool) -> Iterator[np.ndarray]:
    """Compute Mishchenko and Defazio (2023), Alg. 4, with running means as sums over all steps so far.

    The factor 1 - sqrt(beta2) of both means that estimate the distance cancels.
    """
    w, distance, beta1, beta2 = leaf.start, hyper["initial_distance"], hyper["beta1"], hyper["beta2"]
    scaled, inner, factors = [], [], []
    for t, grad in enumerate(leaf.grads, start=1):
        rate = hyper["learning_rate"] * distance
        if bias_correction:
            rate *= np.sqrt(1 - beta2**t) / (1 - beta1**t)
        scaled.append(distance * grad)
        factors.append(rate * distance)
        inner.append(float(np.vdot(grad, leaf.start - w)))
        decays = weights(np.sqrt(beta2), t) * factors
        length = np.abs(weighted_sum(decays, leaf.grads[:t])).sum()
        distance = max(distance, float(np.dot(decays, inner)) / length if length else 0.0)
        mean = (1 - beta1) * weighted_sum(weights(beta1, t), scaled)
        square = (1 - beta2) * weighted_sum(weights(beta2, t), [g**2 for g in scaled])
        direction = over(mean, np.sqrt(square) + distance * hyper["epsilon"])
        w = w - rate * (direction + hyper["weight_decay"] * w)
        yield w


def optax_prodigy(hyper: Hyper) -> Any:
    from optax import contrib

    return contrib.prodigy(
        hyper["learning_rate"],
        betas=(hyper["beta1"], hyper["beta2"]),
        eps=hyper["epsilon"],
        estim_lr0=hyper["initial_distance"],
        weight_decay=hyper["weight_decay"],
    )


ENTRY = Entry(
    loop=prodigy,
    hyper={**ADAMW, "learning_rate": 0.7, "initial_distance": 0.05},
    still={"epsilon": 0.0, "weight_decay": 0.0},
    scale_free={"epsilon": 0.0},
)
ENTRIES = {
    "prodigy": ENTRY,
    "prodigy: bias correction": replace(
        ENTRY, options={"bias_correction": True}, optax=Oracle(optax_prodigy)
    ),
}
