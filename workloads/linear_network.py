"""A linear network without activation functions that learns a linear map of inputs with decaying spectrum.

The matrix A has one example per column, and Y = M* A has the targets, where M* is the true map. W1, W2, ...
are the weights, and n is the number of examples. The singular values sigma_k of A decay as k^-alpha. EGOP
samples are parameters at which gradients are sampled to estimate a basis.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from curvebench.spec.values import number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.matrices import power_law_matrix, xavier_normal
from curvebench.workloads.workload import (
    Likelihood,
    Metric,
    Problem,
    Role,
    Setting,
    Start,
    Workload,
    batch_size,
    loss_of,
    require_batch,
)

SPLITS = ("train", "validation", "test")


def _read_widths(value: Any) -> Any:
    """Convert the setting `widths` and check that it is a list of two or more positive whole numbers."""
    counts = isinstance(value, (list, tuple)) and all(type(width) is int and width > 0 for width in value)
    if not counts or len(value) < 2:
        raise ValueError("is not a list of at least two whole numbers above 0, input to output")
    return value


def _weights(settings: Settings) -> dict[str, tuple[int, int]]:
    """Return the shape (outputs, inputs) of each weight by name, from input to output."""
    layers = enumerate(pairwise(settings["widths"]), start=1)
    return {f"W{layer}": (outputs, inputs) for layer, (inputs, outputs) in layers}


def _roles(settings: Settings) -> dict[str, Role]:
    """Return the role of each weight."""
    return {name: Role("weight", layer) for layer, name in enumerate(_weights(settings))}


def _sample_parameters(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw Xavier normal weights, for starts and for EGOP samples (000 C.6)."""
    shapes = _weights(settings).items()
    return {name: xavier_normal(outputs, inputs, generator) for name, (outputs, inputs) in shapes}


def _problem(settings: Settings, random: Random) -> Problem:
    """Draw A (inputs, examples) with sigma_k = k^-alpha and Y = M* A; split the examples (000 C.6).

    The splits are not rescaled: sigma_k are the singular values of all examples together. The columns of A
    are exchangeable, so that the first columns are a random training set.
    """
    generator = random("data")
    counts = [settings[f"{split}_examples"] for split in SPLITS]
    inputs, outputs = settings["widths"][0], settings["widths"][-1]
    matrix = power_law_matrix(inputs, sum(counts), settings["alpha"], generator)
    truth = generator.normal(size=(outputs, inputs))
    edges = np.cumsum(counts)[:-1]
    features, targets = np.split(matrix.T, edges), np.split((truth @ matrix).T, edges)
    return Problem(
        parameters=_sample_parameters(settings, random("parameters")),
        splits={
            split: {"features": np.ascontiguousarray(a), "targets": np.ascontiguousarray(y)}
            for split, a, y in zip(SPLITS, features, targets, strict=True)
        },
    )


def _outputs(ops: Ops, params: Arrays, state: Arrays, split: Arrays, noise: Arrays) -> Array:
    """Return the network's outputs W3 W2 W1 a for each example a, (examples, outputs)."""
    return ops.linear_layers(split["features"], [params[f"W{layer}"] for layer in range(1, len(params) + 1)])


def _mean_squared_error(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return f = ||W3 W2 W1 A - Y||_F^2 / n (000 eq. 6.1, C.1); for a minibatch, n is its size."""
    residuals = _outputs(ops, params, {}, split, {}) - split["targets"]
    return ops.sum(ops.square(residuals)) / split["targets"].shape[0]


LINEAR_NETWORK = Workload(
    name="linear_network",
    description="3-layer linear network 10-50-30-10 that learns a random linear map (d = 2300)",
    source="000 eq. 6.1, C.1, C.6, Fig. 6",
    metrics={
        f"{split}_loss": Metric(f"squared error per example on the {split} split", "minimize")
        for split in SPLITS
    },
    settings={
        "batch_size": batch_size(500),
        "widths": Setting(
            [10, 50, 30, 10],
            "units of each layer, input to output; 000 C.2 reads [10, 30, 50, 10], with as many parameters",
            _read_widths,
        ),
        "alpha": Setting(2.0, "decay of the inputs' singular values, sigma_k = k^-alpha", number(0.0)),
        "train_examples": Setting(10_000, "examples of the training split", whole()),
        "validation_examples": Setting(4_000, "examples of the validation split", whole()),
        "test_examples": Setting(6_000, "examples of the test split", whole()),
    },
    dtype="float32",
    shared_data=False,
    linear_input=("W1", "features"),
    roles=_roles,
    problem=_problem,
    sample_parameters=_sample_parameters,
    loss=loss_of(_mean_squared_error),
    likelihood=Likelihood(_outputs, "gaussian", scale=2.0),
    evaluate=lambda ops, params, state, split: {"loss": _mean_squared_error(ops, params, split)},
    start=Start(0.0013718997560703188, 0.001495800655578919),
    check=lambda settings: require_batch(settings, settings["train_examples"]),
)

WORKLOADS = (LINEAR_NETWORK,)
