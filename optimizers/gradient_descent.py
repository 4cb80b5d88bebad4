"""Gradient descent: SGD, plain and with Polyak's or Nesterov's momentum.

In formulas, w is the parameter, g its gradient, v the velocity (the running sum of gradients), eta the
learning rate, and mu the momentum.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from curvebench.optimizers.arrays import Array, Hyper, Ops
from curvebench.optimizers.rule import LEARNING_RATE, PRECISIONS, Rule, share, starting_at_zero


class Empty(NamedTuple):
    """State of a rule that has no state."""


class Momentum(NamedTuple):
    velocity: Array  # v_t, in the shape of the parameter; it starts at 0.


def _update_sgd(ops: Ops, grad: Array, state: Empty, param: Array, hyper: Hyper) -> tuple[Array, Empty]:
    """Do a step of gradient descent: w <- w - eta g (002 eq. 21)."""
    return param - hyper["learning_rate"] * grad, state


def _update_momentum(
    ops: Ops, grad: Array, state: Momentum, param: Array, hyper: Hyper
) -> tuple[Array, Momentum]:
    """Do a step with Polyak's momentum: v <- g + mu v, then w <- w - eta v (002 eqs. 25-26)."""
    velocity = grad + hyper["momentum"] * state.velocity
    return param - hyper["learning_rate"] * velocity, Momentum(velocity)


def _update_nesterov(
    ops: Ops, grad: Array, state: Momentum, param: Array, hyper: Hyper
) -> tuple[Array, Momentum]:
    """Do a step with Nesterov's momentum: v <- g + mu v, then x <- x - eta (g + mu v) (002 Sec. 2.3.1).

    The parameter is x = w - eta mu v, the point that momentum alone would reach.
    """
    velocity = grad + hyper["momentum"] * state.velocity
    direction = grad + hyper["momentum"] * velocity
    return param - hyper["learning_rate"] * direction, Momentum(velocity)


def _ahead(ops: Ops, state: Momentum, param: Array, hyper: Hyper) -> Array:
    """Return x = w - eta mu v, the point that momentum alone would reach (002 eq. 28)."""
    return param - hyper["learning_rate"] * hyper["momentum"] * state.velocity


SGD = Rule(
    name="sgd",
    source="002 eq. 21",
    hyperparameters={"learning_rate": LEARNING_RATE},
    init=starting_at_zero(Empty),
    first_moments=(),
    update=_update_sgd,
    dtypes=PRECISIONS,
)

MOMENTUM = Rule(
    name="momentum",
    source="002 eqs. 25-26",
    hyperparameters={
        "learning_rate": LEARNING_RATE,
        "momentum": share("mu, the share of the velocity kept", 0.9),
    },
    init=starting_at_zero(Momentum),
    first_moments=("velocity",),
    update=_update_momentum,
    dtypes=PRECISIONS,
)

NESTEROV = replace(MOMENTUM, name="nesterov", source="002 Sec. 2.3.1, Lemma S.10", update=_update_nesterov)

# 002 eqs. 30-31 are eqs. 25-26 (momentum) with the gradient computed at the point x of `_ahead`.
NESTEROV_LOOKAHEAD = replace(MOMENTUM, name="nesterov_lookahead", source="002 eqs. 28-31", gradient_at=_ahead)

RULES = (SGD, MOMENTUM, NESTEROV, NESTEROV_LOOKAHEAD)
