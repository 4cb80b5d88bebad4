"""What vision transformers share: their linear layers and norms, a start, and blocks of attention and MLP."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from curvebench.spec.values import choice
from curvebench.workloads.classification import Parameter, SizedNetwork, constant
from curvebench.workloads.matrices import xavier_normal
from curvebench.workloads.workload import Array, Arrays, Ops, Role, Setting

EPSILON = 1e-6  # beside a variance
SEEN = ("query", "key", "value")
JOINED = "query_key_value"
QKV_MATRICES = Setting(
    3, "weight matrices of query, key and value in each block: 3, or 1 of all", choice(1, 3)
)


@dataclass(frozen=True, kw_only=True)
class Transformer(SizedNetwork):
    """A network of patches, blocks of attention and MLP, a last norm, and a head.

    Args:
        classes: outputs.
        mlp_ratio: units inside an MLP over those that leave it.
        qkv_matrices: how many weight matrices query, key and value of a block have: 3, or 1 of all.
    """

    classes: int
    mlp_ratio: int = 4
    qkv_matrices: Literal[1, 3] = 3

    @property
    @abstractmethod
    def patch(self) -> tuple[int, ...]:
        """The shape of the patches' weight, outputs first."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Units of a token that enter and leave each block, whose shortcut is a projection if they differ."""

    @property
    def linear(self) -> dict[str, tuple[tuple[int, ...], Role]]:
        """The shape and role of the weight of each linear layer, nearest to the input first."""
        layers: dict[str, tuple[tuple[int, ...], Role]] = {"patch": (self.patch, Role("embedding", 0))}
        parts = SEEN if self.qkv_matrices == 3 else (JOINED,)
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
        """Units and role of each norm's scale and shift: before attention, before the MLP, the last."""
        norms: dict[str, tuple[int, Role]] = {}
        for number, (inputs, width) in enumerate(self.blocks, start=1):
            norms |= {
                f"block{number}_before_attention": (inputs, Role("norm", 2 * number - 1)),
                f"block{number}_before_mlp": (width, Role("norm", 2 * number)),
            }
        return norms | {"last": (self.blocks[-1][1], Role("norm", self._last))}

    @property
    def _last(self) -> int:
        return 2 * len(self.blocks) + 1

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Xavier normal weights, scales of 1, biases and shifts of 0.

        The patches' weight is an embedding. The head too is drawn: at 0, where its authors start it, no other
        parameter has a first gradient. One matrix of query, key and value has the values of three.
        """
        found: dict[str, Parameter] = {}
        for name, (shape, role) in self.linear.items():
            draw = partial(_xavier_normal, shape, 3 if JOINED in name else 1)
            found[f"{name}_weight"] = Parameter(shape, role, draw)
            found[f"{name}_bias"] = constant(shape[:1], Role("bias", role.layer), 0.0)
        for name, (width, role) in self.norms.items():
            found |= {
                f"{name}_scale": constant((width,), role, 1.0),
                f"{name}_shift": constant((width,), role, 0.0),
            }
        return found


def _xavier_normal(shape: tuple[int, ...], parts: int, generator: np.random.Generator) -> np.ndarray:
    """A weight, outputs first, of so many matrices one below the other."""
    drawn = [xavier_normal(shape[0] // parts, math.prod(shape[1:]), generator) for _ in range(parts)]
    return np.concatenate(drawn).reshape(shape)


@dataclass(frozen=True)
class TransformerLayers:
    """The layers of a transformer at some parameters, for tokens (examples, tokens, units).

    Args:
        ops: the array functions.
        params: by the names of `Transformer.shapes`.
        head_width: units of an attention head.
    """

    ops: Ops
    params: Arrays
    head_width: int

    def linear(self, x: Array, name: str) -> Array:
        """The linear layer of a name."""
        return self.ops.linear(x, self.params[f"{name}_weight"], self.params[f"{name}_bias"])

    def norm(self, x: Array, name: str) -> Array:
        """The layer norm of a name."""
        scale, shift = self.params[f"{name}_scale"], self.params[f"{name}_shift"]
        return self.ops.layer_norm(x, scale, shift, EPSILON)

    def block(self, x: Array, number: int, windows: int = 1, pooled: int = 1) -> Array:
        """Attention and MLP, each after a norm and beside a shortcut.

        Args:
            x: the tokens of each window are as many apart as there are windows.
            number: of the block, from 1 on.
            windows: parts of the tokens that see themselves alone.
            pooled: how many tokens, the greatest of each unit, become one in queries and shortcut; they are
                as far apart as tokens are left.
        """
        ops, name = self.ops, f"block{number}"

        def greatest(x: Array) -> Array:
            if pooled == 1:
                return x
            return ops.max(ops.reshape(x, (x.shape[0], pooled, -1, x.shape[-1])), axis=1)

        def heads(x: Array) -> Array:  # windows are heads of fewer tokens
            return ops.swapaxes(
                ops.reshape(x, (x.shape[0], x.shape[1] // windows, -1, self.head_width)), 1, 2
            )

        seen = self.norm(x, f"{name}_before_attention")
        if f"{name}_projection_weight" in self.params:
            x = greatest(self.linear(seen, f"{name}_projection"))
        query, key, value = self._seen(seen, name)
        mixed = ops.swapaxes(ops.attention(heads(greatest(query)), heads(key), heads(value)), 1, 2)
        x = x + self.linear(ops.reshape(mixed, x.shape), f"{name}_mixed")
        seen = self.norm(x, f"{name}_before_mlp")
        return x + self.linear(ops.gelu(self.linear(seen, f"{name}_wide")), f"{name}_narrow")

    def _seen(self, x: Array, name: str) -> Any:
        """Query, key and value of a block."""
        if f"{name}_{JOINED}_weight" not in self.params:
            return [self.linear(x, f"{name}_{part}") for part in SEEN]
        joined = self.linear(x, f"{name}_{JOINED}")
        return self.ops.unstack(self.ops.reshape(joined, (*x.shape[:2], 3, -1)), 2)
