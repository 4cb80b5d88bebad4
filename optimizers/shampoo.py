"""Shampoo: gradients preconditioned along each axis by a root of the axis' second-moment matrix.

For a matrix gradient G (m x n), the statistics are L = sum of G G^T for the rows and R = sum of G^T G for the
columns; a tensor of k axes has one statistic per axis. W is the parameter and eta the learning rate.

KL-Shampoo (Lin et al. 2025, arXiv 2509.03378) has other statistics, the running means L of G R^-1 G^T / n and
R of G^T L^-1 G / m. Their Kronecker product is nearest to the second moment of all entries of G, by the
Kullback-Leibler divergence between normal distributions with these covariances.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from curvebench.optimizers.adagrad import ADAGRAD
from curvebench.optimizers.adam import ADAM
from curvebench.optimizers.arrays import Array, Hyper, Ops, State
from curvebench.optimizers.gradient_descent import SGD, Empty
from curvebench.optimizers.matricization import seen_through
from curvebench.optimizers.matrix_functions import inverse_root, rank_cutoff
from curvebench.optimizers.matrix_functions.scaling import normalized
from curvebench.optimizers.options import Option, OptionError, Options
from curvebench.optimizers.rule import (
    LEARNING_RATE,
    Hyperparameter,
    ParameterRole,
    Part,
    Roles,
    Rule,
    Shapes,
    positive,
    share,
)
from curvebench.optimizers.state_precision import HELD_WIDE, configured_with_state
from curvebench.optimizers.tensors import Blocks, hyper_for_matrices, multiplied, second_moment
from curvebench.spec.values import choice, is_number, whole

GRAFTING: Mapping[str, Rule | None] = {"none": None, "sgd": SGD, "adagrad": ADAGRAD, "adam": ADAM}


class ShampooFactors(NamedTuple):
    # For each axis, sum or running mean of G G^T for the gradient matricized along it, (..., n, n).
    statistics: tuple[Array, ...]
    roots: tuple[Array, ...]  # Inverse root for each axis, (..., n, n), by which the gradient is multiplied.
    grafting: State  # State of the grafting rule, or Empty() without grafting.


class RefreshedShampoo(NamedTuple):
    """State that `refresh` passes to `update` in the same step."""

    factors: ShampooFactors  # The statistics already include the gradient of the step.


@dataclass(frozen=True)
class _Tensors:
    """Functions of the rule for tensors of `order` axes.

    Args:
        order: number of axes of a parameter, at least 1.
        averaged: whether statistics are running means; otherwise they are sums.
        whitened: whether the gradient is whitened along all other axes before it enters the statistic of an
            axis (KL-Shampoo). The power is then 1/2.
        power: the statistics are raised to the exponent -power.
        blocks: division of parameters into blocks that are preconditioned separately, or None.
        grafting: rule whose step has the length that each step of Shampoo gets, or None.
    """

    order: int
    averaged: bool
    whitened: bool
    power: float
    blocks: Blocks | None
    grafting: Rule | None

    def init(self, ops: Ops, param: Array) -> ShampooFactors:
        tensors = self.seen(ops, param)
        leading = tuple(tensors.shape[: tensors.ndim - self.order])
        sizes = tuple(tensors.shape[tensors.ndim - self.order :])

        def zeros() -> tuple[Array, ...]:
            return tuple(ops.zeros((*leading, size, size)) for size in sizes)

        return ShampooFactors(
            statistics=zeros(),
            roots=tuple(zero + ops.eye(zero.shape[-1]) for zero in zeros()) if self.whitened else zeros(),
            grafting=Empty() if self.grafting is None else self.grafting.init(ops, param),
        )

    def seen(self, ops: Ops, tensor: Array) -> Array:
        """Return the tensors that are preconditioned: whole parameters, or blocks of parameters."""
        return tensor if self.blocks is None else self.blocks.cut(ops, tensor)

    def beside_factors(self, ops: Ops, value: Array) -> Array:
        """Reshape a hyperparameter that broadcasts against parameters to broadcast against statistics."""
        matrices = hyper_for_matrices(ops, value, self.order)
        if self.blocks is None:
            return matrices
        return ops.reshape(matrices, (*matrices.shape, *(1,) * self.order))

    def accumulated(self, ops: Ops, grad: Array, state: ShampooFactors, hyper: Hyper) -> tuple[Array, ...]:
        """Return the statistics (L and R for a matrix) after adding this step's gradient to them."""
        statistics, tensors = [], self.seen(ops, grad)
        for axis, statistic in enumerate(state.statistics):
            seen = tensors
            if self.whitened:
                others = [None if number == axis else root for number, root in enumerate(state.roots)]
                columns = math.prod(root.shape[-1] for root in others if root is not None)
                seen = multiplied(ops, others, tensors) / math.sqrt(columns)
            outer = second_moment(ops, seen, self.order, axis)
            if self.averaged:
                decay = self.beside_factors(ops, hyper["beta2"])
                statistics.append(decay * statistic + (1 - decay) * outer)
            else:
                statistics.append(statistic + outer)
        return tuple(statistics)

    def refresh(self, ops: Ops, grad: Array, state: ShampooFactors, hyper: Hyper) -> RefreshedShampoo:
        """Compute L^(-power) and R^(-power); for singular L or R, the power of its pseudo-inverse.

        See 002 Fact 2.1. The means of KL-Shampoo have no bias correction, because they are whitened from
        their start on.
        """
        start = self.beside_factors(ops, hyper["epsilon"])  # The sum of statistics starts at epsilon I.
        share = 1.0
        if self.averaged:
            decayed = self.beside_factors(ops, hyper["beta2"] ** hyper["step"])
            start, share = start * decayed, 1.0 if self.whitened else 1 - decayed
            start = start / share
        statistics = self.accumulated(ops, grad, state, hyper)
        roots = tuple(
            inverse_root(ops, statistic / share, self.power, start, rank_cutoff(ops, statistic.shape[-1]))
            for statistic in statistics
        )
        return RefreshedShampoo(state._replace(statistics=statistics, roots=roots))

    def update(
        self, ops: Ops, grad: Array, state: ShampooFactors | RefreshedShampoo, param: Array, hyper: Hyper
    ) -> tuple[Array, ShampooFactors]:
        """Do a step of Shampoo: for a matrix, W <- W - eta L^(-power) G R^(-power) (002 eq. 53).

        A tensor is multiplied by one such root along each axis. With grafting, the step is scaled to the
        length of the step by the grafting rule.
        """
        if isinstance(state, RefreshedShampoo):
            state = state.factors
        else:
            state = state._replace(statistics=self.accumulated(ops, grad, state, hyper))
        direction = multiplied(ops, state.roots, self.seen(ops, grad))
        if self.blocks is not None:
            direction = self.blocks.joined(ops, direction)
        if self.grafting is None:
            return param - hyper["learning_rate"] * direction, state
        names = {name: f"grafting_{name}" for name in self.grafting.hyperparameters}
        names |= {name: name for name in ("learning_rate", "step", "schedule")}
        numbers = {name: hyper[full_name] for name, full_name in names.items()}
        step, grafting = self.grafting.update(ops, grad, state.grafting, ops.zeros_like(param), numbers)
        axes = tuple(range(-self.order, 0))
        _, length = normalized(ops, step, axes)
        unit, _ = normalized(ops, direction, axes)
        return param - length * unit, state._replace(grafting=grafting)


