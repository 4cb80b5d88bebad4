"""The layers of a module of PyTorch, and statistics of their inputs and of the gradients of their outputs.

Rules such as K-FAC need second moments of the n inputs of a layer, and of the gradients of its m outputs. The
moments are computed from sums over rows. A row belongs to one example; in convolutions and sequences, a row
belongs to one position of one example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from curvebench.arrays.ops import Ops
from curvebench.optimizers import layer_statistics
from curvebench.optimizers.layers import Layer

# Kind of the weight, for each class of layers.
# Subclasses do not count as layers, since they may use their weights differently.
KIND_OF = {torch.nn.Linear: "weight", torch.nn.Conv2d: "convolution"}
# Values that attributes of a convolution must have; `layer_statistics.patches` supports no other values.
SUPPORTED = {"groups": 1, "dilation": (1, 1), "padding_mode": "zeros"}


@dataclass(frozen=True)
class ModuleLayer:
    """A linear layer or convolution of a model.

    Args:
        name: name of the module in the model.
        module: the module. Its attribute `weight` is a parameter.
        weight: name of the module's weight among the parameters of the model.
        refused: reason why statistics of the layer are not supported; None if they are supported.
    """

    name: str
    module: Any
    weight: str
    refused: str | None

    @property
    def kind(self) -> str:
        """Kind of the weight, `weight` or `convolution`."""
        return KIND_OF[type(self.module)]


def module_layers(model: Any) -> tuple[ModuleLayer, ...]:
    """Return the linear layers and convolutions of a model, in the order of its modules."""
    modules = dict(model.named_modules())
    owned = {name: dict(module.named_parameters(recurse=False)) for name, module in modules.items()}
    owners: dict[torch.Tensor, list[str]] = {}
    for name, params in owned.items():
        for param in params.values():
            owners.setdefault(param, []).append(name)
    names = {param: name for name, param in model.named_parameters()}
    return tuple(
        ModuleLayer(name, module, names[owned[name]["weight"]], _refusal(name, module, owned[name], owners))
        for name, module in modules.items()
        if type(module) in KIND_OF and "weight" in owned[name]
    )


def _refusal(
    name: str, module: Any, params: Mapping[str, torch.Tensor], owners: Mapping[torch.Tensor, Sequence[str]]
) -> str | None:
    """Return the reason why statistics of a layer are not supported; None if they are supported.

    Args:
        name: name of the module.
        module: the layer.
        params: a mapping from parameter names to the parameters of the layer.
        owners: for each parameter, the names of all modules that own it.
    """
    for key, param in params.items():
        others = [repr(owner) for owner in owners[param] if owner != name]
        if others:
            return f"shares its {key} with {', '.join(others)}"
    if isinstance(module, torch.nn.Conv2d):
        for key, value in SUPPORTED.items():
            if getattr(module, key) != value:
                return f"has {key} {getattr(module, key)}, and {value} is supported"
    return None


def first_tensor(args: Any, kwargs: Any) -> torch.Tensor | None:
    """Return the first tensor with at least one axis among the arguments of a module's call.

    If no argument contains a tensor with an axis, the result is None.
    """
    leaves = pytree.tree_leaves((args, kwargs))
    return next((leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.ndim), None)


class LayerSums(NamedTuple):
    # Sum of a a^T over the rows a of the layer's inputs, (n, n).
    # If the module has a bias, each row a ends with an additional 1, which counts in n.
    inputs: Any
    gradients: Any  # sum of g g^T over the rows g of the gradient of the outputs, (m, m)
    rows: int  # number of rows of the inputs

    def added(self, sums: LayerSums) -> LayerSums:
        """Return the sums over all rows: the rows of this object and the rows of `sums`."""
        return LayerSums(*(first + second for first, second in zip(self, sums, strict=True)))

    def statistics(self, layer: Layer, fisher: str, examples: int) -> dict[str, torch.Tensor]:
        """Return the Kronecker factors A (1, n, n) and G (1, m, m) of a layer's Fisher matrix.

        Args:
            layer: the layer as the rule receives it. If it has no bias, A has no row and column for a bias,
                even if the module has a bias.
            fisher: the rule's option `fisher`.
            examples: number of examples over which the loss is a mean.
        """
        size = layer.inputs + (layer.bias is not None)
        inputs = self.inputs[None, :size, :size] / self.rows
        gradients = layer_statistics.scale_of_mean_loss(fisher, examples) * self.gradients[None]
        return {"inputs": inputs, "gradients": gradients}


def layer_sums(ops: Ops, layer: ModuleLayer, x: torch.Tensor, gradient: torch.Tensor) -> LayerSums:
    """Return the sums of outer products over the rows of a layer's inputs, and of its outputs' gradients.

    Args:
        ops: array functions. The sums are computed in the precision of `ops`.
        layer: the layer.
        x: inputs of the layer, (..., inputs), or images for a convolution.
        gradient: gradient of the loss with respect to the outputs of the layer.
    """
    module, x, gradient = layer.module, ops.astype_float(x), ops.astype_float(gradient)
    if layer.kind == "convolution":
        x = layer_statistics.patches(ops, x, tuple(module.weight.shape), module.stride, module.padding)
        gradient = layer_statistics.channels_last(ops, gradient)
    rows = layer_statistics.as_rows(ops, x)
    return LayerSums(
        layer_statistics.second_moment_of_rows(ops, rows, module.bias is not None),
        layer_statistics.second_moment_of_rows(ops, layer_statistics.as_rows(ops, gradient)),
        rows.shape[0],
    )
