"""Lion as a rule."""

from dataclasses import replace

from curvebench.optimizers.gradient_descent import MOMENTUM, Momentum


def _update(ops, grad, state, param, hyper):
    step = hyper["learning_rate"] * ops.sign(0.9 * state.velocity + 0.1 * grad)
    return param - step, Momentum(0.99 * state.velocity + 0.01 * grad)


RULES = (replace(MOMENTUM, name="lion_rule", source="a test", update=_update),)
