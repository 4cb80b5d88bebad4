"""Parameters of this project's networks under the names of torchvision and timm, and the outputs of their
models.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from curvebench.workloads.networks.residual_network import ResidualNetwork
from curvebench.workloads.networks.transformer import Transformer

Values = Mapping[str, np.ndarray]


def torchvision_names(network: ResidualNetwork) -> dict[str, str]:
    """Return torchvision's name of each parameter and statistic."""
    modules = {"stem": ("conv1", "bn1")}
    block = 1
    for stage, count in enumerate(network.blocks, start=1):
        for number in range(count):
            theirs = f"layer{stage}.{number}"
            modules[f"block{block}_first"] = f"{theirs}.conv1", f"{theirs}.bn1"
            modules[f"block{block}_second"] = f"{theirs}.conv2", f"{theirs}.bn2"
            modules[f"block{block}_projection"] = f"{theirs}.downsample.0", f"{theirs}.downsample.1"
            block += 1
    names = {"head_weight": "fc.weight", "head_bias": "fc.bias"}
    for ours in network.convolutions:
        convolution, norm = modules[ours]
        names |= {
            f"{ours}_weight": f"{convolution}.weight",
            f"{ours}_scale": f"{norm}.weight",
            f"{ours}_shift": f"{norm}.bias",
            f"{ours}_mean": f"{norm}.running_mean",
            f"{ours}_variance": f"{norm}.running_var",
        }
    return names


def timm_values(network: Transformer, values: Values, side: int = 1) -> dict[str, np.ndarray]:
    """Return values by timm's names; query, key and value are one matrix, and a patch has its channels first.

    Args:
        network: the network.
        values: values by this project's names.
        side: side of a patch that is stored as a vector.
    """
    norms = {"head": "head.fc", "last": "head.norm"} if "positions" in values else {"last": "norm"}
    names = {"patch": "patch_embed.proj", "head": "head", **norms}
    values_by_name = {}
    for number in range(1, len(network.blocks) + 1):
        ours, theirs = f"block{number}", f"blocks.{number - 1}"
        names |= {
            f"{ours}_mixed": f"{theirs}.attn.proj",
            f"{ours}_wide": f"{theirs}.mlp.fc1",
            f"{ours}_narrow": f"{theirs}.mlp.fc2",
            f"{ours}_projection": f"{theirs}.proj",
            f"{ours}_query_key_value": f"{theirs}.attn.qkv",
            f"{ours}_before_attention": f"{theirs}.norm1",
            f"{ours}_before_mlp": f"{theirs}.norm2",
        }
        for kind in ("weight", "bias") if network.qkv_matrices == 3 else ():
            parts = [values[f"{ours}_{part}_{kind}"] for part in ("query", "key", "value")]
            values_by_name[f"{theirs}.attn.qkv.{kind}"] = np.concatenate(parts)
    kinds = {"weight": "weight", "bias": "bias", "scale": "weight", "shift": "bias"}
    for ours, value in values.items():
        layer, _, kind = ours.rpartition("_")
        if layer in names:
            values_by_name[f"{names[layer]}.{kinds[kind]}"] = value
    if "positions" in values:
        return values_by_name | {"pos_embed": values["positions"][None]}
    patch = values_by_name["patch_embed.proj.weight"].reshape(len(values["patch_weight"]), side, side, -1)
    return values_by_name | {"patch_embed.proj.weight": patch.transpose(0, 3, 1, 2)}


def load(model: nn.Module, values: Values) -> None:
    """Set all parameters and statistics of a model, except counters of batches and positions."""
    unchanged = {
        name: value
        for name, value in model.state_dict().items()
        if name == "pos_embed" or name.endswith("num_batches_tracked")
    }
    model.load_state_dict(unchanged | {name: torch.tensor(value) for name, value in values.items()})


def outputs_and_gradients(
    model: nn.Module, inputs: np.ndarray, direction: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return a model's outputs, and the gradients of their product with a direction."""
    model.zero_grad()
    outputs = model(torch.tensor(inputs))
    (outputs * torch.tensor(direction)).sum().backward()
    gradients = {name: p.grad.numpy().copy() for name, p in model.named_parameters() if p.grad is not None}
    return outputs.detach().numpy(), gradients
