"""Check of an update rule before a run: the result of a run must not depend on runs computed with it.

The check takes two steps on NumPy, of several runs at once and of each run alone. Lanes are the runs that are
computed together, S seeds x K settings. Their arrays have the leading axes (S, K). A rule must treat leading
axes as batch axes; otherwise its results would depend on which runs are computed together. A rule must not
branch on the values of arrays; otherwise it would fail on JAX.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers.arrays import map_arrays
from curvebench.optimizers.needs import Model
from curvebench.optimizers.rule import Hyperparameter, Rule
from curvebench.spec.errors import InputError
from curvebench.steps.derivatives import model_of
from curvebench.steps.layout import layout, roles_of
from curvebench.steps.update import Update

SHAPE = (2, 3)
# Shape of the parameters if the rule depends on layers.
# The shape is square, so that the outputs of a layer can be the inputs of the next layer.
SQUARE = (3, 3)
# Two parameters of the same shape, which a rule of scope `leaf` receives as a stack.
PARAMETERS = ("first", "second")
LANES = (2, 2)
STEPS = 2
# Accepted difference, since rounding may differ between a stack of matrices and single matrices.
TOLERANCE = 1e-9
GUIDE = "docs/how-to/add-an-optimizer.md"


class Traced(np.ndarray):
    """Array that raises an error if it is used as a Python number or truth value, as JAX does in tracing."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise InputError(
            "branches on the value of an array, or makes a Python number of it, which no run on JAX can; "
            f"use ops.where ({GUIDE})"
        )

    __bool__ = __float__ = __int__ = __index__ = _refuse


def check_lanes(rule: Rule) -> None:
    """Check that computing several lanes and parameters at once does not change the steps of any of them.

    Raises:
        InputError: if the rule mixes lanes, mixes parameters although its scope does not allow it, or
            branches on the values of arrays.
        Exception: any other exception that the rule raises.
    """
    rng = np.random.default_rng(0)
    size = (*LANES, len(PARAMETERS), *(SHAPE if rule.for_model is None else SQUARE))
    start = rng.uniform(0.5, 1.5, size)
    # The norms of gradients differ between lanes and parameters.
    # Therefore a rule that mixes lanes or parameters does not pass the check.
    lengths = 10.0 ** rng.uniform(-1, 1, (STEPS, *size[:3], 1, 1))
    grads = lengths * rng.standard_normal((STEPS, *size))
    batched = _stepped(rule, start, grads)
    for seed, setting in itertools.product(*map(range, LANES)):
        lane = np.s_[seed : seed + 1, setting : setting + 1]
        if not _close(batched[lane], _stepped(rule, start[lane], grads[:, *lane])):
            raise InputError(
                "mixes lanes: what a run computes would depend on how many seeds and rates are run beside "
                'it; sum over the axes of a parameter alone, such as axis=-1, with scope="leaf" where an '
                f"entry depends on others ({GUIDE})"
            )
    if rule.scope in ("model", "named") or rule.needs:
        return
    for number in range(len(PARAMETERS)):
        parameter = np.s_[:, :, number : number + 1]
        if not _close(batched[parameter], _stepped(rule, start[parameter], grads[:, *parameter])):
            raise InputError(
                f'mixes parameters, which its scope "{rule.scope}" does not allow; set scope="leaf" and sum '
                f'over the axes of a parameter alone, or scope="model" if all are meant ({GUIDE})'
            )


def _close(batched: np.ndarray, single: np.ndarray) -> bool:
    return bool(np.allclose(batched, single, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))


def _stepped(rule: Rule, start: np.ndarray, grads: np.ndarray) -> np.ndarray:
    """Return the parameters after a rule has taken one step for each of the given gradients.

    Args:
        rule: the rule.
        start: initial parameters of S seeds and K settings, (S, K, parameters, *shape).
        grads: gradients of each step, (steps, S, K, parameters, *shape).
    """
    ops = numpy_ops()
    shapes = dict.fromkeys(PARAMETERS[: start.shape[2]], start.shape[3:])
    update = Update(rule, layout(shapes, roles_of(shapes)))
    lanes = start.shape[:2]
    values = _values(rule, lanes, model_of(update.layout))
    with np.errstate(all="ignore"):
        flat = start.reshape(*lanes, -1).view(Traced)
        state = update.init(ops, flat)
        for number, grad in enumerate(grads, start=1):
            values["step"] = np.full((1, 1, 1), float(number)).view(Traced)
            update.point(ops, state, flat, values)
            flat_grad = grad.reshape(*lanes, -1).view(Traced)
            flat, state = update.apply(ops, flat_grad, state, flat, values, update.work_of(number))
    return np.asarray(flat).reshape(start.shape)


def _values(rule: Rule, lanes: tuple[int, ...], model: Model) -> dict[str, Any]:
    """Return, by name, the arrays that a rule receives besides gradient, state and number of the step.

    The arrays are the hyperparameters, the multiplier of the learning rate (`schedule`) and the needs of the
    rule, such as a Hessian.

    Args:
        rule: the rule.
        lanes: numbers of seeds and settings.
        model: shapes and roles of the parameters.
    """
    required = {name: _inside(hyper) for name, hyper in rule.hyperparameters.items() if hyper.default is None}
    numbers: Mapping[str, float] = {**rule.complete(required), "schedule": 1.0}
    values = {name: np.full((1, lanes[1], 1), value).view(Traced) for name, value in numbers.items()}

    def on_lanes(example: np.ndarray) -> np.ndarray:
        return np.broadcast_to(example, (*lanes, *example.shape)).view(Traced)

    return values | {need.name: map_arrays(on_lanes, need.example(model)) for need in rule.needs}


def _inside(hyper: Hyperparameter) -> float:
    """Return a value in the interior of a hyperparameter's legal interval."""
    if math.isfinite(hyper.low) and math.isfinite(hyper.high):
        return (hyper.low + hyper.high) / 2
    return hyper.low + 0.5 if math.isfinite(hyper.low) else min(hyper.high - 0.5, 0.5)
