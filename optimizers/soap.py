"""SOAP: Adam in the eigenbasis of Shampoo's statistics, which is tracked from step to step.

For a matrix gradient G (m x n), the statistics are the running means of G G^T and G^T G. Q_L and Q_R have
the eigenvectors of these two statistics in columns. W is the parameter, eta the learning rate, and lambda the
weight decay. KL-SOAP (Lin et al. 2025, arXiv 2509.03378) has the statistics of KL-Shampoo instead.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from curvebench.optimizers.adam import Moments, adam_direction
from curvebench.optimizers.arrays import Array, Hyper, Ops, safe_divide
from curvebench.optimizers.matrix_functions import (
    descending_order,
    labelled_orthogonal_iteration,
    rank_cutoff,
    reorder,
)
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.rule import LEARNING_RATE, Hyperparameter, Part, Rule, share
from curvebench.optimizers.state_precision import HELD_WIDE, configured_with_state
from curvebench.optimizers.tensors import hyper_for_matrices, multiplied, second_moment
from curvebench.spec.values import choice, flag, whole

Refreshing = Callable[[Ops, Array, Array], Array]
LONGEST = 10_000  # Axes longer than this are not rotated (the limit of the authors' implementation).


class Rotated(NamedTuple):
    moments: Moments  # Adam's running means, in the coordinates of the bases.
    # Running mean of G G^T for each rotated axis, (..., n, n), which starts at 0.
    statistics: tuple[Array, ...]
    bases: tuple[Array, ...]  # Eigenvectors in columns for each rotated axis, (..., n, n).


class Started(NamedTuple):
    """State that `start` passes to `update` in the first step."""

    state: Rotated  # The statistics and bases already include the gradient of this step.


class Refreshed(NamedTuple):
    """State that `refresh` passes to `update` in the same step."""

    state: Rotated  # The statistics already include the gradient of the step.
    bases: tuple[Array, ...]  # Basis of each rotated axis for later steps, (..., n, n).


def eigenvectors(ops: Ops, matrix: Array) -> Array:
    """Return the eigenvectors of symmetric matrices (..., n, n) in columns, largest eigenvalue first."""
    values, vectors = ops.eigh(matrix)
    return reorder(ops, vectors, descending_order(ops, values), -1)


BASES: Mapping[str, Refreshing] = {
    "orthogonal_iteration": labelled_orthogonal_iteration,
    "eigendecomposition": lambda ops, statistic, basis: eigenvectors(ops, statistic),
}


@dataclass(frozen=True)
class _Soap:
    """Functions of the rule for tensors of `order` axes.

    Args:
        order: number of axes of a parameter.
        axes: the axes that are rotated to the eigenbases of their statistics.
        refreshing: `refreshing(ops, statistic, basis)`, which returns the next basis of an axis.
        skips_first: whether the first step leaves the parameters unchanged.
        whitened: whether the gradient is whitened along all other axes before it enters the statistic of an
            axis (KL-SOAP).
    """

    order: int
    axes: tuple[int, ...]
    refreshing: Refreshing
    skips_first: bool
    whitened: bool

    def init(self, ops: Ops, param: Array) -> Rotated:
        leading, shape = param.shape[: param.ndim - self.order], param.shape[param.ndim - self.order :]

        def zeros() -> list[Array]:
            return [ops.zeros((*leading, shape[axis], shape[axis])) for axis in self.axes]

        return Rotated(
            moments=Moments(ops.zeros_like(param), ops.zeros_like(param)),
            statistics=tuple(zeros()),
            bases=tuple(zero + ops.eye(zero.shape[-1]) for zero in zeros()),
        )

    def accumulated(self, ops: Ops, grad: Array, state: Rotated, hyper: Hyper) -> Rotated:
        """Add this step's gradient to the statistics, which have no bias correction."""
        decay = hyper_for_matrices(ops, hyper["shampoo_beta"], self.order)
        return state._replace(
            statistics=tuple(
                decay * statistic
                + (1 - decay) * second_moment(ops, self.seen(ops, grad, state, hyper, axis), self.order, axis)
                for axis, statistic in zip(self.axes, state.statistics, strict=True)
            )
        )

    def seen(self, ops: Ops, grad: Array, state: Rotated, hyper: Hyper, axis: int) -> Array:
        """Return the gradient that enters the statistic of an axis: for KL-SOAP, whitened along other axes.

        For a matrix and the statistic of its rows, that is G Q_R diag(r)^(-1/2) / sqrt(n), where r is the
        diagonal of Q_R^T R Q_R. R starts at the identity, whose share is added here, as it has no influence
        on eigenvectors. The smallest values in r are raised to the rank cutoff.
        """
        if not self.whitened:
            return grad
        start = hyper_for_matrices(ops, hyper["shampoo_beta"] ** (hyper["step"] - 1), self.order)[..., 0]
        matrices: list[Array | None] = []
        for other, statistic, basis in zip(self.axes, state.statistics, state.bases, strict=True):
            values = ops.sum(basis * (statistic @ basis), axis=-2) + start
            least = rank_cutoff(ops, basis.shape[-1]) * ops.max(values, axis=-1, keepdims=True)
            roots = ops.sqrt(ops.maximum(values, least))[..., None]
            matrices.append(None if other == axis else safe_divide(ops, ops.matrix_transpose(basis), roots))
        shape = grad.shape[grad.ndim - self.order :]
        return multiplied(ops, self.of_axes(matrices), grad) / math.sqrt(math.prod(shape) / shape[axis])

    def start(self, ops: Ops, grad: Array, state: Rotated, hyper: Hyper) -> Started:
        """Compute the first bases, the eigenvectors of the first step's statistics."""
        state = self.accumulated(ops, grad, state, hyper)
        return Started(state._replace(bases=tuple(eigenvectors(ops, matrix) for matrix in state.statistics)))

    def refresh(self, ops: Ops, grad: Array, state: Rotated, hyper: Hyper) -> Refreshed:
        """Compute the bases of the next steps from the statistics with this step's gradient."""
        state = self.accumulated(ops, grad, state, hyper)
        pairs = zip(state.statistics, state.bases, strict=True)
        return Refreshed(state, tuple(self.refreshing(ops, statistic, basis) for statistic, basis in pairs))

    def update(
        self, ops: Ops, grad: Array, state: Rotated | Started | Refreshed, param: Array, hyper: Hyper
    ) -> tuple[Array, Rotated]:
        """Do a step of SOAP: W <- (1 - eta lambda) (W - eta Q_L N Q_R^T).

        Q_L and Q_R are the bases of rows and columns, and N is Adam's direction for the rotated gradient
        Q_L^T G Q_R. The rule is Algorithm 3 of Vyas et al. 2024, "SOAP"; new bases are computed by `refresh`.
        """
        if isinstance(state, Started) and self.skips_first:
            return param, state.state
        refreshed = state if isinstance(state, Refreshed) else None
        state = self.accumulated(ops, grad, state, hyper) if isinstance(state, Rotated) else state.state
        rotated = multiplied(ops, self.of_axes(map(ops.matrix_transpose, state.bases)), grad)
        numbers = {**hyper, "step": hyper["step"] - 1} if self.skips_first else hyper
        direction, moments = adam_direction(ops, rotated, state.moments, numbers)
        direction = multiplied(ops, self.of_axes(state.bases), direction)
        new = param - hyper["learning_rate"] * direction
        new = new * (1 - hyper["learning_rate"] * hyper["weight_decay"])
        state = state._replace(moments=moments)
        return new, state if refreshed is None else self.change_basis(ops, state, refreshed.bases)

    def of_axes(self, matrices: Iterable[Array | None]) -> list[Array | None]:
        """Return the given matrices for the rotated axes, and None for axes that are not rotated."""
        matrix_of = dict(zip(self.axes, matrices, strict=True))
        return [matrix_of.get(axis) for axis in range(self.order)]

    def change_basis(self, ops: Ops, state: Rotated, bases: tuple[Array, ...]) -> Rotated:
        """Express the state in the new bases: rotate the first moment, and keep the second moment."""
        first = state.moments.first
        entries = math.prod(first.shape[first.ndim - self.order :])
        outward: list[Array | None] = []
        inward: list[Array] = []
        for old, new in zip(state.bases, map(ops.matrix_transpose, bases), strict=True):
            # If the parameter has few entries, it is multiplied by the old basis and then by the new basis.
            # The two multiplications need fewer operations than a product of the two bases.
            thin = entries < old.shape[-1] ** 2
            outward.append(old if thin else None)
            inward.append(new if thin else new @ old)
        if any(matrix is not None for matrix in outward):
            first = multiplied(ops, self.of_axes(outward), first)
        first = multiplied(ops, self.of_axes(inward), first)
        return state._replace(moments=state.moments._replace(first=first), bases=bases)


