"""PlainViT: a vision transformer with fixed positions and without class token.

The tokens are averaged at the end. Source: Beyer, Zhai and Kolesnikov 2022, "Better plain ViT baselines for
ImageNet-1k".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from curvebench.workloads.arguments import Array, Arrays, Ops
from curvebench.workloads.networks.transformer import Transformer, TransformerLayers

# Longest wavelength of the position embeddings divided by the shortest wavelength, which is 2 pi patches.
WAVE_RATIO = 10_000.0


@dataclass(frozen=True)
class PlainViT(Transformer):
    """Sizes of a network for images of any size.

    Args:
        inputs: numbers in a patch, side * side * channels.
        width: units of a token: a multiple of 4 that is larger than 4, and a multiple of the units of an
            attention head.
        depth: number of blocks of attention and MLP.
    """

    inputs: int
    width: int
    depth: int

    @property
    def patch(self) -> tuple[int, ...]:
        """Shape of the weight that turns patches into tokens."""
        return self.width, self.inputs

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Numbers of units of a token before and after each block, which are all equal."""
        return ((self.width, self.width),) * self.depth


def patches_of(images: np.ndarray, side: int) -> np.ndarray:
    """Divide images into square patches (examples, tokens, side * side * channels), row by row.

    Args:
        images: images (examples, rows, columns, channels); `side` divides rows and columns.
        side: height and width of a patch in pixels.
    """
    count, rows, columns, channels = images.shape
    cut = images.reshape(count, rows // side, side, columns // side, side, channels).swapaxes(2, 3)
    return cut.reshape(count, -1, side * side * channels)


def positions(grid: int, width: int) -> np.ndarray:
    """Return sines and cosines of the column and row of each patch, (grid * grid, width), row by row.

    With w_k = 10000^(-k / (width / 4 - 1)), a token in column x and row y has sin(w_k x), cos(w_k x), sin(w_k
    y) and cos(w_k y).
    """
    waves = WAVE_RATIO ** -np.linspace(0.0, 1.0, width // 4)
    rows, columns = np.divmod(np.arange(grid**2), grid)
    angles = [coordinate[:, None] * waves for coordinate in (columns, rows)]
    return np.concatenate([wave(angle) for angle in angles for wave in (np.sin, np.cos)], axis=1)


def fixed_positions(tokens: int, width: int) -> dict[str, np.ndarray]:
    """Return the model state of a network: `positions` of a square number of tokens, which never change."""
    return {"positions": positions(math.isqrt(tokens), width)}


def vit_logits(ops: Ops, params: Arrays, state: Arrays, patches: Array, head_width: int) -> Array:
    """Return the outputs (examples, classes) of PlainViT.

    Args:
        ops: array functions.
        params: parameters by the names of `PlainViT.shapes`.
        state: model state from `fixed_positions`.
        patches: patches (examples, tokens, inputs) from `patches_of`.
        head_width: units of an attention head; a divisor of the units of a token.
    """
    layers = TransformerLayers(ops, params, head_width)
    x = layers.linear(patches, "patch") + ops.asarray(state["positions"])
    block = 1
    while f"block{block}_mixed_weight" in params:
        x = layers.block(x, block)
        block += 1
    return layers.linear(ops.mean(layers.norm(x, "last"), axis=1), "head")
