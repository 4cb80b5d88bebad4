"""HieraViT: a vision transformer in stages, each of fewer and wider tokens, that at first sees parts alone.

Ryali et al. 2023, "Hiera: A hierarchical vision transformer without the bells-and-whistles".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from curvebench.workloads.classification import Parameter
from curvebench.workloads.networks.transformer import Transformer, TransformerLayers
from curvebench.workloads.workload import Array, Arrays, Ops, Role

POSITION_SPREAD = 0.02  # the standard deviation of the positions at the start


@dataclass(frozen=True)
class MaskUnitAttention:
    """What the parameters do not show of attention; the defaults are those of Hiera-B.

    Args:
        head_width: units of an attention head, which divide the width of the first stage.
        mask_unit: the side of the square mask units before all pooling, in tokens.
        masked_stages: how many stages, the first ones, have attention inside of mask units alone. The block
            that begins a stage is as those of the stage before.
        pooled_stages: how many stages after the first begin with pooling: of each 2 x 2 tokens one is left.
    """

    head_width: int = 96
    mask_unit: int = 8
    masked_stages: int = 2
    pooled_stages: int = 3


@dataclass(frozen=True, kw_only=True)
class HieraViT(Transformer):
    """A network's sizes; the defaults are those of Hiera-B for images of 224 x 224 pixels.

    Args:
        side: of the square images, in pixels.
        channels: of an image.
        width: of a token in the first stage; each next has twice as many units and heads.
        stages: the blocks of each.
        kernel, stride: of the convolution that makes the patches, in pixels.
        attention: heads, mask units and pooling.
    """

    side: int = 224
    channels: int = 3
    width: int = 96
    stages: tuple[int, ...] = (2, 3, 16, 3)
    kernel: int = 7
    stride: int = 4
    attention: MaskUnitAttention = MaskUnitAttention()

    def __post_init__(self) -> None:
        attention, last = self.attention, len(self.stages) - 1
        multiples = {
            f"side = {self.side}": (self.side, self.stride, "the stride"),
            f"width = {self.width}": (self.width, attention.head_width, "head_width"),
            f"side / stride = {self.grid}": (self.grid, attention.mask_unit, "mask_unit"),
            f"mask_unit = {attention.mask_unit}": (
                attention.mask_unit,
                2**attention.pooled_stages,
                "2^pooled_stages",
            ),
        }
        for what, (number, divisor, name) in multiples.items():
            if number % divisor:
                raise ValueError(f"{what} is not a multiple of {divisor}, {name}")
        if attention.pooled_stages > last:
            raise ValueError(
                f"pooled_stages = {attention.pooled_stages} is larger than {last}, the stages after the first"
            )

    @property
    def grid(self) -> int:
        """Tokens in a row or column of the image."""
        return self.side // self.stride

    @property
    def patch(self) -> tuple[int, ...]:
        """The shape of the patches' weight, which is a convolution's."""
        return self.width, self.channels, self.kernel, self.kernel

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """The first block of a stage after the first is where tokens become wider."""
        widths = [self.width * 2**stage for stage, count in enumerate(self.stages) for _ in range(count)]
        return tuple(pairwise((self.width, *widths)))

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Those of all transformers, and normal positions, an embedding as the patches' weight is."""
        shape = self.grid**2, self.width

        def draw(generator: np.random.Generator) -> np.ndarray:
            return generator.normal(scale=POSITION_SPREAD, size=shape)

        return super().parameters | {"positions": Parameter(shape, Role("embedding", 0), draw)}

    def sample(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Initial parameters, of which the positions are drawn first."""
        parameters = self.parameters
        drawn = {name: parameters[name].draw(generator) for name in ("positions", *super().parameters)}
        return {name: drawn[name] for name in parameters}


def by_mask_units(ops: Ops, tokens: Array, mask_unit: int, halvings: int) -> Array:
    """Tokens (examples, grid * grid, units), row by row, in the order of their places inside of mask units.

    The tokens of one place lie side by side, their mask units row by row. Places are ordered by the last bit
    of row and column, then by the bit before: each quarter has one of each 2 x 2 tokens, and so again when
    these have become one.

    Args:
        ops: the array functions.
        tokens: their number is a square.
        mask_unit: its side, in tokens.
        halvings: how many bits; what is left of a row's and a column's place is not cut.
    """
    count, total, width = tokens.shape
    sizes = (math.isqrt(total) // mask_unit, mask_unit >> halvings, *(2,) * halvings)
    axes = len(sizes)  # of the rows, then of the columns
    order = [axis for row in range(axes, 0, -1) for axis in (row, row + axes)]
    cut = ops.permute_dims(ops.reshape(tokens, (count, *sizes, *sizes, width)), (0, *order, 2 * axes + 1))
    return ops.reshape(cut, tuple(tokens.shape))


def hiera_logits(ops: Ops, params: Arrays, images: Array, attention: MaskUnitAttention) -> Array:
    """The outputs (examples, classes).

    Args:
        ops: the array functions.
        params: by the names of `HieraViT.shapes`.
        images: (examples, channels, rows, columns).
        attention: that of the network.
    """
    layers = TransformerLayers(ops, params, attention.head_width)
    weight, grid = params["patch_weight"], math.isqrt(params["positions"].shape[0])
    stride, padding = images.shape[-1] // grid, (weight.shape[-1] - 1) // 2
    patches = ops.conv2d(images, weight, stride=stride, padding=padding)
    tokens = ops.swapaxes(ops.reshape(patches, (*patches.shape[:2], -1)), 1, 2)
    tokens = tokens + (params["positions"] + params["patch_bias"])
    x = by_mask_units(ops, tokens, attention.mask_unit, attention.pooled_stages)
    block, stage = 1, 0
    while f"block{block}_mixed_weight" in params:
        windows = (grid // attention.mask_unit) ** 2 if stage < attention.masked_stages else 1
        begins = f"block{block}_projection_weight" in params
        stage += begins
        x = layers.block(x, block, windows, pooled=4 if begins and stage <= attention.pooled_stages else 1)
        block += 1
    return layers.linear(layers.norm(ops.mean(x, axis=1), "last"), "head")
