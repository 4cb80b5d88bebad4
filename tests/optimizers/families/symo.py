"""SymO: the battery's network, and the rule as averages of p x p matrices over the whole group."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from curvebench.optimizers.isotypic import IsotypicBlock
from curvebench.optimizers.layers import Layer
from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper
from tests.optimizers.oracles import Arrays

Shapes = Mapping[str, tuple[int, ...]]


def network_shapes(widths: Sequence[int], biases: bool = True) -> dict[str, tuple[int, ...]]:
    """Return the shapes of W1, b1, W2, b2, ... for the numbers of units of each layer."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(widths), start=1):
        shapes[f"W{layer}"] = (outputs, inputs)
        if biases:
            shapes[f"b{layer}"] = (outputs,)
    return shapes


def kinds_of(shapes: Shapes) -> dict[str, str]:
    return {name: "weight" if name.startswith("W") else "bias" for name in shapes}


def vector(arrays: Mapping[str, np.ndarray], shapes: Shapes) -> np.ndarray:
    """Concatenate all entries, each parameter in row-major order."""
    return np.concatenate([np.ravel(arrays[name]) for name in shapes])


def by_name(flat: np.ndarray, shapes: Shapes) -> Arrays:
    arrays, start = {}, 0
    for name, shape in shapes.items():
        arrays[name] = flat[start : start + math.prod(shape)].reshape(shape)
        start += math.prod(shape)
    return arrays


# --- the group -------------------------------------------------------------------------------------------


def axes_of(name: str, shapes: Shapes) -> list[tuple[int, int]]:
    """Return the length of each axis and the hidden layer that it counts; 0 for inputs and outputs."""
    last = max(int(other[1:]) for other in shapes)
    layer = int(name[1:])
    layers = [layer % last, layer - 1] if name.startswith("W") else [layer % last]
    return list(zip(shapes[name], layers, strict=True))


