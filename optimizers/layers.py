"""Layers of a network, found by the roles of its parameters: each weight with its bias."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvebench.optimizers.needs import Array, Ops
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.rule import ParameterRole

LAYER_KINDS = ("weight", "convolution", "head")


@dataclass(frozen=True)
class Layer:
    """A linear layer or a convolution.

    Args:
        weight: name of W, (outputs, inputs), or for a convolution (outputs, channels, height, width).
        bias: name of b, (outputs,), or None.
        shape: shape of W.
        number: number of the layer in the model; 0 is nearest to the input.
    """

    weight: str
    bias: str | None
    shape: tuple[int, ...]
    number: int

    @property
    def outputs(self) -> int:
        """Number of outputs; for a convolution, of output channels."""
        return self.shape[0]

    @property
    def inputs(self) -> int:
        """Number of values that an output depends on: the number of columns of W as a matrix."""
        return math.prod(self.shape[1:])

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of W and, if the layer has one, b."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


def is_matrix(role: ParameterRole, order: int) -> bool:
    """Return whether a parameter is a weight matrix or a convolution.

    Args:
        order: number of axes of the parameter.
    """
    return role.kind in LAYER_KINDS and order > 1


def layers_of(shapes: Mapping[str, Sequence[int]], roles: Mapping[str, Any]) -> tuple[Layer, ...]:
    """Return the layers of a model, nearest to the input first.

    A weight is a parameter of one of LAYER_KINDS with two axes or more. Its bias is a parameter of kind
    `bias` in the same layer, with an entry per output. If a layer has several weights with equally many
    outputs, the layer must have one such bias for each of these weights, in the same order, or no such bias.

    Args:
        shapes: shapes by parameter name.
        roles: roles by parameter name, with `kind` and `layer` (curvebench.workloads.workload.Role).

    Raises:
        OptionError: if a bias may belong to several weights.
    """
    weights = [name for name in shapes if roles[name].kind in LAYER_KINDS and len(shapes[name]) > 1]
    bias_of: dict[str, str] = {}
    for number, outputs in dict.fromkeys((roles[name].layer, shapes[name][0]) for name in weights):
        owners = [name for name in weights if (roles[name].layer, shapes[name][0]) == (number, outputs)]
        biases = [
            name
            for name in shapes
            if (roles[name].kind, roles[name].layer, tuple(shapes[name])) == ("bias", number, (outputs,))
        ]
        if biases and len(biases) != len(owners):
            raise OptionError(
                f"the biases {', '.join(biases)} of layer {number} may belong to each of "
                f"{', '.join(owners)}; give every weight with a bias a layer of its own in the roles"
            )
        bias_of |= dict(zip(owners, biases, strict=False))
    layers = [
        Layer(name, bias_of.get(name), tuple(map(int, shapes[name])), roles[name].layer) for name in weights
    ]
    return tuple(sorted(layers, key=lambda layer: layer.number))


def with_axes_of(ops: Ops, value: Array, array: Array) -> Array:
    """Reshape a hyperparameter (*batch, 1) to broadcast against an array (*batch, ...) with more axes."""
    return ops.reshape(value, (*value.shape[:-1], *(1,) * (array.ndim - value.ndim + 1)))
