"""What a rule may need of the loss at each step besides its gradient: how it is evaluated, its cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
Ops = Any
Function = Callable[[Array], Array]  # of vectors


@dataclass(frozen=True)
class LossAtPoint:
    """The loss of one run's minibatch around the point of a step, with the backend's derivatives.

    Args:
        ops: the backend's array functions.
        point: all parameters (d,), each raveled in row-major order, end to end in the layout's order.
        loss: a scalar, of parameters (d,).
        grad: gives the gradient of a scalar function.
        hessian: gives the Hessian of a scalar function of a vector.
    """

    ops: Ops
    point: Array
    loss: Function
    grad: Callable[[Function], Function]
    hessian: Callable[[Function], Function]


@dataclass(frozen=True)
class Need:
    """What a rule needs; it finds the value in `hyper`, by the need's name.

    Args:
        name: its key.
        description: as in `needs <description> of the loss`.
        evaluate: `evaluate(loss) -> value` of one run; the engine maps it over lanes.
        gradient_evaluations: `f(d)`: what evaluating it costs for d parameters beside the gradient.
        entries: `f(d)`: how many numbers one run's value has.
        example: `f(d)`: a value on the host, of the shape that values have.
        change_basis: `change_basis(ops, to_coordinates, values) -> values` of lanes (S, K, ...), in
            coordinates into which `to_coordinates` takes gradients (S, any number, d); None where a value
            cannot be taken to others, so that the rule runs in the original coordinates alone.
    """

    name: str
    description: str
    evaluate: Callable[[LossAtPoint], Array]
    gradient_evaluations: Callable[[int], int]
    entries: Callable[[int], int]
    example: Callable[[int], np.ndarray]
    change_basis: Callable[[Ops, Function, Array], Array] | None = None


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
    evaluate=lambda at: at.hessian(at.loss)(at.point),
    gradient_evaluations=lambda dimension: dimension,  # one for each row
    entries=lambda dimension: dimension**2,
    example=np.eye,
    change_basis=_change_both_sides,
)
