"""Scion: loop, oracle and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.families.muon import POLYNOMIALS, pytorch_optimizer_in_float64
from tests.optimizers.loops import Hyper, Leaf, weighted_sum, weights
from tests.optimizers.oracles import Oracle


def scion(
    leaf: Leaf, hyper: Hyper, orthogonalization: str, coefficients: str, steps: int
) -> Iterator[np.ndarray]:
    """Take the extreme point of each role's norm, as the paper's tables print it."""
    w, rate, mu = leaf.start, hyper["learning_rate"], hyper["momentum"]
    for t in range(1, len(leaf.grads) + 1):
        d = (1 - mu) * weighted_sum(weights(mu, t), leaf.grads[:t])
        if d.ndim > 1 and leaf.kind in ("weight", "convolution"):
            outputs, inputs, *kernel = d.shape
            u, s, vh = np.linalg.svd(d.reshape(outputs, -1), full_matrices=False)
            if orthogonalization == "svd":
                s = (s > max(u.shape[0], vh.shape[1]) * np.finfo(float).eps * s[0]).astype(float)
            else:
                s = s / (np.linalg.norm(s) or 1.0)
                for step in range(steps):
                    polynomial = POLYNOMIALS[coefficients][min(step, len(POLYNOMIALS[coefficients]) - 1)]
                    s = np.sum([c * s ** (2 * k + 1) for k, c in enumerate(polynomial)], axis=0)
            o = np.sqrt(outputs / inputs) / np.prod(kernel) * ((u * s) @ vh).reshape(d.shape)
        elif d.ndim > 1 and leaf.kind == "head":
            o = hyper["head_radius"] * np.sign(d) / d[0].size
        elif d.ndim > 1 and leaf.kind == "embedding":
            o = d / (np.sqrt(np.mean(d**2, axis=1, keepdims=True)) + (np.abs(d).max(1, keepdims=True) == 0))
        else:
            o = d / (np.sqrt(np.mean(d**2)) or 1.0)
        w = w - rate * hyper["weight_decay"] * w - rate * o
        yield w


def torch_scion(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """Return SCION of pytorch_optimizer, whose momentum is the share of the new gradient."""
    import pytorch_optimizer

    rate, share = hyper["learning_rate"], 1 - hyper["momentum"]
    decay = hyper["weight_decay"]
    return [pytorch_optimizer.SCION(tensors, lr=rate, momentum=share, weight_decay=decay, foreach=False)]


ROLES = {"hidden": (4, 3), "head": (2, 4), "tokens": (5, 3), "vector": (4,)}
ENTRY = Entry(
    loop=scion,
    hyper={"learning_rate": 0.05, "momentum": 0.8, "head_radius": 3.0, "weight_decay": 0.3},
    still={"weight_decay": 0.0},
    scale_free={},
    pytorch=Oracle(torch_scion, orders=(2, 4), context=pytorch_optimizer_in_float64),
)
OF_ROLES = replace(
    ENTRY, shapes=ROLES, kinds={"head": "head", "tokens": "embedding"}, scale_free=None, pytorch=None
)
ENTRIES = {
    "scion": ENTRY,
    "scion: a norm for each role": OF_ROLES,
    "scion: exact": replace(OF_ROLES, options={"orthogonalization": "svd"}),
    "scion: 4 cubic steps": replace(ENTRY, options={"coefficients": "cubic", "steps": 4}, pytorch=None),
}
