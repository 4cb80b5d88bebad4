"""Gauss-Newton and its relatives: loops and entries of the battery, whose residuals are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf

Needs = list[dict[str, dict[str, np.ndarray]]]


def solution(jacobian: np.ndarray, residuals: np.ndarray, damping: float) -> np.ndarray:
    """Return the solution of the damped problem, by a plain least squares problem with more rows."""
    size = jacobian.shape[1]
    matrix = np.vstack([jacobian, np.sqrt(damping) * np.eye(size)])
    right = np.append(residuals, np.zeros(size))
    return np.linalg.lstsq(matrix, right)[0]


def spring(leaf: Leaf, hyper: Hyper, needs: Needs) -> Iterator[np.ndarray]:
    """Minimize |J delta - r|^2 + lambda |delta - mu delta'|^2 by substitution."""
    w, step = leaf.start, np.zeros_like(leaf.start)
    for needed in needs:
        jacobian, residuals = needed["residuals"]["jacobian"], needed["residuals"]["residuals"]
        prior = hyper["momentum"] * step
        step = prior + solution(jacobian, residuals - jacobian @ prior, hyper["damping"])
        w = w - hyper["learning_rate"] * step
        yield w


def levenberg_marquardt(leaf: Leaf, hyper: Hyper, needs: Needs) -> Iterator[np.ndarray]:
    """Keep the last accepted point and its model, and decide at each evaluation with plain branches."""
    w, step, loss, predicted = leaf.start, np.zeros_like(leaf.start), np.inf, 0.0
    damping, growth = hyper["damping"], 2.0
    for needed in needs:
        jacobian, residuals = needed["residuals"]["jacobian"], needed["residuals"]["residuals"]
        value = np.sum(residuals**2) / 2
        if predicted > 0 and not value < loss:
            damping, growth, step, predicted = damping * growth, 2 * growth, np.zeros_like(w), 0.0
            yield w
            continue
        if predicted > 0:
            quality = (loss - value) / predicted
            damping, growth = damping * max(1 / 3, 1 - (2 * quality - 1) ** 3), 2.0
        w, loss = w - step, value
        step = hyper["learning_rate"] * solution(jacobian, residuals, damping)
        predicted = loss - np.sum((residuals - jacobian @ step) ** 2) / 2
        yield w


NUMBERS: dict[str, Any] = {"learning_rate": 0.7, "damping": 0.2, "momentum": 0.6}
ENTRIES = {
    "gauss_newton": Entry(loop=spring, hyper=NUMBERS, reads_gradient=False, spreads_nan=False),
    "spring": Entry(loop=spring, hyper=NUMBERS, reads_gradient=False, spreads_nan=False),
    "levenberg_marquardt": Entry(
        loop=levenberg_marquardt,
        hyper={"learning_rate": 0.7, "damping": 0.2},
        reads_gradient=False,
        spreads_nan=False,
    ),
}
