"""Shampoo: gradients preconditioned on each side by a root of that side's second-moment matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from optimizers.matrix_functions import inverse_root, rank_cutoff
from optimizers.options import Option, OptionError, Options, choice, complete, whole
from optimizers.rule import LEARNING_RATE, Array, Hyperparameter, Ops, Part, Rule

Hyper = Mapping[str, Array]


class Factors(NamedTuple):
    statistics: tuple[Array, ...]  # of each axis (..., n, n), sum or running mean of G G^T, starts at 0
    roots: tuple[Array, ...]  # of each axis (..., n, n), what the gradient is multiplied with


def matricized(ops: Ops, tensor: Array, order: int, axis: int) -> Array:
    """A stack of tensors (..., n_1, ..., n_order) as matrices (..., n_axis, entries of the other axes)."""
    first = tensor.ndim - order
    moved = ops.swapaxes(tensor, first, first + axis)
    return ops.reshape(moved, (*moved.shape[: first + 1], -1))


def multiplied(ops: Ops, matrix: Array, tensor: Array, order: int, axis: int) -> Array:
    """The product of matrices (..., n_axis, n_axis) with that axis of tensors."""
    first = tensor.ndim - order
    moved = ops.swapaxes(tensor, first, first + axis)
    product = matrix @ ops.reshape(moved, (*moved.shape[: first + 1], -1))
    return ops.swapaxes(ops.reshape(product, tuple(moved.shape)), first, first + axis)


@dataclass(frozen=True)
class _Tensors:
    """The functions of the rule for tensors of `order` axes.

    Args:
        order: the number of a parameter's axes, from 1.
        averaged: whether statistics are running means.
        power: the exponent of each factor.
    """

    order: int
    averaged: bool
    power: float

    def init(self, ops: Ops, param: Array) -> Factors:
        leading = tuple(param.shape[: param.ndim - self.order])
        sizes = tuple(param.shape[param.ndim - self.order :])
        return Factors(
            tuple(ops.zeros((*leading, size, size)) for size in sizes),
            tuple(ops.zeros((*leading, size, size)) for size in sizes),
        )

    def accumulated(self, ops: Ops, grad: Array, state: Factors, hyper: Hyper) -> tuple[Array, ...]:
        """L_t and R_t with this step's gradient: the sum of eq. 53, or its running mean (002 Sec. 5.1)."""
        added = []
        for axis, before in enumerate(state.statistics):
            matrix = matricized(ops, grad, self.order, axis)
            outer = matrix @ ops.matrix_transpose(matrix)
            if self.averaged:
                kept = self.beside_matrices(ops, hyper["beta2"])
                added.append(kept * before + (1 - kept) * outer)
            else:
                added.append(before + outer)
        return tuple(added)

    def beside_matrices(self, ops: Ops, value: Array) -> Array:
        """A hyperparameter that broadcasts against parameters as one that does against statistics."""
        return ops.reshape(value, (*value.shape[: value.ndim - self.order], 1, 1))

    def refresh(self, ops: Ops, grad: Array, state: Factors, hyper: Hyper) -> Factors:
        """L_t^(-power) and R_t^(-power); of a singular matrix that of its pseudo-inverse (002 Fact 2.1)."""
        start = self.beside_matrices(ops, hyper["epsilon"])  # the first statistic is epsilon I
        share = 1.0
        if self.averaged:
            kept = self.beside_matrices(ops, hyper["beta2"] ** hyper["step"])
            start, share = start * kept / (1 - kept), 1 - kept
        roots = [
            inverse_root(ops, statistic / share, self.power, start, rank_cutoff(ops, statistic.shape[-1]))
            for statistic in self.accumulated(ops, grad, state, hyper)
        ]
        return state._replace(roots=tuple(roots))

    def update(
        self, ops: Ops, grad: Array, state: Factors, param: Array, hyper: Hyper
    ) -> tuple[Array, Factors]:
        """W <- W - eta L^(-power) G R^(-power), a factor an axis (002 eq. 53)."""
        direction = grad
        for axis, root in enumerate(state.roots):
            direction = multiplied(ops, root, direction, self.order, axis)
        statistics = self.accumulated(ops, grad, state, hyper)
        return param - hyper["learning_rate"] * direction, Factors(statistics, state.roots)


@dataclass(frozen=True)
class _Numbers(_Tensors):
    """The same for single numbers, as vectors of length 1."""

    def init(self, ops: Ops, param: Array) -> Factors:
        return super().init(ops, param[..., None])

    def refresh(self, ops: Ops, grad: Array, state: Factors, hyper: Hyper) -> Factors:
        return super().refresh(ops, grad[..., None], state, _with_axis(hyper))

    def update(
        self, ops: Ops, grad: Array, state: Factors, param: Array, hyper: Hyper
    ) -> tuple[Array, Factors]:
        new, state = super().update(ops, grad[..., None], state, param[..., None], _with_axis(hyper))
        return new[..., 0], state


def _with_axis(hyper: Hyper) -> dict[str, Array]:
    return {name: value[..., None] for name, value in hyper.items()}


def _read_power(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
        raise OptionError("is not a number in (0, 1], or null (1 / 2k for a tensor of k axes)")
    return float(value)


OPTIONS = {
    "statistics": Option("sum", "sum of outer products, or ema, their running mean", choice("sum", "ema")),
    "power": Option(
        None, "the exponent on each side; null: 1 / 2k for a tensor of k axes, 1/4 for a matrix", _read_power
    ),
    "refresh_every": Option(1, "steps between two computations of the roots", whole(1)),
}


def shampoo(options: Options) -> Rule:
    """The rule for some choices of its options, by name; the others have their defaults."""
    chosen = complete("shampoo", OPTIONS, options)
    averaged = chosen["statistics"] == "ema"
    numbers = {
        "learning_rate": LEARNING_RATE,
        "epsilon": Hyperparameter("times the identity: the first statistic; 0 is legal", 1e-6, 0.0),
    }
    if averaged:
        numbers["beta2"] = Hyperparameter(
            "the share of the statistics kept", 0.999, 0.0, 1.0, low_open=True, high_open=True
        )

    def rule(order: int) -> Rule:
        power = chosen["power"] or 1 / (2 * max(order, 1))
        functions = (_Tensors if order else _Numbers)(max(order, 1), averaged, power)
        return Rule(
            name="shampoo",
            source="002 eq. 53, Sec. 5.1; the exponent 1/2: Sec. 6.2, eq. 63",
            hyperparameters=numbers,
            init=functions.init,
            update=functions.update,
            scope="leaf",
            refresh=functions.refresh,
            refresh_every=chosen["refresh_every"],
            options=OPTIONS,
            chosen=chosen,
            build=shampoo,
        )

    parts = cache(lambda order: Part(rule(order)))
    return replace(rule(2), part=lambda kind, shape: parts(len(shape)))


RULES = (shampoo({}),)
