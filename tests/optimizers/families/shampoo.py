"""Shampoo and its idealized form: loops and entries of the battery."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy.linalg

from tests.optimizers.entry import Entry
from tests.optimizers.families.adagrad import adagrad
from tests.optimizers.families.adam import adamw
from tests.optimizers.families.gradient_descent import sgd
from tests.optimizers.loops import Hyper, Leaf, weights


def shampoo(
    leaf: Leaf,
    hyper: Hyper,
    statistics: str,
    power: float | None,
    refresh_every: int,
    block_size: int | None = None,
    grafting: str = "none",
) -> Iterator[np.ndarray]:
    """Treat blocks as separate leaves."""
    shape, w = leaf.start.shape or (1,), leaf.start
    cuts = [ranges(length, block_size or length) for length in shape]
    blocks = [tuple(itertools.starmap(slice, pieces)) for pieces in itertools.product(*cuts)]
    grads = [g.reshape(shape) for g in leaf.grads]
    block_directions = zip(
        *(directions([g[block] for g in grads], hyper, statistics, power, refresh_every) for block in blocks),
        strict=True,
    )
    lengths = grafted_lengths(leaf, hyper, grafting)
    for direction_of_blocks, length in zip(block_directions, lengths, strict=True):
        direction = np.empty(shape)
        for block, block_direction in zip(blocks, direction_of_blocks, strict=True):
            direction[block] = block_direction
        step = hyper["learning_rate"] * direction
        if length is not None:
            step = step * (length / (np.linalg.norm(step) or 1.0))
        w = w - step.reshape(w.shape)
        yield w


def ranges(length: int, size: int) -> list[tuple[int, int]]:
    """Return the smallest number of ranges no longer than `size`; all but the last have the same length."""
    count = -(-length // size)
    longest = -(-length // count)
    return [(low, min(low + longest, length)) for low in range(0, length, longest)]


def grafted_lengths(leaf: Leaf, hyper: Hyper, grafting: str) -> Iterator[float | None]:
    """Yield the Frobenius norm of each step of the grafting rule, or None without one."""
    if grafting == "none":
        yield from itertools.repeat(None, len(leaf.grads))
        return
    theirs = {name.removeprefix("grafting_"): hyper[name] for name in hyper if name.startswith("grafting_")}
    loop = {"sgd": sgd, "adagrad": adagrad, "adam": adamw}[grafting]
    previous = leaf.start
    for current in loop(leaf, {**theirs, "learning_rate": hyper["learning_rate"]}):
        yield float(np.linalg.norm(current - previous))
        previous = current


def directions(
    grads: list[np.ndarray], hyper: Hyper, statistics: str, power: float | None, refresh_every: int
) -> Iterator[np.ndarray]:
    """Yield directions; the inverse roots of an axis come from the SVD of the concatenated matricizations M.

    The statistic of the axis is M M^T.
    """
    if statistics == "kl":
        yield from kl_directions(grads, hyper, refresh_every)
        return
    shape = grads[0].shape
    exponent = 1 / (2 * len(shape)) if power is None else power
    roots: list[np.ndarray] = []
    for t in range(1, len(grads) + 1):
        share, first = np.ones(t), hyper["epsilon"]
        if statistics == "ema":
            share = weights(hyper["beta2"], t) / weights(hyper["beta2"], t).sum()
            first *= hyper["beta2"] ** t / (1 - hyper["beta2"] ** t)
        if (t - 1) % refresh_every == 0:
            roots = []
            for axis, length in enumerate(shape):
                pieces = [
                    np.sqrt(a) * np.moveaxis(g, axis, 0).reshape(length, -1)
                    for a, g in zip(share, grads[:t], strict=True)
                ]
                roots.append(inverse_root_of_outer_products(pieces, first, exponent))
        direction = grads[t - 1]
        for axis, inverse in enumerate(roots):
            direction = along(inverse, direction, axis)
        yield direction


def along(matrix: np.ndarray, tensor: np.ndarray, axis: int) -> np.ndarray:
    """Multiply a tensor by a matrix along an axis."""
    return np.moveaxis(np.tensordot(matrix, tensor, axes=(1, axis)), 0, axis)


def kl_directions(grads: list[np.ndarray], hyper: Hyper, refresh_every: int) -> Iterator[np.ndarray]:
    """Yield directions of KL-Shampoo by its equations: L <- beta L + (1 - beta) G R^-1 G^T / n."""
    shape, beta = grads[0].shape, hyper["beta2"]
    statistics: list[np.ndarray] = [hyper["epsilon"] * np.eye(length) for length in shape]
    inverses: list[np.ndarray] = [np.eye(length) for length in shape]
    for t, grad in enumerate(grads):
        for axis, length in enumerate(shape):
            whitened = grad
            for other in range(len(shape)):
                whitened = whitened if other == axis else along(inverses[other], whitened, other)
            rows = [np.moveaxis(tensor, axis, 0).reshape(length, -1) for tensor in (grad, whitened)]
            product = rows[0] @ rows[1].T
            statistics[axis] = beta * statistics[axis] + (1 - beta) * product * length / grad.size
        if t % refresh_every == 0:
            inverses = [np.asarray(np.linalg.inv(statistic)) for statistic in statistics]
        direction = grad
        for axis, inverse in enumerate(inverses):
            direction = along(np.real(scipy.linalg.sqrtm(inverse)), direction, axis)
        yield direction


def idealized_shampoo(leaf: Leaf, hyper: Hyper, refresh_every: int) -> Iterator[np.ndarray]:
    """Compute roots from the SVD of concatenated weighted gradients; a vector is a column."""
    w = leaf.start
    rows = len(w) if w.ndim else 1
    grads = [g.reshape(rows, -1) for g in leaf.grads]
    for t in range(1, len(grads) + 1):
        if (t - 1) % refresh_every == 0:
            share = weights(hyper["beta2"], t) / weights(hyper["beta2"], t).sum()
            pieces = [np.sqrt(a) * g for a, g in zip(share, grads[:t], strict=True)]
            # The root of the trace.
            size = np.linalg.norm(pieces)
            left = inverse_root_of_outer_products(pieces, hyper["epsilon"], 0.5)
            right = inverse_root_of_outer_products([piece.T for piece in pieces], hyper["epsilon"], 0.5)
        step = size * left @ grads[t - 1] @ right
        w = w - hyper["learning_rate"] * step.reshape(w.shape)
        yield w


def inverse_root_of_outer_products(matrices: list[np.ndarray], first: float, exponent: float) -> np.ndarray:
    """Return (first I + sum of M M^T)^(-exponent), by the pseudo-inverse if the matrix is singular."""
    side_by_side = np.concatenate(matrices, axis=1)
    u, s, _ = np.linalg.svd(side_by_side)
    values = np.zeros(len(u))
    values[: len(s)] = np.where(s > max(side_by_side.shape) * np.finfo(float).eps * s[0], s, 0) ** 2
    values += first
    inverse = np.power(values, -exponent, out=np.zeros_like(values), where=values > 0)
    return (u * inverse) @ u.T


SHAMPOO_ENTRY = Entry(
    loop=shampoo,
    hyper={"learning_rate": 0.3, "epsilon": 0.05},
    symmetry="sides",
    still={"epsilon": 0.0},
    scale_free={"epsilon": 0.0},
)

IDEALIZED_SHAMPOO_ENTRY = Entry(
    loop=idealized_shampoo,
    hyper={"learning_rate": 0.3, "beta2": 0.9, "epsilon": 0.05},
    symmetry="sides",
    still={"epsilon": 0.0},
    scale_free={"epsilon": 0.0},
)
ENTRIES = {
    "shampoo": SHAMPOO_ENTRY,
    "shampoo: running mean": replace(
        SHAMPOO_ENTRY,
        hyper={"learning_rate": 0.3, "epsilon": 0.05, "beta2": 0.9},
        options={"statistics": "ema"},
    ),
    "shampoo: KL": replace(
        SHAMPOO_ENTRY,
        hyper={"learning_rate": 0.3, "epsilon": 0.5, "beta2": 0.9},
        options={"statistics": "kl"},
        still={},
        scale_free=None,
        tolerance=1e-12,
    ),
    "shampoo: KL, roots every 3 steps": replace(
        SHAMPOO_ENTRY,
        hyper={"learning_rate": 0.3, "epsilon": 0.5, "beta2": 0.9},
        options={"statistics": "kl", "refresh_every": 3},
        still={},
        scale_free=None,
        tolerance=1e-12,
    ),
    "shampoo: another power, roots every 3 steps": replace(
        SHAMPOO_ENTRY, options={"power": 0.3, "refresh_every": 3}, scale_free=None
    ),
    "shampoo: blocks of 2, the length of SGD": replace(
        SHAMPOO_ENTRY, symmetry=None, options={"block_size": 2, "grafting": "sgd"}, scale_free=None
    ),
    "shampoo: the length of Adagrad": replace(
        SHAMPOO_ENTRY,
        hyper={
            "learning_rate": 0.3,
            "epsilon": 0.05,
            "grafting_epsilon": 0.02,
            "grafting_initial_accumulator": 0.3,
        },
        symmetry=None,
        options={"grafting": "adagrad"},
        still={"epsilon": 0.0, "grafting_epsilon": 0.0, "grafting_initial_accumulator": 0.0},
        scale_free={"epsilon": 0.0, "grafting_epsilon": 0.0, "grafting_initial_accumulator": 0.0},
    ),
    "shampoo: the length of Adam": replace(
        SHAMPOO_ENTRY,
        hyper={
            "learning_rate": 0.3,
            "epsilon": 0.05,
            "grafting_beta1": 0.8,
            "grafting_beta2": 0.95,
            "grafting_epsilon": 0.02,
        },
        symmetry=None,
        options={"grafting": "adam"},
        still={"epsilon": 0.0, "grafting_epsilon": 0.0},
        scale_free={"epsilon": 0.0, "grafting_epsilon": 0.0},
    ),
    "idealized_shampoo": IDEALIZED_SHAMPOO_ENTRY,
    "idealized_shampoo: roots every 3 steps": replace(
        IDEALIZED_SHAMPOO_ENTRY,
        hyper={"learning_rate": 0.3, "beta2": 0.9, "epsilon": 1.0},
        options={"refresh_every": 3},
        scale_free=None,
    ),
}
