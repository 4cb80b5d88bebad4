"""Isotypic blocks of a multilayer network's parameters under permutations of its hidden units.

A symmetry group of the network (004 Sec. 2.2) acts on hidden layer l by matrices V_l, on each axis that
counts the layer's units: b_l -> V_l b_l, W_l -> V_l W_l V_(l-1)^T (004 eqs. 6-7; the identity at inputs and
outputs). Parameter space is the direct sum of blocks (copies x multiplicity space). The group acts
irreducibly on the multiplicity space, in a different way for each block, and leaves the copies unchanged.

The covariance Sigma of the gradient g commutes with the group (004 eq. 14). By Schur's lemma, Sigma is C kron
I on each block, with one C of shape (copies, copies), and Sigma^(-1/2) is C^(-1/2) kron I. Therefore the
coordinates of Sigma^(-1/2) g in a block are C^(-1/2) M, where M, (copies, multiplicity), has the coordinates
of g. 004 gives the entries of the C's as factors (eqs. 29-36 and 118-142) and, put together, as the surrogate
Lambda (Sec. L).

There are two groups, depending on the activation:

- `signed`: signed permutations, for odd or linear activations; the orthogonal group has the same blocks. V_l
  is irreducible, and a parameter belongs to the block of the hidden layers that its axes count.
- `permutations`, for other activations such as ReLU: V_l is the trivial representation, along (1, ..., 1) /
  sqrt(d_l), and the standard representation, vectors with sum 0. A weight between hidden layers has a
  component in four blocks. A vector of the standard representation is stored as d_l numbers with sum 0,
  because products over copies do not need a basis.

In citations, 004 is Bernacchia (2025), "Global curvature for second-order optimization of neural networks"
(docs/sources.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from curvebench.optimizers.layers import LAYER_KINDS, Layer, layers_of
from curvebench.optimizers.matrix_functions import gram
from curvebench.optimizers.options import OptionError

Array = Any
Ops = Any
Arrays = Mapping[str, Array]
Group = Literal["signed", "permutations"]
GROUPS: tuple[str, ...] = get_args(Group)


@dataclass(frozen=True)
class Component:
    """Projection of one parameter onto the irreducible representation of a block.

    Args:
        parameter: name of the parameter.
        shape: shape of the parameter.
        hidden: for each axis of the parameter, the number (from 1) of the hidden layer whose units the axis
            counts; 0 for an axis that counts inputs or outputs.
        kept: hidden layers of the block; the parameter's axes of other hidden layers are summed.
        centred: whether the kept axes have sum 0.
    """

    parameter: str
    shape: tuple[int, ...]
    hidden: tuple[int, ...]
    kept: tuple[int, ...]
    centred: bool

    @property
    def copies(self) -> int:
        """Number of rows of M (the coordinates of a block) that belong to the parameter.

        It is the product of the lengths of the parameter's axes that count inputs or outputs.
        """
        # A list, because torch.compile does not support generators here.
        return math.prod([size for size, layer in zip(self.shape, self.hidden, strict=True) if not layer])

    @property
    def _turned(self) -> bool:
        """Whether the first axis counts hidden units and the second axis the copies, as for W_1."""
        return len(self.shape) > 1 and self.hidden[0] in self.kept and not self.hidden[1]

    def coordinates(self, ops: Ops, array: Array) -> Array:
        """Return the parameter's rows of the block's coordinates M, (..., copies, columns).

        `array` is the parameter or its gradient, (..., *shape).
        """
        order = len(self.shape)
        leading = tuple(array.shape[: array.ndim - order])
        for axis, (size, layer) in enumerate(zip(self.shape, self.hidden, strict=True)):
            # Positions of axes are counted from the end.
            # Positions counted from the end do not change when earlier axes are summed.
            position = axis - order
            if layer and layer not in self.kept:
                array = ops.sum(array, axis=position) / math.sqrt(size)
            elif layer and self.centred:
                array = _centred(ops, array, position)
        if self._turned:
            array = ops.swapaxes(array, -1, -2)
        return ops.reshape(array, (*leading, self.copies, -1))

    def array(self, ops: Ops, coordinates: Array) -> Array:
        """Return the component of the parameter, (..., *shape), from its rows of M.

        In the result, an axis along which all entries are equal has length 1.
        """
        is_kept = [layer in self.kept for layer in self.hidden]
        sizes = [
            size if not layer or keep else 1
            for size, layer, keep in zip(self.shape, self.hidden, is_kept, strict=True)
        ]
        leading = tuple(coordinates.shape[:-2])
        if self._turned:
            coordinates = ops.swapaxes(coordinates, -1, -2)
        scale = math.prod([full / size for full, size in zip(self.shape, sizes, strict=True)])
        return ops.reshape(coordinates, (*leading, *sizes)) / math.sqrt(scale)


def _centred(ops: Ops, array: Array, axis: int) -> Array:
    """Subtract the mean along an axis (counted from the end); if all entries are equal, return exactly 0.

    A computed mean has rounding errors. If equal entries kept a remainder, the inverse root of C would make
    the remainder large.
    """
    from_first = array - array[(..., slice(1), *[slice(None)] * (-1 - axis))]
    return from_first - ops.mean(from_first, axis=axis, keepdims=True)


@dataclass(frozen=True)
class IsotypicBlock:
    """The copies of one irreducible representation.

    Args:
        layers: hidden layers by which the group acts on the block, from 1; none for the trivial
            representation.
        multiplicity: dimension of the representation.
        components: components of the parameters that have copies of the representation, in the order of the
            rows of M.
    """

    layers: tuple[int, ...]
    multiplicity: int
    components: tuple[Component, ...]

    @property
    def copies(self) -> int:
        """Number of rows of M, the matrix of a gradient's coordinates in this block."""
        return sum([component.copies for component in self.components])

    def coordinates(self, ops: Ops, arrays: Arrays) -> Array:
        """Return the block's coordinates M, (..., copies, columns), of arrays (..., *shape) given by name.

        A column of M belongs to a hidden unit, or, in a block of two hidden layers, to a pair of units. In
        the trivial representation M has a single column.
        """
        rows = [component.coordinates(ops, arrays[component.parameter]) for component in self.components]
        return rows[0] if len(rows) == 1 else ops.concatenate(rows, -2)

    def second_moment(self, ops: Ops, matrix: Array) -> Array:
        """Return C = M M^T / multiplicity, (..., copies, copies) (004 eqs. 37-39 and 189-191).

        Args:
            matrix: M, the coordinates of one model's gradient.
        """
        return gram(ops, matrix / math.sqrt(self.multiplicity))

    def covariance(self, ops: Ops, matrices: Array) -> Array:
        """Return the covariance C of an ensemble's gradients, (..., copies, copies) (004 eq. 3).

        C is the covariance of the gradients and of all images of the gradients under the group. The mean of
        all images of a gradient is 0 except in the trivial representation. Only for the trivial
        representation, therefore, the mean over models has to be subtracted.

        Args:
            matrices: the coordinates M of each model's gradient, (models, ..., copies, columns).
        """
        if not self.layers:
            matrices = matrices - ops.mean(matrices, axis=0, keepdims=True)
        return ops.mean(self.second_moment(ops, matrices), axis=0)


