"""PlainViT: a vision transformer with fixed positions and no class token, whose last tokens are averaged.

Beyer, Zhai and Kolesnikov 2022, "Better plain ViT baselines for ImageNet-1k".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from workloads.initialization import xavier_normal
from workloads.workload import Array, Arrays, Ops, Role

EPSILON = 1e-6  # beside a variance
LONGEST_WAVE = 10_000.0  # of the positions, in patches, over 2 pi
SEEN = ("query", "key", "value")


@dataclass(frozen=True)
class PlainViT:
    """A network's sizes, for images of any size.

    Args:
        inputs: the numbers of a patch, side * side * channels.
        width: of a token; a multiple of 4 above 4, and of the units of a head.
        depth: blocks of attention and MLP.
        classes: outputs.
    """

    inputs: int
    width: int
    depth: int
    classes: int

    @property
    def linear(self) -> dict[str, tuple[int, int, Role]]:
        """The outputs, inputs and role of the weight of each linear layer, nearest to the input first."""
        width = self.width
        layers = {"patch": (width, self.inputs, Role("embedding", 0))}
        for block in range(1, self.depth + 1):
            attention, mlp = Role("weight", 2 * block - 1), Role("weight", 2 * block)
            layers |= {f"block{block}_{part}": (width, width, attention) for part in (*SEEN, "mixed")}
            layers |= {f"block{block}_wide": (4 * width, width, mlp)}
            layers |= {f"block{block}_narrow": (width, 4 * width, mlp)}
        return layers | {"head": (self.classes, width, Role("weight", 2 * self.depth + 1))}

    @property
    def norms(self) -> dict[str, Role]:
        """The role of each norm's scale and shift: before attention, before the MLP, and before the mean."""
        blocks = range(1, self.depth + 1)
        inside = {
            f"block{block}_before_{part}": Role("norm", 2 * block - before)
            for block in blocks
            for part, before in {"attention": 1, "mlp": 0}.items()
        }
        return inside | {"last": Role("norm", 2 * self.depth + 1)}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (outputs, inputs, _) in self.linear.items():
            shapes |= {f"{name}_weight": (outputs, inputs), f"{name}_bias": (outputs,)}
        for name in self.norms:
            shapes |= {f"{name}_scale": (self.width,), f"{name}_shift": (self.width,)}
        return shapes

    @property
    def roles(self) -> dict[str, Role]:
        """What each parameter is; the patches' weight is an embedding, the head's a weight as others."""
        roles: dict[str, Role] = {}
        for name, (_, _, role) in self.linear.items():
            roles |= {f"{name}_weight": role, f"{name}_bias": Role("bias", role.layer)}
        for name, role in self.norms.items():
            roles |= {f"{name}_scale": role, f"{name}_shift": role}
        return roles

    def sample(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Xavier normal weights, scales of 1, biases and shifts of 0.

        The head too: at 0, where Beyer et al. start it, no other parameter has a first gradient.
        """
        parameters = {}
        for name, shape in self.shapes.items():
            if len(shape) == 2:
                parameters[name] = xavier_normal(*shape, generator)
            else:
                parameters[name] = np.full(shape, float(name.endswith("scale")))
        return parameters


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
    count, tokens = patches.shape[:2]

    def linear(x: Array, name: str) -> Array:
        return ops.linear(x, params[f"{name}_weight"], params[f"{name}_bias"])

    def norm(x: Array, name: str) -> Array:
        return ops.layer_norm(x, params[f"{name}_scale"], params[f"{name}_shift"], EPSILON)

    def heads(x: Array) -> Array:
        return ops.swapaxes(ops.reshape(x, (count, tokens, -1, head_width)), 1, 2)

    x = linear(patches, "patch")
    width = x.shape[-1]
    x = x + ops.asarray(state["positions"])
    block = 1
    while f"block{block}_query_weight" in params:
        name = f"block{block}"
        seen = norm(x, f"{name}_before_attention")
        mixed = ops.attention(*(heads(linear(seen, f"{name}_{part}")) for part in SEEN))
        x = x + linear(ops.reshape(ops.swapaxes(mixed, 1, 2), (count, tokens, width)), f"{name}_mixed")
        seen = norm(x, f"{name}_before_mlp")
        x = x + linear(ops.gelu(linear(seen, f"{name}_wide")), f"{name}_narrow")
        block += 1
    return linear(ops.mean(norm(x, "last"), axis=1), "head")
