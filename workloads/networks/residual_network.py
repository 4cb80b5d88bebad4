"""Residual networks of basic blocks: two 3x3 convolutions with batch norm, and a shortcut around them.

He et al. 2016, "Deep residual learning for image recognition"; 000 C.2 uses the network of 34 layers.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from curvebench.workloads.arguments import Array, Arrays, Ops
from curvebench.workloads.classification import Parameter, SizedNetwork, constant
from curvebench.workloads.matrices import kaiming_normal, torch_default_bias, torch_default_weight
from curvebench.workloads.workload import Role

EPSILON = 1e-5  # added to variances
MOMENTUM = 0.1  # weight of a batch's statistics in the update of the running statistics
LARGE_STEM = 7  # kernel size of a first convolution that is followed by pooling


def read_stages(value: Any) -> Any:
    """Read the number of blocks of each stage from a setting."""
    if not isinstance(value, (list, tuple)) or not value or any(type(n) is not int or n < 1 for n in value):
        raise ValueError("is not a list of whole numbers above 0, one a stage")
    return list(value)


Convolution = tuple[int, int, int, int]  # outputs, inputs, rows, columns


@dataclass(frozen=True)
class ResidualNetwork(SizedNetwork):
    """Sizes of a network for images of any size.

    Args:
        channels: channels of an image.
        blocks: number of basic blocks of each stage; (3, 4, 6, 3) is the network of 34 layers.
        width: channels of the first stage. Each further stage has twice as many channels, and images of half
            the height and width.
        classes: number of outputs.
        stem: kernel size of the first convolution: 7 for large images, with stride 2 and followed by 3x3 max
            pooling of stride 2; 3 for small images, with stride 1 and no pooling.
    """

    channels: int
    blocks: tuple[int, ...]
    width: int
    classes: int
    stem: Literal[3, 7] = 7

    @property
    def convolutions(self) -> dict[str, tuple[Convolution, int]]:
        """Shape and layer number of each convolution, from input to output. Batch norm follows each
        convolution.

        A projection is the shortcut of a block whose shape changes. A projection has the layer number of the
        block's first convolution.
        """
        table: dict[str, tuple[Convolution, int]] = {
            "stem": ((self.width, self.channels, self.stem, self.stem), 0)
        }
        inputs, block = self.width, 1
        for stage, count in enumerate(self.blocks):
            outputs = self.width * 2**stage
            for _ in range(count):
                table[f"block{block}_first"] = (outputs, inputs, 3, 3), 2 * block - 1
                if inputs != outputs:
                    table[f"block{block}_projection"] = (outputs, inputs, 1, 1), 2 * block - 1
                table[f"block{block}_second"] = (outputs, outputs, 3, 3), 2 * block
                inputs, block = outputs, block + 1
        return table

    @property
    def features(self) -> int:
        """Channels of the last stage, which are the inputs of the head."""
        return self.width * 2 ** (len(self.blocks) - 1)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters, with initial values: Kaiming normal convolutions, scales 1, shifts 0, PyTorch's default
        head.
        """
        table: dict[str, Parameter] = {}
        for name, (shape, layer) in self.convolutions.items():
            table |= {
                f"{name}_weight": Parameter(
                    shape, Role("convolution", layer), partial(kaiming_normal, shape)
                ),
                f"{name}_scale": constant(shape[:1], Role("norm", layer), 1.0),
                f"{name}_shift": constant(shape[:1], Role("norm", layer), 0.0),
            }
        head, last = (self.classes, self.features), 2 * sum(self.blocks) + 1
        return table | {
            "head_weight": Parameter(head, Role("head", last), partial(torch_default_weight, *head)),
            "head_bias": Parameter(head[:1], Role("bias", last), partial(torch_default_bias, *head)),
        }

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Initial running mean (0) and variance (1) of each batch norm, (channels,)."""
        state: dict[str, np.ndarray] = {}
        for name, (shape, _) in self.convolutions.items():
            state |= {f"{name}_mean": np.zeros(shape[0]), f"{name}_variance": np.ones(shape[0])}
        return state


def residual_outputs(
    ops: Ops, params: Arrays, state: Arrays, split: Arrays, training: bool
) -> tuple[Array, Arrays]:
    """Return `residual_logits` for the images of a split, in the form of a classifier's `Network`."""
    return residual_logits(ops, params, state, split["images"], training)


def residual_logits(
    ops: Ops, params: Arrays, state: Arrays, images: Array, training: bool
) -> tuple[Array, Arrays]:
    """Return the outputs (examples, classes) of a residual network, and its new state.

    In training, batch norm uses the mean and variance of the batch. The running statistics are updated with
    this mean and with the unbiased variance of the batch. Otherwise batch norm uses the running statistics,
    which do not change.

    Args:
        ops: array functions.
        params: parameters by the names of `ResidualNetwork.shapes`.
        state: running means and variances by the names of `ResidualNetwork.state`.
        images: images (examples, channels, rows, columns).
        training: whether batch norm uses the statistics of the batch.
    """
    running = dict(state)

    def convolved(x: Array, name: str, stride: int = 1) -> Array:
        weight, scale, shift = (params[f"{name}_{part}"] for part in ("weight", "scale", "shift"))
        x = ops.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        if not training:
            statistics = state[f"{name}_mean"], state[f"{name}_variance"]
            return ops.batch_norm(x, *statistics, scale, shift, EPSILON)
        normal, mean, variance = ops.batch_norm_in_training(x, scale, shift, EPSILON)
        count = x.shape[0] * math.prod(x.shape[2:])
        # If a channel has a single value, its variance is 0, and the divisor does not matter.
        unbiased = variance * (count / max(count - 1, 1))
        for part, value in {"mean": mean, "variance": unbiased}.items():
            running[f"{name}_{part}"] = (1 - MOMENTUM) * state[f"{name}_{part}"] + MOMENTUM * value
        return normal

    is_large = params["stem_weight"].shape[-1] == LARGE_STEM
    x = ops.relu(convolved(images, "stem", stride=2 if is_large else 1))
    if is_large:  # the maximum ignores padding with zeros, because no value is below 0 after relu
        x = ops.max_pool2d(ops.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), 3, 2)
    block = 1
    while f"block{block}_first_weight" in params:
        name, stride, shortcut = f"block{block}", 1, x
        if f"{name}_projection_weight" in params:  # Only the first block of a stage has a projection.
            stride, shortcut = 2, convolved(x, f"{name}_projection", stride=2)
        x = ops.relu(convolved(x, f"{name}_first", stride=stride))
        x = ops.relu(convolved(x, f"{name}_second") + shortcut)
        block += 1
    return ops.linear(ops.mean(x, axis=(2, 3)), params["head_weight"], params["head_bias"]), running
