"""Trial of an optimizer of another library: a first step, taken before a study begins its computations."""

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
from curvebench.workloads.arguments import Arrays
from curvebench.workloads.workload import Metric, Problem, Role, Workload, loss_of

MAX_CHARACTERS = 400  # length from which the message of another library is truncated


def try_steps(
    locator: str,
    rule: Rule,
    parameters: Mapping[str, np.ndarray],
    roles: Mapping[str, Role],
    values: Mapping[str, float],
    precision: Precision,
) -> None:
    """Take one step of an optimizer, as a job would, on the squared distance of all parameters from 1.

    Args:
        locator: name of the optimizer, such as `torch:torch.optim.NAdam`, for messages.
        rule: the optimizer as a rule.
        parameters: the initial parameters of a workload, by name.
        roles: the roles of the parameters, by name.
        values: values of all hyperparameters.
        precision: precision policy.

    Raises:
        InputError: with a message of one line, when the optimizer cannot be constructed, fails in the step,
            or makes the loss infinite or NaN.
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
    except Exception as error:  # another library may raise any exception
        names_optimizer = isinstance(error, InputError) and str(error).startswith(locator)
        message = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        line = " ".join((message if names_optimizer else f"{locator}: a step fails ({message})").split())
        raise InputError(line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]}...") from error
    if not np.isfinite(losses[-1, 0, 0]):
        numbers = ", ".join(f"{name} = {value:g}" for name, value in values.items())
        raise InputError(f"{locator}: is not finite after a step at {numbers}")


def workload_of(
    objective: Callable[[Any, Arrays, Arrays], Any], roles: Mapping[str, Role], precision: Precision
) -> Workload:
    """Return a workload that consists of an objective. It draws no problems, which the caller must provide.

    Args:
        objective: function `objective(ops, params, batch) -> scalar`. It is the loss, and also the metric
            `train_loss`.
        roles: the roles of the parameters, by name.
        precision: precision policy.
    """
    return Workload(
        name="trial",
        description="first step of an optimizer",
        source="curvebench",
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
