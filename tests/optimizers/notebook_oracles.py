"""SymO and the K-FAC of 004's figures on its teacher and student, written in NumPy from their sources alone.

Nothing here imports the project: network, gradients, factors and inverses are written anew, for two layers
without biases, from 004 (Secs. 3.4 and 4, Alg. 1, eqs. 192-194 and 202-206), from Martens and Grosse (2015),
and from what 004's public notebooks settle (K-FAC: second moments of the gradients of the mean loss; running
factors that start with the first value; lambda itself added to both factors).

x are the inputs (N, d0) and y the targets (N, d2). The network is W2 f(W1 x), with f the identity or tanh,
and the loss is the mean over points of |W2 f(W1 x) - y|^2 / 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

Weights = tuple[np.ndarray, np.ndarray]


class Pass(NamedTuple):
    """Forward and backward pass over all points."""

    hidden: np.ndarray  # f(W1 x), (N, d1)
    # Gradients of the mean loss with respect to the outputs of each layer, (N, d1) and (N, d2)
    deltas: tuple[np.ndarray, np.ndarray]
    gradients: Weights


def loss(weights: Weights, x: np.ndarray, y: np.ndarray, tanh: bool) -> float:
    """Return the mean over points of half the squared error."""
    hidden = x @ weights[0].T
    outputs = (np.tanh(hidden) if tanh else hidden) @ weights[1].T
    return float(np.sum((outputs - y) ** 2) / (2 * len(x)))


def backward(weights: Weights, x: np.ndarray, y: np.ndarray, tanh: bool) -> Pass:
    """Compute the gradients of the mean loss by the chain rule."""
    before = x @ weights[0].T
    hidden = np.tanh(before) if tanh else before
    second = (hidden @ weights[1].T - y) / len(x)
    first = second @ weights[1] * (1 - hidden**2 if tanh else 1)
    return Pass(hidden, (first, second), (first.T @ x, second.T @ hidden))


def kfac_of_notebooks(
    weights: Weights, x: np.ndarray, y: np.ndarray, tanh: bool, hyper: Mapping[str, float]
) -> Iterator[Weights]:
    """Yield the weights after each step of W <- W - alpha (G + lambda I)^-1 dW (A + lambda I)^-1."""
    running: list[np.ndarray] = []
    while True:
        seen = backward(weights, x, y, tanh)
        statistics = [
            moment
            for inputs, delta in zip((x, seen.hidden), seen.deltas, strict=True)
            for moment in (np.einsum("ni,nj->ij", inputs, inputs) / len(x), delta.T @ delta / len(x))
        ]
        kept = hyper["factor_decay"]
        running = [
            kept * old + (1 - kept) * new for old, new in zip(running or statistics, statistics, strict=True)
        ]
        moved = []
        for layer, (weight, gradient) in enumerate(zip(weights, seen.gradients, strict=True)):
            a, g = (factor + hyper["damping"] * np.eye(len(factor)) for factor in running[2 * layer :][:2])
            step = np.linalg.solve(g, np.linalg.solve(a, gradient.T).T)
            moved.append(weight - hyper["learning_rate"] * step)
        weights = (moved[0], moved[1])
        yield weights


def symo_of_algorithm_1(
    weights: Weights, x: np.ndarray, y: np.ndarray, tanh: bool, hyper: Mapping[str, float]
) -> Iterator[Weights]:
    """Yield the weights after each step of Algorithm 1: factors, surrogate, its inverse root, update.

    Eigenvalues of the surrogate up to the share `cutoff` of the largest count as 0. At step t, counted from
    0, the learning rate is alpha_0 beta^t.
    """
    inputs, hidden = x.shape[1], len(weights[0])
    outputs, kept, step = y.shape[1], hyper["factor_decay"], 0
    phi_1, phi_2 = np.zeros((inputs, inputs)), np.zeros((outputs, outputs))
    psi = np.zeros((inputs, outputs))
    while True:
        first, second = backward(weights, x, y, tanh).gradients
        phi_1 = kept * phi_1 + (1 - kept) * first.T @ first / hidden
        phi_2 = kept * phi_2 + (1 - kept) * second @ second.T / hidden
        psi = kept * psi + (1 - kept) * (second @ first).T / hidden
        surrogate = np.block([[phi_1, psi], [psi.T, phi_2]]) / (1 - kept ** (step + 1))
        values, vectors = np.linalg.eigh(surrogate)
        inside = values > hyper["cutoff"] * values[-1]
        root = (vectors[:, inside] / np.sqrt(values[inside])) @ vectors[:, inside].T
        rate = hyper["learning_rate"] * hyper["rate_decay"] ** step
        weights = (
            weights[0] - rate * (first @ root[:inputs, :inputs] + second.T @ root[inputs:, :inputs]),
            weights[1] - rate * (root[inputs:, :inputs] @ first.T + root[inputs:, inputs:] @ second),
        )
        step += 1
        yield weights


ORACLES: dict[str, Callable[..., Iterator[Weights]]] = {
    "kfac_as_004": kfac_of_notebooks,
    "symo": symo_of_algorithm_1,
}
