"""Adagrad: gradients divided by the root of their summed squares.

The sum is kept for each entry (`adagrad`), for the norm of the gradient (`adagrad_norm`), or as a matrix of
outer products (`adagrad_full`).

In formulas, w is the parameter (or the vector of all d parameters), g its gradient, g_l the gradient of step
l, t the current step, eta the learning rate, and v_0 the initial accumulator.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from typing import NamedTuple

from curvebench.optimizers.arrays import INSIDE_ROOT, Array, Hyper, Ops, safe_divide, smoothed_root
from curvebench.optimizers.matrix_functions import inverse_root, rank_cutoff
from curvebench.optimizers.options import Options
from curvebench.optimizers.rule import LEARNING_RATE, Hyperparameter, Rule, configured, starting_at_zero


class Accumulator(NamedTuple):
    # Sum of squared gradients over the steps so far, which starts at 0.
    # Adagrad sums g^2, in the shape of the parameter; norm Adagrad sums |g|^2, (..., 1).
    sum_of_squares: Array


class OuterProducts(NamedTuple):
    sum_of_outer_products: Array  # O_t, the sum of g g^T over the steps so far, (..., d, d); it starts at 0.


def _init_norm(ops: Ops, param: Array) -> Accumulator:
    return Accumulator(sum_of_squares=ops.zeros((*param.shape[:-1], 1)))


def _init_full(ops: Ops, param: Array) -> OuterProducts:
    return OuterProducts(ops.zeros((*param.shape, param.shape[-1])))


def _stepped(
    ops: Ops,
    grad: Array,
    squares: Array,
    state: Accumulator,
    param: Array,
    hyper: Hyper,
    epsilon_inside_root: bool = False,
) -> tuple[Array, Accumulator]:
    """Return w - eta g / (sqrt(v_0 + sum of squares) + epsilon), and the new sum of squares as state.

    Args:
        squares: g^2 or |g|^2 of this step, which is added to the sum.
    """
    sum_of_squares = state.sum_of_squares + squares
    # The initial accumulator v_0 is added here, because the state is initialized without hyperparameters.
    total = hyper["initial_accumulator"] + sum_of_squares
    scale = smoothed_root(ops, total, hyper["epsilon"], epsilon_inside_root)
    return param - hyper["learning_rate"] * safe_divide(ops, grad, scale), Accumulator(sum_of_squares)


def _update_norm(
    ops: Ops, grad: Array, state: Accumulator, param: Array, hyper: Hyper
) -> tuple[Array, Accumulator]:
    """Do a step of norm Adagrad, which has one learning rate for all parameters (002 eq. 33).

    w <- w - eta g / (sqrt(v_0 + sum |g|^2) + epsilon).
    """
    squared_norm = ops.sum(ops.square(grad), axis=-1, keepdims=True)
    return _stepped(ops, grad, squared_norm, state, param, hyper)


def _update_full(
    ops: Ops, grad: Array, state: OuterProducts, param: Array, hyper: Hyper
) -> tuple[Array, OuterProducts]:
    """Do a step of full Adagrad, which preconditions with a matrix (002 Sec. 3.2.1).

    w <- w - eta (O_t + epsilon I)^(-1/2) g, where O_t is the sum of outer products g g^T. If O_t + epsilon I
    is singular, its pseudo-inverse is used.
    """
    column = grad[..., None]
    outer_products = state.sum_of_outer_products + column * grad[..., None, :]
    cutoff = rank_cutoff(ops, param.shape[-1])
    root = inverse_root(ops, outer_products, 0.5, hyper["epsilon"][..., None], cutoff)
    return param - hyper["learning_rate"] * (root @ column)[..., 0], OuterProducts(outer_products)


OPTIONS = {"epsilon_inside_root": INSIDE_ROOT}


@configured("adagrad", OPTIONS)
def adagrad(chosen: Options) -> Rule:
    """Return the update rule of Adagrad; options that are not given keep their defaults."""

    def update(
        ops: Ops, grad: Array, state: Accumulator, param: Array, hyper: Hyper
    ) -> tuple[Array, Accumulator]:
        """Do a step of Adagrad: w <- w - eta g / (sqrt(v_0 + sum g^2) + epsilon) (002 eq. 44)."""
        squares = ops.square(grad)
        return _stepped(ops, grad, squares, state, param, hyper, chosen["epsilon_inside_root"])

    return Rule(
        name="adagrad",
        source="002 eq. 44",
        hyperparameters={
            "learning_rate": LEARNING_RATE,
            "epsilon": Hyperparameter("added to the root; 0 is legal", 1e-10, 0.0),
            "initial_accumulator": Hyperparameter(
                "v_0, what the sum of squares starts from (PyTorch 0, Optax 0.1)", 0.0, 0.0
            ),
        },
        init=starting_at_zero(Accumulator),
        first_moments=(),
        update=update,
    )


ADAGRAD = adagrad({})

ADAGRAD_NORM = Rule(
    name="adagrad_norm",
    source="002 eq. 33",
    hyperparameters=ADAGRAD.hyperparameters,
    init=_init_norm,
    first_moments=(),
    update=_update_norm,
    scope="model",
)

ADAGRAD_FULL = Rule(
    name="adagrad_full",
    source="002 Sec. 3.2.1, eq. 43",
    hyperparameters={
        "learning_rate": LEARNING_RATE,
        "epsilon": Hyperparameter("times the identity, what O_t starts from; 0 is legal", 0.0, 0.0),
    },
    init=_init_full,
    update=_update_full,
    scope="model",
)

RULES = (ADAGRAD, ADAGRAD_NORM, ADAGRAD_FULL)
