"""K-FAC: loop and entries of the battery, whose layer statistics are given like its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.families.adam import ADAMW
from tests.optimizers.families.muon import other_path
from tests.optimizers.loops import Hyper, Leaf, beside
from tests.optimizers.oracles import Arrays

NETWORK = {"W1": (3, 4), "b1": (3,), "kernel": (2, 3, 2, 1), "scale": (3,)}
KINDS = {"W1": "weight", "b1": "bias", "kernel": "convolution", "scale": "norm"}
LAYERS = {"W1": "b1", "kernel": None}


def inverse(matrix: np.ndarray, damping: float) -> np.ndarray:
    """Return the damped inverse by eigenvectors."""
    values, vectors = np.linalg.eigh(matrix)
    result: np.ndarray = (vectors / (values + damping)) @ vectors.T
    return result


def kfac(
    balanced: bool,
    params: Arrays,
    grads: list[Arrays],
    hyper: Hyper,
    needs: list[dict[str, Any]],
    fisher: str,
    first_factors: str,
    factors_every: int,
    inverses_every: int,
    others: str,
) -> Iterator[Arrays]:
    """Compute running means as weighted sums of all statistics so far; another rule updates `scale`."""
    leaf = Leaf("norm", params["scale"], [grad["scale"] for grad in grads])
    others_path = other_path(leaf, hyper, others)
    point = {name: value.copy() for name, value in params.items()}
    stats: dict[str, list[list[np.ndarray]]] = {name: [[], []] for name in LAYERS}
    inverses: dict[str, list[np.ndarray]] = {}
    velocity = dict.fromkeys(LAYERS, np.zeros(()))
    rate = hyper["learning_rate"]
    for step, grad in enumerate(grads):
        natural = {}
        for name, bias in LAYERS.items():
            if step % factors_every == 0:
                stats[name][0].append(needs[step]["layers"][name]["inputs"])
                stats[name][1].append(needs[step]["layers"][name]["gradients"])
            if step % inverses_every == 0:
                ages = np.arange(len(stats[name][0]))[::-1]
                weights = hyper["factor_decay"] ** ages
                if first_factors == "kept":  # the first value has the weight of all that would precede it
                    weights[0] /= 1 - hyper["factor_decay"]
                means = [np.average(stat, axis=0, weights=weights) for stat in stats[name]]
                root = np.sqrt(hyper["damping"])
                pi = np.sqrt(np.mean(np.diag(means[0])) / np.mean(np.diag(means[1])))
                added = (pi * root, root / pi) if balanced else (hyper["damping"],) * 2
                inverses[name] = [inverse(*stat) for stat in zip(means, added, strict=True)]
            joined = grad[name].reshape(len(grad[name]), -1)
            if bias:
                joined = np.column_stack([joined, grad[bias]])
            natural[name] = inverses[name][1] @ joined @ inverses[name][0]
        for name, bias in LAYERS.items():
            velocity[name] = hyper["momentum"] * velocity[name] + natural[name]
            columns = point[name][0].size
            decay = 1 - rate * hyper["weight_decay"]
            moved = rate * velocity[name]
            point[name] = decay * point[name] - moved[:, :columns].reshape(point[name].shape)
            if bias:
                point[bias] = decay * point[bias] - moved[:, -1]
        point["scale"] = next(others_path)
        yield dict(point)


HYPER = {
    "learning_rate": 0.3,
    "damping": 0.02,
    "factor_decay": 0.8,
    "momentum": 0.7,
    "weight_decay": 0.1,
    **beside(ADAMW),
}
BESIDE_MOMENTUM = {name: value for name, value in HYPER.items() if not name.startswith("others_")} | beside(
    {"momentum": 0.8}, 0.2
)
STILL = {"weight_decay": 0.0, "others_weight_decay": 0.0, "others_epsilon": 0.0}


def entry(balanced: bool, hyper: Hyper = HYPER, still: Hyper = STILL, **options: object) -> Entry:
    loop = partial(kfac, balanced)
    return Entry(loop=loop, hyper=hyper, options=options, shapes=NETWORK, kinds=KINDS, still=still)


MORE = {"factors_every": 2, "inverses_every": 3, "others": "momentum"}
ENTRIES = {
    "kfac": entry(True),
    "kfac: empirical": entry(True, fisher="empirical"),
    "kfac: kept": entry(True, first_factors="kept"),
    "kfac: now and then": entry(True, BESIDE_MOMENTUM, {"weight_decay": 0.0}, **MORE),
    "kfac_as_004": entry(False),
    "kfac_as_004: other choices": entry(
        False,
        BESIDE_MOMENTUM,
        {"weight_decay": 0.0},
        fisher="expected",
        first_factors="corrected",
        **MORE,
    ),
}
