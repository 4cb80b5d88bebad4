"""Small workloads for tests: minibatches, model state, shared and separate data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.engine.bundle import Bundle
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.steps.engine import Engine
from curvebench.steps.program import Carry, Inputs, Loaded
from curvebench.workloads.workload import Metric, Problem, Role, Setting, Workload


def _problem(settings: Mapping[str, Any], random: Any) -> Problem:
    data = random("data")
    features = data.normal(size=(40, 3))
    targets = np.tanh(features @ data.normal(size=(3, 2)))
    return Problem(
        parameters=_sample(settings, random("parameters")),
        splits={
            "train": {"features": features[:30], "targets": targets[:30]},
            "validation": {"features": features[30:], "targets": targets[30:]},
        },
        state={"seen": np.zeros(())},
    )


def _sample(settings: Mapping[str, Any], generator: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "bias": generator.normal(size=4),
        "first": generator.normal(size=(4, 3)),
        "second": generator.normal(size=(2, 4)),
    }


def _forward(ops: Any, params: Any, features: Any) -> Any:
    hidden = ops.tanh(ops.linear(features, params["first"], params["bias"]))
    return ops.linear(hidden, params["second"])


def _mean_square(ops: Any, params: Any, batch: Any) -> Any:
    return ops.mean(ops.square(_forward(ops, params, batch["features"]) - batch["targets"]))


def _loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
    return _mean_square(ops, params, batch), {"seen": state["seen"] + batch["targets"].shape[0]}, {}


def _evaluate(ops: Any, params: Any, state: Any, split: Any) -> dict[str, Any]:
    return {"loss": _mean_square(ops, params, split), "seen": state["seen"]}


TANH = Workload(
    name="tanh_regression",
    description="a small tanh network with separate data for every seed",
    source="the tests",
    metrics={
        "train_loss": Metric("mean squared error", "minimize"),
        "validation_loss": Metric("mean squared error", "minimize"),
        "train_seen": Metric("examples the model state has counted", "maximize"),
        "gradient_norm": Metric("norm of the full gradient", "minimize"),
    },
    settings={"batch_size": Setting(10, "examples in a minibatch; null for all")},
    dtype="float64",
    shared_data=False,
    roles=lambda settings: {"bias": Role("bias", 0), "first": Role("weight", 0), "second": Role("weight", 1)},
    problem=_problem,
    sample_parameters=_sample,
    loss=_loss,
    evaluate=_evaluate,
)


def _shared_problem(settings: Mapping[str, Any], random: Any) -> Problem:
    class Shared:
        def __call__(self, purpose: str, shared: bool = False) -> np.random.Generator:
            return random(purpose, shared=purpose == "data")

    return _problem(settings, Shared())


TANH_SHARED = dataclasses.replace(TANH, name="tanh_shared", problem=_shared_problem, shared_data=True)


def steep_loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
    """Return the loss of `TANH` plus the fourth powers of the biases, which make large steps diverge."""
    loss, state, metrics = _loss(ops, params, state, batch, noise)
    return loss + (params["bias"] ** 4).sum(), state, metrics


def loss_and_gradient(
    params: Mapping[str, np.ndarray], train: Mapping[str, np.ndarray]
) -> tuple[float, dict[str, np.ndarray]]:
    """Return the loss of `TANH` and its gradient, by explicit formulas."""
    hidden = np.tanh(train["features"] @ params["first"].T + params["bias"])
    residual = hidden @ params["second"].T - train["targets"]
    slope = 2 * residual / residual.size
    back = (slope @ params["second"]) * (1 - hidden**2)
    grads = {"bias": back.sum(0), "first": back.T @ train["features"], "second": slope.T @ hidden}
    return float(np.mean(residual**2)), grads


def begun(bundle: Bundle, made: Engine, steps: int, *planned: int) -> tuple[Loaded, Inputs, Any]:
    """Load a bundle; return it, the inputs of its first steps, and the segment. Call it inside the engine's
    context.

    Args:
        bundle: the bundle.
        made: the engine.
        steps: number of first steps.
        planned: the number of steps that the engine may expect; if missing, a large number.
    """
    loaded, inputs = load(bundle, made), segment_inputs(bundle, made, 0, steps)
    return loaded, inputs, made.segment(loaded, inputs, *planned)


def advanced(bundle: Bundle, made: Engine, steps: int) -> tuple[Loaded, Carry]:
    """Load a bundle and take its first steps; return it and its carry. Call it inside the engine's
    context.
    """
    loaded, inputs, segment = begun(bundle, made, steps, steps)
    return loaded, segment(loaded.carry, loaded.constants, inputs)


class StepByHand(NamedTuple):
    # Before the step.
    params: dict[str, np.ndarray]
    # On its minibatch.
    loss: float
    # Norm of the gradient.
    norm: float


def steps_by_hand(
    bundle: Bundle, seed: int, rate: float, momentum: float = 0.0, longest: float = np.inf
) -> tuple[list[StepByHand], dict[str, np.ndarray]]:
    """Return the steps of clipped descent on `TANH` with a cosine schedule, and the final parameters."""
    problem, steps = bundle.problems[seed], list[StepByHand]()
    params, train = dict(problem.parameters), problem.splits["train"]
    velocity = {name: np.zeros_like(value) for name, value in params.items()}
    for step in range(len(bundle.schedule)):
        indices = slice(None) if bundle.orders is None else bundle.orders[step, seed]
        loss, grads = loss_and_gradient(params, {name: values[indices] for name, values in train.items()})
        norm = float(np.sqrt(sum(np.sum(grad**2) for grad in grads.values())))
        steps.append(StepByHand(params, loss, norm))
        share, multiplier = min(1.0, longest / norm), 0.5 * (1 + np.cos(np.pi * step / len(bundle.schedule)))
        velocity = {name: momentum * velocity[name] + share * grads[name] for name in params}
        params = {name: value - rate * multiplier * velocity[name] for name, value in params.items()}
    return steps, params


def central_differences(
    workload: Workload, params: Mapping[str, np.ndarray], state: Any, batch: Any, noise: Any, name: str
) -> np.ndarray:
    """Return the gradient of a workload's loss by one parameter, by central differences in float64."""
    ops, gradient = numpy_ops("float64"), np.zeros_like(params[name])
    for index in np.ndindex(gradient.shape):
        ends = []
        for sign in (1, -1):
            moved = {key: value.copy() for key, value in params.items()}
            moved[name][index] += sign * 1e-6
            ends.append(workload.loss(ops, moved, state, batch, noise)[0])
        gradient[index] = (ends[0] - ends[1]) / 2e-6
    return gradient
