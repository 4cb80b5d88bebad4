"""MARS: a gradient with a correction that reduces its variance, then a step of AdamW or Lion.

The correction is a multiple of the change of the gradient since the last step. This is the variant that the
paper calls approximate, which needs no gradient of this step's batch at the last parameters.

In formulas, W is the parameter, g its gradient, c the corrected gradient, m and v the running means of c and
c^2, eta the learning rate, lambda the weight decay, and |c| the Euclidean norm of all entries.
"""

from __future__ import annotations

from typing import NamedTuple

from curvebench.optimizers.adam import NUMBERS, adam_direction
from curvebench.optimizers.arrays import Array, Hyper, Ops, State, entry_signs
from curvebench.optimizers.matricization import for_matrices
from curvebench.optimizers.matrix_functions.scaling import normalized
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.rule import (
    WEIGHT_DECAY,
    Hyperparameter,
    Rule,
    configured,
    share,
    starting_at_zero,
)
from curvebench.spec.values import choice


class CorrectedMomentum(NamedTuple):
    gradient: Array  # g of the last step, in the shape of the parameter; it starts at 0.
    first: Array  # m_t, running mean of c, in the shape of the parameter; it starts at 0.


class CorrectedMoments(NamedTuple):
    gradient: Array  # g of the last step, in the shape of the parameter; it starts at 0.
    first: Array  # m_t, running mean of c, in the shape of the parameter; it starts at 0.
    second: Array  # v_t, running mean of c^2, in the shape of the parameter; it starts at 0.


OPTIONS = {
    "direction": Option(
        "adamw",
        "adamw, the corrected gradient's mean over the root of its second moment, or lion, the mean's sign",
        choice("adamw", "lion"),
    )
}


@configured("mars", OPTIONS)
def mars(chosen: Options) -> Rule:
    """Return the update rule of MARS; options that are not given keep their defaults.

    All parameters are updated by the rule, while the authors' code updates vectors by AdamW. The gradient
    before the first step is 0, as in that code.
    """
    is_lion = chosen["direction"] == "lion"

    def update(ops: Ops, grad: Array, state: State, param: Array, hyper: Hyper) -> tuple[Array, State]:
        """Do a step of MARS: W <- (1 - eta lambda) W - eta d (Yuan et al. 2024, Algs. 1 to 3).

        c is g + gamma beta1 / (1 - beta1) (g - g of the last step), divided by max(1, |c|). The direction d
        is m / (sqrt(v) + epsilon) with bias-corrected m and v, or sign(m).
        """
        beta1 = hyper["beta1"]
        corrected = grad + hyper["gamma"] * beta1 / (1 - beta1) * (grad - state.gradient)
        direction, length = normalized(ops, corrected, (-2, -1))
        clipped = direction * ops.minimum(length, 1.0)
        if is_lion:
            state = state._replace(first=beta1 * state.first + (1 - beta1) * clipped)
            direction = entry_signs(ops, state.first)
        else:
            direction, state = adam_direction(ops, clipped, state, hyper)
        decayed = param * (1 - hyper["learning_rate"] * hyper["weight_decay"])
        return decayed - hyper["learning_rate"] * direction, state._replace(gradient=grad)

    numbers = {
        **NUMBERS,
        "beta1": share("the share of the first moment kept", 0.95),
        "beta2": share("the share of the second moment kept", 0.99),
        "gamma": Hyperparameter("the weight of the correction", 0.025, 0.0),
        "weight_decay": WEIGHT_DECAY,
    }
    if is_lion:
        del numbers["beta2"], numbers["epsilon"]
    rule = Rule(
        name="mars",
        source="Yuan et al. (2024), arXiv 2411.10438, Algs. 1 to 3",
        hyperparameters=numbers,
        init=starting_at_zero(CorrectedMomentum if is_lion else CorrectedMoments),
        update=update,
    )
    return for_matrices(lambda order: rule)


RULES = (mars({}),)
