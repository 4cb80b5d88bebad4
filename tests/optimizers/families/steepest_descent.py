"""Steepest descent under norms: loops, oracles and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.families.gradient_descent import torch_sgd
from tests.optimizers.loops import Hyper, Leaf
from tests.optimizers.oracles import Oracle


def steepest_descent(leaf: Leaf, hyper: Hyper, norm: str, principle: str) -> Iterator[np.ndarray]:
    """Compute each of the six cases of 002 eq. 69 with the norm that it prints."""
    w, rate = leaf.start, hyper["learning_rate"]
    for g in leaf.grads:
        if norm == "frobenius":
            step, dual = g / (np.linalg.norm(g) or 1.0), np.linalg.norm(g)
        elif norm == "max":
            step, dual = np.sign(g), np.abs(g).sum()
        else:
            rows = len(g) if g.ndim > 1 else 1
            u, s, vh = np.linalg.svd(g.reshape(rows, -1), full_matrices=False)
            s = np.where(s > max(g.size // rows, rows) * np.finfo(float).eps * s[0], s, 0.0)
            step, dual = ((u * np.sign(s)) @ vh).reshape(g.shape), s.sum()
        w = w - rate * (dual if principle == "majorization" else 1.0) * step
        yield w


def sign_descent(leaf: Leaf, hyper: Hyper, principle: str) -> Iterator[np.ndarray]:
    yield from steepest_descent(leaf, hyper, "max", principle)


def torch_sign(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """Return pytorch_optimizer's SignSGD without momentum and decay."""
    import pytorch_optimizer

    return [pytorch_optimizer.SignSGD(tensors, lr=hyper["learning_rate"], momentum=0.0, weight_decay=0.0)]


RATE = {"learning_rate": 0.3}

STEEPEST_DESCENT_ENTRY = Entry(loop=steepest_descent, hyper=RATE, symmetry="sides", scale_free={})
ENTRIES = {
    "steepest_descent": STEEPEST_DESCENT_ENTRY,
    "steepest_descent: frobenius, majorization": replace(
        STEEPEST_DESCENT_ENTRY,
        options={"principle": "majorization"},
        pytorch=Oracle(torch_sgd()),
        scale_free=None,
    ),
    "steepest_descent: spectral": replace(STEEPEST_DESCENT_ENTRY, options={"norm": "spectral"}),
    "steepest_descent: spectral, majorization": replace(
        STEEPEST_DESCENT_ENTRY, options={"norm": "spectral", "principle": "majorization"}, scale_free=None
    ),
    "steepest_descent: max": replace(
        STEEPEST_DESCENT_ENTRY,
        symmetry="signed_permutation",
        options={"norm": "max"},
        pytorch=Oracle(torch_sign),
    ),
    "sign_descent": Entry(
        loop=sign_descent,
        hyper=RATE,
        symmetry="signed_permutation",
        scale_free={},
        pytorch=Oracle(torch_sign),
    ),
    "sign_descent: majorization": Entry(loop=sign_descent, hyper=RATE, options={"principle": "majorization"}),
}