# --- layers of a network -------------------------------------------------------------------------------


def chain_of_layers(
    owner: str, shapes: Mapping[str, Sequence[int]], roles: Mapping[str, Any]
) -> tuple[Layer, ...]:
    """Return the layers of a multilayer network, each of which takes the outputs of the layer before.

    Args:
        owner: name of the rule, for messages.
        shapes: shapes by parameter name.
        roles: roles by parameter name, with `kind` and `layer`.

    Raises:
        OptionError: for any other model; the message names the parameter that does not fit.
    """

    def refused(reason: str) -> OptionError:
        return OptionError(
            f"{owner}: takes the parameters of a multilayer network alone, a weight (outputs, inputs) in "
            f"each of two layers or more, with its bias or without; {reason}"
        )

    layers = layers_of(shapes, roles)
    for name, shape in shapes.items():
        kind = roles[name].kind
        if kind not in (*LAYER_KINDS, "bias") or (kind != "bias" and len(shape) != 2):
            remedy = "; if it is a bias, give it that kind" if kind == "vector" else ""
            raise refused(f"the parameter {name!r} is a {kind} of shape {tuple(shape)}{remedy}")
    owned = {name for layer in layers for name in layer.parameters}
    for name in shapes:
        if name not in owned:
            raise refused(
                f"the bias {name!r} of shape {tuple(shapes[name])} belongs to no weight of its layer, "
                f"{roles[name].layer}"
            )
    if len(layers) < 2:
        raise refused(f"there is one layer, {layers[0].weight!r}" if layers else "there is no weight")
    for first, second in itertools.pairwise(layers):
        if first.number == second.number:
            raise refused(
                f"the weights {first.weight!r} and {second.weight!r} are both in layer {first.number}"
            )
        if first.outputs != second.inputs:
            raise refused(
                f"{second.weight!r} has {second.inputs} inputs, and the layer before it, {first.weight!r}, "
                f"{first.outputs} outputs"
            )
    return layers


