"""Adagrad by entry, as a norm and as a matrix: loops, oracles and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf
from tests.optimizers.oracles import Oracle


def adagrad(leaf: Leaf, hyper: Hyper, epsilon_inside_root: bool = False) -> Iterator[np.ndarray]:
    w, epsilon = leaf.start, hyper["epsilon"]
    total = np.full(w.shape, hyper["initial_accumulator"])
    for g in leaf.grads:
        total = total + g * g
        scale = np.sqrt(total + epsilon) if epsilon_inside_root else np.sqrt(total) + epsilon
        w = w - hyper["learning_rate"] * np.divide(g, scale, out=np.zeros_like(g), where=scale > 0)
        yield w


def adagrad_norm(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    """Compute the root as the norm of the concatenation of all gradients so far and the root of v_0."""
    w, arrays = leaf.start, [np.sqrt([hyper["initial_accumulator"]])]
    for g in leaf.grads:
        arrays.append(g)
        scale = np.linalg.norm(np.concatenate(arrays)) + hyper["epsilon"]
        w = w - hyper["learning_rate"] * g / (scale or 1.0)
        yield w


def adagrad_full(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    """Compute O_t from the singular vectors of the matrix of gradients, which need not be squared."""
    w = leaf.start
    columns = [np.sqrt(hyper["epsilon"]) * np.eye(w.size)]
    for g in leaf.grads:
        columns.append(g[:, None])
        u, s, _ = np.linalg.svd(np.concatenate(columns, axis=1))
        counts = s > np.sqrt(w.size * np.finfo(float).eps) * s[0]
        inverse = np.divide(1.0, s, out=np.zeros_like(s), where=counts)
        w = w - hyper["learning_rate"] * (u * inverse) @ (u.T @ g)
        yield w


def torch_adagrad(tensors: list[Any], hyper: Hyper) -> list[Any]:
    import torch

    return [
        torch.optim.Adagrad(
            tensors,
            lr=hyper["learning_rate"],
            initial_accumulator_value=hyper["initial_accumulator"],
            eps=hyper["epsilon"],
        )
    ]


def optax_adagrad(hyper: Hyper) -> Any:
    """Return Optax's Adagrad, where epsilon is inside the root."""
    import optax

    return optax.adagrad(
        hyper["learning_rate"], initial_accumulator_value=hyper["initial_accumulator"], eps=hyper["epsilon"]
    )


ADAGRAD = {"learning_rate": 0.4, "epsilon": 0.05, "initial_accumulator": 0.3}
FROM_NOTHING = {"epsilon": 0.0, "initial_accumulator": 0.0}

ADAGRAD_ENTRY = Entry(
    loop=adagrad,
    hyper=ADAGRAD,
    symmetry="signed_permutation",
    still=FROM_NOTHING,
    scale_free=FROM_NOTHING,
    pytorch=Oracle(torch_adagrad),
)
ENTRIES = {
    "adagrad": ADAGRAD_ENTRY,
    "adagrad: epsilon inside the root": replace(
        ADAGRAD_ENTRY, options={"epsilon_inside_root": True}, optax=Oracle(optax_adagrad), pytorch=None
    ),
    "adagrad_norm": Entry(
        loop=adagrad_norm, hyper=ADAGRAD, symmetry="orthogonal", still=FROM_NOTHING, scale_free=FROM_NOTHING
    ),
    "adagrad_full": Entry(
        loop=adagrad_full,
        hyper={"learning_rate": 0.4, "epsilon": 0.3},
        symmetry="orthogonal",
        still={"epsilon": 0.0},
        scale_free={"epsilon": 0.0},
        tolerance=1e-12,
    ),
}
