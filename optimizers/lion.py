"""Lion: the sign of a mixture of momentum and gradient, where the momentum has a longer memory.

In formulas, w is the parameter, g its gradient, m the momentum, eta the learning rate, and lambda the weight
decay.
"""

from __future__ import annotations

from typing import NamedTuple

from curvebench.optimizers.arrays import Array, Hyper, Ops, entry_signs
from curvebench.optimizers.rule import LEARNING_RATE, WEIGHT_DECAY, Rule, share, starting_at_zero


class LongMomentum(NamedTuple):
    first: Array  # m_t, running mean of g, in the shape of the parameter; it starts at 0.


def _update(
    ops: Ops, grad: Array, state: LongMomentum, param: Array, hyper: Hyper
) -> tuple[Array, LongMomentum]:
    """Do a step of Lion (Chen et al. 2023, Alg. 2).

    w <- (1 - eta lambda) w - eta sign(beta1 m + (1 - beta1) g), then m <- beta2 m + (1 - beta2) g.
    """
    beta1, beta2 = hyper["beta1"], hyper["beta2"]
    direction = entry_signs(ops, beta1 * state.first + (1 - beta1) * grad)
    decayed = param * (1 - hyper["learning_rate"] * hyper["weight_decay"])
    momentum = beta2 * state.first + (1 - beta2) * grad
    return decayed - hyper["learning_rate"] * direction, LongMomentum(momentum)


LION = Rule(
    name="lion",
    source="Chen et al. (2023), arXiv 2302.06675, Alg. 2",
    hyperparameters={
        "learning_rate": LEARNING_RATE,
        "beta1": share("the share of the momentum in the step", 0.9),
        "beta2": share("the share of the momentum kept", 0.99),
        "weight_decay": WEIGHT_DECAY,
    },
    init=starting_at_zero(LongMomentum),
    first_moments=("first",),
    update=_update,
)

RULES = (LION,)
