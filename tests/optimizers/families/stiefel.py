"""Manifold Muon: loop and entries of the battery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from scipy.linalg import null_space

from tests.optimizers.entry import Entry
from tests.optimizers.families.muon import POLYNOMIALS, other_path
from tests.optimizers.families.spheres import BESIDE
from tests.optimizers.loops import Hyper, Leaf

Polar = Callable[[np.ndarray], np.ndarray]


def polar_factor(orthogonalization: str, coefficients: str, steps: int) -> Polar:
    """Return a function that computes U p(S) V^T.

    Either p is 1 for singular values above rounding, or p applies the polynomials to normalized singular
    values.
    """

    def polar(matrix: np.ndarray) -> np.ndarray:
        u, s, vh = np.linalg.svd(matrix, full_matrices=False)
        if orthogonalization == "svd":
            return np.asarray((u * (s > max(matrix.shape) * np.finfo(float).eps * s[0])) @ vh)
        s = s / (np.linalg.norm(s) or 1.0)
        for step in range(steps):
            polynomial = POLYNOMIALS[coefficients][min(step, len(POLYNOMIALS[coefficients]) - 1)]
            s = np.sum([c * s ** (2 * k + 1) for k, c in enumerate(polynomial)], axis=0)
        return np.asarray((u * s) @ vh)

    return polar


def clipped(matrix: np.ndarray, polar: Polar) -> np.ndarray:
    """Return U min(S, 1) V^T, by min(S, 1) = (S + 1 - |S - 1|) / 2, with 1 and the sign from polar
    factors.
    """
    factor = polar(matrix)
    rest = matrix - factor
    return np.asarray((matrix + factor - factor @ polar(rest).T @ rest) / 2)


def tangential_direction(
    gradient: np.ndarray, w: np.ndarray, polar: Polar, steps: int, tolerance: float
) -> np.ndarray:
    """Return Z (002 eqs. 78-79), computed in the basis of the columns of W and a complement, where W is (I,
    0).

    There, a symmetric Lambda changes only the upper block, and a tangent Z has a skew upper block.
    """
    d = w.shape[1]
    basis = np.hstack([w, null_space(w.T)])
    t = basis.T @ gradient
    t[:d] = (t[:d] - t[:d].T) / 2
    length = np.linalg.norm(t)
    if length <= 8 * max(w.shape) * np.finfo(float).eps * np.linalg.norm(gradient):
        return np.zeros_like(w)
    t *= np.sqrt(d) / length
    z, y = polar(t), t
    for _ in range(steps):
        moved, gap = t.copy(), (y - z)[:d]
        moved[:d] += (gap + gap.T) / 2
        mixed = 1.6 * moved - 0.6 * y + z
        before, z = z, clipped(mixed, polar)
        y = mixed - z
        if max(np.linalg.norm(z[:d] + z[:d].T), np.linalg.norm(z - before)) <= tolerance:
            break
    return np.asarray(basis @ z)


def manifold_muon(
    leaf: Leaf,
    hyper: Hyper,
    orthogonalization: str,
    coefficients: str,
    steps: int,
    dual_steps: int,
    others: str,
) -> Iterator[np.ndarray]:
    if leaf.kind not in {"weight", "convolution", "head"}:
        yield from other_path(leaf, hyper, others)
        return
    polar = polar_factor(orthogonalization, coefficients, steps)
    start = leaf.start.reshape(len(leaf.start), -1)
    is_wide = start.shape[0] < start.shape[1]
    w = polar(start.T if is_wide else start)
    for g in leaf.grads:
        gradient = g.reshape(start.shape)
        z = tangential_direction(
            gradient.T if is_wide else gradient, w, polar, dual_steps, hyper["tangency_tolerance"]
        )
        w = polar(w - hyper["learning_rate"] * z)
        yield (w.T if is_wide else w).reshape(leaf.start.shape)


def on_the_manifold(value: np.ndarray) -> np.ndarray:
    """Return the polar factor of a matrix, or of a convolution as outputs x all other axes; vectors are
    unchanged.
    """
    if value.ndim < 2:
        return np.asarray(value)
    return polar_factor("svd", "", 0)(value.reshape(len(value), -1)).reshape(value.shape)


EXACT = Entry(
    loop=manifold_muon,
    hyper={"learning_rate": 0.3, "tangency_tolerance": 1e-3, **BESIDE["adamw"]},
    symmetry="sides",
    still={"others_weight_decay": 0.0, "others_epsilon": 0.0},
    still_tolerance=1e-14,
    start=on_the_manifold,
    scale_free={"others_epsilon": 0.0},
    tolerance=1e-12,
)
ENTRIES = {
    "manifold_muon": EXACT,
    "manifold_muon: 3 dual steps, others by SGD": replace(
        EXACT,
        hyper={"learning_rate": 0.3, "tangency_tolerance": 0.0, **BESIDE["sgd"]},
        options={"dual_steps": 3, "others": "sgd"},
        still={},
        scale_free=None,
    ),
    "manifold_muon: quintic iterations": replace(
        EXACT,
        options={
            "orthogonalization": "newton_schulz",
            "coefficients": "quintic",
            "steps": 6,
            "dual_steps": 1,
        },
    ),
}
