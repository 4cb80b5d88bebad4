"""Networks of this project, built with torchvision and timm: peers for timing, and references for tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from curvebench.workloads.networks.hierarchical_transformer import HieraViT
from curvebench.workloads.networks.residual_network import ResidualNetwork
from curvebench.workloads.networks.vision_transformer import PlainViT, positions

# If torchvision's wheel belongs to another build of torch, its detection operators are missing.
# The detection operators must be declared to import torchvision. This project does not call them.
_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
try:
    from torchvision.models.resnet import BasicBlock, ResNet
except RuntimeError:
    for _name in ("nms", "qnms"):
        _OPERATORS.define(f"{_name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    from torchvision.models.resnet import BasicBlock, ResNet


def torchvision_network(network: ResidualNetwork) -> Any:
    """Build torchvision's residual network with the sizes of `network`.

    Widths, stems and numbers of stages that torchvision's constructor does not support are set afterwards.
    """
    blocks = [*network.blocks, *[1] * 4][:4]
    model = ResNet(BasicBlock, blocks, num_classes=network.classes)
    if (network.channels, network.width, network.stem, len(network.blocks)) == (3, 64, 7, 4):
        return model
    model.inplanes = network.width
    model.conv1 = nn.Conv2d(
        network.channels, network.width, network.stem, network.stem // 3, network.stem // 2, bias=False
    )
    model.bn1 = nn.BatchNorm2d(network.width)
    if network.stem == 3:
        model.maxpool = nn.Identity()
    for stage in range(4):
        layer = nn.Identity()
        if stage < len(network.blocks):
            width, stride = network.width * 2**stage, 2 if stage else 1
            layer = model._make_layer(BasicBlock, width, blocks[stage], stride=stride)
        setattr(model, f"layer{stage + 1}", layer)
    model.fc = nn.Linear(network.features, network.classes)
    return model


def timm_network(network: PlainViT, grid: int, side: int, channels: int, heads: int) -> Any:
    """Build timm's vision transformer with the sizes of `network`.

    The transformer has no class token. It averages over tokens after the final norm.

    Args:
        network: width, depth, classes and MLP ratio.
        grid: patches per side of the image.
        side: pixels per side of a patch.
        channels: image channels.
        heads: attention heads.

    Returns:
        A module with the fixed position embedding of this project, in float64.
    """
    from timm.models.vision_transformer import VisionTransformer  # timm imports torchvision

    model = VisionTransformer(
        img_size=grid * side,
        patch_size=side,
        in_chans=channels,
        num_classes=network.classes,
        embed_dim=network.width,
        depth=network.depth,
        num_heads=heads,
        class_token=False,
        global_pool="avg",
        fc_norm=False,
    )
    embedding = torch.tensor(positions(grid, network.width))
    model.pos_embed = nn.Parameter(embedding[None], requires_grad=False)
    return model


def timm_hiera(network: HieraViT) -> Any:
    """Build timm's hierarchical vision transformer, without drop path."""
    from timm.models.hiera import Hiera  # timm imports torchvision

    attention = network.attention
    masked = attention.masked_stages
    return Hiera(
        img_size=(network.side, network.side),
        in_chans=network.channels,
        embed_dim=network.width,
        num_heads=network.width // attention.head_width,
        num_classes=network.classes,
        stages=network.stages,
        q_pool=attention.pooled_stages,
        mask_unit_size=(attention.mask_unit, attention.mask_unit),
        mask_unit_attn=(True,) * masked + (False,) * (len(network.stages) - masked),
        patch_kernel=(network.kernel, network.kernel),
        patch_stride=(network.stride, network.stride),
        patch_padding=((network.kernel - 1) // 2,) * 2,
        mlp_ratio=network.mlp_ratio,
    )
