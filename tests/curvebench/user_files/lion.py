"""Lion, as in a third party's package."""

from curvebench.optimizers.gradient_descent import Momentum
from curvebench.optimizers.rule import LEARNING_RATE, Rule


def _init(ops, param):
    return Momentum(ops.zeros_like(param))


def _update(ops, grad, state, param, hyper):
    direction = ops.sign(0.9 * state.velocity + 0.1 * grad)
    return param - hyper["learning_rate"] * direction, Momentum(0.99 * state.velocity + 0.01 * grad)


LION = Rule("panther", "Chen et al. 2023", {"learning_rate": LEARNING_RATE}, _init, _update)
RULES = (LION,)
