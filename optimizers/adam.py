"""Adam and AdamW: momentum divided by the root of a running mean of squared gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from optimizers.rule import LEARNING_RATE, Array, Hyperparameter, Ops, Rule, safe_divide


class Moments(NamedTuple):
    first: Array  # m_t, running mean of g, shape of the parameter, starts at 0
    second: Array  # v_t, running mean of g^2, likewise


def _init(ops: Ops, param: Array) -> Moments:
    return Moments(first=ops.zeros_like(param), second=ops.zeros_like(param))


def adam_direction(
    ops: Ops, grad: Array, state: Moments, hyper: Mapping[str, Array]
) -> tuple[Array, Moments]:
    """m / (sqrt(v) + epsilon) of the bias-corrected means (002 Sec. 4, eq. 46 and Sec. 4.1.1)."""
    beta1, beta2, step = hyper["beta1"], hyper["beta2"], hyper["step"]
    first = beta1 * state.first + (1 - beta1) * grad
    second = beta2 * state.second + (1 - beta2) * ops.square(grad)
    scale = ops.sqrt(second / (1 - beta2**step)) + hyper["epsilon"]
    return safe_divide(ops, first / (1 - beta1**step), scale), Moments(first, second)


def _update_adam(
    ops: Ops, grad: Array, state: Moments, param: Array, hyper: Mapping[str, Array]
) -> tuple[Array, Moments]:
    """w <- w - eta m / (sqrt(v) + epsilon)."""
    direction, state = adam_direction(ops, grad, state, hyper)
    return param - hyper["learning_rate"] * direction, state


def _update_adamw(
    ops: Ops, grad: Array, state: Moments, param: Array, hyper: Mapping[str, Array]
) -> tuple[Array, Moments]:
    """Adam from (1 - eta lambda) w (002 Sec. 4.4 and Fig. 1)."""
    decayed = param * (1 - hyper["learning_rate"] * hyper["weight_decay"])
    return _update_adam(ops, grad, state, decayed, hyper)


ADAM = Rule(
    name="adam",
    source="002 eq. 46, Sec. 4.1.1",
    hyperparameters={
        "learning_rate": LEARNING_RATE,
        "beta1": Hyperparameter("the share of the first moment kept", 0.9, 0.0, 1.0, high_open=True),
        "beta2": Hyperparameter("the share of the second moment kept", 0.999, 0.0, 1.0, high_open=True),
        "epsilon": Hyperparameter("added to the root, outside it; 0 is legal", 1e-8, 0.0),
    },
    init=_init,
    update=_update_adam,
)

ADAMW = Rule(
    name="adamw",
    source="002 Sec. 4.4, Fig. 1",
    hyperparameters={
        **ADAM.hyperparameters,
        "weight_decay": Hyperparameter("lambda, multiplied by the learning rate", 0.01, 0.0),
    },
    init=_init,
    update=_update_adamw,
)

RULES = (ADAM, ADAMW)
