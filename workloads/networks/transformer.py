"""Common parts of transformers: layers, initial parameters, blocks of attention and MLP."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from curvebench.spec.values import choice
from curvebench.workloads.arguments import Array, Arrays, Ops
from curvebench.workloads.classification import Parameter, SizedNetwork, constant
from curvebench.workloads.matrices import xavier_normal
from curvebench.workloads.workload import Role, Setting

EPSILON = 1e-6  # added to variances
# Names of a block's linear layers for query, key and value: three layers or one joint layer.
QKV = ("query", "key", "value")
JOINT_QKV = "query_key_value"
QKV_MATRICES = Setting(
    3, "weight matrices of query, key and value in each block: 3, or 1 of all", choice(1, 3)
)


@dataclass(frozen=True, kw_only=True)
class Transformer(SizedNetwork):
    """A network that consists of patches, blocks of attention and MLP, a final norm, and a head.

    Args:
        classes: number of outputs.
        mlp_ratio: number of an MLP's hidden units, divided by the number of its outputs.
        qkv_matrices: number of weight matrices for query, key and value of a block: 3, or 1 joint matrix.
    """

    classes: int
    mlp_ratio: int = 4
    qkv_matrices: Literal[1, 3] = 3

    @property
    @abstractmethod
    def patch(self) -> tuple[int, ...]:
        """Shape of the weight that turns patches into tokens, outputs first."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Numbers of units of a token before and after each block.

        If the two numbers of a block differ, its shortcut is a projection.
        """

    @property
    def linear(self) -> dict[str, tuple[tuple[int, ...], Role]]:
        """Shape and role of the weight of each linear layer, from input to output."""
        layers: dict[str, tuple[tuple[int, ...], Role]] = {"patch": (self.patch, Role("embedding", 0))}
        parts = QKV if self.qkv_matrices == 3 else (JOINT_QKV,)
        for number, (inputs, width) in enumerate(self.blocks, start=1):
            name, inside = f"block{number}", self.mlp_ratio * width
            attention, mlp = Role("weight", 2 * number - 1), Role("weight", 2 * number)
            layers |= {f"{name}_{part}": ((3 // len(parts) * width, inputs), attention) for part in parts}
            if inputs != width:
                layers |= {f"{name}_projection": ((width, inputs), attention)}
            layers |= {f"{name}_mixed": ((width, width), attention)}
            layers |= {f"{name}_wide": ((inside, width), mlp), f"{name}_narrow": ((width, inside), mlp)}
        return layers | {"head": ((self.classes, self.blocks[-1][1]), Role("head", self._last))}

    @property
    def norms(self) -> dict[str, tuple[int, Role]]:
        """Number of units and role of each layer norm.

        Each block has a norm before attention and a norm before the MLP. The `last` norm precedes the head.
        """
        norms: dict[str, tuple[int, Role]] = {}
        for number, (inputs, width) in enumerate(self.blocks, start=1):
            norms |= {
                f"block{number}_before_attention": (inputs, Role("norm", 2 * number - 1)),
                f"block{number}_before_mlp": (width, Role("norm", 2 * number)),
            }
        return norms | {"last": (self.blocks[-1][1], Role("norm", self._last))}

    @property
    def _last(self) -> int:
        """Layer number of the head."""
        return 2 * len(self.blocks) + 1

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters, with initial values: Xavier normal weights, scales of 1, biases and shifts of 0.

        The weight of the patches has the role of an embedding. The head is random, too: if it were 0, as in
        the original programs, all other parameters would have a gradient of 0 at the first step. A joint
        matrix of query, key and value has the same distribution as three separate matrices.
        """
        table: dict[str, Parameter] = {}
        for name, (shape, role) in self.linear.items():
            draw = partial(_xavier_normal, shape, 3 if JOINT_QKV in name else 1)
            table[f"{name}_weight"] = Parameter(shape, role, draw)
            table[f"{name}_bias"] = constant(shape[:1], Role("bias", role.layer), 0.0)
        for name, (width, role) in self.norms.items():
            table[f"{name}_scale"] = constant((width,), role, 1.0)
            table[f"{name}_shift"] = constant((width,), role, 0.0)
        return table


def _xavier_normal(shape: tuple[int, ...], parts: int, generator: np.random.Generator) -> np.ndarray:
    """Draw a weight, outputs first, that consists of `parts` Xavier normal matrices, one below the other."""
    matrices = [xavier_normal(shape[0] // parts, math.prod(shape[1:]), generator) for _ in range(parts)]
    return np.concatenate(matrices).reshape(shape)


@dataclass(frozen=True)
class TransformerLayers:
    """The layers of a transformer with given parameters, for tokens (examples, tokens, units).

    Args:
        ops: array functions.
        params: parameters by the names of `Transformer.shapes`.
        head_width: units of an attention head.
    """

    ops: Ops
    params: Arrays
    head_width: int

    def linear(self, x: Array, name: str) -> Array:
        """Apply the linear layer with the name `name`."""
        return self.ops.linear(x, self.params[f"{name}_weight"], self.params[f"{name}_bias"])

    def norm(self, x: Array, name: str) -> Array:
        """Apply the layer norm with the name `name`."""
        scale, shift = self.params[f"{name}_scale"], self.params[f"{name}_shift"]
        return self.ops.layer_norm(x, scale, shift, EPSILON)

    def block(self, x: Array, number: int, windows: int = 1, pooled: int = 1, causal: bool = False) -> Array:
        """Apply a block: attention and MLP, each with a norm before it and a shortcut around it.

        Args:
            x: tokens. Consecutive tokens belong to different windows: token i is in window i modulo
                `windows`.
            number: number of the block, from 1.
            windows: number of windows. A token attends only to tokens of its own window.
            pooled: number of tokens that are pooled to one, by the maximum in each unit, in the queries and
                in the shortcut. If n tokens remain, the tokens i, i + n, i + 2 n, ... are pooled to token i.
            causal: whether a token attends only to itself and to earlier tokens.
        """
        ops, name = self.ops, f"block{number}"

        def pool(x: Array) -> Array:
            if pooled == 1:
                return x
            return ops.max(ops.reshape(x, (x.shape[0], pooled, -1, x.shape[-1])), axis=1)

        # A head within one window is computed like a separate head with fewer tokens.
        def heads(x: Array) -> Array:
            return ops.swapaxes(
                ops.reshape(x, (x.shape[0], x.shape[1] // windows, -1, self.head_width)), 1, 2
            )

        normalized = self.norm(x, f"{name}_before_attention")
        if f"{name}_projection_weight" in self.params:
            x = pool(self.linear(normalized, f"{name}_projection"))
        query, key, value = self._seen(normalized, name)
        mixed = ops.swapaxes(ops.attention(heads(pool(query)), heads(key), heads(value), causal), 1, 2)
        x = x + self.linear(ops.reshape(mixed, x.shape), f"{name}_mixed")
        normalized = self.norm(x, f"{name}_before_mlp")
        return x + self.linear(ops.gelu(self.linear(normalized, f"{name}_wide")), f"{name}_narrow")

    def _seen(self, x: Array, name: str) -> Any:
        """Return query, key and value of a block."""
        if f"{name}_{JOINT_QKV}_weight" not in self.params:
            return [self.linear(x, f"{name}_{part}") for part in QKV]
        joined = self.linear(x, f"{name}_{JOINT_QKV}")
        return self.ops.unstack(self.ops.reshape(joined, (*x.shape[:2], 3, -1)), 2)
