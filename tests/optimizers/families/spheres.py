"""Optimization on spheres: loops, oracles and entries of the battery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.families.adam import ADAM, ADAMW, torch_adam
from tests.optimizers.families.muon import other_path
from tests.optimizers.loops import Hyper, Leaf, beside, others
from tests.optimizers.oracles import Oracle

# `step(w, g, radius, learning rate)` returns the vector after the step.
Step = Callable[[np.ndarray, np.ndarray, float, float], np.ndarray]
BESIDE = {
    "adamw": beside(ADAMW),
    "adam": beside(ADAM),
    "momentum": beside({"momentum": 0.7}),
    "sgd": beside({}),
}


def vectors(leaf: Leaf) -> list[Leaf] | None:
    """Return the leaf's weight vectors; None if it has none."""
    if leaf.kind == "vector" and leaf.start.ndim == 1:
        return [leaf]
    if leaf.kind not in {"weight", "convolution", "embedding", "head"}:
        return None
    return [
        Leaf("vector", row.ravel(), [g[k].ravel() for g in leaf.grads]) for k, row in enumerate(leaf.start)
    ]


def of_vectors(path: Callable[..., Iterator[np.ndarray]]) -> Callable[..., Iterator[np.ndarray]]:
    """Turn a loop on a vector into a loop on a leaf; `others` is the rule for leaves without vectors."""

    def loop(leaf: Leaf, hyper: Hyper, others: str, **options: Any) -> Iterator[np.ndarray]:
        parts = vectors(leaf)
        if parts is None:
            yield from other_path(leaf, hyper, others)
            return
        for rows in zip(*(path(vector, hyper["learning_rate"], **options) for vector in parts), strict=True):
            yield np.concatenate(rows).reshape(leaf.start.shape)

    return loop


def projection(w: np.ndarray) -> np.ndarray:
    """Return I - w w^T / r^2 (002 eq. 71)."""
    return np.asarray(np.eye(len(w)) - np.outer(w, w) / (w @ w))


@of_vectors
def pin_to_sphere(vector: Leaf, rate: float) -> Iterator[np.ndarray]:
    """Compute 002 eq. 70."""
    w, r = vector.start, np.linalg.norm(vector.start)
    for g in vector.grads:
        w = r / np.linalg.norm(w - rate * g) * (w - rate * g)
        yield w


@of_vectors
def riemannian_sgd(vector: Leaf, rate: float) -> Iterator[np.ndarray]:
    """Compute 002 eq. 72, with its own normalization."""
    w, r = vector.start, np.linalg.norm(vector.start)
    for g in vector.grads:
        tangent = projection(w) @ g
        w = r / np.sqrt(r**2 + rate**2 * (tangent @ tangent)) * (w - rate * tangent)
        yield w


