"""Prodigy: Adam with a learning rate that is estimated from the distance between start and solution.

In formulas, w is the vector of all d parameters, w_0 its initial value, g its gradient, D the estimate of the
distance |w_0 - w_*| to the solution, eta the learning rate, which multiplies D, and lambda the weight decay.
"""

from __future__ import annotations

from typing import NamedTuple

from curvebench.optimizers.adam import NUMBERS
from curvebench.optimizers.arrays import Array, Hyper, Ops, safe_divide
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.rule import WEIGHT_DECAY, Rule, configured, positive
from curvebench.spec.values import flag


class Distance(NamedTuple):
    first: Array  # m_t, running mean of D g, (..., d); it starts at 0.
    second: Array  # v_t, running mean of D^2 g^2, (..., d); it starts at 0.
    start: Array  # w_0, (..., d).
    product: Array  # r_t, weighted mean of <g, w_0 - w>, (..., 1); it starts at 0.
    sum_of_gradients: Array  # s_t, mean of g with the same weights, (..., d); it starts at 0.
    distance: Array  # The largest r / |s|_1 so far, (..., 1); it starts at 0.


def _init(ops: Ops, param: Array) -> Distance:
    first, second, sums = (ops.zeros_like(param) for _ in range(3))
    product, distance = (ops.zeros((*param.shape[:-1], 1)) for _ in range(2))
    return Distance(first, second, param + first, product, sums, distance)


OPTIONS = {
    "bias_correction": Option(
        False, "whether the learning rate is multiplied by Adam's bias correction, as Optax has it", flag
    )
}


@configured("prodigy", OPTIONS)
def prodigy(chosen: Options) -> Rule:
    """Return the update rule of Prodigy; options that are not given keep their defaults.

    The learning rate of the paper is 1. A weight decay is multiplied by eta D, as in the authors' code.
    """

    def update(ops: Ops, grad: Array, state: Distance, param: Array, hyper: Hyper) -> tuple[Array, Distance]:
        """Do a step of Prodigy: w <- (1 - eta D lambda) w - eta D m / (sqrt(v) + D epsilon).

        r and s have the weights eta D^2 and the decay sqrt(beta2), and D is the largest r / |s|_1 so far,
        at least the initial distance (Mishchenko and Defazio 2023, Alg. 4). m, v, r, s and eta D contain the
        D before this step. D epsilon contains the D after it, as in the authors' code.
        """
        beta1, beta2, step = hyper["beta1"], hyper["beta2"], hyper["step"]
        distance = ops.maximum(state.distance, hyper["initial_distance"])
        rate = hyper["learning_rate"] * distance
        if chosen["bias_correction"]:
            rate = rate * ops.sqrt(1 - beta2**step) / (1 - beta1**step)
        first = beta1 * state.first + (1 - beta1) * distance * grad
        second = beta2 * state.second + (1 - beta2) * ops.square(distance * grad)
        kept, weight = ops.sqrt(beta2), (1 - ops.sqrt(beta2)) * rate * distance
        inner = ops.sum(grad * (state.start - param), axis=-1, keepdims=True)
        product = kept * state.product + weight * inner
        sums = kept * state.sum_of_gradients + weight * grad
        estimate = safe_divide(ops, product, ops.sum(ops.abs(sums), axis=-1, keepdims=True))
        farthest = ops.maximum(distance, estimate)
        direction = safe_divide(ops, first, ops.sqrt(second) + farthest * hyper["epsilon"])
        decayed = param * (1 - rate * hyper["weight_decay"])
        return decayed - rate * direction, Distance(first, second, state.start, product, sums, farthest)

    return Rule(
        name="prodigy",
        source="Mishchenko and Defazio (2023), arXiv 2306.06101, Alg. 4",
        hyperparameters={
            **NUMBERS,
            "initial_distance": positive("D before the first step, smaller than the distance", 1e-6),
            "weight_decay": WEIGHT_DECAY,
        },
        init=_init,
        update=update,
        scope="model",
    )


RULES = (prodigy({}),)