OPTIONS = {
    "refresh_every": Option(
        10,
        "steps between two changes of the basis; null: never after the first",
        whole(1, "never after the first"),
    ),
    "basis": Option(
        "orthogonal_iteration",
        "how the basis follows its statistics: orthogonal_iteration, one step by QR, or eigendecomposition",
        choice(*BASES),
    ),
    "statistics": Option(
        "plain",
        "running means of plain outer products, or kl, of those of the gradient whitened along all other "
        "axes (KL-SOAP)",
        choice("plain", "kl"),
    ),
    "skip_first_step": Option(
        True, "whether the first gradient moves nothing and only starts statistics and basis", flag
    ),
}


@configured_with_state("soap", OPTIONS, HELD_WIDE)
def soap(chosen: Options) -> Rule:
    """Return the update rule of SOAP; options that are not given keep their defaults.

    A gradient influences only the bases of later steps, not the bases of its own step. If a first statistic
    has a null space of two dimensions or more, as for an m x n matrix with m - n > 1, the eigenvectors in the
    null space are arbitrary, and so is the trajectory (002 Q.2.1). For this reason a 1 x n matrix counts as a
    vector, and vectors use Adam. After a decomposition, the i-th new eigenvector gets the second moment of
    the i-th old eigenvector.

    The state has 2 m n + 2 m^2 + 2 n^2 numbers for an m x n matrix, and 2 n for a vector. An axis longer than
    `LONGEST` is not rotated, and its term, 2 m^2 or 2 n^2, is not part of the state.
    """

    def axes_of(shape: tuple[int, ...]) -> tuple[int, ...]:
        long = [axis for axis, length in enumerate(shape) if length > 1]
        return tuple(axis for axis in long if len(long) > 1 and shape[axis] <= LONGEST)

    def rule(order: int, axes: tuple[int, ...]) -> Rule:
        whitened = chosen["statistics"] == "kl"
        functions = _Soap(order, axes, BASES[chosen["basis"]], chosen["skip_first_step"], whitened)
        return Rule(
            name="soap",
            source="000 Sec. 6, App. G; Adam: 002 eq. 46; the basis: 002 Q.2.1",
            hyperparameters={
                "learning_rate": LEARNING_RATE,
                "beta1": share("the share of the first moment kept", 0.95),
                "beta2": share("the share of the second moment kept", 0.95),
                "shampoo_beta": share("the share of the statistics kept", 0.95),
                "epsilon": Hyperparameter("added to the root, outside it; 0 is legal", 1e-8, 0.0),
                "weight_decay": Hyperparameter("lambda, multiplied by the learning rate", 0.01, 0.0),
            },
            init=functions.init,
            update=functions.update,
            scope="leaf",
            start=functions.start,
            refresh=functions.refresh if axes else None,
            refresh_every=chosen["refresh_every"],
        )

    parts = cache(lambda order, axes: Part(rule(order, axes)))
    return replace(
        rule(2, (0, 1)),
        part=lambda role, shape: parts(len(shape), axes_of(shape)),
        special_case=lambda shapes, roles: None if any(map(axes_of, shapes.values())) else "adam",
    )


RULES = (soap({}),)
