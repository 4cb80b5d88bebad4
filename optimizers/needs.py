"""What a rule may need of the loss at each step besides its gradient: how it is evaluated, its cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from curvebench.optimizers.options import OptionError

GUIDE = "docs/how-to/add-a-workload.md"
Array = Any
Ops = Any
Arrays = Mapping[str, Array]
Function = Callable[[Array], Array]  # of vectors


class TargetLikelihood(Protocol):
    """The distribution of targets by a model's outputs, whose mean negative logarithm the loss is."""

    @property
    def family(self) -> str:
        """`categorical`, outputs being logits, or `gaussian`, means with unit variance."""

    @property
    def scale(self) -> float:
        """What the mean negative log-likelihood is multiplied with in the loss."""


class AutomaticDifferentiation(Protocol):
    """A backend's automatic differentiation of functions of one run."""

    def grad(self, function: Function) -> Function:
        """The gradient of a scalar function of a tree of arrays."""

    def hessian(self, function: Function) -> Function:
        """The Hessian of a scalar function of a vector."""

    def vjp(
        self, function: Callable[[Any], tuple[Any, Any]], point: Any, alone: bool
    ) -> tuple[Any, Function, Any]:
        """`(value, pullback, others)` of `function(point) -> (value, others)`.

        `pullback` takes a cotangent of the value to that of the point. `alone` says that it is not mapped.
        """


@dataclass(frozen=True)
class Model:
    """The parameters of one run.

    Args:
        shapes, roles: by parameter name, in the order of the layout.
    """

    shapes: Mapping[str, tuple[int, ...]]
    roles: Mapping[str, Any]

    @property
    def dimension(self) -> int:
        """The number of all entries."""
        return sum(math.prod(shape) for shape in self.shapes.values())


@dataclass(frozen=True)
class LossAtPoint:
    """The loss of one run's minibatch around the point of a step, with the backend's derivatives.

    Args:
        ops: the backend's array functions.
        model: shapes and roles of the parameters.
        point: all parameters (d,), each raveled in row-major order, end to end in the layout's order.
        parameters: the same by name.
        loss: a scalar, of parameters (d,).
        loss_by: a scalar, of a table of array functions and parameters by name.
        outputs: the model's outputs (examples, ..., C) for the minibatch, of a table and parameters by name;
            None where the workload does not say them.
        likelihood: of targets by outputs; None there too.
        draws: what targets are drawn with, of the outputs' shape; None where the need draws nothing.
        examples: in the minibatch.
        derivatives: of functions of one run.
        alone: whether the run is not mapped with others.
    """

    ops: Ops
    model: Model
    point: Array
    parameters: Arrays
    loss: Function
    loss_by: Callable[[Ops, Arrays], Array]
    outputs: Callable[[Ops, Arrays], Array] | None
    likelihood: TargetLikelihood | None
    draws: Array | None
    examples: int
    derivatives: AutomaticDifferentiation
    alone: bool


@dataclass(frozen=True)
class Need:
    """What a rule needs; it finds the value in `hyper`, by the need's name.

    Args:
        name: its key.
        description: as in `needs <description> of the loss`.
        evaluate: `evaluate(loss) -> value` of one run, an array or nested mappings of arrays; the engine maps
            it over lanes.
        gradient_evaluations: `f(model)`: what evaluating it costs beside the gradient.
        entries: `f(model)`: how many numbers one run's value has.
        example: `f(model)`: a value on the host, of the shapes that values have.
        change_basis: `change_basis(ops, to_coordinates, values) -> values` of lanes (S, K, ...), in
            coordinates into which `to_coordinates` takes gradients (S, any number, d); None where a value
            cannot be taken to others, so that the rule runs in the original coordinates alone.
        amortized: whether it is evaluated only at the steps that the rule's `observe_every` says, and is
            there for `observe` alone.
        draw: `draw(likelihood, generator, shape) -> array` draws on the host what targets of the shape of a
            model's outputs are made of; None where nothing is drawn.
        of_likelihood: what needs the workload's likelihood, such as an option; empty where it is not needed.
        is_mean: whether the mean of its values on equal parts of a minibatch is its value on the whole, as of
            a mean over examples; else it is refused where gradients are accumulated.
    """

    name: str
    description: str
    evaluate: Callable[[LossAtPoint], Any]
    gradient_evaluations: Callable[[Model], int]
    entries: Callable[[Model], int]
    example: Callable[[Model], Any]
    change_basis: Callable[[Ops, Function, Array], Array] | None = None
    amortized: bool = False
    draw: Callable[[TargetLikelihood, np.random.Generator, tuple[int, ...]], np.ndarray] | None = None
    of_likelihood: str = ""
    is_mean: bool = False

    def check_likelihood(self, owner: str, likelihood: TargetLikelihood | None) -> None:
        """Raise OptionError where a workload does not give the likelihood that a rule, `owner`, needs."""
        if self.of_likelihood and likelihood is None:
            raise OptionError(
                f"{owner}: {self.of_likelihood}: the workload does not say how its targets are drawn from "
                f"its model; give its likelihood ({GUIDE})"
            )


def _change_both_sides(ops: Ops, to_coordinates: Function, matrices: Array) -> Array:
    """J^T H J, one row and column a coordinate, of (S, K, d, d); J is V for a rotation."""
    for _ in range(2):
        seeds, settings, rows, size = matrices.shape
        changed = to_coordinates(ops.reshape(matrices, (seeds, settings * rows, size)))
        matrices = ops.swapaxes(ops.reshape(changed, (seeds, settings, rows, -1)), -1, -2)
    return matrices


HESSIAN = Need(
    name="hessian",
    description="the Hessian",
    evaluate=lambda at: at.derivatives.hessian(at.loss)(at.point),
    gradient_evaluations=lambda model: model.dimension,  # one for each row
    entries=lambda model: model.dimension**2,
    example=lambda model: np.eye(model.dimension),
    change_basis=_change_both_sides,
    is_mean=True,
)
