"""AdEMAMix: Adam with a second running mean of gradients, which has a much longer memory.

In formulas, w is the parameter, g its gradient, m_1, m_2 and v the running means of g (fast and slow) and of
g^2, eta the learning rate, lambda the weight decay, t the step, and T the length of the warm-up.
"""

from __future__ import annotations

from typing import NamedTuple

from curvebench.optimizers.adam import NUMBERS, running_means
from curvebench.optimizers.arrays import Array, Hyper, Ops, safe_divide, smoothed_root
from curvebench.optimizers.rule import WEIGHT_DECAY, Hyperparameter, Rule, share, starting_at_zero

MIN_BETA1 = 1e-8  # beta3 starts at beta1, and its logarithm must be finite if beta1 is 0


class MixedMoments(NamedTuple):
    first: Array  # m_1, fast running mean of g, in the shape of the parameter; it starts at 0.
    second: Array  # v, running mean of g^2, in the shape of the parameter; it starts at 0.
    slow: Array  # m_2, slow running mean of g, in the shape of the parameter; it starts at 0.


def _warmed_up(ops: Ops, hyper: Hyper) -> tuple[Array, Array]:
    """Return alpha and beta3 at this step (Pagliardini et al. 2024, Sec. 3).

    alpha grows linearly from 0 during the warm-up. beta3 grows from beta1, so that the number of steps in
    which m_2 forgets one half of a gradient grows linearly; this number is proportional to -1 / log(beta3).
    """
    done = ops.minimum(hyper["step"] / ops.maximum(hyper["warmup"], 1.0), 1.0)
    fast, slow = ops.log(ops.maximum(hyper["beta1"], MIN_BETA1)), ops.log(hyper["beta3"])
    return done * hyper["alpha"], ops.exp(1 / ((1 - done) / fast + done / slow))


def _update(
    ops: Ops, grad: Array, state: MixedMoments, param: Array, hyper: Hyper
) -> tuple[Array, MixedMoments]:
    """Do a step of AdEMAMix: w <- (1 - eta lambda) w - eta (m_1 + alpha m_2) / (sqrt(v) + epsilon).

    m_1 and v are bias-corrected, m_2 is not (Pagliardini et al. 2024, Alg. 1).
    """
    step, (alpha, beta3) = hyper["step"], _warmed_up(ops, hyper)
    first, second = running_means(ops, grad, state, hyper)
    slow = beta3 * state.slow + (1 - beta3) * grad
    mixture = first / (1 - hyper["beta1"] ** step) + alpha * slow
    scale = smoothed_root(ops, second / (1 - hyper["beta2"] ** step), hyper["epsilon"], inside=False)
    decayed = param * (1 - hyper["learning_rate"] * hyper["weight_decay"])
    return decayed - hyper["learning_rate"] * safe_divide(ops, mixture, scale), MixedMoments(
        first, second, slow
    )


ADEMAMIX = Rule(
    name="ademamix",
    source="Pagliardini et al. (2024), arXiv 2409.03137, Alg. 1",
    hyperparameters={
        **NUMBERS,
        "beta3": share("the share of the slow mean kept, after the warm-up", 0.9999, low_open=True),
        "alpha": Hyperparameter("the weight of the slow mean, after the warm-up", 5.0, 0.0),
        "warmup": Hyperparameter(
            "T, the steps until beta3 and alpha are reached; the paper takes all steps of the run", 0.0, 0.0
        ),
        "weight_decay": WEIGHT_DECAY,
    },
    init=starting_at_zero(MixedMoments),
    first_moments=("first", "slow"),
    update=_update,
)

RULES = (ADEMAMIX,)
