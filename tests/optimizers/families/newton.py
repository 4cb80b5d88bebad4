"""Newton's method: loop and entry of the battery, whose Hessians are given like its gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf


def newton(leaf: Leaf, hyper: Hyper, needs: list[dict[str, np.ndarray]]) -> Iterator[np.ndarray]:
    """By the eigenvectors of the Hessian: each coordinate of the gradient over its damped eigenvalue."""
    w = leaf.start
    for g, needed in zip(leaf.grads, needs, strict=True):
        values, vectors = np.linalg.eigh(needed["hessian"])
        w = w - hyper["learning_rate"] * vectors @ ((vectors.T @ g) / (values + hyper["damping"]))
        yield w


# Its symmetry is not one of given gradients: the Hessians would have to turn too.
ENTRIES = {
    "newton": Entry(
        loop=newton,
        hyper={"learning_rate": 0.7, "damping": 0.2},
        still={"damping": 0.0},
    ),
}
