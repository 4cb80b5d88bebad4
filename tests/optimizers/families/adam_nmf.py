"""AdamNMF: loop and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf


def quotient(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Divide with c / 0 = 0: a factorization drops such components (002 App. L)."""
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def counts(target: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the expected Z (m, n, r) given C (002 eq. 121), the share of each component in each entry."""
    components = left[:, None, :] * right.T[None, :, :]
    return target[:, :, None] * quotient(components, components.sum(axis=2, keepdims=True))


def adam_nmf(leaf: Leaf, hyper: Hyper, rank: int, steps: str) -> Iterator[np.ndarray]:
    """Run EM with its latent counts: each factor is a sum of counts over the sum of the other factor."""
    w = leaf.start
    generator = np.random.default_rng(0)
    rows = len(w) if w.ndim else 1
    left = generator.random((rows, rank)) * hyper.get("initialization_range", 1.0)
    right = generator.random((rank, w.size // rows)) * hyper.get("initialization_range", 1.0)
    for g in leaf.grads:
        squares = g**2 + hyper["epsilon"]
        if w.ndim > 1:
            target = squares.reshape(rows, -1)
            latent = counts(target, left, right)
            previous, left = left, quotient(latent.sum(axis=1), right.sum(axis=1))
            if steps == "alternating":
                previous, latent = left, counts(target, left, right)
            right = quotient(latent.sum(axis=0).T, previous.sum(axis=0)[:, None])
            squares = (left @ right).reshape(w.shape)
        w = w - hyper["learning_rate"] * quotient(g, np.sqrt(squares))
        yield w


ADAM_NMF_ENTRY = Entry(
    loop=adam_nmf,
    hyper={"learning_rate": 0.1, "epsilon": 0.03},
    symmetry="signed_permutation",
    still={"epsilon": 0.0},
    scale_free={"epsilon": 0.0},
)
ENTRIES = {
    "adam_nmf": ADAM_NMF_ENTRY,
    "adam_nmf: rank 2": replace(ADAM_NMF_ENTRY, symmetry=None, options={"rank": 2}),
    "adam_nmf: rank 3, both factors at once": replace(
        ADAM_NMF_ENTRY,
        hyper={"learning_rate": 0.1, "epsilon": 0.03, "initialization_range": 0.7},
        symmetry=None,
        options={"rank": 3, "steps": "simultaneous"},
        scale_free=None,
    ),
}
