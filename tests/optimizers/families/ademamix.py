"""AdEMAMix: loop, oracles and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.families.adam import ADAMW, given, moments, over
from tests.optimizers.loops import Hyper, Leaf, weighted_sum, weights
from tests.optimizers.oracles import Oracle


def warmed_up(hyper: Hyper, t: int) -> tuple[float, float]:
    """Return alpha and beta3 at step t by the formulas of Pagliardini et al. (2024), Sec. 3."""
    if t >= hyper["warmup"]:
        return hyper["alpha"], hyper["beta3"]
    done, first, last = t / hyper["warmup"], np.log(hyper["beta1"]), np.log(hyper["beta3"])
    return done * hyper["alpha"], float(np.exp(first * last / ((1 - done) * last + done * first)))


def ademamix(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    """Compute each running mean as a weighted sum of all gradients so far."""
    w, rate, slow_factors = leaf.start, hyper["learning_rate"], np.zeros(0)
    for t in range(1, len(leaf.grads) + 1):
        alpha, beta3 = warmed_up(hyper, t)
        slow_factors = np.append(beta3 * slow_factors, 1 - beta3)
        first, second = (weights(hyper[name], t) for name in ("beta1", "beta2"))
        mean = weighted_sum(first / first.sum(), leaf.grads[:t])
        mean = mean + alpha * weighted_sum(slow_factors, leaf.grads[:t])
        square = weighted_sum(second / second.sum(), [g**2 for g in leaf.grads[:t]])
        direction = over(mean, np.sqrt(square) + hyper["epsilon"])
        w = w - rate * (direction + hyper["weight_decay"] * w)
        yield w


def torch_ademamix(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """Return the AdEMAMix of pytorch_optimizer, which has one length of both warm-ups."""
    import pytorch_optimizer

    arguments = given(hyper) | {"betas": (hyper["beta1"], hyper["beta2"], hyper["beta3"])}
    schedule = {"alpha": hyper["alpha"], "t_alpha_beta3": hyper["warmup"], "foreach": False}
    return [pytorch_optimizer.AdEMAMix(tensors, **arguments, **schedule, weight_decouple=True)]


def optax_ademamix(hyper: Hyper) -> Any:
    """Return Optax's AdEMAMix, whose schedules are functions of the number of earlier steps."""
    from optax import contrib

    return contrib.ademamix(
        hyper["learning_rate"],
        **moments(hyper),
        b3=lambda count: warmed_up(hyper, int(count) + 1)[1],
        alpha=lambda count: warmed_up(hyper, int(count) + 1)[0],
        eps=hyper["epsilon"],
        weight_decay=hyper["weight_decay"],
    )


ENTRY = Entry(
    loop=ademamix,
    hyper={**ADAMW, "beta3": 0.98, "alpha": 2.0, "warmup": 5.0},
    symmetry="signed_permutation",
    still={"epsilon": 0.0, "weight_decay": 0.0},
    scale_free={"epsilon": 0.0},
    pytorch=Oracle(torch_ademamix),
    optax=Oracle(optax_ademamix),
)
ENTRIES = {"ademamix": ENTRY}
