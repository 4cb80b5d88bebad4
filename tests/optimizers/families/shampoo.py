"""Shampoo: loops and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf, weights


def shampoo(
    leaf: Leaf, hyper: Hyper, statistics: str, power: float | None, refresh_every: int
) -> Iterator[np.ndarray]:
    """The statistic of an axis is M M^T for the matricizations side by side: its roots come from M's SVD."""
    shape, w = leaf.start.shape or (1,), leaf.start
    grads = [g.reshape(shape) for g in leaf.grads]
    exponent = 1 / (2 * len(shape)) if power is None else power
    roots: list[np.ndarray] = []
    for t in range(1, len(grads) + 1):
        share, first = np.ones(t), hyper["epsilon"]
        if statistics == "ema":
            share = weights(hyper["beta2"], t) / weights(hyper["beta2"], t).sum()
            first *= hyper["beta2"] ** t / (1 - hyper["beta2"] ** t)
        if (t - 1) % refresh_every == 0:
            roots = [
                inverse_root_of_outer_products(
                    [
                        np.sqrt(a) * np.moveaxis(g, axis, 0).reshape(length, -1)
                        for a, g in zip(share, grads[:t], strict=True)
                    ],
                    first,
                    exponent,
                )
                for axis, length in enumerate(shape)
            ]
        direction = grads[t - 1]
        for axis, root in enumerate(roots):
            direction = np.moveaxis(np.tensordot(root, direction, axes=(1, axis)), 0, axis)
        w = w - hyper["learning_rate"] * direction.reshape(w.shape)
        yield w


def inverse_root_of_outer_products(matrices: list[np.ndarray], first: float, exponent: float) -> np.ndarray:
    """(first I + sum of M M^T)^(-exponent), of the pseudo-inverse where that is singular."""
    side_by_side = np.concatenate(matrices, axis=1)
    u, s, _ = np.linalg.svd(side_by_side)
    values = np.zeros(len(u))
    values[: len(s)] = np.where(s > max(side_by_side.shape) * np.finfo(float).eps * s[0], s, 0) ** 2
    values += first
    inverse = np.power(values, -exponent, out=np.zeros_like(values), where=values > 0)
    return (u * inverse) @ u.T


ENTRIES = {
    "shampoo": Entry(
        optimizer="shampoo",
        loop=shampoo,
        hyper={"learning_rate": 0.3, "epsilon": 0.05},
        symmetry="sides",
        still={"epsilon": 0.0},
        scale_free={"epsilon": 0.0},
    ),
    "shampoo: running mean": Entry(
        optimizer="shampoo",
        loop=shampoo,
        hyper={"learning_rate": 0.3, "epsilon": 0.05, "beta2": 0.9},
        symmetry="sides",
        options={"statistics": "ema"},
        still={"epsilon": 0.0},
        scale_free={"epsilon": 0.0},
    ),
    "shampoo: another power, roots every 3 steps": Entry(
        optimizer="shampoo",
        loop=shampoo,
        hyper={"learning_rate": 0.3, "epsilon": 0.05},
        symmetry="sides",
        options={"power": 0.3, "refresh_every": 3},
        still={"epsilon": 0.0},
    ),
}
