"""Muon: loops, oracles and entries of the battery."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from curvebench.optimizers.matrix_functions import COEFFICIENTS
from curvebench.optimizers.muon import NANOGPT
from tests.optimizers.entry import Entry
from tests.optimizers.families.adam import ADAM, ADAMW, adamw, torch_adam
from tests.optimizers.families.gradient_descent import momentum, sgd
from tests.optimizers.loops import Hyper, Leaf, beside, others, weighted_sum, weights
from tests.optimizers.oracles import Oracle

MUON = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.2}
SECOND = {"beta2": 0.7, "epsilon": 1e-3}
# The libraries add epsilon to the norm of the step as well.
NEGLIGIBLE = {"epsilon": 1e-15}
MUON_BESIDE_ADAMW = {**MUON, **beside(ADAMW)}

# The polynomials of 002 Q.3.1.
POLYNOMIALS = {
    "cubic": ((1.5, -0.5),),
    "quintic": ((1.875, -1.25, 0.375),),
    "jordan": ((3.4445, -4.7750, 2.0315),),
    # test_matrix_functions.py tests their effect on singular values
    "polar_express": COEFFICIENTS["polar_express"],
    "nanogpt": NANOGPT,
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
    second_moment: str,
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

    def polar(matrix: np.ndarray) -> np.ndarray:
        u, s, vh = np.linalg.svd(matrix, full_matrices=False)
        if orthogonalization == "svd":
            s = (s > max(rows, columns) * np.finfo(float).eps * s[0]).astype(float)
        else:
            s = s / (np.linalg.norm(s) or 1.0)
            for step in range(steps):
                polynomial = POLYNOMIALS[coefficients][min(step, len(POLYNOMIALS[coefficients]) - 1)]
                s = np.sum([c * s ** (2 * k + 1) for k, c in enumerate(polynomial)], axis=0)
        return np.asarray((u * s) @ vh)

    squares: list[np.ndarray] = []
    for t in range(1, len(leaf.grads) + 1):
        direction = weighted_sum(weights(mu, t), leaf.grads[:t])
        if nesterov:
            direction = leaf.grads[t - 1] + mu * direction
        matrix = direction.reshape(rows, columns)
        if second_moment == "none":
            o = polar(matrix)
        elif second_moment == "gradient":
            squares.append(leaf.grads[t - 1].reshape(rows, columns) ** 2)
            o = polar(matrix / root_mean(squares, hyper))
        else:
            o = polar(matrix)
            squares.append((o**2).mean(1, keepdims=True) if second_moment == "rows" else o**2)
            divided = o / root_mean(squares, hyper)
            o = divided / (np.linalg.norm(divided) or 1.0) * np.linalg.norm(o)
        w = w - rate * hyper["weight_decay"] * w - rate * factor * o.reshape(w.shape)
        yield w


def root_mean(squares: list[np.ndarray], hyper: Hyper) -> np.ndarray:
    """Return the root of the running mean of squares, plus epsilon, or infinity where it is 0."""
    mean = (1 - hyper["beta2"]) * weighted_sum(weights(hyper["beta2"], len(squares)), squares)
    root = np.sqrt(mean) + hyper["epsilon"]
    return np.asarray(np.where(root == 0, np.inf, root))


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


def torch_normuon(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """Return NorMuon of pytorch_optimizer, whose momentum is a running mean."""
    import pytorch_optimizer

    group = {"params": tensors, "use_muon": True, "eps": hyper["epsilon"]}
    names = ("momentum", "weight_decay", "beta2")
    numbers = {name: hyper[name] for name in names}
    return [pytorch_optimizer.NorMuon([group], lr=hyper["learning_rate"], foreach=False, **numbers)]


def torch_adamuon(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """Return AdaMuon of pytorch_optimizer, without the sign of the paper; the decay rates are two."""
    import pytorch_optimizer

    group = {"params": tensors, "use_muon": True}
    betas = hyper["momentum"], hyper["beta2"]
    numbers = {"eps": hyper["epsilon"], "weight_decay": hyper["weight_decay"]}
    schedule = {"ns_steps": 8, "ns_coeffs": list(COEFFICIENTS["polar_express"])}
    return [pytorch_optimizer.AdaMuon([group], lr=hyper["learning_rate"], betas=betas, **numbers, **schedule)]


@contextmanager
def pytorch_optimizer_in_float64() -> Iterator[None]:
    """Keep pytorch_optimizer from iterating in bfloat16."""
    import torch
    from pytorch_optimizer.optimizer import scion
    from pytorch_optimizer.optimizer.muon import adamuon, base, normuon

    name = "zero_power_via_newton_schulz_5"
    with ExitStack() as patches:
        for module in (adamuon, base, normuon, scion):
            if hasattr(module, name):
                iteration = partial(getattr(module, name), dtype=torch.float64)
                patches.enter_context(mock.patch.object(module, name, iteration))
        yield


def optax_muon(hyper: Hyper) -> Any:
    """Return Optax's Muon with Moonlight's scale; its first axis counts inputs, unlike ours."""
    import optax

    return optax.contrib.muon(
        hyper["learning_rate"],
        ns_coeffs="dion",
        beta=hyper["momentum"],
        eps=0.0,
        weight_decay=hyper["weight_decay"],
        nesterov=False,
        consistent_rms=0.2,
        muon_weight_dimension_numbers=optax.contrib.MuonDimensionNumbers(1, 0),
    )


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
    "muon: Moonlight's scale, 5 quintics, without Nesterov": replace(
        MUON_ENTRY,
        options={"scale": "adam", "coefficients": "nanogpt", "nesterov": False},
        pytorch=None,
        optax=Oracle(optax_muon, orders=(2,)),
    ),
    "muon: second moment of rows": replace(
        MUON_ENTRY,
        hyper={**MUON_BESIDE_ADAMW, **SECOND},
        options={"second_moment": "rows"},
        symmetry=None,
        pytorch=Oracle(torch_normuon, NEGLIGIBLE, (2,), pytorch_optimizer_in_float64),
    ),
    "muon: second moment of entries": replace(
        MUON_ENTRY,
        hyper={**MUON_BESIDE_ADAMW, **SECOND},
        options={
            "second_moment": "entries",
            "scale": "adam",
            "nesterov": False,
            "coefficients": "polar_express",
            "steps": 8,
        },
        symmetry=None,
        pytorch=Oracle(torch_adamuon, NEGLIGIBLE, (2,), pytorch_optimizer_in_float64),
    ),
    "muon: second moment of the gradient": replace(
        MUON_ENTRY,
        hyper={**MUON_BESIDE_ADAMW, **SECOND},
        options={"second_moment": "gradient"},
        scale_free={"others_epsilon": 0.0, "epsilon": 0.0},
        symmetry=None,
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