def block_diagonal(blocks: list[np.ndarray]) -> np.ndarray:
    size = sum(len(block) for block in blocks)
    matrix, start = np.zeros((size, size)), 0
    for block in blocks:
        matrix[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    return matrix


def of_axes(shapes: Shapes, matrix: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return the p x p matrix that applies each hidden layer's matrix to its axes (004 eqs. 6-7, 17)."""
    blocks = []
    for name in shapes:
        block: np.ndarray = np.ones((1, 1))
        for size, layer in axes_of(name, shapes):
            block = np.kron(block, matrix[layer] if layer else np.eye(size))
        blocks.append(block)
    return block_diagonal(blocks)


def hidden_widths(shapes: Shapes) -> dict[int, int]:
    return {layer: size for name in shapes for size, layer in axes_of(name, shapes) if layer}


def permutation_matrices(size: int, signed: bool) -> list[np.ndarray]:
    signs = list(itertools.product((1, -1), repeat=size)) if signed else [(1,) * size]
    orders = itertools.permutations(range(size))
    return [np.eye(size)[list(order)] * np.array(sign) for order in orders for sign in signs]


def elements(shapes: Shapes, group: str) -> np.ndarray:
    """Return every element of the group, (elements, p, p) (004 Sec. 2.2)."""
    hidden = hidden_widths(shapes)
    each = [permutation_matrices(size, group == "signed") for size in hidden.values()]
    return np.array(
        [of_axes(shapes, dict(zip(hidden, one, strict=True))) for one in itertools.product(*each)]
    )


def average(group: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return the mean of G A G^T over the group, the projection of A in 004 eq. 14."""
    return np.mean(group @ matrix @ np.swapaxes(group, 1, 2), axis=0)


# --- blocks -----------------------------------------------------------------------------------------------


def projections(shapes: Shapes, group: str, cross_layers: bool = True) -> list[np.ndarray]:
    """Return the orthogonal projections on the isotypic blocks, whose sum is I, by characters of each
    axis.
    """
    by_character: dict[Any, np.ndarray] = {}
    size, start = sum(map(math.prod, shapes.values())), 0
    for name in shapes:
        choices: list[list[tuple[tuple[int, ...], np.ndarray]]] = []
        for length, layer in axes_of(name, shapes):
            mean = np.full((length, length), 1 / length)
            if not layer:
                choices.append([((), np.eye(length))])
            elif group == "signed":
                choices.append([((layer,), np.eye(length))])
            else:
                choices.append([((), mean), ((layer,), np.eye(length) - mean)])
        stop = start + math.prod(shapes[name])
        for choice in itertools.product(*choices):
            layers = sorted(layer for layers, _ in choice for layer in layers)
            key = (tuple(layers), None if cross_layers else name)
            block: np.ndarray = np.ones((1, 1))
            for _, factor in choice:
                block = np.kron(block, factor)
            by_character.setdefault(key, np.zeros((size, size)))[start:stop, start:stop] += block
        start = stop
    return [projection for projection in by_character.values() if np.trace(projection) > 0.5]


def within_parameters(matrix: np.ndarray, shapes: Shapes) -> np.ndarray:
    """Return the matrix with 0 between different parameters, Psi = 0."""
    return matrix * block_diagonal([np.ones((math.prod(shape),) * 2) for shape in shapes.values()])


def inverse_root(matrix: np.ndarray, cutoff: float) -> np.ndarray:
    """Return the inverse root by eigenvectors, without the eigenvalues up to a share of the largest."""
    values, vectors = np.linalg.eigh(matrix)
    counts = values > cutoff * values[-1]
    return (vectors[:, counts] * values[counts] ** -0.5) @ vectors[:, counts].T


def dense_inverse_root(
    sigma: np.ndarray, shapes: Shapes, group: str, cutoff: float, cross_layers: bool = True
) -> np.ndarray:
    """Return Sigma^(-1/2) by the pseudo-inverse, with a cutoff for each block."""
    blocks = projections(shapes, group, cross_layers)
    return sum((inverse_root(p @ sigma @ p, cutoff) for p in blocks), np.zeros_like(sigma))


def symo(
    params: Arrays, grads: list[Arrays], hyper: Hyper, group: str, cross_layers: bool, precision: str
) -> Iterator[Arrays]:
    """Compute Sigma as the running mean of the averages of g g^T over the group."""
    shapes = {name: value.shape for name, value in params.items()}
    group_elements, decay = elements(shapes, group), hyper["factor_decay"]
    theta = vector(params, shapes)
    sigma = np.zeros((theta.size, theta.size))
    for step, grad in enumerate(grads, start=1):
        g = vector(grad, shapes)
        mean = average(group_elements, np.outer(g, g))
        sigma = decay * sigma + (1 - decay) * (mean if cross_layers else within_parameters(mean, shapes))
        root = dense_inverse_root(sigma / (1 - decay**step), shapes, group, hyper["cutoff"], cross_layers)
        theta = theta - hyper["learning_rate"] * root @ g
        yield by_name(theta, shapes)


# --- the battery --------------------------------------------------------------------------------------------

NETWORK = network_shapes((3, 2, 2))
# The cutoff is so large that some eigenvalue is below it.
HYPER = {"learning_rate": 0.3, "factor_decay": 0.8, "cutoff": 0.02}


def entry(**options: object) -> Entry:
    return Entry(loop=symo, hyper=HYPER, options=options, shapes=NETWORK, kinds=kinds_of(NETWORK))


ENTRIES = {
    "symo": entry(),
    "symo: permutations": entry(group="permutations", precision="any"),
    "symo: factors of each parameter": entry(cross_layers=False, precision="any"),
}


def network_layers(widths: Sequence[int], biases: bool | Sequence[bool] = True) -> tuple[Layer, ...]:
    """Return the layers W1, b1, W2, b2, ... for the numbers of units of each layer, inputs to outputs.

    Args:
        widths: d_0 to d_L.
        biases: whether there are biases, for all layers or for each.
    """
    has_bias = [biases] * (len(widths) - 1) if isinstance(biases, bool) else list(biases)
    return tuple(
        Layer(f"W{number + 1}", f"b{number + 1}" if bias else None, (outputs, inputs), number)
        for number, ((inputs, outputs), bias) in enumerate(
            zip(itertools.pairwise(widths), has_bias, strict=True)
        )
    )


def factors_of_dense(
    ops: Any, block: IsotypicBlock, sigma: np.ndarray, shapes: Mapping[str, Sequence[int]]
) -> np.ndarray:
    """Return C of a block, (copies, copies): the average of a symmetric matrix over the group, restricted to
    the block.

    It is the least-squares solution of 004 eqs. 184-188, whether or not the matrix is invariant under the
    group.

    Args:
        ops: array functions.
        block: the isotypic block.
        sigma: (p, p); its rows are the parameters in the order of `shapes`, each in row-major order.
        shapes: shapes by parameter name.
    """

    def coordinates(vectors: np.ndarray) -> np.ndarray:
        arrays, start = {}, 0
        for name, shape in shapes.items():
            stop = start + math.prod(shape)
            arrays[name] = ops.reshape(vectors[..., start:stop], (*vectors.shape[:-1], *shape))
            start = stop
        return block.coordinates(ops, arrays)

    # Shape (p, copies, columns).
    once = coordinates(sigma)
    # Shape (copies, columns, copies, columns).
    twice = coordinates(ops.einsum("pac->acp", once))
    return ops.einsum("acbc->ab", twice) / block.multiplicity
