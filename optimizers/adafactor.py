"""Adafactor: Adam with a second moment of rank one, and four further changes, each of which is an option.

In formulas, W is a weight matrix of m rows and n columns, G its gradient (g an entry), eta the learning rate,
and RMS the root mean square of all entries. Leading axes "..." are batch axes.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from curvebench.optimizers.adam import ADAM
from curvebench.optimizers.arrays import Array, Hyper, Ops, safe_divide
from curvebench.optimizers.matricization import for_matrices
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.rule import (
    LEARNING_RATE,
    Hyperparameter,
    Roles,
    Rule,
    Shapes,
    configured,
    positive,
)
from curvebench.spec.values import flag

# Options of further changes to Adam, in addition to the factors and to the missing first moment.
CHANGES = ("clipping", "parameter_scaling", "beta2_schedule")


class Factors(NamedTuple):
    rows: Array  # a_t, running mean of the row sums of g^2 + epsilon, (..., m, 1); it starts at 0.
    columns: Array  # s_t, running mean of the column sums of g^2 + epsilon, (..., 1, n); it starts at 0.


class Entries(NamedTuple):
    entries: Array  # v_t, running mean of g^2 + epsilon, (..., m, n); it starts at 0.


class AdafactorState(NamedTuple):
    # m_t, running mean of g, (..., m, n), which starts at 0; () if the option `first_moment` is off.
    first: tuple[Array, ...]
    second: Factors | Entries  # The second moment, factored or in full.


OPTIONS = {
    "factored": Option(
        True, "whether matrices and convolutions have a second moment of rank one (change 1)", flag
    ),
    "first_moment": Option(False, "whether the gradient is averaged (change 2 is that it is not)", flag),
    "clipping": Option(True, "whether the update's root mean square is bounded (change 3)", flag),
    "parameter_scaling": Option(
        True, "whether the learning rate is multiplied by the parameter's root mean square (change 4)", flag
    ),
    "beta2_schedule": Option(
        True, "whether beta_2 is 1 - t^(-c) (change 5); else constant, with bias correction", flag
    ),
}


def root_mean_square(ops: Ops, matrix: Array) -> Array:
    """Return the root mean square of the entries of each matrix, with shape (..., 1, 1) (002 App. K)."""
    return ops.sqrt(ops.mean(ops.square(matrix), axis=(-2, -1), keepdims=True))


@dataclass(frozen=True)
class _Adafactor:
    """Functions of the rule for matrices (..., m, n). The fields are the options of the same names."""

    factored: bool
    first_moment: bool
    clipping: bool
    parameter_scaling: bool
    beta2_schedule: bool

    def init(self, ops: Ops, param: Array) -> AdafactorState:
        leading, (rows, columns) = tuple(param.shape[:-2]), param.shape[-2:]
        return AdafactorState(
            first=(ops.zeros_like(param),) if self.first_moment else (),
            second=Factors(ops.zeros((*leading, rows, 1)), ops.zeros((*leading, 1, columns)))
            if self.factored
            else Entries(ops.zeros_like(param)),
        )

    def second_moment(
        self, ops: Ops, grad: Array, state: Factors | Entries, hyper: Hyper
    ) -> tuple[Array, Factors | Entries]:
        """Return the root of the second moment V_t, (..., m, n), and the new running means (002 eq. 52).

        The root is taken of each factor and not of their product, because the product overflows and
        underflows earlier.
        """
        if self.beta2_schedule:
            # The weight of this step's squares is 1 - beta_2. At the first step, it is 1.
            new_weight = hyper["step"] ** -hyper["beta2_exponent"]
            total = 1.0
        else:
            new_weight = 1 - hyper["beta2"]
            total = 1 - hyper["beta2"] ** hyper["step"]
        squares = ops.square(grad) + hyper["epsilon"]
        if isinstance(state, Entries):
            state = Entries((1 - new_weight) * state.entries + new_weight * squares)
            return ops.sqrt(state.entries / total), state
        state = Factors(
            (1 - new_weight) * state.rows + new_weight * ops.sum(squares, axis=-1, keepdims=True),
            (1 - new_weight) * state.columns + new_weight * ops.sum(squares, axis=-2, keepdims=True),
        )
        shares = safe_divide(ops, state.rows, ops.sum(state.rows, axis=-2, keepdims=True))
        return ops.sqrt(shares) * ops.sqrt(state.columns / total), state

    def update(
        self, ops: Ops, grad: Array, state: AdafactorState, param: Array, hyper: Hyper
    ) -> tuple[Array, AdafactorState]:
        """Do a step of Adafactor, without the changes to Adam whose options are off.

        The full step is W <- W - eta RMS(W) RMSClip(G / sqrt(V_t)) with the second moment V_t (002 Sec.
        4.7.1).
        """
        root, second = self.second_moment(ops, grad, state.second, hyper)
        numerator, first = grad, state.first
        if self.first_moment:
            first = (hyper["beta1"] * first[0] + (1 - hyper["beta1"]) * grad,)
            numerator = first[0] / (1 - hyper["beta1"] ** hyper["step"])
        direction = safe_divide(ops, numerator, root)
        if self.clipping:
            excess = root_mean_square(ops, direction) / hyper["clipping_threshold"]
            direction = direction / ops.maximum(excess, 1.0)
        rate = hyper["learning_rate"]
        if self.parameter_scaling:
            rate = rate * ops.maximum(root_mean_square(ops, param), hyper["parameter_scale_floor"])
        return param - rate * direction, AdafactorState(first, second)


@configured("adafactor", OPTIONS)
def adafactor(chosen: Options) -> Rule:
    """Return the update rule of Adafactor; options that are not given keep their defaults.

    Without any of the five changes the rule is Adam, with epsilon added to g^2. Three defaults are from
    Shazeer and Stern (2018), Alg. 4: `clipping_threshold` (d, which is 1 in 002), `parameter_scale_floor`
    (epsilon_2) and `epsilon` (epsilon_1).
    """
    numbers = {"learning_rate": LEARNING_RATE}
    numbers["epsilon"] = Hyperparameter("added to g^2; 0 is legal", 1e-30, 0.0)
    if chosen["first_moment"]:
        numbers["beta1"] = ADAM.hyperparameters["beta1"]
    if chosen["beta2_schedule"]:
        numbers["beta2_exponent"] = positive("c of beta_2 = 1 - t^(-c)", 0.8)
    else:
        numbers["beta2"] = ADAM.hyperparameters["beta2"]
    if chosen["clipping"]:
        numbers["clipping_threshold"] = positive("the update's greatest root mean square", 1.0)
    if chosen["parameter_scaling"]:
        numbers["parameter_scale_floor"] = Hyperparameter(
            "what RMS(W) counts as at least, so that W = 0 moves; 0 is legal", 1e-3, 0.0
        )

    def rule(order: int) -> Rule:
        # Vectors and scalars store the full second moment, because factors of a single row save nothing.
        functions = _Adafactor(**{**chosen, "factored": chosen["factored"] and order > 1})
        return Rule(
            name="adafactor",
            source="002 Sec. 4.7, eq. 52, Sec. 4.7.1",
            hyperparameters=numbers,
            init=functions.init,
            update=functions.update,
        )

    def special_case(shapes: Shapes, roles: Roles) -> str | None:
        """Return `adam` if the factors are the only change to Adam, and no parameter has them."""
        is_adam = chosen["first_moment"] and not any(chosen[name] for name in CHANGES)
        return "adam" if is_adam and all(len(shape) < 2 for shape in shapes.values()) else None

    return replace(for_matrices(rule), special_case=special_case)


RULES = (adafactor({}),)
