"""Two steps of a rule on NumPy, lanes together and each alone: what a rule must not do shows before a run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers.needs import Model
from curvebench.optimizers.rule import Hyperparameter, Rule, map_arrays
from curvebench.spec.errors import InputError
from curvebench.steps.derivatives import model_of
from curvebench.steps.layout import layout, roles_of
from curvebench.steps.update import Update

SHAPE = (2, 3)
SQUARE = (3, 3)  # of a rule that sees layers: each takes what the one before it gives
PARAMETERS = ("first", "second")  # alike, so that a rule of leaves sees them stacked
LANES = (2, 2)
STEPS = 2
TOLERANCE = 1e-9  # libraries may round stacked matrices otherwise than single ones
GUIDE = "docs/how-to/add-an-optimizer.md"


class Traced(np.ndarray):
    """An array whose values may not decide what is computed, as when JAX traces a rule."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise InputError(
            "branches on the value of an array, or makes a Python number of it, which no run on JAX can; "
            f"use ops.where ({GUIDE})"
        )

    __bool__ = __float__ = __int__ = __index__ = _refuse


def check_lanes(rule: Rule) -> None:
    """Take steps of a rule with several lanes and parameters, and again with each alone: they must be equal.

    Raises:
        InputError: for a rule that mixes lanes, or parameters where it must not, or branches on values.
        Exception: whatever else the rule raises.
    """
    rng = np.random.default_rng(0)
    size = (*LANES, len(PARAMETERS), *(SHAPE if rule.for_model is None else SQUARE))
    start = rng.uniform(0.5, 1.5, size)
    # lengths that differ between lanes and between parameters
    lengths = 10.0 ** rng.uniform(-1, 1, (STEPS, *size[:3], 1, 1))
    grads = lengths * rng.standard_normal((STEPS, *size))
    together = _stepped(rule, start, grads)
    for seed, setting in itertools.product(*map(range, LANES)):
        lane = np.s_[seed : seed + 1, setting : setting + 1]
        alone = _stepped(rule, start[lane], grads[:, *lane])
        if not _close(together[lane], alone):
            raise InputError(
                "mixes lanes: what a run computes would depend on how many seeds and rates are run beside "
                'it; sum over the axes of a parameter alone, such as axis=-1, with scope="leaf" where an '
                f"entry depends on others ({GUIDE})"
            )
    if rule.scope in ("model", "named") or rule.needs:
        return
    for number in range(len(PARAMETERS)):
        own = np.s_[:, :, number : number + 1]
        if not _close(together[own], _stepped(rule, start[own], grads[:, *own])):
            raise InputError(
                f'mixes parameters, which its scope "{rule.scope}" does not allow; set scope="leaf" and sum '
                f'over the axes of a parameter alone, or scope="model" if all are meant ({GUIDE})'
            )


def _close(found: np.ndarray, wanted: np.ndarray) -> bool:
    return bool(np.allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))


def _stepped(rule: Rule, start: np.ndarray, grads: np.ndarray) -> np.ndarray:
    """The parameters (S, K, parameters, *shape) after gradients (steps, S, K, parameters, *shape)."""
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
            given = grad.reshape(*lanes, -1).view(Traced)
            flat, state = update.apply(ops, given, state, flat, values, update.work_of(number))
    return np.asarray(flat).reshape(start.shape)


def _values(rule: Rule, lanes: tuple[int, ...], model: Model) -> dict[str, Any]:
    """The hyperparameters, and what the rule needs besides, but for the number of the step."""
    given = {name: _inside(one) for name, one in rule.hyperparameters.items() if one.default is None}
    numbers: Mapping[str, float] = {**rule.complete(given), "schedule": 1.0}
    values = {name: np.full((1, lanes[1], 1), value).view(Traced) for name, value in numbers.items()}

    def on_lanes(example: np.ndarray) -> np.ndarray:
        return np.broadcast_to(example, (*lanes, *example.shape)).view(Traced)

    return values | {need.name: map_arrays(on_lanes, need.example(model)) for need in rule.needs}


def _inside(one: Hyperparameter) -> float:
    """A legal value of what has no default."""
    if math.isfinite(one.low) and math.isfinite(one.high):
        return (one.low + one.high) / 2
    return one.low + 0.5 if math.isfinite(one.low) else min(one.high - 0.5, 0.5)
