"""Adagrad: gradients divided by the root of their summed squares, entry by entry, by norm, or as a matrix."""

from __future__ import annotations

from typing import NamedTuple

from curvebench.optimizers.arrays import EPSILON_INSIDE_ROOT, Array, Hyper, Ops, safe_divide, smoothed_root
from curvebench.optimizers.matrix_functions import inverse_root, rank_cutoff
from curvebench.optimizers.options import Options
from curvebench.optimizers.rule import LEARNING_RATE, Hyperparameter, Rule, configured, starting_at_zero


class Accumulator(NamedTuple):
    # Sum of g_l^2 for l <= t, in the shape of the parameter, or of |g_l|^2, (..., 1); it starts at 0.
    sum_of_squares: Array


class OuterProducts(NamedTuple):
    sum_of_outer_products: Array  # O_t, sum of g_l g_l^T for l <= t, (..., d, d), which starts at 0.


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
    """Return w - eta g / (sqrt(v_0 + sum of squares) + epsilon), and the sum with these squares."""
    sum_of_squares = state.sum_of_squares + squares
    # v_0 is added here and not to the state, because the state is initialized without hyperparameters.
    total = hyper["initial_accumulator"] + sum_of_squares
    scale = smoothed_root(ops, total, hyper["epsilon"], epsilon_inside_root)
    return param - hyper["learning_rate"] * safe_divide(ops, grad, scale), Accumulator(sum_of_squares)


def _update_norm(
    ops: Ops, grad: Array, state: Accumulator, param: Array, hyper: Hyper
) -> tuple[Array, Accumulator]:
    """w <- w - eta g / (sqrt(v_0 + sum |g|^2) + epsilon), one rate for all of w (002 eq. 33)."""
    squared_norm = ops.sum(ops.square(grad), axis=-1, keepdims=True)
    return _stepped(ops, grad, squared_norm, state, param, hyper)


def _update_full(
    ops: Ops, grad: Array, state: OuterProducts, param: Array, hyper: Hyper
) -> tuple[Array, OuterProducts]:
    """w <- w - eta (O_t + epsilon I)^(-1/2) g, with the pseudo-inverse where singular (002 Sec. 3.2.1)."""
    column = grad[..., None]
    outer_products = state.sum_of_outer_products + column * grad[..., None, :]
    cutoff = rank_cutoff(ops, param.shape[-1])
    root = inverse_root(ops, outer_products, 0.5, hyper["epsilon"][..., None], cutoff)
    return param - hyper["learning_rate"] * (root @ column)[..., 0], OuterProducts(outer_products)


OPTIONS = {"epsilon_inside_root": EPSILON_INSIDE_ROOT}


@configured("adagrad", OPTIONS)
def adagrad(chosen: Options) -> Rule:
    """Return the rule for the given options, with the defaults of the others."""

    def update(
        ops: Ops, grad: Array, state: Accumulator, param: Array, hyper: Hyper
    ) -> tuple[Array, Accumulator]:
        """w <- w - eta g / (sqrt(v_0 + sum g^2) + epsilon) (002 eq. 44)."""
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
