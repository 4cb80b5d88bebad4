"""Spectral-factorized curvature: loops on whole matrices, and entries of the battery."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.families.adam import ADAMW
from tests.optimizers.families.muon import other_path
from tests.optimizers.loops import Hyper, Leaf, beside, weighted_sum, weights
from tests.optimizers.spectral_reference import Kronecker, Ways, full_step

Chosen = Mapping[str, Any]


@dataclass(frozen=True)
class Form:
    """Functions of a form of S that the plain loop needs.

    Args:
        begun: return S = I times a number.
        stepped: return S after a gradient.
        direction: return S^(-1/p) g.
        corrected: return S with more orthogonal bases.
    """

    begun: Callable[[float], Any]
    stepped: Callable[[Any, np.ndarray], Any]
    direction: Callable[[Any, np.ndarray], np.ndarray]
    corrected: Callable[[Any], Any]


def path(leaf: Leaf, hyper: Hyper, chosen: Chosen, form: Form) -> Iterator[np.ndarray]:
    """Compute the velocity as one sum over all directions."""
    w, rate, directions = leaf.start, hyper["learning_rate"], []
    momentum = hyper["momentum"] if chosen["velocity"] else 0.0
    square = float(np.mean(leaf.grads[0] ** 2)) or 1.0
    curvature = form.begun(square if chosen["start"] == "gradient" else 1.0)
    every = chosen.get("orthogonalize_every")
    for t, grad in enumerate(leaf.grads):
        if every is not None and t % every == 0:
            curvature = form.corrected(curvature)
        previous = curvature
        if t % chosen["refresh_every"] == 0:
            curvature = form.stepped(previous, grad)
        direction = form.direction(curvature if chosen["moves_with"] == "new" else previous, grad)
        if chosen["clipping"] is not None:
            size = float(np.sqrt(np.mean(direction**2)))
            direction = direction * min(1.0, chosen["clipping"] / (size or 1.0))
        directions.append(direction)
        velocity = weighted_sum(weights(momentum, len(directions)), directions)
        w = w - rate * hyper["weight_decay"] * w - rate * velocity
        yield w


def ways(hyper: Hyper, chosen: Chosen) -> Ways:
    return Ways(
        rate=hyper["curvature_rate"],
        gamma=hyper["gamma"],
        damping=hyper["damping"],
        rotation_rate=hyper.get("rotation_rate", 0.0),
        exponential=chosen["exponential"],
        cayley=chosen["cayley"],
        normalized=chosen["normalized"],
        tie_tolerance=chosen["tie_tolerance"],
    )


def corrected(basis: np.ndarray) -> np.ndarray:
    """Take one cubic Newton-Schulz iteration."""
    return 1.5 * basis - 0.5 * basis @ basis.T @ basis


def spectral(leaf: Leaf, hyper: Hyper, others: str, **chosen: Any) -> Iterator[np.ndarray]:
    """Compute the inverse root of the whole Kronecker product; another rule updates vectors."""
    if leaf.kind not in {"weight", "convolution", "head"}:
        yield from other_path(leaf, hyper, others)
        return
    shape, step = leaf.start.shape, ways(hyper, chosen)

    def direction(curvature: Kronecker, grad: np.ndarray) -> np.ndarray:
        return np.asarray((curvature.whole(-1 / chosen["power"]) @ grad.ravel()).reshape(shape))

    form = Form(
        begun=lambda scale: Kronecker(scale, [np.eye(n) for n in shape], [np.ones(n) for n in shape]),
        stepped=lambda curvature, grad: curvature.stepped(grad, step),
        direction=direction,
        corrected=lambda curvature: replace(curvature, bases=list(map(corrected, curvature.bases))),
    )
    yield from path(leaf, hyper, chosen, form)


def spectral_full(leaf: Leaf, hyper: Hyper, **chosen: Any) -> Iterator[np.ndarray]:
    step, size = ways(hyper, chosen), leaf.start.size
    form = Form(
        begun=lambda scale: (np.eye(size), np.full(size, scale)),
        stepped=lambda curvature, grad: full_step(curvature[0], curvature[1], np.outer(grad, grad), step),
        direction=lambda curvature, grad: (
            (curvature[0] * curvature[1] ** (-1 / chosen["power"])) @ curvature[0].T @ grad
        ),
        corrected=lambda curvature: (corrected(curvature[0]), curvature[1]),
    )
    yield from path(leaf, hyper, chosen, form)


def spectral_diagonal(leaf: Leaf, hyper: Hyper, **chosen: Any) -> Iterator[np.ndarray]:
    rate, gamma = hyper["curvature_rate"], hyper["gamma"]

    def stepped(values: np.ndarray, grad: np.ndarray) -> np.ndarray:
        curved = grad**2 + hyper["damping"]
        if chosen["exponential"] == "exact":
            return np.asarray(values * np.exp(rate * (curved / values - gamma)))
        return np.asarray((1 - rate * gamma) * values + rate * curved)

    form = Form(
        begun=lambda scale: np.full(leaf.start.shape, scale),
        stepped=stepped,
        direction=lambda values, grad: grad / values ** (1 / chosen["power"]),
        corrected=lambda values: values,
    )
    yield from path(leaf, hyper, chosen, form)


NUMBERS = {
    "learning_rate": 0.1,
    "curvature_rate": 0.2,
    "gamma": 0.7,
    "damping": 0.02,
    "momentum": 0.8,
    "weight_decay": 0.2,
}
NORMALIZED = {**NUMBERS, "rotation_rate": 0.3}
BESIDE_ADAMW = beside(ADAMW)
WITHOUT_MOMENTUM = {name: value for name, value in NORMALIZED.items() if name != "momentum"}
# Each option differs from its default in one of the two.
AS_PRINTED = {
    "power": 1.0,
    "exponential": "exact",
    "normalized": False,
    "tie_tolerance": 0.0,
    "start": "identity",
    "moves_with": "old",
}
TRUNCATED = {
    "power": 4.0,
    "cayley": "truncated",
    "refresh_every": 2,
    "clipping": 0.5,
    "orthogonalize_every": 3,
    "velocity": False,
}
OF_MATRICES = ("normalized", "tie_tolerance", "cayley", "orthogonalize_every")


def of_diagonals(options: Chosen) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in OF_MATRICES}


SPECTRAL_ENTRY = Entry(
    loop=spectral,
    hyper={**NORMALIZED, **BESIDE_ADAMW},
    still={"weight_decay": 0.0, "others_weight_decay": 0.0, "others_epsilon": 0.0},
    scale_free={"damping": 0.0, "others_epsilon": 0.0},
    tolerance=1e-10,
    tolerance_float32=1e-3,
)
SPECTRAL_FULL_ENTRY = Entry(
    loop=spectral_full, hyper=NORMALIZED, still={"weight_decay": 0.0}, tolerance=1e-7, tolerance_float32=1e-3
)
SPECTRAL_DIAGONAL_ENTRY = Entry(loop=spectral_diagonal, hyper=NUMBERS, still={"weight_decay": 0.0})
ENTRIES = {
    "spectral": SPECTRAL_ENTRY,
    "spectral: as printed": replace(
        SPECTRAL_ENTRY, hyper={**NUMBERS, **BESIDE_ADAMW}, options=AS_PRINTED, scale_free=None
    ),
    "spectral: truncated, p = 4, every 2 steps, others by SGD": replace(
        SPECTRAL_ENTRY,
        hyper={**WITHOUT_MOMENTUM, **beside({}, 3.0)},
        options={**TRUNCATED, "others": "sgd"},
        still={"weight_decay": 0.0},
        scale_free=None,
    ),
    "spectral_full": SPECTRAL_FULL_ENTRY,
    # If no near ties are excluded, they rotate far: at a curvature rate of 0.1, rounding grows tenfold per
    # step, on some processors beyond 1e-7; at 0.03, it stays at 1e-9.
    "spectral_full: as printed": replace(
        SPECTRAL_FULL_ENTRY,
        hyper={**NUMBERS, "curvature_rate": 0.03},
        options=AS_PRINTED,
        tolerance_float32=0.05,
    ),
    "spectral_full: truncated, p = 4, every 2 steps": replace(
        SPECTRAL_FULL_ENTRY,
        hyper={**WITHOUT_MOMENTUM, "rotation_rate": 1.0},
        options=TRUNCATED,
    ),
    "spectral_diagonal": SPECTRAL_DIAGONAL_ENTRY,
    "spectral_diagonal: as printed": replace(SPECTRAL_DIAGONAL_ENTRY, options=of_diagonals(AS_PRINTED)),
    "spectral_diagonal: p = 4, every 2 steps, without momentum": replace(
        SPECTRAL_DIAGONAL_ENTRY,
        hyper={name: value for name, value in NUMBERS.items() if name != "momentum"},
        options=of_diagonals(TRUNCATED),
    ),
}
