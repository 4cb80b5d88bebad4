"""Residual networks of basic blocks: two 3x3 convolutions with batch norm, and a shortcut around them.

He et al. 2016, "Deep residual learning for image recognition"; 000 C.2 has the one of 34 layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from curvebench.workloads.classification import Parameter, SizedNetwork, constant
from curvebench.workloads.matrices import kaiming_normal, torch_default_bias, torch_default_weight
from curvebench.workloads.workload import Array, Arrays, Ops, Role

EPSILON = 1e-5  # beside a variance
MOMENTUM = 0.1  # the share of a batch's statistics in the new running ones
LARGE_STEM = 7  # the side of a first convolution that a pooling follows


def read_stages(value: Any) -> Any:
    """Reads the blocks of each stage, for a setting."""
    if not isinstance(value, (list, tuple)) or not value or any(type(n) is not int or n < 1 for n in value):
        raise ValueError("is not a list of whole numbers above 0, one a stage")
    return list(value)


Convolution = tuple[int, int, int, int]  # outputs, inputs, rows, columns


@dataclass(frozen=True)
class ResidualNetwork(SizedNetwork):
    """A network's sizes, for images of any size.

    Args:
        channels: of an image.
        blocks: basic blocks of each stage; (3, 4, 6, 3) is the network of 34 layers.
        width: channels of the first stage. Each next has twice as many, and images half as high and wide.
        classes: outputs.
        stem: the side of the first convolution: 7 for large images, with stride 2 and a 3x3 max pooling of
            stride 2 after it; 3 for small ones, with stride 1 and no pooling.
    """

    channels: int
    blocks: tuple[int, ...]
    width: int
    classes: int
    stem: Literal[3, 7] = 7

    @property
    def convolutions(self) -> dict[str, tuple[Convolution, int]]:
        """The shape and layer of each convolution, which batch norm follows, nearest to the input first.

        A projection, a block's shortcut where the shape changes, is in the layer of the block's first one.
        """
        found: dict[str, tuple[Convolution, int]] = {
            "stem": ((self.width, self.channels, self.stem, self.stem), 0)
        }
        inputs, block = self.width, 1
        for stage, count in enumerate(self.blocks):
            outputs = self.width * 2**stage
            for _ in range(count):
                found[f"block{block}_first"] = (outputs, inputs, 3, 3), 2 * block - 1
                if inputs != outputs:
                    found[f"block{block}_projection"] = (outputs, inputs, 1, 1), 2 * block - 1
                found[f"block{block}_second"] = (outputs, outputs, 3, 3), 2 * block
                inputs, block = outputs, block + 1
        return found

    @property
    def features(self) -> int:
        """Channels of the last stage, which the head sees."""
        return self.width * 2 ** (len(self.blocks) - 1)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Kaiming normal convolutions, scales of 1 and shifts of 0, PyTorch's default head."""
        found: dict[str, Parameter] = {}
        for name, (shape, layer) in self.convolutions.items():
            found |= {
                f"{name}_weight": Parameter(
                    shape, Role("convolution", layer), partial(kaiming_normal, shape)
                ),
                f"{name}_scale": constant(shape[:1], Role("norm", layer), 1.0),
                f"{name}_shift": constant(shape[:1], Role("norm", layer), 0.0),
            }
        head, last = (self.classes, self.features), 2 * sum(self.blocks) + 1
        return found | {
            "head_weight": Parameter(head, Role("head", last), partial(torch_default_weight, *head)),
            "head_bias": Parameter(head[:1], Role("bias", last), partial(torch_default_bias, *head)),
        }

    @property
    def state(self) -> dict[str, np.ndarray]:
        """The running mean and variance of each batch norm (channels,) at the start: 0 and 1."""
        state: dict[str, np.ndarray] = {}
        for name, (shape, _) in self.convolutions.items():
            state |= {f"{name}_mean": np.zeros(shape[0]), f"{name}_variance": np.ones(shape[0])}
        return state


def residual_outputs(
    ops: Ops, params: Arrays, state: Arrays, split: Arrays, training: bool
) -> tuple[Array, Arrays]:
    """Return `residual_logits` of the images of a split; a classifier's network."""
    return residual_logits(ops, params, state, split["images"], training)


def residual_logits(
    ops: Ops, params: Arrays, state: Arrays, images: Array, training: bool
) -> tuple[Array, Arrays]:
    """The outputs (examples, classes), and the new state.

    In training batch norm is by the mean and variance of the batch, and running ones move towards these, the
    variance over one less than the count; else it is by the running ones, and the state stays.

    Args:
        ops: the array functions.
        params: by the names of `ResidualNetwork.shapes`.
        state: running means and variances, by the names of `ResidualNetwork.state`.
        images: (examples, channels, rows, columns).
        training: whether statistics are the batch's.
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
        unbiased = variance * (count / max(count - 1, 1))  # of a single value it is 0 anyway
        for part, found in {"mean": mean, "variance": unbiased}.items():
            running[f"{name}_{part}"] = (1 - MOMENTUM) * state[f"{name}_{part}"] + MOMENTUM * found
        return normal

    is_large = params["stem_weight"].shape[-1] == LARGE_STEM
    x = ops.relu(convolved(images, "stem", stride=2 if is_large else 1))
    if is_large:  # the zeros around are no more than what relu gives
        x = ops.max_pool2d(ops.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), 3, 2)
    block = 1
    while f"block{block}_first_weight" in params:
        name, stride, shortcut = f"block{block}", 1, x
        if f"{name}_projection_weight" in params:  # a stage starts
            stride, shortcut = 2, convolved(x, f"{name}_projection", stride=2)
        x = ops.relu(convolved(x, f"{name}_first", stride=stride))
        x = ops.relu(convolved(x, f"{name}_second") + shortcut)
        block += 1
    return ops.linear(ops.mean(x, axis=(2, 3)), params["head_weight"], params["head_bias"]), running
