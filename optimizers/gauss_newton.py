"""Gauss-Newton, SPRING and Levenberg-Marquardt, for losses that are means of squared residuals.

In formulas, w is the vector of all d parameters, eta the learning rate, r the n residuals, and J their
Jacobian (n, d). Residuals are scaled, so that the minibatch loss is |r|^2 / 2 and its gradient J^T r. delta
is the step, so that w <- w - eta delta, and lambda the damping. All linear systems are solved in the smaller
of the spaces of residuals (n x n) and parameters (d x d). The rules read r and J, and not the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from curvebench.optimizers.arrays import Array, Hyper, Ops
from curvebench.optimizers.needs import Arrays, Function, LossAtPoint, Model, Need
from curvebench.optimizers.rule import LEARNING_RATE, Rule, positive, share


def _residuals(at: LossAtPoint) -> dict[str, Array]:
    """Return r and J. The Jacobian of each example is computed by one backward pass per output."""
    ops, residuals, likelihood = at.ops, at.residuals, at.likelihood
    RESIDUALS.check_likelihood("residuals", likelihood)
    assert residuals is not None
    assert likelihood is not None
    scale = math.sqrt(likelihood.scale / at.examples)

    def of_example(example: Arrays) -> dict[str, Array]:
        batch = {name: array[None] for name, array in example.items()}

        def flat(parameters: Arrays) -> tuple[Array, Arrays]:
            return ops.reshape(residuals(parameters, batch), (-1,)), {}

        values, pullback, _ = at.derivatives.vjp(flat, at.parameters, False)
        count = values.shape[0]
        gradients = at.derivatives.vmap(pullback, (0,))(ops.eye(count))
        rows = ops.concatenate([ops.reshape(gradients[name], (count, -1)) for name in at.model.shapes], -1)
        return {"residuals": scale * values, "jacobian": scale * rows}

    by_example = at.derivatives.vmap(of_example, (0,))(at.batch)
    return {
        "residuals": ops.reshape(by_example["residuals"], (-1,)),
        "jacobian": ops.reshape(by_example["jacobian"], (-1, at.model.dimension)),
    }


def _change_rows(ops: Ops, to_coordinates: Function, values: Mapping[str, Array]) -> dict[str, Array]:
    """Transform the rows of the Jacobians of all runs, (seeds, settings, n, d), like gradients."""
    seeds, settings, rows, size = values["jacobian"].shape
    changed = to_coordinates(ops.reshape(values["jacobian"], (seeds, settings * rows, size)))
    return {**values, "jacobian": ops.reshape(changed, (seeds, settings, rows, -1))}


def _count(model: Model) -> int:
    """Return n; d if it is not known, as where a caller computes the residuals."""
    return model.dimension if model.outputs is None else math.prod(model.outputs)


def _example(model: Model) -> dict[str, np.ndarray]:
    rows, columns = _count(model), model.dimension
    return {"residuals": np.ones(rows), "jacobian": np.eye(rows, columns)}


RESIDUALS = Need(
    name="residuals",
    description="the residuals and their Jacobian",
    evaluate=_residuals,
    # A backward pass per output of an example, as the gradients of one output of all examples together take
    # the time of a gradient.
    gradient_evaluations=lambda model: 1 if model.outputs is None else math.prod(model.outputs[1:]),
    entries=lambda model: _count(model) * (model.dimension + 1),
    example=_example,
    change_basis=_change_rows,
    of_likelihood="residuals",
    is_gaussian=True,
)


def _rows_times(matrices: Array, vectors: Array) -> Array:
    """Multiply matrices (..., n, d) by vectors (..., d)."""
    return (matrices @ vectors[..., None])[..., 0]


def damped_solution(ops: Ops, jacobian: Array, residuals: Array, damping: Array) -> Array:
    """Return the vector x (..., d) that minimizes |J x - r|^2 + lambda |x|^2.

    x = J^T (J J^T + lambda I)^-1 r = (J^T J + lambda I)^-1 J^T r.

    Args:
        jacobian: J, (..., n, d).
        residuals: r, (..., n).
        damping: lambda, (..., 1).
    """
    rows, columns = jacobian.shape[-2:]
    transposed = ops.matrix_transpose(jacobian)
    shift = damping[..., None] * ops.eye(min(rows, columns))
    if rows < columns:
        dual = ops.solve(jacobian @ transposed + shift, residuals[..., None])
        return (transposed @ dual)[..., 0]
    return ops.solve(transposed @ jacobian + shift, transposed @ residuals[..., None])[..., 0]


# --- a fixed damping -----------------------------------------------------------------------------


class LastStep(NamedTuple):
    step: Array  # delta of the step before, (..., d); it starts at 0.


def _update(ops: Ops, grad: Array, state: LastStep, param: Array, hyper: Hyper) -> tuple[Array, LastStep]:
    """Do a step of SPRING: delta minimizes |J delta - r|^2 + lambda |delta - mu delta'|^2 (eqs. 25-29).

    delta' is the step before. With mu = 0 it is a damped step of Gauss-Newton.
    """
    jacobian, residuals = hyper["residuals"]["jacobian"], hyper["residuals"]["residuals"]
    prior = hyper["momentum"] * state.step
    remaining = residuals - _rows_times(jacobian, prior)
    step = prior + damped_solution(ops, jacobian, remaining, hyper["damping"])
    return param - hyper["learning_rate"] * step, LastStep(step)


GAUSS_NEWTON = Rule(
    name="gauss_newton",
    source="Goldshlager et al. 2024 (arXiv 2401.10190); 2505.12149",
    hyperparameters={
        "learning_rate": LEARNING_RATE,
        "damping": positive("lambda, weight of the squared length of the step", 1e-3),
        "momentum": share("mu, the share of the step before near which the next one stays", 0.0),
    },
    init=lambda ops, param: LastStep(ops.zeros_like(param)),
    update=_update,
    scope="model",
    needs=(RESIDUALS,),
    first_moments=("step",),
)
SPRING = replace(
    GAUSS_NEWTON,
    name="spring",
    hyperparameters={
        **GAUSS_NEWTON.hyperparameters,
        "momentum": share("mu, the share of the step before near which the next one stays", 0.99),
    },
)


# --- a damping by the success of the last step ------------------------------------------------------


class DampedTrial(NamedTuple):
    step: Array  # Step eta delta from the parameters to the trial point, (..., d); it starts at 0.
    loss: Array  # Loss at the parameters, (..., 1).
    predicted: Array  # Decrease of the loss that the linearized residuals predict, (..., 1).
    damping: Array  # lambda, (..., 1).
    growth: Array  # Factor of the damping at the next rejected trial, (..., 1).


def _init_trial(ops: Ops, param: Array) -> DampedTrial:
    scalars = (ops.zeros_like(param[..., :1]) for _ in range(4))
    return DampedTrial(ops.zeros_like(param), *scalars)


def _update_trial(
    ops: Ops, grad: Array, state: DampedTrial, param: Array, hyper: Hyper
) -> tuple[Array, DampedTrial]:
    """Accept or reject the trial point, at which r and J are given, and choose the next one.

    An accepted point becomes the parameters, and lambda is multiplied by max(1/3, 1 - (2 q - 1)^3), where q
    is the decrease of the loss over the predicted decrease. After a rejection lambda is multiplied by 2, 4,
    8, ..., and the next evaluation is at the parameters, where J is needed again (Nielsen 1999, Sec. 2.3).
    """
    jacobian, residuals = hyper["residuals"]["jacobian"], hyper["residuals"]["residuals"]
    loss = 0.5 * ops.sum(ops.square(residuals), axis=-1, keepdims=True)
    is_first, is_trial = hyper["step"] == 1, state.predicted > 0
    gain = (state.loss - loss) / ops.where(is_trial, state.predicted, 1.0)
    accepted = is_first | ~is_trial | (gain > 0)
    param = ops.where(accepted, param - state.step, param)
    factor = ops.maximum(1 - (2 * gain - 1) ** 3, 1 / 3)
    factor = ops.where(is_trial, ops.where(accepted, factor, state.growth), 1.0)
    damping = ops.where(is_first, hyper["damping"], state.damping * factor)
    growth = ops.where(
        is_trial & ~accepted, 2 * state.growth, ops.where(is_trial | is_first, 2.0, state.growth)
    )
    solution = hyper["learning_rate"] * damped_solution(ops, jacobian, residuals, damping)
    step = ops.where(accepted, solution, 0.0)
    remaining = residuals - _rows_times(jacobian, step)
    predicted = loss - 0.5 * ops.sum(ops.square(remaining), axis=-1, keepdims=True)
    return param, DampedTrial(step, ops.where(accepted, loss, state.loss), predicted, damping, growth)


LEVENBERG_MARQUARDT = Rule(
    name="levenberg_marquardt",
    source="Nielsen 1999, Damping parameter in Marquardt's method, Sec. 2.3",
    hyperparameters={
        "learning_rate": LEARNING_RATE,
        "damping": positive("lambda at the first step", 1e-3),
    },
    init=_init_trial,
    update=_update_trial,
    gradient_at=lambda ops, state, param, hyper: param - state.step,
    scope="model",
    needs=(RESIDUALS,),
    compares_losses=True,
)

RULES = (GAUSS_NEWTON, SPRING, LEVENBERG_MARQUARDT)
