"""Adam and its relatives: momentum divided by the root of a running mean of squared gradients.

In formulas, w is the parameter, g its gradient, m and v the running means of g and g^2, eta the learning
rate, lambda the weight decay, and s the schedule's multiplier of the learning rate.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from curvebench.optimizers.arrays import INSIDE_ROOT, Array, Hyper, Ops, State, safe_divide, smoothed_root
from curvebench.optimizers.options import Option, OptionError, Options, complete
from curvebench.optimizers.rule import (
    LEARNING_RATE,
    WEIGHT_DECAY,
    Hyperparameter,
    Rule,
    positive,
    share,
    starting_at_zero,
)
from curvebench.optimizers.state_precision import configured_with_state
from curvebench.spec.values import flag


class Moments(NamedTuple):
    first: Array  # m_t, running mean of g, in the shape of the parameter; it starts at 0.
    second: Array  # v_t, running mean of g^2, in the shape of the parameter; it starts at 0.


class MomentsAndMaximum(NamedTuple):
    first: Array  # m_t, running mean of g, in the shape of the parameter; it starts at 0.
    second: Array  # v_t, running mean of g^2, in the shape of the parameter; it starts at 0.
    maximum: Array  # v^max_t, the largest v of the steps so far, entry by entry; it starts at 0.


def _read_amsgrad(value: Any) -> Any:
    if isinstance(value, bool) or value == "before_correction":
        return value
    raise OptionError("is none of false, true and before_correction")


ADAM_OPTIONS = {
    "amsgrad": Option(
        False,
        "true: divide by the largest second moment so far; before_correction: the largest before bias "
        "correction, as PyTorch",
        _read_amsgrad,
    ),
    "nesterov": Option(False, "whether the gradient is added to the momentum once more, as in NAdam", flag),
    "epsilon_inside_root": INSIDE_ROOT,
}
ADAMW_OPTIONS = {
    **ADAM_OPTIONS,
    "decoupled_weight_decay": Option(
        False, "whether weight decay is multiplied by the schedule alone, not by the learning rate", flag
    ),
}
DEFAULTS: Options = complete("adam", ADAM_OPTIONS, {})


def running_means(ops: Ops, grad: Array, state: State, hyper: Hyper) -> tuple[Array, Array]:
    """Return the running means m_t of g and v_t of g^2, updated with this step's gradient (002 Sec. 4)."""
    beta1, beta2 = hyper["beta1"], hyper["beta2"]
    first = beta1 * state.first + (1 - beta1) * grad
    return first, beta2 * state.second + (1 - beta2) * ops.square(grad)


def adam_direction(
    ops: Ops, grad: Array, state: State, hyper: Hyper, chosen: Options = DEFAULTS
) -> tuple[Array, State]:
    """Return m / (sqrt(v) + epsilon) for bias-corrected m and v, and the new state (002 eq. 46, Sec. 4.1.1).

    Args:
        state: Moments, or MomentsAndMaximum with the option `amsgrad`.
        chosen: values of ADAM_OPTIONS (002 Fig. 1), such as whether epsilon is inside the root.
    """
    beta1, beta2, step = hyper["beta1"], hyper["beta2"], hyper["step"]
    first, second = running_means(ops, grad, state, hyper)
    state = state._replace(first=first, second=second)
    mean = first / (1 - beta1**step)
    if chosen["nesterov"]:
        mean = beta1 * first / (1 - beta1 ** (step + 1)) + (1 - beta1) * grad / (1 - beta1**step)
    square = second / (1 - beta2**step)
    if chosen["amsgrad"]:
        after_correction = chosen["amsgrad"] is True
        maximum = ops.maximum(state.maximum, square if after_correction else second)
        square = maximum if after_correction else maximum / (1 - beta2**step)
        state = state._replace(maximum=maximum)
    scale = smoothed_root(ops, square, hyper["epsilon"], chosen["epsilon_inside_root"])
    return safe_divide(ops, mean, scale), state


