"""MARS: loop, oracles and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.families.adam import ADAMW, adamw, given
from tests.optimizers.loops import Hyper, Leaf, weighted_sum, weights
from tests.optimizers.oracles import Oracle


def mars(leaf: Leaf, hyper: Hyper, direction: str) -> Iterator[np.ndarray]:
    """Correct and clip all gradients first, then run AdamW or the signs of weighted sums on them."""
    factor, corrected = hyper["gamma"] * hyper["beta1"] / (1 - hyper["beta1"]), []
    for last, grad in pairwise([np.zeros_like(leaf.start), *leaf.grads]):
        c = (1 + factor) * grad - factor * last
        corrected.append(c / max(1.0, float(np.linalg.norm(c.ravel()))))
    if direction == "adamw":
        yield from adamw(leaf._replace(grads=corrected), hyper)
        return
    w = leaf.start
    for t in range(1, len(corrected) + 1):
        mean = weighted_sum(weights(hyper["beta1"], t), corrected[:t])
        w = w - hyper["learning_rate"] * (np.sign(mean) + hyper["weight_decay"] * w)
        yield w


def torch_mars(tensors: list[Any], hyper: Hyper, direction: str = "adamw") -> list[Any]:
    import pytorch_optimizer

    full = {"beta2": 0.9, **hyper}
    arguments = {"gamma": hyper["gamma"], "mars_type": direction, "optimize_1d": True, "foreach": False}
    return [pytorch_optimizer.MARS(tensors, **given(full), **arguments)]


NUMBERS = {"learning_rate": 0.1, "beta1": 0.8, "gamma": 0.3, "weight_decay": 0.3}
ENTRIES = {
    "mars": Entry(
        loop=mars,
        hyper={**ADAMW, **NUMBERS},
        still={"epsilon": 0.0, "weight_decay": 0.0},
        # It adds epsilon before bias correction, and 1e-15 to squares.
        pytorch=Oracle(torch_mars, hyper={"epsilon": 0.0}),
        tolerance=1e-10,
    ),
    "mars: lion": Entry(
        loop=mars,
        hyper=NUMBERS,
        options={"direction": "lion"},
        still={"weight_decay": 0.0},
        pytorch=Oracle(partial(torch_mars, direction="lion")),
    ),
}