# --- isotypic blocks of a network ----------------------------------------------------------------------


def isotypic_blocks(
    layers: Sequence[Layer], group: str = "signed", cross_layers: bool = True
) -> tuple[IsotypicBlock, ...]:
    """Return the isotypic blocks of a multilayer network of two layers or more.

    For a network with biases and L layers:

    - `signed` has the C's of 004 Theorem 3.1. For L = 2 there are two blocks: a block of W_1^T, b_1 and W_2,
      with d_0 + 1 + d_2 copies, and a block of b_2. For L > 2 there are blocks of (W_1, b_1), of (W_L,
      b_(L-1)), of each other weight and bias, and of b_L.
    - `permutations` has the C's of 004 Theorem 3.2: one for the trivial representation, with d_0 + 2 d_L +
      2 L - 3 copies, one for each hidden layer, and one for each weight between two hidden layers. For L > 2,
      the C of the trivial representation also correlates b_1 with W_L. 004 eq. 142 leaves this out, because
      its index begins at 2 instead of 1.

    Args:
        layers: layers from inputs to outputs.
        group: `signed` or `permutations`.
        cross_layers: whether the copies of different parameters share a block; otherwise each parameter has
            its own blocks, the variant Psi = 0.

    Returns:
        All blocks except empty ones, which occur because a layer of a single unit has no standard
        representation.
    """
    widths = (layers[0].inputs, *(layer.outputs for layer in layers))
    last = len(layers)
    components_of: dict[Any, list[Component]] = {}
    for number, layer in enumerate(layers, start=1):
        outputs = number if number < last else 0
        for name in layer.parameters:
            hidden = (outputs, number - 1) if name == layer.weight else (outputs,)
            shape = layer.shape if name == layer.weight else layer.shape[:1]
            for acting in _representations(hidden, group):
                key = (acting, None if cross_layers else name)
                component = Component(name, shape, hidden, acting, group == "permutations")
                components_of.setdefault(key, []).append(component)
    # The group `permutations` splits an axis into a trivial component, of dimension 1, and the rest.
    # The group `signed` does not split axes.
    summed = int(group == "permutations")
    blocks = (
        IsotypicBlock(acting, math.prod(widths[layer] - summed for layer in acting), tuple(components))
        for (acting, _), components in components_of.items()
    )
    return tuple(block for block in blocks if block.multiplicity)


def _representations(hidden: Sequence[int], group: str) -> tuple[tuple[int, ...], ...]:
    """Return, for each irreducible component of a parameter, the hidden layers whose symmetry acts on it."""
    layers = tuple(sorted(layer for layer in hidden if layer))
    if group == "signed":
        return (layers,)
    return tuple(some for count in range(len(layers) + 1) for some in itertools.combinations(layers, count))


def parameters_of(ops: Ops, blocks: Sequence[IsotypicBlock], matrices: Sequence[Array]) -> dict[str, Array]:
    """Return arrays (..., *shape) by name from the matrices M of all blocks, the inverse of `coordinates`."""
    parts: dict[str, list[Array]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for block, matrix in zip(blocks, matrices, strict=True):
        start = 0
        for component in block.components:
            rows = matrix[..., start : start + component.copies, :]
            parts.setdefault(component.parameter, []).append(component.array(ops, rows))
            shapes[component.parameter] = component.shape
            start += component.copies
    result = {}
    for name, arrays in parts.items():
        total = arrays[0]
        for array in arrays[1:]:
            total = total + array
        shape = (*total.shape[: total.ndim - len(shapes[name])], *shapes[name])
        result[name] = total if tuple(total.shape) == shape else ops.broadcast_to(total, shape)
    return result
