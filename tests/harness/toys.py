"""Small workloads of the tests: minibatches, model state, shared and separate data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from workloads.workload import Metric, Problem, Role, Setting, Workload


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


def loss_and_gradient(
    params: Mapping[str, np.ndarray], train: Mapping[str, np.ndarray]
) -> tuple[float, dict[str, np.ndarray]]:
    """The loss of `TANH` and its gradient, by hand."""
    hidden = np.tanh(train["features"] @ params["first"].T + params["bias"])
    residual = hidden @ params["second"].T - train["targets"]
    slope = 2 * residual / residual.size
    back = (slope @ params["second"]) * (1 - hidden**2)
    grads = {"bias": back.sum(0), "first": back.T @ train["features"], "second": slope.T @ hidden}
    return float(np.mean(residual**2)), grads
