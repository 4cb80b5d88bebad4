"""Mirror descent: loops, oracles and entries of the battery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy.optimize import brentq

from tests.optimizers.entry import Entry
from tests.optimizers.families.gradient_descent import torch_sgd
from tests.optimizers.loops import Hyper, Leaf
from tests.optimizers.oracles import Oracle


def by_vectors(function: Callable[[np.ndarray], np.ndarray], array: np.ndarray) -> np.ndarray:
    """Apply a function of a vector to a vector, a number, or each row of a tensor."""
    vectors = array.reshape(len(array) if array.ndim > 1 else 1, -1)
    return np.array([function(vector) for vector in vectors]).reshape(array.shape)


def onto_ball(vector: np.ndarray, radius: float) -> np.ndarray:
    return vector * min(1.0, radius / (np.linalg.norm(vector) or 1.0))


def onto_box(vector: np.ndarray, radius: float) -> np.ndarray:
    return np.clip(vector, -radius, radius)


def onto_simplex(vector: np.ndarray) -> np.ndarray:
    """Return max(v - theta, 0), with theta as the root of a decreasing function."""
    theta = brentq(
        lambda theta: np.maximum(vector - theta, 0).sum() - 1,
        vector.max() - 1,
        vector.max(),
        xtol=1e-16,
        rtol=1e-15,
    )
    return np.asarray(np.maximum(vector - theta, 0))


def mirror_descent(leaf: Leaf, hyper: Hyper, mirror: str, domain: str) -> Iterator[np.ndarray]:
    """Compute the mirrored step and the projection in the parameters' own coordinates."""
    w, rate = leaf.start, hyper["learning_rate"]
    projections: dict[tuple[str, str], Callable[[np.ndarray], np.ndarray]] = {
        ("euclidean", "space"): np.asarray,
        ("euclidean", "ball"): partial(onto_ball, radius=hyper.get("radius", 0.0)),
        ("euclidean", "box"): partial(onto_box, radius=hyper.get("radius", 0.0)),
        ("euclidean", "simplex"): onto_simplex,
        ("entropy", "simplex"): lambda vector: vector / vector.sum(),
    }
    for g in leaf.grads:
        mirrored = w - rate * g if mirror == "euclidean" else w * np.exp(-rate * g)
        w = by_vectors(projections[mirror, domain], mirrored)
        yield w


def exponentiated_gradient(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    yield from mirror_descent(leaf, hyper, "entropy", "simplex")


def on_simplex(array: np.ndarray) -> np.ndarray:
    """Return a point inside the simplex, the softmax of each vector."""
    return by_vectors(lambda vector: np.exp(vector) / np.exp(vector).sum(), np.asarray(array))


RATE = {"learning_rate": 0.3}

ENTRIES = {
    "mirror_descent": Entry(
        loop=mirror_descent, hyper=RATE, symmetry="orthogonal", pytorch=Oracle(torch_sgd())
    ),
    "mirror_descent: ball": Entry(
        loop=mirror_descent,
        hyper={**RATE, "radius": 1.3},
        options={"domain": "ball"},
        start=partial(by_vectors, partial(onto_ball, radius=1.2)),
    ),
    "mirror_descent: box": Entry(
        loop=mirror_descent,
        hyper={**RATE, "radius": 0.7},
        options={"domain": "box"},
        start=partial(by_vectors, partial(onto_box, radius=0.7)),
    ),
    "mirror_descent: simplex": Entry(
        loop=mirror_descent,
        hyper=RATE,
        options={"domain": "simplex"},
        start=on_simplex,
        still_tolerance=1e-15,
    ),
    "mirror_descent: entropy on the simplex": Entry(
        loop=mirror_descent,
        hyper=RATE,
        options={"mirror": "entropy", "domain": "simplex"},
        start=on_simplex,
        still_tolerance=1e-15,
    ),
    "exponentiated_gradient": Entry(
        loop=exponentiated_gradient, hyper=RATE, start=on_simplex, still_tolerance=1e-15
    ),
}
