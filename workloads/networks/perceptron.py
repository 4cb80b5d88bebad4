"""Fully connected networks that are no classifiers: parameters W1, b1, W2, b2, ... and their outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from curvebench.workloads.arguments import Array, Arrays, Ops
from curvebench.workloads.matrices import xavier_normal
from curvebench.workloads.workload import Role


def perceptron_roles(widths: Sequence[int]) -> dict[str, Role]:
    """Return the role of each parameter; each weight precedes the bias of its layer.

    Args:
        widths: number of units of each layer, from input to output.
    """
    roles = {}
    for layer in range(len(widths) - 1):
        roles[f"W{layer + 1}"], roles[f"b{layer + 1}"] = Role("weight", layer), Role("bias", layer)
    return roles


def perceptron_sample(widths: Sequence[int], generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw Xavier normal weights (outputs, inputs) of all layers; biases are 0."""
    params = {}
    for layer, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        params[f"W{layer}"] = xavier_normal(outputs, inputs, generator)
        params[f"b{layer}"] = np.zeros(outputs)
    return params


def perceptron(ops: Ops, params: Arrays, inputs: Array, activation: Callable[[Array], Array]) -> Array:
    """Return the outputs (..., outputs) for inputs (..., inputs). No activation follows the last layer."""
    outputs = ops.linear(inputs, params["W1"], params["b1"])
    for layer in range(2, len(params) // 2 + 1):
        outputs = ops.linear(activation(outputs), params[f"W{layer}"], params[f"b{layer}"])
    return outputs
