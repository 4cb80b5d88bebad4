"""HieraViT: a vision transformer in stages, each with fewer and wider tokens than the stage before.

In the first stages, attention is restricted to small parts of the image. Source: Ryali et al. 2023, "Hiera: A
hierarchical vision transformer without the bells-and-whistles".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from curvebench.workloads.arguments import Array, Arrays, Ops
from curvebench.workloads.classification import Parameter
from curvebench.workloads.networks.transformer import Transformer, TransformerLayers
from curvebench.workloads.workload import Role

POSITION_DEVIATION = 0.02  # standard deviation of the initial position embeddings


@dataclass(frozen=True)
class MaskUnitAttention:
    """Options of attention that do not follow from the parameters; the defaults are those of Hiera-B.

    Args:
        head_width: units of an attention head, which divide the width of the first stage.
        mask_unit: side length of the square mask units in tokens, before any pooling.
        masked_stages: number of stages, from the first, whose attention is restricted to mask units. The
            block at the beginning of a stage has the attention of the stage before.
        pooled_stages: number of stages, from the second, that begin with pooling of 2 x 2 tokens to one.
    """

    head_width: int = 96
    mask_unit: int = 8
    masked_stages: int = 2
    pooled_stages: int = 3


@dataclass(frozen=True, kw_only=True)
class HieraViT(Transformer):
    """Sizes of a network; the defaults are those of Hiera-B for images of 224 x 224 pixels.

    Args:
        side: height and width of the images in pixels.
        channels: channels of an image.
        width: units of a token in the first stage. Each further stage has twice as many units and heads.
        stages: number of blocks of each stage.
        kernel: height and width in pixels of the convolution that makes the patches.
        stride: stride of that convolution in pixels.
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
        for description, (number, divisor, name) in multiples.items():
            if number % divisor:
                raise ValueError(f"{description} is not a multiple of {divisor}, {name}")
        if attention.pooled_stages > last:
            raise ValueError(
                f"pooled_stages = {attention.pooled_stages} is larger than {last}, the stages after the first"
            )

    @property
    def grid(self) -> int:
        """Number of tokens in a row or column of the image."""
        return self.side // self.stride

    @property
    def patch(self) -> tuple[int, ...]:
        """Shape of the weight of the convolution that makes the patches."""
        return self.width, self.channels, self.kernel, self.kernel

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Numbers of units of a token before and after each block.

        The two numbers differ for the first block of each stage except the first stage.
        """
        widths = [self.width * 2**stage for stage, count in enumerate(self.stages) for _ in range(count)]
        return tuple(pairwise((self.width, *widths)))

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters of every `Transformer`, and position embeddings, drawn from a normal distribution."""
        shape = self.grid**2, self.width

        def draw(generator: np.random.Generator) -> np.ndarray:
            return generator.normal(scale=POSITION_DEVIATION, size=shape)

        return super().parameters | {"positions": Parameter(shape, Role("embedding", 0), draw)}

    def sample(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw initial parameters; the position embeddings are drawn first."""
        parameters = self.parameters
        values = {name: parameters[name].draw(generator) for name in ("positions", *super().parameters)}
        return {name: values[name] for name in parameters}


def by_mask_units(ops: Ops, tokens: Array, mask_unit: int, halvings: int) -> Array:
    """Reorder tokens (examples, grid * grid, units), so that consecutive tokens are in different mask units.

    A mask unit is a square of neighbouring tokens, to which attention is restricted. Initially tokens are in
    the order of the image's rows. Afterwards, tokens with the same position within their mask units are
    adjacent, in the order of the mask units, row by row. The positions are sorted by the last bits of their
    row and column, then by the bits before the last bits. As a result, each quarter of the sequence contains
    one token of every 2 x 2 neighbouring tokens. Such four tokens can be pooled to one by the maximum over
    the quarters, and the same is true again for the pooled tokens.

    Args:
        ops: array functions.
        tokens: tokens, row by row; their number is a square.
        mask_unit: side length of a mask unit in tokens.
        halvings: number of bits to sort by. The other bits of row and column are kept together.
    """
    count, total, width = tokens.shape
    sizes = (math.isqrt(total) // mask_unit, mask_unit >> halvings, *(2,) * halvings)
    # Number of axes into which the rows of tokens are divided.
    # The columns of tokens are divided into the same number of axes, which follow after the axes of the rows.
    axes = len(sizes)
    order = [axis for row in range(axes, 0, -1) for axis in (row, row + axes)]
    cut = ops.permute_dims(ops.reshape(tokens, (count, *sizes, *sizes, width)), (0, *order, 2 * axes + 1))
    return ops.reshape(cut, tuple(tokens.shape))


def hiera_logits(ops: Ops, params: Arrays, images: Array, attention: MaskUnitAttention) -> Array:
    """Return the outputs (examples, classes) of HieraViT.

    Args:
        ops: array functions.
        params: parameters by the names of `HieraViT.shapes`.
        images: images (examples, channels, rows, columns).
        attention: options of the network's attention.
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
