"""The layers of a module of PyTorch, and the sums over what enters and leaves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from curvebench.arrays.ops import Ops
from curvebench.optimizers import layer_statistics
from curvebench.optimizers.layers import Layer

# Exactly these classes: what a subclass computes of its weight is not known.
KIND_OF = {torch.nn.Linear: "weight", torch.nn.Conv2d: "convolution"}
PLAIN = {"groups": 1, "dilation": (1, 1), "padding_mode": "zeros"}  # what a convolution must have


@dataclass(frozen=True)
class ModuleLayer:
    """A layer of a model.

    Args:
        name: of the module.
        module: the linear layer or convolution, whose `weight` is a parameter.
        weight: the parameter's name in the model.
        refused: why its statistics cannot be had; None where they can.
    """

    name: str
    module: Any
    weight: str
    refused: str | None

    @property
    def kind(self) -> str:
        """The kind of its weight."""
        return KIND_OF[type(self.module)]


def module_layers(model: Any) -> tuple[ModuleLayer, ...]:
    """The layers of a model, in the order of its modules."""
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
    name: str,
    module: Any,
    params: Mapping[str, torch.Tensor],
    owners: Mapping[torch.Tensor, Sequence[str]],
) -> str | None:
    for key, param in params.items():
        others = [repr(owner) for owner in owners[param] if owner != name]
        if others:
            return f"shares its {key} with {', '.join(others)}"
    if isinstance(module, torch.nn.Conv2d):
        for key, wanted in PLAIN.items():
            if getattr(module, key) != wanted:
                return f"has {key} {getattr(module, key)}, and {wanted} is supported"
    return None


def first_tensor(args: Any, kwargs: Any) -> torch.Tensor | None:
    """The first tensor with axes of what a module is called with."""
    leaves = pytree.tree_leaves((args, kwargs))
    return next((leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.ndim), None)


class LayerSums(NamedTuple):
    inputs: Any  # sum of a a^T over the rows a that entered, with a 1 where the module has a bias, (n, n)
    gradients: Any  # sum of g g^T over the rows g of the gradient of what left, (m, m)
    rows: int  # that entered

    def added(self, other: LayerSums) -> LayerSums:
        """The sums over the rows of both."""
        return LayerSums(*(one + another for one, another in zip(self, other, strict=True)))

    def statistics(self, layer: Layer, fisher: str, examples: int) -> dict[str, torch.Tensor]:
        """A (1, n, n) and G (1, m, m) as `layer_statistics` has them, for a mean loss over examples.

        Without the bias, where the rule does not see it in this layer.
        """
        size = layer.inputs + (layer.bias is not None)
        inputs = self.inputs[None, :size, :size] / self.rows
        return {
            "inputs": inputs,
            "gradients": layer_statistics.scale_of_mean_loss(fisher, examples) * self.gradients[None],
        }


def layer_sums(ops: Ops, layer: ModuleLayer, x: torch.Tensor, gradient: torch.Tensor) -> LayerSums:
    """The sums over one call of a layer, in the precision of the table.

    Args:
        x: what entered, (..., inputs) or images.
        gradient: of the loss with respect to what left.
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
