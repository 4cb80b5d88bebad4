"""Paths of weights that the project's update rules produce for a given sequence of gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import curvebench


def path(
    optimizer: str,
    start: np.ndarray,
    gradients: Sequence[np.ndarray | Callable[[np.ndarray], np.ndarray]],
    hyper: Mapping[str, float],
    options: Mapping[str, Any] | None = None,
    schedule: Sequence[float] | np.ndarray | None = None,
    basis: np.ndarray | None = None,
) -> np.ndarray:
    """Return the weights w_1 ... w_(T+1) of a rule for T gradients, shape (T + 1, ...).

    Args:
        optimizer, hyper, options: name of the rule, its hyperparameters and options.
        basis: orthogonal matrix V by which the vector of all weights is rotated; None for no change of basis.
        start: w_1, a vector or a matrix.
        gradients: for each step a gradient, or a function that returns the gradient at given weights.
        schedule: factor of the learning rate at each step, (T,); None for a constant rate.
    """
    online = curvebench.Online(optimizer, {"w": start}, hyper, options=options, basis=basis)
    weights = [start]
    for gradient, factor in zip(
        gradients, np.ones(len(gradients)) if schedule is None else schedule, strict=True
    ):
        given = gradient(weights[-1]) if callable(gradient) else gradient
        weights.append(online.step({"w": given}, float(factor))["w"])
    return np.array(weights)


def stepped(optimizer: str, *given: Any, **named: Any) -> np.ndarray:
    """Return the weights after the last step of `path`, which takes the same arguments."""
    return np.asarray(path(optimizer, *given, **named)[-1])


def moves(
    optimizer: str,
    gradients: np.ndarray,
    hyper: Mapping[str, float],
    options: Mapping[str, Any] | None = None,
) -> np.ndarray:
    """Return the updates w_(t+1) - w_t of a rule, (T, ...), for weights that start at 0 and learning rate 1.

    Args:
        optimizer, hyper, options: name of the rule, its hyperparameters and options.
        gradients: gradient of each step, (T, ...).
    """
    start = np.zeros(gradients.shape[1:])
    return np.diff(path(optimizer, start, list(gradients), {"learning_rate": 1.0, **hyper}, options), axis=0)
