"""Muon: loops, oracles and entries of the battery."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from curvebench.optimizers.matrix_functions import COEFFICIENTS
from tests.optimizers.entry import Entry
from tests.optimizers.families.adam import ADAM, ADAMW, adamw, torch_adam
from tests.optimizers.families.gradient_descent import momentum, sgd
from tests.optimizers.loops import Hyper, Leaf, beside, others, weighted_sum, weights
from tests.optimizers.oracles import Oracle

MUON = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.2}
MUON_BESIDE_ADAMW = {**MUON, **beside(ADAMW)}

# The polynomials of 002 Q.3.1.
POLYNOMIALS = {
    "cubic": ((1.5, -0.5),),
    "quintic": ((1.875, -1.25, 0.375),),
    "jordan": ((3.4445, -4.7750, 2.0315),),
    # test_matrix_functions.py tests their effect on singular values
    "polar_express": COEFFICIENTS["polar_express"],
}


def muon(
    leaf: Leaf,
    hyper: Hyper,
    orthogonalization: str,
    coefficients: str,
    steps: int,
    newton_schulz_precision: str,
    nesterov: bool,
    scale: str,
    heads: str,
    others: str,
) -> Iterator[np.ndarray]:
    """Apply the polynomial to singular values; vectors, embeddings, norms and heads are updated by another
    rule.
    """
    assert newton_schulz_precision == "computed"  # test_precision.py tests the other value
    w, rate, mu = leaf.start, hyper["learning_rate"], hyper["momentum"]
    if leaf.kind not in {"weight", "convolution", *(["head"] if heads == "muon" else [])}:
        yield from other_path(leaf, hyper, others)
        return
    rows, columns = len(w), w[0].size
    factor = {
        "none": 1.0,
        "spectral": math.sqrt(max(1, rows / columns)),
        "adam": 0.2 * math.sqrt(max(rows, columns)),
    }[scale]
    for t in range(1, len(leaf.grads) + 1):
        direction = weighted_sum(weights(mu, t), leaf.grads[:t])
        if nesterov:
            direction = leaf.grads[t - 1] + mu * direction
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


def other_path(leaf: Leaf, hyper: Hyper, name: str) -> Iterator[np.ndarray]:
    """Return the path of a leaf that the fallback rule of this name updates."""
    rule = {"adamw": adamw, "adam": adamw, "momentum": momentum, "sgd": sgd}[name]
    return rule(leaf, others(hyper))


def torch_muon(adjust_lr_fn: str) -> Callable[[list[Any], Hyper], list[Any]]:
    """Return a constructor of PyTorch's Muon for matrices, with AdamW for vectors.

    Its momentum is a running mean, (1 - momentum) times ours, which the normalization cancels.
    """

    def make(tensors: list[Any], hyper: Hyper) -> list[Any]:
        import torch

        stepper = torch.optim.Muon(
            [tensor for tensor in tensors if tensor.ndim == 2],
            lr=hyper["learning_rate"],
            momentum=hyper["momentum"],
            weight_decay=hyper["weight_decay"],
            adjust_lr_fn=adjust_lr_fn,
        )
        rest = [tensor for tensor in tensors if tensor.ndim < 2]
        return [stepper, *(torch_adam(rest, others(hyper)) if rest else [])]

    return make


@contextmanager
def torch_without_bfloat16() -> Iterator[None]:
    """Keep torch.optim.Muon from rounding to bfloat16 before its iteration, the only difference."""
    import torch

    with mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone):
        yield


MUON_ENTRY = Entry(
    loop=muon,
    hyper=MUON_BESIDE_ADAMW,
    symmetry="sides",
    still={"weight_decay": 0.0, "others_weight_decay": 0.0, "others_epsilon": 0.0},
    scale_free={"others_epsilon": 0.0},
    pytorch=Oracle(torch_muon("original"), orders=(0, 1, 2), context=torch_without_bfloat16),
)
ENTRIES = {
    "muon": MUON_ENTRY,
    "muon: scaled like Adam": replace(
        MUON_ENTRY,
        options={"scale": "adam"},
        pytorch=Oracle(torch_muon("match_rms_adamw"), orders=(0, 1, 2), context=torch_without_bfloat16),
    ),
    "muon: without Nesterov": replace(MUON_ENTRY, options={"nesterov": False}, pytorch=None),
    "muon: heads too, others by SGD": replace(
        MUON_ENTRY,
        hyper={**MUON, **beside({}, 6.0)},
        options={"heads": "muon", "others": "sgd"},
        shapes={"hidden": (4, 3), "head": (2, 4), "vector": (4,)},
        kinds={"head": "head"},
        still={"weight_decay": 0.0},
        scale_free=None,
        pytorch=None,
    ),
    "muon: exact, unscaled, others by SGD": replace(
        MUON_ENTRY,
        hyper={**MUON, **beside({}, 6.0)},
        options={"orthogonalization": "svd", "scale": "none", "others": "sgd"},
        still={"weight_decay": 0.0},
        scale_free=None,
        pytorch=None,
    ),
    "muon: 8 steps of Polar Express, others by momentum": replace(
        MUON_ENTRY,
        hyper={**MUON, **beside({"momentum": 0.7}, 4.0)},
        options={"coefficients": "polar_express", "steps": 8, "others": "momentum"},
        still={"weight_decay": 0.0},
        scale_free=None,
        pytorch=None,
    ),
    "muon: 3 cubic steps, others by Adam": replace(
        MUON_ENTRY,
        hyper={**MUON, **beside(ADAM)},
        options={"coefficients": "cubic", "steps": 3, "others": "adam"},
        still={"weight_decay": 0.0, "others_epsilon": 0.0},
        pytorch=None,
    ),
}
