"""Needs: values that a rule uses besides the gradient, such as a Hessian, and how they are computed.

The function of a need computes the need's value for one run, without batch axes. The engine maps the function
over lanes, the runs of a batch, which are S seeds times K settings.
"""

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
# Function whose only argument is a vector, such as the loss of a run as a function of its parameters.
Function = Callable[[Array], Array]


class TargetLikelihood(Protocol):
    """Distribution of the targets given the model's outputs (curvebench.workloads.workload.Likelihood)."""

    @property
    def family(self) -> str:
        """Name of the distribution's family, `categorical` or `gaussian`.

        The model's outputs are the logits of a categorical distribution, or the means of a Gaussian
        distribution with variance 1.
        """

    @property
    def scale(self) -> float:
        """Factor by which the loss multiplies the mean negative log-likelihood of the targets."""


class AutomaticDifferentiation(Protocol):
    """A backend's automatic differentiation, for functions of a single run, without batch axes."""

    def grad(self, function: Function) -> Function:
        """Return the gradient of a scalar function of a tree of arrays."""

    def hessian(self, function: Function) -> Function:
        """Return the Hessian of a scalar function of a vector."""

    def vmap(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
        """Vectorize a function over one axis of each argument, given by `axes`; None is for no axis."""

    def vjp(
        self, function: Callable[[Any], tuple[Any, Any]], point: Any, unbatched: bool
    ) -> tuple[Any, Function, Any]:
        """Return `(value, pullback, others)` for a function with `function(point) -> (value, others)`.

        `pullback` maps a cotangent of `value` to a cotangent of `point`; `others` is not differentiated.
        `unbatched` is true if the run is computed by itself, and not mapped together with other runs.
        """


@dataclass(frozen=True)
class Model:
    """Shapes and roles of the parameters of one run.

    Args:
        shapes: shapes by parameter name, in the order in which parameters are joined to one vector.
        roles: roles (curvebench.workloads.workload.Role) by parameter name, in the same order.
        outputs: shape (examples, ..., C) of the outputs of a model with a Gaussian likelihood for one
            minibatch; None if it is not known.
    """

    shapes: Mapping[str, tuple[int, ...]]
    roles: Mapping[str, Any]
    outputs: tuple[int, ...] | None = None

    @property
    def dimension(self) -> int:
        """Number of entries of all parameters together, d."""
        return sum(math.prod(shape) for shape in self.shapes.values())


@dataclass(frozen=True)
class LossAtPoint:
    """The minibatch loss of one run as a function of its parameters, with the backend's differentiation.

    This is the argument of a need's `evaluate`.

    Args:
        ops: the array functions of the backend.
        model: shapes and roles of the parameters.
        point: the parameters at which the need is evaluated, as one vector (d,): each parameter raveled in
            row-major order, in the order of `model.shapes`.
        parameters: the same parameters as arrays, by parameter name.
        loss: `loss(vector) -> scalar`, the minibatch loss at parameters (d,).
        loss_by: `loss_by(ops, parameters) -> scalar`, the minibatch loss at parameters by name.
        outputs: `outputs(ops, parameters) -> (examples, ..., C)`, the model's outputs for the minibatch; None
            if the workload has no likelihood.
        residuals: `residuals(parameters, batch) -> (examples, ..., C)`, the outputs minus the targets for
            some examples; None if the workload has no Gaussian likelihood.
        batch: the minibatch by field; the first axis of each array counts examples.
        likelihood: distribution of the targets given the outputs; None if the workload has no likelihood.
        draws: the random numbers that the need has drawn (`Need.draw`); None if the need has no `draw`.
        examples: number of examples in the minibatch.
        derivatives: automatic differentiation of functions of one run.
        unbatched: whether the run is computed by itself, and not mapped together with other runs.
    """

    ops: Ops
    model: Model
    point: Array
    parameters: Arrays
    loss: Function
    loss_by: Callable[[Ops, Arrays], Array]
    outputs: Callable[[Ops, Arrays], Array] | None
    residuals: Callable[[Arrays, Arrays], Array] | None
    batch: Arrays
    likelihood: TargetLikelihood | None
    draws: Array | None
    examples: int
    derivatives: AutomaticDifferentiation
    unbatched: bool


@dataclass(frozen=True)
class Need:
    """A value that a rule uses besides the gradient, and reads from `hyper` under the need's name.

    Args:
        name: key of the value in `hyper`.
        description: noun phrase for messages such as "needs <description> of the loss".
        evaluate: `evaluate(loss: LossAtPoint) -> value` for one run, an array or nested mappings of arrays.
            The engine maps it over the runs of a batch.
        gradient_evaluations: `gradient_evaluations(model) -> int`, the cost of one evaluation, counted in
            gradients of the minibatch loss and added to the cost of the gradient itself.
        entries: `entries(model) -> int`, the number of floats in the value of one run.
        example: `example(model) -> value`, a NumPy value of the right shapes.
        change_basis: `change_basis(ops, to_coordinates, values) -> values`, which transforms the values of
            all runs (seeds, settings, ...) to the coordinates of a basis; `to_coordinates` transforms
            gradients (seeds, any number, d). None for a need whose value cannot be transformed; the rule then
            runs in the original coordinates only.
        amortized: whether the value is computed only at the steps at which the rule's `observe` runs, every
            `observe_every` steps.
        draw: `draw(likelihood, generator, shape) -> array`, which draws, on the host, the random numbers of a
            step; None for a need without random numbers. `shape` is the shape of the model's outputs, for
            numbers from which targets are sampled, or (1, d) if `is_probe`.
        is_probe: whether `draw` draws one number for each of the d entries of the parameters.
        of_likelihood: the option or rule that requires the workload's likelihood, for messages; empty if the
            need does not use the likelihood.
        is_gaussian: whether the likelihood must be Gaussian. The first axis of the value's arrays then has
            any length, as the number of residuals differs between workloads.
        is_mean: whether the value on a minibatch is the mean of the values on equal parts of the minibatch.
            Otherwise the rule cannot run with accumulated gradients.

    Example:
        The derivative of the loss in the direction of all ones, which a rule reads as `hyper["slope"]`:

        >>> import numpy as np
        >>> from curvebench import Need
        >>> SLOPE = Need(
        ...     name="slope",
        ...     description="the derivative along (1, ..., 1)",
        ...     evaluate=lambda at: at.ops.sum(at.derivatives.grad(at.loss)(at.point)),
        ...     gradient_evaluations=lambda model: 1,
        ...     entries=lambda model: 1,
        ...     example=lambda model: np.zeros(()),
        ...     is_mean=True,
        ... )
    """

    name: str
    description: str
    evaluate: Callable[[LossAtPoint], Any]
    gradient_evaluations: Callable[[Model], int]
    entries: Callable[[Model], int]
    example: Callable[[Model], Any]
    change_basis: Callable[[Ops, Function, Array], Array] | None = None
    amortized: bool = False
    draw: Callable[[Any, np.random.Generator, tuple[int, ...]], np.ndarray] | None = None
    is_probe: bool = False
    of_likelihood: str = ""
    is_gaussian: bool = False
    is_mean: bool = False

    def check_likelihood(self, owner: str, likelihood: TargetLikelihood | None) -> None:
        """Check that the workload has the likelihood that the need requires; otherwise raise an OptionError.

        Args:
            owner: name of the rule, for the message.
            likelihood: the workload's likelihood, or None.
        """
        if self.of_likelihood and likelihood is None:
            raise OptionError(
                f"{owner}: {self.of_likelihood}: the workload does not say how its targets are drawn from "
                f"its model; give its likelihood ({GUIDE})"
            )
        if self.is_gaussian and likelihood is not None and likelihood.family != "gaussian":
            raise OptionError(
                f"{owner}: {self.of_likelihood}: the loss of the workload is no mean of squared residuals; "
                f"its likelihood is {likelihood.family}"
            )


def _change_both_sides(ops: Ops, to_coordinates: Function, matrices: Array) -> Array:
    """Return J^T H J for `matrices` H (seeds, settings, d, d), where theta = J c is the change of basis."""
    for _ in range(2):
        seeds, settings, rows, size = matrices.shape
        changed = to_coordinates(ops.reshape(matrices, (seeds, settings * rows, size)))
        matrices = ops.swapaxes(ops.reshape(changed, (seeds, settings, rows, -1)), -1, -2)
    return matrices


HESSIAN = Need(
    name="hessian",
    description="the Hessian",
    evaluate=lambda at: at.derivatives.hessian(at.loss)(at.point),
    # Each row of the Hessian costs about as much as a gradient.
    gradient_evaluations=lambda model: model.dimension,
    entries=lambda model: model.dimension**2,
    example=lambda model: np.eye(model.dimension),
    change_basis=_change_both_sides,
    is_mean=True,
)

LOSS = Need(
    name="loss",
    description="the value",
    evaluate=lambda at: at.loss(at.point),
    # The loss costs nothing in addition, because it is computed together with the gradient.
    gradient_evaluations=lambda model: 0,
    entries=lambda model: 1,
    example=lambda model: np.ones(()),
    change_basis=lambda ops, to_coordinates, values: values,
)
