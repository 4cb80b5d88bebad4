"""Gradient descent: SGD and SGD with Polyak momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from optimizers.rule import LEARNING_RATE, Array, Hyperparameter, Ops, Rule


class Empty(NamedTuple):
    """The state of a rule that remembers nothing."""


class Momentum(NamedTuple):
    velocity: Array  # v_t, shape of the parameter, starts at 0


def _init_sgd(ops: Ops, param: Array) -> Empty:
    return Empty()


def _update_sgd(
    ops: Ops, grad: Array, state: Empty, param: Array, hyper: Mapping[str, Array]
) -> tuple[Array, Empty]:
    """w <- w - eta g (002 eq. 21)."""
    return param - hyper["learning_rate"] * grad, state


def _init_momentum(ops: Ops, param: Array) -> Momentum:
    return Momentum(velocity=ops.zeros_like(param))


def _update_momentum(
    ops: Ops, grad: Array, state: Momentum, param: Array, hyper: Mapping[str, Array]
) -> tuple[Array, Momentum]:
    """v <- g + mu v, w <- w - eta v (002 eqs. 25-26)."""
    velocity = grad + hyper["momentum"] * state.velocity
    return param - hyper["learning_rate"] * velocity, Momentum(velocity)


SGD = Rule(
    name="sgd",
    source="002 eq. 21",
    hyperparameters={"learning_rate": LEARNING_RATE},
    init=_init_sgd,
    update=_update_sgd,
)

MOMENTUM = Rule(
    name="momentum",
    source="002 eqs. 25-26",
    hyperparameters={
        "learning_rate": LEARNING_RATE,
        "momentum": Hyperparameter("mu, the share of the velocity kept", 0.9, 0.0, 1.0, high_open=True),
    },
    init=_init_momentum,
    update=_update_momentum,
)

RULES = (SGD, MOMENTUM)