def _read_power(value: Any) -> Any:
    if value is None:
        return None
    if not is_number(value) or not 0 < value <= 1:
        raise OptionError("is not a number in (0, 1], or null (1 / 2k for a tensor of k axes)")
    return float(value)


OPTIONS = {
    "statistics": Option(
        "sum",
        "sum of outer products; ema, their running mean; or kl, that of outer products of the gradient "
        "whitened along all other axes (KL-Shampoo)",
        choice("sum", "ema", "kl"),
    ),
    "power": Option(
        None,
        "the exponent on each side; null: 1 / 2k for a tensor of k axes, 1/4 for a matrix, and 1/2 with kl",
        _read_power,
    ),
    "refresh_every": Option(1, "steps between two computations of the roots", whole(1)),
    "block_size": Option(
        None,
        "axes longer than this are cut into equal blocks no longer than this, each preconditioned apart; "
        "null: none is cut",
        whole(1, "none is cut"),
    ),
    "grafting": Option(
        "none",
        "none, or the rule whose own step gives each parameter's step its length: "
        f"{', '.join(name for name in GRAFTING if name != 'none')}",
        choice(*GRAFTING),
    ),
}


@configured_with_state("shampoo", OPTIONS, HELD_WIDE)
def shampoo(chosen: Options) -> Rule:
    """Return the update rule of Shampoo; options that are not given keep their defaults.

    Blocks (Anil et al. 2020, "Scalable second order optimization for deep learning"): a parameter with an
    axis longer than `block_size` is divided into blocks, each of which is preconditioned like a separate
    parameter. Grafting (Agarwal et al. 2020, "Disentangling adaptive gradient methods from learning rates"):
    Shampoo determines the direction of a parameter's step. Another rule with the same learning rate
    determines the Frobenius norm of the step.

    The state has 2 m^2 + 2 n^2 numbers for an m x n matrix, or 4 m n if the matrix is divided into square
    blocks without remainder. The state of the grafting rule is added.
    """
    averaged, whitened = chosen["statistics"] != "sum", chosen["statistics"] == "kl"
    size, grafting = chosen["block_size"], GRAFTING[chosen["grafting"]]
    if whitened and chosen["power"] not in (None, 0.5):
        raise OptionError("shampoo: power: is 1/2 with statistics kl; leave it out, or take other statistics")
    numbers = {
        "learning_rate": LEARNING_RATE,
        "epsilon": Hyperparameter("times the identity: the first statistic; 0 is legal", 1e-6, 0.0),
    }
    if whitened:
        numbers["epsilon"] = positive("times the identity: the first statistic", 1.0)
    if averaged:
        numbers["beta2"] = share("the share of the statistics kept", 0.999, low_open=True)
    if grafting is not None:
        numbers |= {
            f"grafting_{name}": spec
            for name, spec in grafting.hyperparameters.items()
            if name != "learning_rate"
        }

    def rule(order: int, blocks: Blocks | None) -> Rule:
        power = chosen["power"] or (0.5 if whitened else 1 / (2 * max(order, 1)))
        functions = _Tensors(max(order, 1), averaged, whitened, power, blocks, grafting)
        tensors = Rule(
            name="shampoo",
            source="002 eq. 53, Sec. 5.1; the exponent 1/2: Sec. 6.2, eq. 63",
            hyperparameters=numbers,
            init=functions.init,
            update=functions.update,
            scope="leaf",
            refresh=functions.refresh,
            refresh_every=chosen["refresh_every"],
        )
        # A scalar is treated as a vector of length 1.
        return tensors if order else seen_through(tensors, lambda ops, array: array[..., None])

    parts = cache(lambda order, blocks: Part(rule(order, blocks)))

    def part(role: ParameterRole, shape: tuple[int, ...]) -> Part:
        is_cut = size is not None and any(length > size for length in shape)
        return parts(len(shape), Blocks(shape, size) if is_cut else None)

    def special_case(shapes: Shapes, roles: Roles) -> str | None:
        """Return `adagrad_full` if every parameter is a vector, whose only root is that of full Adagrad."""
        is_full = not averaged and grafting is None and chosen["refresh_every"] == 1
        is_full = is_full and chosen["power"] in (None, 0.5)
        vectors = all(len(shape) < 2 and max((0, *shape)) <= (size or math.inf) for shape in shapes.values())
        return "adagrad_full" if is_full and vectors else None

    return replace(rule(2, None), part=part, special_case=special_case)


RULES = (shampoo({}),)
