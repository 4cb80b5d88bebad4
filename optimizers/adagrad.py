"""Adagrad: each coordinate's step divided by the root of its sum of squared gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from optimizers.rule import LEARNING_RATE, Array, Hyperparameter, Ops, Rule, safe_divide


class Accumulator(NamedTuple):
    sum_of_squares: Array  # sum of g_l^2 for l <= t, shape of the parameter, starts at 0


def _init(ops: Ops, param: Array) -> Accumulator:
    return Accumulator(sum_of_squares=ops.zeros_like(param))


def _update(
    ops: Ops, grad: Array, state: Accumulator, param: Array, hyper: Mapping[str, Array]
) -> tuple[Array, Accumulator]:
    """w <- w - eta g / (sqrt(v_0 + sum g^2) + epsilon) (002 eq. 44)."""
    sum_of_squares = state.sum_of_squares + ops.square(grad)
    # v_0 is added here and not in the state: a state begins before hyperparameters are known.
    scale = ops.sqrt(hyper["initial_accumulator"] + sum_of_squares) + hyper["epsilon"]
    return param - hyper["learning_rate"] * safe_divide(ops, grad, scale), Accumulator(sum_of_squares)


ADAGRAD = Rule(
    name="adagrad",
    source="002 eq. 44",
    hyperparameters={
        "learning_rate": LEARNING_RATE,
        "epsilon": Hyperparameter("added to the root; 0 is legal", 1e-10, 0.0),
        "initial_accumulator": Hyperparameter(
            "v_0, what the sum of squares starts from (PyTorch 0, Optax 0.1)", 0.0, 0.0
        ),
    },
    init=_init,
    update=_update,
)

RULES = (ADAGRAD,)
