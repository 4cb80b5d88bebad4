"""A quadratic whose gradient has noise with the covariance of its Hessian, divided by the batch size.

theta (d,) is the parameter, H the diagonal Hessian with the curvatures h_k = k^-alpha, and B the batch size.
The expected loss of gradient descent, with or without momentum, has a closed form after any number of steps:
the second moments of the coordinates follow linear recursions that are independent of each other (Zhang et
al., "Which algorithmic choices matter at which batch sizes?", 2019, arXiv 1907.04164, Sec. 3). A random
rotation of theta is the basis `random_orthogonal`.
"""

from __future__ import annotations

import numpy as np

from curvebench.spec.values import number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.workload import (
    Metric,
    Problem,
    Role,
    Setting,
    Start,
    Workload,
    batch_size,
    require_batch,
)


def _curvatures(settings: Settings) -> np.ndarray:
    """Return the eigenvalues h_k = k^-alpha of the Hessian, (d,)."""
    return np.arange(1, settings["d"] + 1) ** -float(settings["alpha"])


def _sample_parameters(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw theta ~ N(0, I)."""
    return {"theta": generator.normal(size=(settings["d"],))}


def _problem(settings: Settings, random: Random) -> Problem:
    """Return a start and the curvatures.

    The examples of the training split carry no information, since the noise is drawn at each step. Their
    number says how many steps are an epoch.
    """
    return Problem(
        parameters=_sample_parameters(settings, random("parameters")),
        splits={"train": {"index": np.arange(settings["train_examples"])}},
        state={"curvatures": _curvatures(settings)},
        facts={"minimum": 0.0},
    )


def _noise(settings: Settings, generator: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    """Draw the noise of one gradient from N(0, sigma^2 H / B); it is 0 for the full batch."""
    deviation = 0.0 if settings["batch_size"] is None else settings["noise"] * size**-0.5
    return {"gradient": deviation * np.sqrt(_curvatures(settings)) * generator.normal(size=(settings["d"],))}


def _quadratic(ops: Ops, params: Arrays, state: Arrays) -> Array:
    """Return 1/2 sum_k h_k theta_k^2."""
    return 0.5 * ops.sum(state["curvatures"] * ops.square(ops.astype_float(params["theta"])))


def _loss(
    ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
) -> tuple[Array, Arrays, Arrays]:
    """Return 1/2 theta^T H theta + <theta, z>, whose gradient is H theta + z; z is the noise of the step."""
    product = ops.sum(noise["gradient"] * ops.astype_float(params["theta"]))
    return _quadratic(ops, params, state) + product, state, {}


NOISY_QUADRATIC = Workload(
    name="noisy_quadratic",
    description="noisy quadratic with power-law curvatures, whose expected losses are known (d = 100)",
    source="Zhang et al. 2019, arXiv 1907.04164, Sec. 3",
    metrics={"train_loss": Metric("value of the quadratic without noise; its minimum is 0", "minimize")},
    settings={
        "batch_size": batch_size(16),
        "d": Setting(100, "number of parameters", whole()),
        "alpha": Setting(1.0, "decay of the curvatures, h_k = k^-alpha", number(0.0)),
        "noise": Setting(1.0, "sigma of the gradient noise, whose covariance is sigma^2 H / B", number(0.0)),
        "train_examples": Setting(4096, "examples of an epoch; the largest batch size", whole()),
    },
    dtype="float64",
    shared_data=True,
    roles=lambda settings: {"theta": Role("vector")},
    problem=_problem,
    sample_parameters=_sample_parameters,
    noise=_noise,
    loss=_loss,
    evaluate=lambda ops, params, state, split: {"loss": _quadratic(ops, params, state)},
    start=Start(loss=1.9732471479201017, gradient_norm=1.3225820716776135),
    check=lambda settings: require_batch(settings, settings["train_examples"]),
)

WORKLOADS = (NOISY_QUADRATIC,)