def steepest(norm: str, g: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the steepest tangential direction (002 eq. 73) among all candidates; 0 for single numbers.

    A vertex of the l1 ball's section has two nonzero entries. A vertex of the cube's section has all entries
    but one at +-1 (w has no zeros).
    """
    if len(w) == 1:
        return np.zeros(1)
    if norm == "l2":
        tangent = projection(w) @ g
        return np.asarray(tangent / np.linalg.norm(tangent))
    candidates = []
    if norm == "l1":
        for i, j in combinations(range(len(w)), 2):
            z = np.zeros(len(w))
            z[i], z[j] = w[j], -w[i]
            candidates += [z / np.abs(z).sum(), -z / np.abs(z).sum()]
    else:
        for k in range(len(w)):
            z = np.sign(g - g[k] / w[k] * w)
            z[k] = 0.0
            z[k] = -(w @ z) / w[k]
            candidates += [z] if abs(z[k]) <= 1 else []
    return max(candidates, key=lambda z: float(z @ g))


@of_vectors
def trust_region_sphere(vector: Leaf, rate: float, norm: str) -> Iterator[np.ndarray]:
    w, r = vector.start, np.linalg.norm(vector.start)
    for g in vector.grads:
        moved = w - rate * steepest(norm, g, w)
        w = r * moved / np.linalg.norm(moved)
        yield w


@of_vectors
def weight_normalization(vector: Leaf, rate: float, scale: str) -> Iterator[np.ndarray]:
    """Compute the gradients of w = s v / |v| by the explicit Jacobian (002 eq. 74)."""
    v, s = vector.start, np.linalg.norm(vector.start)
    for g in vector.grads:
        unit = v / np.linalg.norm(v)
        jacobian = s / np.linalg.norm(v) * projection(v)
        v, s = v - rate * jacobian.T @ g, s - rate * (g @ unit) * (scale == "free")
        yield s * v / np.linalg.norm(v)


def torch_weight_norm(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """Return SGD with `torch.nn.utils.parametrizations.weight_norm`, whose dimension 0 counts vectors."""
    import torch

    class Normalized:
        """One parameter; a vector is the single row of a matrix."""

        def __init__(self, tensor: Any) -> None:
            module = torch.nn.Module()
            rows = tensor[None] if tensor.ndim == 1 else tensor
            module.weight = torch.nn.Parameter(rows.clone())
            self.module = torch.nn.utils.parametrizations.weight_norm(module, dim=0)
            self.stepper = torch.optim.SGD(self.module.parameters(), lr=hyper["learning_rate"])
            self.tensor = tensor

        def step(self) -> None:
            self.stepper.zero_grad()
            self.module.weight.backward(self.tensor.grad.reshape(self.module.weight.shape))
            self.stepper.step()
            self.tensor.copy_(self.module.weight.detach().reshape(self.tensor.shape))

    numbers = [tensor for tensor in tensors if tensor.ndim == 0]
    beside = torch_adam(numbers, others(hyper)) if numbers else []
    return [*(Normalized(tensor) for tensor in tensors if tensor.ndim > 0), *beside]


STILL = {"others_weight_decay": 0.0, "others_epsilon": 0.0}
PIN = Entry(
    loop=pin_to_sphere, hyper={"learning_rate": 0.3, **BESIDE["adamw"]}, still=STILL, still_tolerance=1e-14
)
RIEMANNIAN = replace(PIN, loop=riemannian_sgd)
TRUST_REGION = replace(PIN, loop=trust_region_sphere)
WEIGHT_NORMALIZATION = replace(PIN, loop=weight_normalization, pytorch=Oracle(torch_weight_norm))
BESIDE_SGD = {"learning_rate": 0.2, **BESIDE["sgd"]}
BESIDE_MOMENTUM = {"learning_rate": 0.2, **BESIDE["momentum"]}
BESIDE_ADAM = {"learning_rate": 0.2, **BESIDE["adam"]}

ENTRIES = {
    "pin_to_sphere": PIN,
    "pin_to_sphere: others by SGD": replace(PIN, hyper=BESIDE_SGD, options={"others": "sgd"}, still={}),
    "riemannian_sgd": RIEMANNIAN,
    "riemannian_sgd: others by momentum": replace(
        RIEMANNIAN, hyper=BESIDE_MOMENTUM, options={"others": "momentum"}, still={}
    ),
    "trust_region_sphere": TRUST_REGION,
    "trust_region_sphere: l1, others by SGD": replace(
        TRUST_REGION, hyper=BESIDE_SGD, options={"norm": "l1", "others": "sgd"}, still={}
    ),
    "trust_region_sphere: l infinity, others by SGD": replace(
        TRUST_REGION, hyper=BESIDE_SGD, options={"norm": "linfinity", "others": "sgd"}, still={}
    ),
    "weight_normalization": WEIGHT_NORMALIZATION,
    "weight_normalization: frozen scale, others by Adam": replace(
        WEIGHT_NORMALIZATION,
        hyper=BESIDE_ADAM,
        options={"scale": "frozen", "others": "adam"},
        still={"others_epsilon": 0.0},
        pytorch=None,
    ),
}
