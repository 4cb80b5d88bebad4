"""Networks without biases, linear and tanh, that learn the outputs of another such network.

In citations, 004 is Bernacchia (2025), "Global curvature for second-order optimization of neural networks"
(docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from curvebench.spec.values import whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.linear_network import LINEAR_NETWORK
from curvebench.workloads.matrices import orthonormal
from curvebench.workloads.workload import (
    Likelihood,
    Metric,
    Problem,
    Setting,
    Start,
    Workload,
    batch_size,
    loss_of,
    require_batch,
)

SPLITS = ("train", "test")
MAX_EIGENVALUE, MIN_EIGENVALUE = 1.0, 1e-5  # range of the eigenvalues of the inputs' covariance (004 Sec. 4)

# For each activation: a function from a library (NumPy or `ops`) to the activation function of the library.
ACTIVATIONS: Mapping[str, Callable[[Any], Callable[[Array], Array]]] = {
    "linear": lambda functions: lambda x: x,
    "tanh": lambda functions: functions.tanh,
}


def spectrum(inputs: int) -> np.ndarray:
    """Return the eigenvalues (inputs,) of the inputs' covariance: a logarithmic grid in descending order."""
    return np.geomspace(MAX_EIGENVALUE, MIN_EIGENVALUE, inputs)


def sample_features(eigenvectors: np.ndarray, examples: int, generator: np.random.Generator) -> np.ndarray:
    """Draw normal inputs (examples, inputs) with mean 0.

    Their covariance has the eigenvalues `spectrum`, and the columns of `eigenvectors` as its eigenvectors.
    """
    inputs = len(eigenvectors)
    return (generator.normal(size=(examples, inputs)) * np.sqrt(spectrum(inputs))) @ eigenvectors.T


def sample_weights(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw weights (outputs, inputs) with entries N(0, 1 / inputs), for teachers and students."""
    return {
        f"W{layer}": generator.normal(scale=inputs**-0.5, size=(outputs, inputs))
        for layer, (inputs, outputs) in enumerate(pairwise(settings["widths"]), start=1)
    }


def answers(
    linear: Callable[[Array, Array], Array],
    activation: Callable[[Array], Array],
    weights: Mapping[str, Array],
    features: Array,
) -> Array:
    """Return the outputs of a network, (examples, outputs). No activation follows the last layer.

    Args:
        linear: product of features with a weight.
        activation: activation function.
        weights: weights W1, W2, ...
        features: inputs (examples, inputs).
    """
    outputs = linear(features, weights["W1"])
    for layer in range(2, len(weights) + 1):
        outputs = linear(activation(outputs), weights[f"W{layer}"])
    return outputs


def _problem(settings: Settings, random: Random, activation: str) -> Problem:
    """Draw inputs, a teacher network that computes their targets, and the initial parameters of a student.

    Inputs, teacher and student are different for each seed.
    """
    inputs = settings["widths"][0]
    data_generator, teacher = random("data"), sample_weights(settings, random("teacher"))
    eigenvectors = orthonormal(inputs, inputs, data_generator)
    splits = {}
    for split in SPLITS:
        features = sample_features(eigenvectors, settings[f"{split}_examples"], data_generator)
        targets = answers(_host_linear, ACTIVATIONS[activation](np), teacher, features)
        splits[split] = {"features": features, "targets": targets}
    return Problem(parameters=sample_weights(settings, random("parameters")), splits=splits)


def _host_linear(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return x W^T in NumPy, since targets are computed on the host."""
    return np.asarray(x @ weight.T)


def _outputs(ops: Ops, params: Arrays, state: Arrays, split: Arrays, noise: Arrays, activation: str) -> Array:
    """Return the outputs of the student, (examples, outputs)."""
    return answers(ops.linear, ACTIVATIONS[activation](ops), params, split["features"])


def _half_squared_error(ops: Ops, params: Arrays, split: Arrays, activation: str) -> Array:
    """Return the mean over examples of |f(x) - y|^2 / 2: f(x) is the student's output, y the target."""
    outputs = _outputs(ops, params, {}, split, {}, activation)
    return 0.5 * ops.sum(ops.square(outputs - split["targets"])) / split["targets"].shape[0]


def _workload(activation: str, figure: str, start: Start) -> Workload:
    """Return the workload for an activation function.

    At the paper's sizes, the data of each seed take 11.2 MB.
    """
    error = partial(_half_squared_error, activation=activation)
    return Workload(
        name=f"teacher_student_{activation}",
        description=f"2-layer {activation} network 100-70-40 that learns another one's answers (d = 9800)",
        source=f"004 Sec. 4, {figure}",
        metrics={
            f"{split}_loss": Metric(f"half the squared error per example on the {split} split", "minimize")
            for split in SPLITS
        },
        settings={
            "batch_size": batch_size(),
            "widths": Setting(
                [100, 70, 40],
                "units of each layer, input to output, of teacher and student",
                LINEAR_NETWORK.settings["widths"].read,
            ),
            "train_examples": Setting(5_000, "examples of the training split", whole()),
            "test_examples": Setting(5_000, "examples of the test split", whole()),
        },
        dtype="float64",
        shared_data=False,
        linear_input=("W1", "features"),
        roles=LINEAR_NETWORK.roles,
        problem=partial(_problem, activation=activation),
        sample_parameters=sample_weights,
        loss=loss_of(error),
        likelihood=Likelihood(partial(_outputs, activation=activation), "gaussian"),
        evaluate=lambda ops, params, state, split: {"loss": error(ops, params, split)},
        start=start,
        check=lambda settings: require_batch(settings, settings["train_examples"]),
    )


WORKLOADS = (
    _workload("linear", "Fig. 5", Start(3.7943023839180516, 2.8790909848334314)),
    _workload("tanh", "Fig. 6", Start(3.103657728933077, 2.2977532604471986)),
)
