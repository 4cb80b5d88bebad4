"""Adam and its relatives: loops, oracles and entries of the battery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf, weighted_sum, weights
from tests.optimizers.oracles import Oracle


def over(mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the quotient, or 0 where the scale is 0."""
    return np.divide(mean, scale, out=np.zeros_like(mean), where=scale > 0)


def adamw(
    leaf: Leaf,
    hyper: Hyper,
    amsgrad: bool | str = False,
    nesterov: bool = False,
    epsilon_inside_root: bool = False,
    decoupled_weight_decay: bool = False,
) -> Iterator[np.ndarray]:
    """Compute 002 Fig. 1 with running means as weighted means of all gradients so far."""
    w, rate, epsilon = leaf.start, hyper["learning_rate"], hyper["epsilon"]
    means, sums = [], []  # means and sums of squares after each step
    for t in range(1, len(leaf.grads) + 1):
        first, second = weights(hyper["beta1"], t), weights(hyper["beta2"], t)
        mean = weighted_sum(first, leaf.grads[:t]) / first.sum()
        if nesterov:
            next_first = weights(hyper["beta1"], t + 1)
            mean = weighted_sum(next_first[:-1], leaf.grads[:t]) / next_first.sum()
            mean = mean + leaf.grads[t - 1] / first.sum()
        sums.append(weighted_sum(second, [g**2 for g in leaf.grads[:t]]))
        means.append(sums[-1] / second.sum())
        square = means[-1]
        if amsgrad is True:
            square = np.max(means, axis=0)
        elif amsgrad == "before_correction":
            square = np.max(sums, axis=0) / second.sum()
        scale = np.sqrt(square + epsilon) if epsilon_inside_root else np.sqrt(square) + epsilon
        w = w - (1.0 if decoupled_weight_decay else rate) * hyper.get("weight_decay", 0.0) * w
        w = w - rate * over(mean, scale)
        yield w


