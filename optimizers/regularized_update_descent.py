"""Regularized update descent: gradient descent on the velocity instead of the parameter.

In formulas, theta is the parameter, v the velocity, J' the gradient of the loss, eta the learning rate, and
gamma the regularization of the velocity. The two approximations are Polyak's and Nesterov's momentum.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from curvebench.optimizers.arrays import Array, Hyper, Ops
from curvebench.optimizers.gradient_descent import MOMENTUM, Momentum
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.rule import LEARNING_RATE, Rule, configured, positive
from curvebench.spec.values import choice


def _kept(hyper: Hyper) -> Array:
    """Return mu = 1 - eta gamma, the share of the velocity that a step keeps (the momentum)."""
    return 1 - hyper["learning_rate"] * hyper["regularization"]


def _update(ops: Ops, grad: Array, state: Momentum, param: Array, hyper: Hyper) -> tuple[Array, Momentum]:
    """Do a step (002 eq. 97): v <- (1 - eta gamma) v - eta J', then theta <- theta + v."""
    velocity = _kept(hyper) * state.velocity - hyper["learning_rate"] * grad
    return param + velocity, Momentum(velocity)


# By the value of the option `gradient`, the point at which J' is computed; None for the parameter itself.
# "exact" is the point of 002 eq. 97; "polyak" and "nesterov" are approximations of this point.
POINTS: Mapping[str, Callable[[Ops, Momentum, Array, Hyper], Array] | None] = {
    "exact": lambda ops, state, param, hyper: param + state.velocity,
    "polyak": None,
    "nesterov": lambda ops, state, param, hyper: param + _kept(hyper) * state.velocity,
}

OPTIONS = {
    "gradient": Option(
        "exact",
        "where it is taken: exact (theta + v), polyak (theta), or nesterov (theta + mu v)",
        choice(*POINTS),
    )
}


@configured("regularized_update_descent", OPTIONS)
def regularized_update_descent(chosen: Options) -> Rule:
    """Return the update rule of regularized update descent; options that are not given keep their defaults.

    002 requires gamma < 1. Here larger values are legal, because a momentum of 0.9 at a learning rate of 0.01
    is gamma = 10.
    """
    return Rule(
        name="regularized_update_descent",
        source="002 App. F, eq. 97",
        hyperparameters={
            "learning_rate": LEARNING_RATE,
            "regularization": positive(
                "gamma, of the velocity; 1 - learning_rate x gamma is the momentum", 0.9
            ),
        },
        init=MOMENTUM.init,
        update=_update,
        gradient_at=POINTS[chosen["gradient"]],
    )


RULES = (regularized_update_descent({}),)
