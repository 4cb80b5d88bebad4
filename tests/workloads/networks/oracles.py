"""Our parameters by the names of the networks of torchvision and timm, and what those make of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from workloads.networks.residual_network import ResidualNetwork
from workloads.networks.vision_transformer import PlainViT

Values = Mapping[str, np.ndarray]


def torchvision_names(network: ResidualNetwork) -> dict[str, str]:
    """torchvision's name of each of our parameters and statistics."""
    modules = {"stem": ("conv1", "bn1")}
    block = 1
    for stage, count in enumerate(network.blocks, start=1):
        for place in range(count):
            theirs = f"layer{stage}.{place}"
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


def timm_values(network: PlainViT, values: Values, side: int) -> dict[str, np.ndarray]:
    """Our values by timm's names: query, key and value are one matrix, a patch has its channels first."""
    blocks = [(f"block{number + 1}", f"blocks.{number}") for number in range(network.depth)]
    linear = {"patch": "patch_embed.proj", "head": "head"}
    norms = {"last": "norm"}
    found = {}
    for ours, theirs in blocks:
        linear |= {
            f"{ours}_mixed": f"{theirs}.attn.proj",
            f"{ours}_wide": f"{theirs}.mlp.fc1",
            f"{ours}_narrow": f"{theirs}.mlp.fc2",
        }
        norms |= {f"{ours}_before_attention": f"{theirs}.norm1", f"{ours}_before_mlp": f"{theirs}.norm2"}
        for kind in ("weight", "bias"):
            parts = [values[f"{ours}_{part}_{kind}"] for part in ("query", "key", "value")]
            found[f"{theirs}.attn.qkv.{kind}"] = np.concatenate(parts)
    for ours, theirs in linear.items():
        found |= {f"{theirs}.{kind}": values[f"{ours}_{kind}"] for kind in ("weight", "bias")}
    for ours, theirs in norms.items():
        found |= {f"{theirs}.weight": values[f"{ours}_scale"], f"{theirs}.bias": values[f"{ours}_shift"]}
    patch = found["patch_embed.proj.weight"].reshape(network.width, side, side, -1)
    return found | {"patch_embed.proj.weight": patch.transpose(0, 3, 1, 2)}


def load(model: nn.Module, values: Values) -> None:
    """Set all parameters and statistics of a model, but what counts batches and positions."""
    kept = {
        name: value
        for name, value in model.state_dict().items()
        if name == "pos_embed" or name.endswith("num_batches_tracked")
    }
    model.load_state_dict(kept | {name: torch.tensor(value) for name, value in values.items()})


def outputs_and_gradients(
    model: nn.Module, inputs: np.ndarray, direction: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A model's outputs, and the gradients of their product with a direction."""
    model.zero_grad()
    outputs = model(torch.tensor(inputs))
    (outputs * torch.tensor(direction)).sum().backward()
    gradients = {name: p.grad.numpy().copy() for name, p in model.named_parameters() if p.grad is not None}
    return outputs.detach().numpy(), gradients