@dataclass(frozen=True)
class _Adam:
    """Functions of Adam with the given options, and of AdamW, which adds a weight decay."""

    chosen: Options

    def init(self, ops: Ops, param: Array) -> State:
        return starting_at_zero(MomentsAndMaximum if self.chosen["amsgrad"] else Moments)(ops, param)

    def update(self, ops: Ops, grad: Array, state: State, param: Array, hyper: Hyper) -> tuple[Array, State]:
        """Do a step of Adam: w <- w - eta m / (sqrt(v) + epsilon), with bias-corrected m and v."""
        direction, state = adam_direction(ops, grad, state, hyper, self.chosen)
        return param - hyper["learning_rate"] * direction, state

    def update_decayed(
        self, ops: Ops, grad: Array, state: State, param: Array, hyper: Hyper
    ) -> tuple[Array, State]:
        """Multiply w by 1 - eta lambda, then do a step of Adam (002 Sec. 4.4 and Fig. 1).

        With decoupled weight decay the factor is 1 - s lambda, which does not depend on the learning rate.
        """
        factor = hyper["schedule" if self.chosen["decoupled_weight_decay"] else "learning_rate"]
        decayed = param * (1 - factor * hyper["weight_decay"])
        return self.update(ops, grad, state, decayed, hyper)


def _update_rmsprop(
    ops: Ops, grad: Array, state: Moments, param: Array, hyper: Hyper
) -> tuple[Array, Moments]:
    """Do a step of RMSprop: w <- w - eta m / (sqrt(v) + epsilon), without bias correction (002 eq. 45)."""
    first, second = running_means(ops, grad, state, hyper)
    scale = smoothed_root(ops, second, hyper["epsilon"], inside=False)
    return param - hyper["learning_rate"] * safe_divide(ops, first, scale), Moments(first, second)


def _update_atan2(ops: Ops, grad: Array, state: Moments, param: Array, hyper: Hyper) -> tuple[Array, Moments]:
    """Do a step of Adam-atan2 (002 Sec. 4.1.2).

    w <- w - eta a atan2(m, b sqrt(v)), for bias-corrected running means m of g and v of g^2.
    """
    step = hyper["step"]
    first, second = running_means(ops, grad, state, hyper)
    mean, square = first / (1 - hyper["beta1"] ** step), second / (1 - hyper["beta2"] ** step)
    angle = ops.atan2(mean, hyper["b"] * ops.sqrt(square))
    return param - hyper["learning_rate"] * hyper["a"] * angle, Moments(first, second)


MEANS = {
    "learning_rate": LEARNING_RATE,
    "beta1": share("the share of the first moment kept", 0.9),
    "beta2": share("the share of the second moment kept", 0.999),
}
NUMBERS = {**MEANS, "epsilon": Hyperparameter("added to the root, outside it; 0 is legal", 1e-8, 0.0)}


@configured_with_state("adam", ADAM_OPTIONS)
def adam(chosen: Options) -> Rule:
    """Return the update rule of Adam; options that are not given keep their defaults."""
    functions = _Adam(chosen)
    return Rule(
        name="adam",
        source="002 eq. 46, Sec. 4.1.1; options: Fig. 1, Secs. 4.2 and 4.3",
        hyperparameters=NUMBERS,
        init=functions.init,
        first_moments=("first",),
        update=functions.update,
    )


@configured_with_state("adamw", ADAMW_OPTIONS)
def adamw(chosen: Options) -> Rule:
    """Return the update rule of AdamW; options that are not given keep their defaults.

    A decoupled weight decay is below 1 (002 Fig. 1); its default is from Wortsman et al. (2024).
    """
    functions = _Adam(chosen)
    decay = replace(WEIGHT_DECAY, default=0.01)
    if chosen["decoupled_weight_decay"]:
        decay = share("lambda, multiplied by the schedule", 1e-4)
    return Rule(
        name="adamw",
        source="002 Sec. 4.4, Fig. 1",
        hyperparameters={**NUMBERS, "weight_decay": decay},
        init=functions.init,
        first_moments=("first",),
        update=functions.update_decayed,
    )


ADAM, ADAMW = adam({}), adamw({})

RMSPROP = Rule(
    name="rmsprop",
    source="002 eq. 45",
    hyperparameters=NUMBERS,
    init=starting_at_zero(Moments),
    first_moments=("first",),
    update=_update_rmsprop,
)

ADAM_ATAN2 = Rule(
    name="adam_atan2",
    source="002 Sec. 4.1.2",
    hyperparameters={
        **MEANS,
        "a": positive("by which the angle is multiplied", 1.0),
        "b": positive("by which the root is multiplied", 1.0),
    },
    init=starting_at_zero(Moments),
    first_moments=("first",),
    update=_update_atan2,
)

RULES = (ADAM, ADAMW, RMSPROP, ADAM_ATAN2)
