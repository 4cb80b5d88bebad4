"""Fully connected networks: parameters W1, b1, W2, b2, ..., and their outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

from curvebench.workloads.arguments import Array, Arrays, Ops
from curvebench.workloads.classification import Classifier, Draw, Parameter, SizedNetwork, with_fixed_state
from curvebench.workloads.matrices import xavier_normal, zero_bias
from curvebench.workloads.workload import Role


@dataclass(frozen=True)
class FullyConnected(SizedNetwork):
    """A fully connected network with parameters W1, b1, W2, b2, ... for weights and biases.

    Args:
        widths: number of units of each layer, from input to output.
        weight: function that draws the initial weight (outputs, inputs) of a layer.
        bias: function that draws the initial bias (outputs,) of a layer.
        last: kind of the last weight, `head` or `weight`.
    """

    widths: Sequence[int]
    weight: Draw = xavier_normal
    bias: Draw = zero_bias
    last: Literal["weight", "head"] = "head"

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters, layer by layer; each weight precedes its bias."""
        by_name: dict[str, Parameter] = {}
        for layer, (inputs, outputs) in enumerate(pairwise(self.widths)):
            weight = Role("weight" if layer < len(self.widths) - 2 else self.last, layer)
            fans = outputs, inputs
            by_name[f"W{layer + 1}"] = Parameter(fans, weight, partial(self.weight, *fans))
            by_name[f"b{layer + 1}"] = Parameter((outputs,), Role("bias", layer), partial(self.bias, *fans))
        return by_name


def perceptron(ops: Ops, params: Arrays, inputs: Array, activation: Callable[[Array], Array]) -> Array:
    """Return the outputs (..., outputs) for inputs (..., inputs). No activation follows the last layer."""
    outputs = ops.linear(inputs, params["W1"], params["b1"])
    for layer in range(2, len(params) // 2 + 1):
        outputs = ops.linear(activation(outputs), params[f"W{layer}"], params[f"b{layer}"])
    return outputs


def _relu_logits(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> Array:
    """Return the outputs (examples, classes) of a ReLU network (000 C.2)."""
    return perceptron(ops, params, split["features"], ops.relu)


RELU_CLASSIFIER = Classifier(with_fixed_state(_relu_logits))
