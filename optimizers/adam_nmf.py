"""AdamNMF: squared gradients factored at rank r by one round of multiplicative EM per step.

The squared gradients of an m x n matrix are approximated by a product A B of nonnegative factors of rank r.
EM (expectation maximization) lowers the I-divergence, IDiv(C, A B), of the approximation from its target C. W
is the parameter, G its gradient, and eta the learning rate.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from curvebench.optimizers.arrays import Array, Hyper, Ops, safe_divide
from curvebench.optimizers.gradient_descent import SGD, Empty
from curvebench.optimizers.matricization import for_matrices
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.rule import LEARNING_RATE, Hyperparameter, Rule, configured, positive
from curvebench.spec.values import choice, whole


class MultiplicativeFactors(NamedTuple):
    left: Array  # A_t, (..., m, r); its entries start as random numbers in (0, 1).
    right: Array  # B_t, (..., r, n); its entries start as random numbers in (0, 1).


OPTIONS = {
    "rank": Option(1, "r, the inner length of the factors", whole(1)),
    "steps": Option(
        "alternating",
        "alternating, B from the new A, which never raises the I-divergence, or simultaneous, as printed",
        choice("alternating", "simultaneous"),
    ),
}


def multiplicative_round(
    ops: Ops, target: Array, factors: MultiplicativeFactors, alternating: bool
) -> MultiplicativeFactors:
    """Return the factors after one round of EM for a nonnegative factorization of `target`.

    See 002 eqs. 123-124. A quotient 0 / 0 counts as 0.

    Args:
        target: C, (..., m, n), nonnegative.
        factors: A (..., m, r) and B (..., r, n), nonnegative.
        alternating: whether B is updated with the new A, so that IDiv(C, A B) never rises; otherwise with the
            old A, as 002 L.2 prints it, so that IDiv(C, A B) may rise.
    """
    left, right = factors
    ratio = safe_divide(ops, target, left @ right)
    new_left = left * safe_divide(
        ops, ratio @ ops.matrix_transpose(right), ops.sum(right, axis=-1)[..., None, :]
    )
    if alternating:
        left, ratio = new_left, safe_divide(ops, target, new_left @ right)
    new_right = right * safe_divide(
        ops, ops.matrix_transpose(left) @ ratio, ops.sum(left, axis=-2)[..., :, None]
    )
    return MultiplicativeFactors(new_left, new_right)


@dataclass(frozen=True)
class _Matrices:
    """Functions of the rule for matrices (..., m, n)."""

    rank: int
    alternating: bool

    def init(self, ops: Ops, param: Array) -> MultiplicativeFactors:
        """Return A_0 and B_0, uniform in (0, 1), the same for every run and for all matrices of one shape."""
        leading, (rows, columns) = tuple(param.shape[:-2]), param.shape[-2:]
        generator = np.random.default_rng(0)
        left = generator.random((rows, self.rank))
        right = generator.random((self.rank, columns))
        return MultiplicativeFactors(
            ops.zeros((*leading, rows, self.rank)) + ops.asarray(left),
            ops.zeros((*leading, self.rank, columns)) + ops.asarray(right),
        )

    def update(
        self, ops: Ops, grad: Array, state: MultiplicativeFactors, param: Array, hyper: Hyper
    ) -> tuple[Array, MultiplicativeFactors]:
        """Do a step for a matrix (002 L.2): W <- W - eta G / sqrt(A B), where A B approximates G^2."""
        if not self.alternating:
            # The initial range of A and B is set here, because `init` does not receive hyperparameters.
            first = ops.where(hyper["step"] == 1, hyper["initialization_range"], 1.0)
            state = MultiplicativeFactors(first * state.left, first * state.right)
        squares = ops.square(grad) + hyper["epsilon"]
        state = multiplicative_round(ops, squares, state, self.alternating)
        direction = safe_divide(ops, grad, ops.sqrt(state.left @ state.right))
        return param - hyper["learning_rate"] * direction, state


def _update_vectors(ops: Ops, grad: Array, state: Empty, param: Array, hyper: Hyper) -> tuple[Array, Empty]:
    """Do a step for a vector: w <- w - eta g / sqrt(g^2 + epsilon).

    The squared gradient of a vector has rank one, so that the product A B after one round of EM is exactly
    the squared gradient, and no state is needed.
    """
    scale = ops.sqrt(ops.square(grad) + hyper["epsilon"])
    return param - hyper["learning_rate"] * safe_divide(ops, grad, scale), state


@configured("adam_nmf", OPTIONS)
def adam_nmf(chosen: Options) -> Rule:
    """Return the update rule of AdamNMF; options that are not given keep their defaults.

    A_0 and B_0 are uniform in (0, epsilon) in 002. With alternating steps the range has no effect: A_1 is
    proportional to 1 / epsilon and B_1 to epsilon, and the product A_t B_t does not depend on epsilon. With
    simultaneous steps A_1 and B_1 are both proportional to 1 / epsilon. The range is then a hyperparameter,
    `initialization_range`. The hyperparameter `epsilon` is another number, which is added to g^2: without it,
    a row of A would stay 0 after a step in which the gradients of this row were 0.

    At rank 1, alternating steps have no memory: by 002 eq. 52, A_t B_t depends only on G^2 of step t.
    """
    alternating = chosen["steps"] == "alternating"
    numbers = {
        "learning_rate": LEARNING_RATE,
        "epsilon": Hyperparameter("added to g^2; 0 is legal, as printed", 1e-16, 0.0),
    }
    if not alternating:
        numbers["initialization_range"] = positive("the upper end of the factors' first entries", 1.0)
    matrices = _Matrices(chosen["rank"], alternating)

    def rule(order: int) -> Rule:
        return Rule(
            name="adam_nmf",
            source="002 L.2, eqs. 123-124",
            hyperparameters=numbers,
            init=matrices.init if order > 1 else SGD.init,
            update=matrices.update if order > 1 else _update_vectors,
        )

    return for_matrices(rule)


RULES = (adam_nmf({}),)
