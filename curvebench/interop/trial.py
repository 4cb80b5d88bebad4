"""A step of an optimizer of another library, before anything is spent on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.optimizers.rule import Rule
from curvebench.spec.errors import InputError
from curvebench.spec.values import Precision
from curvebench.workloads.workload import Arrays, Metric, Problem, Role, Workload, loss_of

MOST = 400  # characters of what a library says


def try_steps(
    locator: str,
    rule: Rule,
    parameters: Mapping[str, np.ndarray],
    roles: Mapping[str, Role],
    values: Mapping[str, float],
    precision: Precision,
) -> None:
    """One step on a quadratic of the parameters, as a job would take it.

    Raises:
        InputError: in one line, for an optimizer that cannot be made, takes no step, or is not finite then.
    """
    bundle = Bundle(
        workload=workload_of(_squared_distance, roles, precision),
        rule=rule,
        problems=[Problem(dict(parameters), {"train": {"centre": np.ones((1, 1))}})],
        orders=None,
        hyperparameters={name: np.array([value]) for name, value in values.items()},
        schedule=np.ones(1),
    )
    try:
        losses = execute(bundle, engine(rule.backend or "jax", precision)).metrics["train_loss"]
    except Exception as error:  # whatever another library raises
        own = isinstance(error, InputError) and str(error).startswith(locator)
        said = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        line = " ".join((said if own else f"{locator}: a step fails ({said})").split())
        raise InputError(line if len(line) <= MOST else f"{line[:MOST]}...") from error
    if not np.isfinite(losses[-1, 0, 0]):
        numbers = ", ".join(f"{name} = {value:g}" for name, value in values.items())
        raise InputError(f"{locator}: is not finite after a step at {numbers}")


def workload_of(
    objective: Callable[[Any, Arrays, Arrays], Any], roles: Mapping[str, Role], precision: Precision
) -> Workload:
    """A workload whose problem is given, by `objective(ops, params, batch)`."""
    return Workload(
        name="trial",
        description="what an optimizer is tried on",
        source="the harness",
        metrics={"train_loss": Metric("the objective", "minimize")},
        settings={},
        dtype=precision,
        shared_data=True,
        roles=lambda settings: dict(roles),
        problem=lambda settings, random: Problem({}, {}),
        sample_parameters=lambda settings, generator: {},
        loss=loss_of(objective),
        evaluate=lambda ops, params, state, split: {"loss": objective(ops, params, split)},
    )


def _squared_distance(ops: Any, params: Arrays, batch: Arrays) -> Any:
    return sum(ops.sum(ops.square(param - ops.sum(batch["centre"]))) for param in params.values()) / 2