def rmsprop(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    """Compute 002 eq. 45: the weights of the gradients add up to 1 - beta^t, without correction."""
    w = leaf.start
    for t in range(1, len(leaf.grads) + 1):
        first = (1 - hyper["beta1"]) * weights(hyper["beta1"], t)
        second = (1 - hyper["beta2"]) * weights(hyper["beta2"], t)
        square = weighted_sum(second, [g**2 for g in leaf.grads[:t]])
        mean = weighted_sum(first, leaf.grads[:t])
        w = w - hyper["learning_rate"] * over(mean, np.sqrt(square) + hyper["epsilon"])
        yield w


def adam_atan2(leaf: Leaf, hyper: Hyper) -> Iterator[np.ndarray]:
    """Compute 002 Sec. 4.1.2, the arctangent of Adam's direction without epsilon."""
    sign = {"learning_rate": 1.0, "epsilon": 0.0, "beta1": hyper["beta1"], "beta2": hyper["beta2"]}
    path = [leaf.start, *adamw(leaf, sign)]
    w = leaf.start
    for before, after in pairwise(path):
        angle = np.arctan((before - after) / hyper["b"])
        w = w - hyper["learning_rate"] * hyper["a"] * angle
        yield w


def given(hyper: Hyper) -> dict[str, Any]:
    """Return the arguments of PyTorch's relatives of Adam."""
    names = {"learning_rate": "lr", "epsilon": "eps", "weight_decay": "weight_decay"}
    numbers = {names[name]: value for name, value in hyper.items() if name in names}
    return {**numbers, "betas": (hyper["beta1"], hyper["beta2"])}


def torch_adam(tensors: list[Any], hyper: Hyper, **options: bool) -> list[Any]:
    """Return PyTorch's Adam, or AdamW if there is a decay."""
    import torch

    cls = torch.optim.AdamW if "weight_decay" in hyper else torch.optim.Adam
    return [cls(tensors, **given(hyper), **options)]


def torch_amsgrad(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """Return PyTorch's AMSGrad, which takes the maximum before bias correction."""
    return torch_adam(tensors, hyper, amsgrad=True)


def torch_nadam(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """Return PyTorch's NAdam with a large momentum_decay.

    Its momentum at step t is beta1 (1 - 0.96^(t momentum_decay) / 2), which is beta1 only for a large decay.
    With momentum_decay = 0, it would be beta1 / 2 in the update and beta1 in the running mean, which differs
    from Fig. 1. Products of the momentum are stored in float32, where those of 3/4 are exact.
    """
    import torch

    return [torch.optim.NAdam(tensors, momentum_decay=1e6, **given(hyper))]


def torch_rmsprop(tensors: list[Any], hyper: Hyper) -> list[Any]:
    """Return PyTorch's RMSprop without momentum, which would apply to the quotient."""
    import torch

    rate, decay, epsilon = hyper["learning_rate"], hyper["beta2"], hyper["epsilon"]
    return [torch.optim.RMSprop(tensors, lr=rate, alpha=decay, eps=epsilon)]


def moments(hyper: Hyper) -> dict[str, float]:
    return {"b1": hyper["beta1"], "b2": hyper["beta2"]}


def optax_amsgrad(hyper: Hyper) -> Any:
    """Return Optax's AMSGrad, which takes the maximum after bias correction."""
    import optax

    return optax.amsgrad(hyper["learning_rate"], **moments(hyper), eps=hyper["epsilon"])


def optax_epsilon_inside_root(hyper: Hyper) -> Any:
    import optax

    return optax.adam(hyper["learning_rate"], **moments(hyper), eps=0.0, eps_root=hyper["epsilon"])


def optax_decoupled(hyper: Hyper) -> Any:
    """Return Optax's Adam with a decay that is added after the learning rate."""
    import optax

    adam = optax.adam(hyper["learning_rate"], **moments(hyper), eps=hyper["epsilon"])
    return optax.chain(adam, optax.add_decayed_weights(-hyper["weight_decay"]))


ADAM = {"learning_rate": 0.1, "beta1": 0.8, "beta2": 0.95, "epsilon": 0.02}
ADAMW = {**ADAM, "weight_decay": 0.3}
BETAS = {name: ADAM[name] for name in ("learning_rate", "beta1", "beta2")}


ADAM_ENTRY = Entry(
    loop=adamw, hyper=ADAM, symmetry="signed_permutation", still={"epsilon": 0.0}, scale_free={"epsilon": 0.0}
)
ADAMW_ENTRY = replace(ADAM_ENTRY, hyper=ADAMW, still={"epsilon": 0.0, "weight_decay": 0.0})
FLAGS = {"amsgrad": True, "nesterov": True, "epsilon_inside_root": True, "decoupled_weight_decay": True}

ENTRIES = {
    "adam": replace(ADAM_ENTRY, pytorch=Oracle(torch_adam)),
    "adam: amsgrad": replace(ADAM_ENTRY, options={"amsgrad": True}, optax=Oracle(optax_amsgrad)),
    "adam: amsgrad before correction": replace(
        ADAM_ENTRY, options={"amsgrad": "before_correction"}, pytorch=Oracle(torch_amsgrad)
    ),
    "adam: nesterov": replace(
        ADAM_ENTRY, options={"nesterov": True}, pytorch=Oracle(torch_nadam, hyper={"beta1": 0.75})
    ),
    "adam: epsilon inside the root": replace(
        ADAM_ENTRY, options={"epsilon_inside_root": True}, optax=Oracle(optax_epsilon_inside_root)
    ),
    "adamw": replace(ADAMW_ENTRY, pytorch=Oracle(torch_adam)),
    "adamw: decoupled": replace(
        ADAMW_ENTRY, options={"decoupled_weight_decay": True}, optax=Oracle(optax_decoupled)
    ),
    "adamw: Fig. 1 with all flags": replace(ADAMW_ENTRY, options=FLAGS),
    "rmsprop": Entry(
        loop=rmsprop,
        hyper=ADAM,
        symmetry="signed_permutation",
        still={"epsilon": 0.0},
        scale_free={"epsilon": 0.0},
        pytorch=Oracle(torch_rmsprop, hyper={"beta1": 0.0}),
    ),
    "adam_atan2": Entry(
        loop=adam_atan2, hyper={**BETAS, "a": 1.3, "b": 0.6}, symmetry="signed_permutation", scale_free={}
    ),
}
