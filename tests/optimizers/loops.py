"""Each rule as a plain NumPy loop in float64 on one leaf, written from its source and not from our code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from optimizers.matrix_functions import COEFFICIENTS

Hyper = Mapping[str, float]


class Leaf(NamedTuple):
    """One parameter: the kind of its role, where it starts, and its gradient at each step."""

    kind: str
    start: np.ndarray
    grads: list[np.ndarray]


def weights(share: float, count: int) -> np.ndarray:
    """What is left of each of `count` gradients, the newest last: share^(t - l)."""
    return share ** np.arange(count - 1, -1, -1)


def weighted_sum(factors: np.ndarray, arrays: list[np.ndarray]) -> np.ndarray:
    return sum((a * g for a, g in zip(factors, arrays, strict=True)), np.zeros_like(arrays[0]))


# --- entry by entry ----------------------------------------------------------------------------------


def sgd(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    w = leaf.start
    for g in leaf.grads:
        w = w - hyper["learning_rate"] * g
        yield w


def momentum(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    w = leaf.start
    for t in range(1, len(leaf.grads) + 1):
        w = w - hyper["learning_rate"] * weighted_sum(weights(hyper["momentum"], t), leaf.grads[:t])
        yield w


def adagrad(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    w = leaf.start
    total = np.full(w.shape, hyper["initial_accumulator"])
    for g in leaf.grads:
        total = total + g * g
        scale = np.sqrt(total) + hyper["epsilon"]
        w = w - hyper["learning_rate"] * np.divide(g, scale, out=np.zeros_like(g), where=scale > 0)
        yield w


def adamw(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    w, rate = leaf.start, hyper["learning_rate"]
    for t in range(1, len(leaf.grads) + 1):
        # the running means as weighted means of all gradients so far
        first, second = weights(hyper["beta1"], t), weights(hyper["beta2"], t)
        mean = weighted_sum(first, leaf.grads[:t]) / first.sum()
        square = weighted_sum(second, [g**2 for g in leaf.grads[:t]]) / second.sum()
        scale = np.sqrt(square) + hyper["epsilon"]
        w = w - rate * hyper.get("weight_decay", 0.0) * w
        w = w - rate * np.divide(mean, scale, out=np.zeros_like(mean), where=scale > 0)
        yield w


# --- matrices and tensors ----------------------------------------------------------------------------


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


POLYNOMIALS = {  # 002 Q.3.1
    "cubic": ((1.5, -0.5),),
    "quintic": ((1.875, -1.25, 0.375),),
    "jordan": ((3.4445, -4.7750, 2.0315),),
    # computed, and compared with the published ones in test_matrix_functions.py
    "polar_express": COEFFICIENTS["polar_express"],
}


def muon(
    leaf: Leaf,
    hyper: Hyper,
    orthogonalization: str,
    coefficients: str,
    steps: int,
    nesterov: bool,
    scale: str,
    others: str,
) -> Iterator[np.ndarray]:
    """The polynomial acts on singular values; vectors, embeddings and norms go another rule's way."""
    w, rate, kept = leaf.start, hyper["learning_rate"], hyper["momentum"]
    if leaf.kind not in {"weight", "convolution"}:
        theirs = {name.removeprefix("others_"): hyper[name] for name in hyper if name.startswith("others_")}
        rule = {"adamw": adamw, "adam": adamw, "momentum": momentum, "sgd": sgd}[others]
        yield from rule(leaf, theirs)
        return
    rows, columns = len(w), w[0].size
    factor = {
        "none": 1.0,
        "spectral": math.sqrt(max(1, rows / columns)),
        "adam": 0.2 * math.sqrt(max(rows, columns)),
    }[scale]
    for t in range(1, len(leaf.grads) + 1):
        direction = weighted_sum(weights(kept, t), leaf.grads[:t])
        if nesterov:
            direction = leaf.grads[t - 1] + kept * direction
        u, s, vh = np.linalg.svd(direction.reshape(rows, columns), full_matrices=False)
        if orthogonalization == "svd":
            s = (s > max(rows, columns) * np.finfo(float).eps * s[0]).astype(float)
        else:
            s = s / (np.linalg.norm(s) or 1.0)
            for step in range(steps):
                polynomial = POLYNOMIALS[coefficients][min(step, len(POLYNOMIALS[coefficients]) - 1)]
                s = np.sum([c * s ** (2 * k + 1) for k, c in enumerate(polynomial)], axis=0)
        w = w - rate * hyper["weight_decay"] * w - rate * factor * ((u * s) @ vh).reshape(w.shape)
        yield w
