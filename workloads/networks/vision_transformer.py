"""PlainViT: a vision transformer with fixed positions and no class token, whose last tokens are averaged.

Beyer, Zhai and Kolesnikov 2022, "Better plain ViT baselines for ImageNet-1k".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from curvebench.workloads.networks.transformer import Transformer, TransformerLayers
from curvebench.workloads.workload import Array, Arrays, Ops

LONGEST_WAVE = 10_000.0  # of the positions, in patches, over 2 pi


@dataclass(frozen=True)
class PlainViT(Transformer):
    """A network's sizes, for images of any size.

    Args:
        inputs: the numbers of a patch, side * side * channels.
        width: of a token; a multiple of 4 above 4, and of the units of a head.
        depth: blocks of attention and MLP.
    """

    inputs: int
    width: int
    depth: int

    @property
    def patch(self) -> tuple[int, ...]:
        """The shape of the patches' weight."""
        return self.width, self.inputs

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """All blocks are alike."""
        return ((self.width, self.width),) * self.depth


def patches_of(images: np.ndarray, side: int) -> np.ndarray:
    """Square patches (examples, tokens, side * side * channels), row by row.

    Args:
        images: (examples, rows, columns, channels); the side divides rows and columns.
        side: of a patch, in pixels.
    """
    count, rows, columns, channels = images.shape
    cut = images.reshape(count, rows // side, side, columns // side, side, channels).swapaxes(2, 3)
    return cut.reshape(count, -1, side * side * channels)


def positions(grid: int, width: int) -> np.ndarray:
    """Sines and cosines of each patch's column and row, (grid * grid, width), row by row.

    With w_k = 10000^(-k / (width / 4 - 1)) a token has sin(w_k x), cos(w_k x), sin(w_k y) and cos(w_k y).
    """
    waves = LONGEST_WAVE ** -np.linspace(0.0, 1.0, width // 4)
    rows, columns = np.divmod(np.arange(grid**2), grid)
    angles = [place[:, None] * waves for place in (columns, rows)]
    return np.concatenate([wave(angle) for angle in angles for wave in (np.sin, np.cos)], axis=1)


def fixed_positions(tokens: int, width: int) -> dict[str, np.ndarray]:
    """The model state: `positions` of a square number of tokens, which stay as they are."""
    return {"positions": positions(math.isqrt(tokens), width)}


def vit_logits(ops: Ops, params: Arrays, state: Arrays, patches: Array, head_width: int) -> Array:
    """The outputs (examples, classes).

    Args:
        ops: the array functions.
        params: by the names of `PlainViT.shapes`.
        state: as `fixed_positions` gives it.
        patches: (examples, tokens, inputs) as `patches_of` cuts them.
        head_width: units of an attention head, which divides the width.
    """
    layers = TransformerLayers(ops, params, head_width)
    x = layers.linear(patches, "patch") + ops.asarray(state["positions"])
    block = 1
    while f"block{block}_mixed_weight" in params:
        x = layers.block(x, block)
        block += 1
    return layers.linear(ops.mean(layers.norm(x, "last"), axis=1), "head")
