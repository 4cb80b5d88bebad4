"""Hyperparameters of Gaussian-process regression, by the marginal likelihood of the targets; full batch.

X (n, p) has the inputs, uniform between 0 and 1, and y (n,) the targets. The covariance of two targets is
s^2 exp(-1/2 sum_j (x_j - x'_j)^2 / l_j^2), plus e^2 for equal inputs (Rasmussen and Williams, "Gaussian
processes for machine learning", 2006, eqs. 5.1 and 5.8). The parameter theta (p + 2,) has the logarithms of
the length scales l_j, of s and of e. Some length scales are longer than the inputs' range, so that their
inputs are almost irrelevant: the objective is flat in them, and badly scaled.
"""

from __future__ import annotations

import math

import numpy as np

from curvebench.spec.values import choice, number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.workload import Metric, Problem, Role, Setting, Start, Workload, loss_of

LENGTHS = (0.3, 10.0)  # shortest and longest true length scale
JITTER = 1e-8  # added to the noise variance, so that the covariance stays positive definite


def _covariance(ops: Ops, theta: Array, inputs: Array) -> Array:
    """Return the covariance matrix K of the targets, (n, n)."""
    scaled = inputs / ops.exp(theta[:-2])
    squares = ops.sum(ops.square(scaled), axis=-1)
    distances = squares[:, None] + squares[None, :] - 2.0 * ops.matmul(scaled, ops.matrix_transpose(scaled))
    noise = (ops.exp(2.0 * theta[-1]) + JITTER) * ops.eye(inputs.shape[0])
    return ops.exp(2.0 * theta[-2] - 0.5 * ops.maximum(distances, 0.0)) + noise


def _negative_log_likelihood(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return 1/2 y^T K^-1 y + 1/2 log det K + n/2 log 2 pi, divided by n."""
    lower = ops.cholesky(_covariance(ops, ops.astype_float(params["theta"]), split["inputs"]))
    whitened = ops.matmul(ops.triangular_inverse(lower), split["targets"])
    terms = 0.5 * ops.square(whitened) + ops.log(ops.diagonal(lower))
    return ops.mean(terms) + 0.5 * math.log(2.0 * math.pi)


def _sample_parameters(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw theta ~ N(0, c^2 I), so that all length scales and deviations are near 1."""
    return {"theta": settings["start_scale"] * generator.normal(size=(settings["inputs"] + 2,))}


def _problem(settings: Settings, random: Random) -> Problem:
    """Draw inputs, and targets from a Gaussian process with s = 1 and known length scales and noise."""
    lengths = np.geomspace(*LENGTHS, settings["inputs"])
    generator = random("data")
    inputs = generator.uniform(size=(settings["examples"], settings["inputs"]))
    scaled = inputs / lengths
    distances = np.sum((scaled[:, None] - scaled[None]) ** 2, axis=-1)
    covariance = np.exp(-0.5 * distances) + (settings["noise"] ** 2 + JITTER) * np.eye(len(inputs))
    targets = np.linalg.cholesky(covariance) @ generator.normal(size=(len(inputs),))
    return Problem(
        parameters=_sample_parameters(settings, random("parameters")),
        splits={"train": {"inputs": inputs, "targets": targets}},
    )


GAUSSIAN_PROCESS = Workload(
    name="gaussian_process",
    description="hyperparameters of Gaussian-process regression on 200 examples (d = 6)",
    source="Rasmussen and Williams 2006, eqs. 5.1 and 5.8",
    metrics={
        "train_loss": Metric("negative log marginal likelihood per example", "minimize", "nats"),
        "gradient_norm": Metric("Euclidean norm of the gradient", "minimize"),
    },
    settings={
        "batch_size": Setting(None, "full batch, the only choice", read=choice(None)),
        "examples": Setting(200, "number of examples", whole()),
        "inputs": Setting(4, "inputs of an example, each with a length scale", whole()),
        "noise": Setting(0.1, "true standard deviation of the noise", number(0.0, low_open=True)),
        "start_scale": Setting(0.5, "standard deviation of the entries of the start", number(0.0)),
    },
    dtype="float64",
    shared_data=False,
    roles=lambda settings: {"theta": Role("vector")},
    problem=_problem,
    sample_parameters=_sample_parameters,
    loss=loss_of(_negative_log_likelihood),
    evaluate=lambda ops, params, state, split: {"loss": _negative_log_likelihood(ops, params, split)},
    start=Start(loss=0.951645272679833, gradient_norm=0.8617917540511435),
)

WORKLOADS = (GAUSSIAN_PROCESS,)
