"""Adam without bias correction, as a rule of which tests replace the last lines."""

from typing import NamedTuple

import numpy as np

from curvebench import LEARNING_RATE, Rule


class State(NamedTuple):
    first: object
    second: object
    total: object


def _init(ops, param):
    zeros = ops.zeros_like(param)
    return State(zeros, zeros, zeros)


def _update(ops, grad, state, param, hyper):
    second = 0.99 * state.second + 0.01 * np.square(grad)
    state = State(0.9 * state.first + 0.1 * grad, second, state.total + second)
    return param - hyper["learning_rate"] * state.first / (ops.sqrt(second) + 1e-8), state


RULES = (Rule("mine", "a test", {"learning_rate": LEARNING_RATE}, _init, _update),)
