"""ADOPT and LaProp: Adam with the order of its two parts changed, normalization first and then momentum.

In formulas, w is the parameter, g its gradient, v the running mean of g^2, m the running mean of normalized
gradients, eta the learning rate, lambda the weight decay, and t the step.
"""

from __future__ import annotations

from typing import NamedTuple

from curvebench.optimizers.adam import NUMBERS
from curvebench.optimizers.arrays import Array, Hyper, Ops, safe_divide, smoothed_root
from curvebench.optimizers.rule import (
    WEIGHT_DECAY,
    Hyperparameter,
    Rule,
    share,
    starting_at_zero,
)


class NormalizedMoments(NamedTuple):
    first: Array  # m_t, running mean of normalized gradients, in the shape of the parameter; it starts at 0.
    second: Array  # v_t, running mean of g^2, in the shape of the parameter; it starts at 0.


def _update(
    ops: Ops, grad: Array, state: NormalizedMoments, param: Array, hyper: Hyper
) -> tuple[Array, NormalizedMoments]:
    """Do a step of ADOPT: w <- (1 - eta lambda) w - eta m (Taniguchi et al. 2024, Alg. 2).

    m is the running mean of clip(g / max(sqrt(v), epsilon), c_t), where v does not contain the gradient of
    this step. The first step only sets v to g^2. The bound c_t is (t - 1)^c, with c = 1/4 in the paper.
    """
    beta1, started = hyper["beta1"], hyper["step"] > 1
    normalized = safe_divide(ops, grad, ops.maximum(ops.sqrt(state.second), hyper["epsilon"]))
    bound = started * (hyper["step"] - 1) ** hyper["clipping_exponent"]
    first = beta1 * state.first + (1 - beta1) * ops.maximum(ops.minimum(normalized, bound), -bound)
    kept, rate = started * hyper["beta2"], started * hyper["learning_rate"]
    second = kept * state.second + (1 - kept) * ops.square(grad)
    decayed = param * (1 - rate * hyper["weight_decay"])
    return decayed - rate * first, NormalizedMoments(first, second)


def _update_laprop(
    ops: Ops, grad: Array, state: NormalizedMoments, param: Array, hyper: Hyper
) -> tuple[Array, NormalizedMoments]:
    """Do a step of LaProp: w <- (1 - eta lambda) w - eta m (Liu et al. 2020, Alg. 1).

    m is the bias-corrected running mean of g / (sqrt(v) + epsilon), with bias-corrected v.
    """
    beta1, beta2, step = hyper["beta1"], hyper["beta2"], hyper["step"]
    second = beta2 * state.second + (1 - beta2) * ops.square(grad)
    scale = smoothed_root(ops, second / (1 - beta2**step), hyper["epsilon"], inside=False)
    first = beta1 * state.first + (1 - beta1) * safe_divide(ops, grad, scale)
    decayed = param * (1 - hyper["learning_rate"] * hyper["weight_decay"])
    return decayed - hyper["learning_rate"] * first / (1 - beta1**step), NormalizedMoments(first, second)


ADOPT = Rule(
    name="adopt",
    source="Taniguchi et al. (2024), arXiv 2411.02853, Alg. 2",
    hyperparameters={
        **NUMBERS,
        "beta2": share("the share of the second moment kept", 0.9999),
        "epsilon": Hyperparameter("smallest number by which a gradient is divided; 0 is legal", 1e-6, 0.0),
        "clipping_exponent": Hyperparameter("c of the bound (t - 1)^c of normalized gradients", 0.25, 0.0),
        "weight_decay": WEIGHT_DECAY,
    },
    init=starting_at_zero(NormalizedMoments),
    first_moments=("first",),
    update=_update,
)

LAPROP = Rule(
    name="laprop",
    source="Liu et al. (2020), arXiv 2002.04839, Alg. 1",
    hyperparameters={
        **NUMBERS,
        "epsilon": Hyperparameter("added to the root, outside it; 0 is legal", 1e-15, 0.0),
        "weight_decay": WEIGHT_DECAY,
    },
    init=starting_at_zero(NormalizedMoments),
    first_moments=("first",),
    update=_update_laprop,
)

RULES = (ADOPT, LAPROP)
