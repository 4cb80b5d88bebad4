"""The isotypic blocks of a multilayer network's parameters under permutations of its hidden units.

A symmetry group of the network (004 Sec. 2.2) acts on hidden layer l by matrices V_l, on each axis that
counts the layer's units: b_l -> V_l b_l, W_l -> V_l W_l V_(l-1)^T (004 eqs. 6-7; the identity at inputs and
outputs). Parameter space is the direct sum of blocks (copies x multiplicity space): the group acts
irreducibly on the second and leaves the first alone, another way in each block. A matrix that commutes with
the group, as the gradient's covariance Sigma does (004 eq. 14), is C kron I on each block, by Schur's lemma,
with one C of copies x copies. So is each function of it: Sigma^(-1/2) g is C^(-1/2) M, where M, (copies,
multiplicity), are the coordinates of g in the block. 004 has the entries of the C's as factors (eqs. 29-36
and 118-142) and, put together, as the surrogate Lambda (Sec. L).

Two groups, by the activation:

- `signed`: signed permutations, for odd or linear ones; the orthogonal group has the same blocks. V_l is
  irreducible, and a parameter lies in the block of the hidden layers that its axes count.
- `permutations`, for others such as ReLU: V_l is the trivial representation, along (1, ..., 1) / sqrt(d_l),
  and the standard one, of sum 0; a weight between hidden layers has a part in four blocks. A vector of the
  standard representation is kept as d_l numbers of sum 0: products over copies do not ask for a basis.
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
    """What one parameter has in a block.

    Args:
        parameter: its name.
        shape: of the parameter.
        hidden: of each of its axes the hidden layer whose units it counts, from 1; 0 for inputs and outputs.
        kept: the hidden layers of the block; axes of the parameter's others are summed.
        centred: whether axes that are kept have sum 0.
    """

    parameter: str
    shape: tuple[int, ...]
    hidden: tuple[int, ...]
    kept: tuple[int, ...]
    centred: bool

    @property
    def copies(self) -> int:
        """How many rows it has in the block: the product of its axes of inputs and outputs."""
        # lists, since torch.compile takes no generators here
        return math.prod([size for size, layer in zip(self.shape, self.hidden, strict=True) if not layer])

    @property
    def _turned(self) -> bool:
        """Whether its copies are along the second axis, as those of W_1."""
        return len(self.shape) > 1 and self.hidden[0] in self.kept and not self.hidden[1]

    def coordinates(self, ops: Ops, array: Array) -> Array:
        """Its rows of M, (..., copies, columns), of an array (..., *shape)."""
        order = len(self.shape)
        leading = tuple(array.shape[: array.ndim - order])
        for axis, (size, layer) in enumerate(zip(self.shape, self.hidden, strict=True)):
            place = axis - order  # from the end, where axes that are summed before it do not move it
            if layer and layer not in self.kept:
                array = ops.sum(array, axis=place) / math.sqrt(size)
            elif layer and self.centred:
                array = _centred(ops, array, place)
        if self._turned:
            array = ops.swapaxes(array, -1, -2)
        return ops.reshape(array, (*leading, self.copies, -1))

    def array(self, ops: Ops, coordinates: Array) -> Array:
        """The part of the parameter that rows of M are, (..., *shape), with length 1 along equal entries."""
        kept = [layer in self.kept for layer in self.hidden]
        sizes = [
            size if not layer or keep else 1
            for size, layer, keep in zip(self.shape, self.hidden, kept, strict=True)
        ]
        leading = tuple(coordinates.shape[:-2])
        if self._turned:
            coordinates = ops.swapaxes(coordinates, -1, -2)
        scale = math.prod([full / size for full, size in zip(self.shape, sizes, strict=True)])
        return ops.reshape(coordinates, (*leading, *sizes)) / math.sqrt(scale)


def _centred(ops: Ops, array: Array, axis: int) -> Array:
    """The array less its mean along an axis, counted from the end; exactly 0 where all entries are equal.

    A mean is rounded: units that are equal would else keep a remainder that the inverse root makes large.
    """
    from_first = array - array[(..., slice(1), *[slice(None)] * (-1 - axis))]
    return from_first - ops.mean(from_first, axis=axis, keepdims=True)


@dataclass(frozen=True)
class IsotypicBlock:
    """The copies of one irreducible representation.

    Args:
        layers: the hidden layers that the group acts on it by, from 1; none in the trivial representation.
        multiplicity: the dimension of the representation.
        components: what has copies of it, in the order of the rows of M.
    """

    layers: tuple[int, ...]
    multiplicity: int
    components: tuple[Component, ...]

    @property
    def copies(self) -> int:
        """The rows of M."""
        return sum([component.copies for component in self.components])

    def coordinates(self, ops: Ops, arrays: Arrays) -> Array:
        """M, (..., copies, columns), of arrays (..., *shape) by name; a column for each unit."""
        rows = [component.coordinates(ops, arrays[component.parameter]) for component in self.components]
        return rows[0] if len(rows) == 1 else ops.concatenate(rows, -2)

    def second_moment(self, ops: Ops, matrix: Array) -> Array:
        """C = M M^T / multiplicity, (..., copies, copies), of one model (004 eqs. 37-39, 189-191)."""
        return gram(ops, matrix / math.sqrt(self.multiplicity))

    def covariance(self, ops: Ops, matrices: Array) -> Array:
        """C of an ensemble, (..., copies, copies), of M (models, ..., copies, columns) (004 eq. 3).

        It is the covariance of the gradients' images under the whole group, whose mean is 0 but for what
        transforms trivially: there alone the mean over models is subtracted.
        """
        if not self.layers:
            matrices = matrices - ops.mean(matrices, axis=0, keepdims=True)
        return ops.mean(self.second_moment(ops, matrices), axis=0)


# --- networks ------------------------------------------------------------------------------------------


def chain_of_layers(
    owner: str, shapes: Mapping[str, Sequence[int]], roles: Mapping[str, Any]
) -> tuple[Layer, ...]:
    """The layers of a multilayer network, each taking the outputs of the one before it.

    Args:
        owner: in messages.
        shapes: by parameter name.
        roles: `kind` and `layer` of each.

    Raises:
        OptionError: for anything else, with the parameter that is not so.
    """

    def refused(what: str) -> OptionError:
        return OptionError(
            f"{owner}: takes the parameters of a multilayer network alone, a weight (outputs, inputs) in "
            f"each of two layers or more, with its bias or without; {what}"
        )

    layers = layers_of(shapes, roles)
    for name, shape in shapes.items():
        kind = roles[name].kind
        if kind not in (*LAYER_KINDS, "bias") or (kind != "bias" and len(shape) != 2):
            remedy = "; if it is a bias, give it that kind" if kind == "vector" else ""
            raise refused(f"the parameter {name!r} is a {kind} of shape {tuple(shape)}{remedy}")
    found = {name for layer in layers for name in layer.parameters}
    for name in shapes:
        if name not in found:
            raise refused(
                f"the bias {name!r} of shape {tuple(shapes[name])} belongs to no weight of its layer, "
                f"{roles[name].layer}"
            )
    if len(layers) < 2:
        raise refused(f"there is one layer, {layers[0].weight!r}" if layers else "there is no weight")
    for before, after in itertools.pairwise(layers):
        if before.number == after.number:
            raise refused(
                f"the weights {before.weight!r} and {after.weight!r} are both in layer {before.number}"
            )
        if before.outputs != after.inputs:
            raise refused(
                f"{after.weight!r} has {after.inputs} inputs, and the layer before it, {before.weight!r}, "
                f"{before.outputs} outputs"
            )
    return layers


# --- blocks --------------------------------------------------------------------------------------------


def isotypic_blocks(
    layers: Sequence[Layer], group: str = "signed", cross_layers: bool = True
) -> tuple[IsotypicBlock, ...]:
    """The blocks of a multilayer network of two layers or more, by any of its layers.

    With biases and L layers, `signed` has the C's of 004 Theorem 3.1: for L = 2 one of W_1^T, b_1 and W_2,
    d_0 + 1 + d_2 copies, and one of b_2; for L > 2 those of (W_1, b_1), of (W_L, b_(L-1)), of each other
    weight and bias, and of b_L. `permutations` has those of Theorem 3.2: one of what transforms trivially,
    d_0 + 2 d_L + 2 L - 3 copies, one for each hidden layer, and one for each weight between two. The first
    has b_1 with W_L for L > 2 too, which eq. 142 leaves out (AMBIGUITIES 48).

    Args:
        layers: from inputs to outputs.
        group: `signed` or `permutations`.
        cross_layers: whether the copies of different parameters are in one block; without, each parameter has
            its own, the variant Psi = 0.

    Returns:
        Those that are not empty: a hidden layer of a single unit has no standard representation.
    """
    widths = (layers[0].inputs, *(layer.outputs for layer in layers))
    last = len(layers)
    found: dict[Any, list[Component]] = {}
    for number, layer in enumerate(layers, start=1):
        outputs = number if number < last else 0
        for name in layer.parameters:
            hidden = (outputs, number - 1) if name == layer.weight else (outputs,)
            shape = layer.shape if name == layer.weight else layer.shape[:1]
            for kept in _representations(hidden, group):
                key = (kept, None if cross_layers else name)
                component = Component(name, shape, hidden, kept, group == "permutations")
                found.setdefault(key, []).append(component)
    summed = int(group == "permutations")  # the dimension of the trivial part of each axis
    blocks = (
        IsotypicBlock(kept, math.prod(widths[layer] - summed for layer in kept), tuple(components))
        for (kept, _), components in found.items()
    )
    return tuple(block for block in blocks if block.multiplicity)


def _representations(hidden: Sequence[int], group: str) -> tuple[tuple[int, ...], ...]:
    """The hidden layers by which the group acts on each part of a parameter that is irreducible."""
    layers = tuple(sorted(layer for layer in hidden if layer))
    if group == "signed":
        return (layers,)
    return tuple(kept for count in range(len(layers) + 1) for kept in itertools.combinations(layers, count))


def parameters_of(ops: Ops, blocks: Sequence[IsotypicBlock], matrices: Sequence[Array]) -> dict[str, Array]:
    """Arrays (..., *shape) by name of all blocks' coordinates M, the inverse of `coordinates`."""
    parts: dict[str, list[Array]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for block, matrix in zip(blocks, matrices, strict=True):
        start = 0
        for component in block.components:
            rows = matrix[..., start : start + component.copies, :]
            parts.setdefault(component.parameter, []).append(component.array(ops, rows))
            shapes[component.parameter] = component.shape
            start += component.copies
    found = {}
    for name, arrays in parts.items():
        total = arrays[0]
        for array in arrays[1:]:
            total = total + array
        whole = (*total.shape[: total.ndim - len(shapes[name])], *shapes[name])
        found[name] = total if tuple(total.shape) == whole else ops.broadcast_to(total, whole)
    return found
