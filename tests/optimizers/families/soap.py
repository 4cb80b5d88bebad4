"""SOAP: loop, oracle and entries of the battery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf, weighted_sum, weights
from tests.optimizers.oracles import Oracle

SOAP = {
    "learning_rate": 0.1,
    "beta1": 0.8,
    "beta2": 0.9,
    "shampoo_beta": 0.7,
    "epsilon": 0.02,
    "weight_decay": 0.3,
}


def soap(
    leaf: Leaf, hyper: Hyper, refresh_every: int | None, basis: str, statistics: str, skip_first_step: bool
) -> Iterator[np.ndarray]:
    """Run SOAP with the first moment in original coordinates, and each statistic as one sum over all
    gradients. `seen` has the matrices M of which the statistic of an axis sums M M^T.
    """
    w, shape, rate = leaf.start, leaf.start.shape, hyper["learning_rate"]
    axes = [axis for axis in range(len(shape)) if shape[axis] > 1]
    axes = axes if len(axes) > 1 else []
    second, bases = np.zeros(shape), {axis: np.eye(shape[axis]) for axis in axes}

    def inside(tensor: np.ndarray) -> np.ndarray:
        for axis in axes:
            tensor = np.moveaxis(np.tensordot(bases[axis], tensor, axes=(0, axis)), 0, axis)
        return tensor

    def outside(tensor: np.ndarray) -> np.ndarray:
        for axis in axes:
            tensor = np.moveaxis(np.tensordot(bases[axis], tensor, axes=(1, axis)), 0, axis)
        return tensor

    seen: dict[int, list[np.ndarray]] = {axis: [] for axis in axes}
    beta = hyper["shampoo_beta"]

    def decomposed(t: int, axis: int) -> np.ndarray:
        """Return the left singular vectors of the concatenated weighted matrices."""
        share = (1 - beta) * weights(beta, t)
        pieces = [np.sqrt(a) * m for a, m in zip(share, seen[axis], strict=True)]
        return np.linalg.svd(np.concatenate(pieces, axis=1))[0]

    def statistic(axis: int) -> np.ndarray:
        zero = [np.zeros((shape[axis], shape[axis]))]
        share = (1 - beta) * weights(beta, len(seen[axis]) + 1)
        return weighted_sum(share, [*zero, *(m @ m.T for m in seen[axis])])

    def whitened(grad: np.ndarray, t: int, axis: int) -> np.ndarray:
        """Multiply by Q diag(Q^T S Q)^(-1/2) along other axes, where S starts at the identity."""
        for other in axes:
            if other != axis:
                q = bases[other]
                values = np.diag(q.T @ (statistic(other) + beta ** (t - 1) * np.eye(len(q))) @ q)
                grad = np.moveaxis(np.tensordot((q / np.sqrt(values)).T, grad, axes=(1, other)), 0, other)
        return grad / np.sqrt(grad.size / shape[axis])

    for t, grad in enumerate(leaf.grads, start=1):
        views = {axis: grad if statistics == "plain" else whitened(grad, t, axis) for axis in axes}
        for axis, view in views.items():
            seen[axis].append(np.moveaxis(view, axis, 0).reshape(shape[axis], -1))
        if t == 1:
            bases = {axis: decomposed(1, axis) for axis in axes}
        if t > 1 or not skip_first_step:
            begun = leaf.grads[1:t] if skip_first_step else leaf.grads[:t]
            first, number = weights(hyper["beta1"], len(begun)), len(begun)
            mean = inside(weighted_sum(first, begun) / first.sum())
            second = hyper["beta2"] * second + (1 - hyper["beta2"]) * inside(grad) ** 2
            scale = np.sqrt(second / (1 - hyper["beta2"] ** number)) + hyper["epsilon"]
            step = outside(np.divide(mean, scale, out=np.zeros(shape), where=scale > 0))
            w = (w - rate * step) * (1 - rate * hyper["weight_decay"])
        if refresh_every is not None and t > 1 and (t - 1) % refresh_every == 0:
            for axis in axes:
                if basis == "eigendecomposition":
                    bases[axis] = decomposed(t, axis)
                    continue
                product = statistic(axis) @ bases[axis]
                order = np.argsort(-np.sum(bases[axis] * product, axis=0), kind="stable")
                second = np.take(second, order, axis=axis)
                bases[axis] = np.linalg.qr(product[:, order])[0]
        yield w


def pytorch_optimizer_soap(**options: Any) -> Callable[[list[Any], Hyper], list[Any]]:
    """Return a constructor of pytorch_optimizer's SOAP.

    It adds epsilon before the correction of the second moment, so that epsilon must be 0. It rotates a matrix
    with a single row or column, which this project treats as a vector: max_precondition_dim 1 prevents that.
    """

    def make(tensors: list[Any], hyper: Hyper) -> list[Any]:
        import pytorch_optimizer

        flat = [tensor for tensor in tensors if sum(length > 1 for length in tensor.shape) < 2]
        rotated = [tensor for tensor in tensors if all(tensor is not vector for vector in flat)]
        groups: list[dict[str, Any]] = [{"params": rotated}, {"params": flat, "max_precondition_dim": 1}]
        return [
            pytorch_optimizer.SOAP(
                [group for group in groups if group["params"]],
                lr=hyper["learning_rate"],
                betas=(hyper["beta1"], hyper["beta2"]),
                shampoo_beta=hyper["shampoo_beta"],
                weight_decay=hyper["weight_decay"],
                eps=hyper["epsilon"],
                **options,
            )
        ]

    return make


@contextmanager
def qr_in_float64() -> Iterator[None]:
    """Keep pytorch_optimizer's SOAP from rounding to float32 before QR, inside the block."""
    import torch

    convert = torch.Tensor.to

    def to(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
        return tensor if arguments == (torch.float32,) else convert(tensor, *arguments, **keywords)

    with mock.patch.object(torch.Tensor, "to", to):
        yield


def oracle(**options: Any) -> Oracle:
    return Oracle(pytorch_optimizer_soap(**options), hyper={"epsilon": 0.0}, context=qr_in_float64)


# Without full rank of the first statistics, a rotation of the sides changes the path, so that there is no
# symmetry for all shapes. Without epsilon, entries that are only rounding of a singular statistic would move
# like all others (see test_soap.py).
SOAP_ENTRY = Entry(
    loop=soap,
    hyper=SOAP,
    still={"weight_decay": 0.0},
    pytorch=oracle(),
    tolerance=1e-12,
    tolerance_float32=1e-4,
)
ENTRIES = {
    "soap": SOAP_ENTRY,
    "soap: QR every 3 steps": replace(
        SOAP_ENTRY, options={"refresh_every": 3}, pytorch=oracle(precondition_frequency=3)
    ),
    "soap: KL, QR every 3 steps": replace(
        SOAP_ENTRY, options={"refresh_every": 3, "statistics": "kl"}, tolerance=1e-11, pytorch=None
    ),
    "soap: a decomposition at every step": replace(
        SOAP_ENTRY,
        options={"refresh_every": 1, "basis": "eigendecomposition"},
        tolerance=1e-11,
        tolerance_float32=1e-3,
        pytorch=None,
    ),
    "soap: the basis of its first gradient": replace(
        SOAP_ENTRY,
        options={"refresh_every": None, "skip_first_step": False},
        tolerance=1e-11,
        tolerance_float32=1e-3,
        pytorch=None,
    ),
}
