"""Newton's method: loop and entry of the battery, whose Hessians are given like its gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf


def newton(leaf: Leaf, hyper: Hyper, needs: list[dict[str, np.ndarray]]) -> Iterator[np.ndarray]:
    """Divide each coordinate of the gradient by its damped eigenvalue, in the eigenvectors of the Hessian."""
    w = leaf.start
    for g, needed in zip(leaf.grads, needs, strict=True):
        values, vectors = np.linalg.eigh(needed["hessian"])
        w = w - hyper["learning_rate"] * vectors @ ((vectors.T @ g) / (values + hyper["damping"]))
        yield w


# The Hessians are given and do not change with the coordinates, so that no symmetry applies.
ENTRIES = {"newton": Entry(loop=newton, hyper={"learning_rate": 0.7, "damping": 0.2}, still={"damping": 0.0})}
