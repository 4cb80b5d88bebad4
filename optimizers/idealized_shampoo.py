"""Idealized Shampoo: the Newton step of a matrix whose empirical Fisher matrix is a Kronecker product.

In formulas, W is the parameter, an m x n matrix, G its gradient, eta the learning rate, and tr the trace.
E[...] is a running mean over steps.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from typing import NamedTuple

from curvebench.optimizers.arrays import Array, Hyper, Ops
from curvebench.optimizers.matricization import for_matrices
from curvebench.optimizers.matrix_functions import inverse_root, rank_cutoff
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.rule import LEARNING_RATE, Hyperparameter, Rule, configured, share
from curvebench.optimizers.tensors import second_moment
from curvebench.spec.values import whole

SIDES = (0, 1)


class Sides(NamedTuple):
    # Running means of G G^T (..., m, m) for rows and of G^T G (..., n, n) for columns; they start at 0.
    statistics: tuple[Array, ...]
    # Left factor (..., m, m) and right factor (..., n, n), by which the gradient is multiplied.
    # The left factor includes the root of the trace.
    roots: tuple[Array, ...]


class RefreshedIdealized(NamedTuple):
    """State that `refresh` passes to `update` in the same step."""

    sides: Sides  # The statistics already include the gradient of the step.


def _accumulated(ops: Ops, matrix: Array, state: Sides, decay: Array) -> tuple[Array, ...]:
    """Return the updated running means of G G^T and G^T G, without bias correction."""
    return tuple(
        decay * statistic + (1 - decay) * second_moment(ops, matrix, 2, axis)
        for axis, statistic in zip(SIDES, state.statistics, strict=True)
    )


def _init(ops: Ops, param: Array) -> Sides:
    *leading, rows, columns = param.shape

    def zeros() -> tuple[Array, ...]:
        return tuple(ops.zeros((*leading, size, size)) for size in (rows, columns))

    return Sides(zeros(), zeros())


def _refresh(ops: Ops, grad: Array, state: Sides, hyper: Hyper) -> RefreshedIdealized:
    """Compute sqrt(tr E[G G^T]) E[G G^T]^(-1/2) and E[G^T G]^(-1/2), with pseudo-inverses if necessary."""
    decay = hyper["beta2"]
    statistics = _accumulated(ops, grad, state, decay)
    means = [statistic / (1 - decay ** hyper["step"]) for statistic in statistics]
    left_root, right_root = (
        inverse_root(ops, mean, 0.5, hyper["epsilon"], rank_cutoff(ops, mean.shape[-1])) for mean in means
    )
    trace = ops.sum(ops.diagonal(means[0]), axis=-1)[..., None, None]
    return RefreshedIdealized(Sides(statistics, (ops.sqrt(trace) * left_root, right_root)))


def _update(
    ops: Ops, grad: Array, state: Sides | RefreshedIdealized, param: Array, hyper: Hyper
) -> tuple[Array, Sides]:
    """Do a step of idealized Shampoo (002 Sec. 6.2.1).

    W <- W - eta sqrt(tr E[G G^T]) E[G G^T]^(-1/2) G E[G^T G]^(-1/2), where E is a running mean.
    """
    if isinstance(state, RefreshedIdealized):
        state = state.sides
    else:
        state = state._replace(statistics=_accumulated(ops, grad, state, hyper["beta2"]))
    left_root, right_root = state.roots
    return param - hyper["learning_rate"] * (left_root @ grad @ right_root), state


OPTIONS = {"refresh_every": Option(1, "steps between two computations of the roots", whole(1))}


@configured("idealized_shampoo", OPTIONS)
def idealized_shampoo(chosen: Options) -> Rule:
    """Return the update rule of idealized Shampoo; options that are not given keep their defaults.

    A tensor of more than two axes is treated as a matrix, outputs x all other entries. A vector or a number
    is treated as a matrix with one row, for which the trace and the left factor cancel: w <- w - eta E[g
    g^T]^(-1/2) g. Without epsilon, the step does not depend on the scale of gradients. The state of an m x n
    matrix has 2 m^2 + 2 n^2 numbers.
    """
    rule = Rule(
        name="idealized_shampoo",
        source="002 Sec. 6.2.1, Lemma 6.1",
        hyperparameters={
            "learning_rate": LEARNING_RATE,
            "beta2": share("the share of the statistics kept", 0.999, low_open=True),
            "epsilon": Hyperparameter(
                "times the identity, added to both statistics; 0: their pseudo-inverses", 0.0, 0.0
            ),
        },
        init=_init,
        update=_update,
        refresh=_refresh,
        refresh_every=chosen["refresh_every"],
    )
    return for_matrices(lambda order: rule)


RULES = (idealized_shampoo({}),)
