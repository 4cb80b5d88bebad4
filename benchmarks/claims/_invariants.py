"""Matrices that are invariant under maps of hidden units, block by block (004 Thm. 3.1, App. J).

In citations, 004 is Bernacchia (2025), "Global curvature for second-order optimization of neural networks"
(docs/sources.md).

A tensor is a weight W_l or bias b_l of layer l. A block of a matrix over all parameters has the rows of one
tensor and the columns of another. d_l is the number of units of layer l, d_0 the number of inputs and d_L the
number of outputs. A form is a matrix that the group leaves unchanged. The invariant matrices of a block are
linear combinations of its forms; the coefficients are called factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from string import ascii_lowercase
from typing import Literal

import numpy as np

from curvebench.benchmarks.claims._symmetries import (
    SymmetryGroup,
    Tensor,
    generators,
    places,
    size_of,
    tensors_of,
)

Misprint = Literal["128", "132", "141", "142"]
MISPRINTS: frozenset[Misprint] = frozenset(("128", "132", "141", "142"))
# Names of the two tensors of a block, which index its rows and its columns.
Pair = tuple[str, str]
# Coefficients of each block. The number of coefficients does not depend on the numbers of hidden units.
Factors = Mapping[Pair, np.ndarray]


@dataclass(frozen=True)
class Structure:
    """Structure of the matrices that are invariant under a symmetry group (004 Thm. 3.1; eqs. 118-142).

    A block of the matrix belongs to two tensors and has one axis for each layer of units of the two tensors.
    An axis of network inputs or outputs carries the entries of a factor. For a hidden layer of d units that
    is an axis of both tensors, the block contains I or 1 1^T / d (1 is the vector of ones). For a hidden
    layer that is an axis of only one tensor, the block contains 1 / sqrt(d). Under sign changes only I is
    invariant, so that terms with 1 are absent.

    Args:
        depth: L, the number of layers.
        bias: whether there are biases.
        group: signed permutations (with the same invariants as orthogonal maps), or permutations.
        printed: numbers of the misprinted equations that are used as printed; all others are corrected.
    """

    depth: int
    bias: bool
    group: SymmetryGroup
    printed: frozenset[Misprint] = frozenset()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Weights and biases, in the order of the parameter vector."""
        return tensors_of(self.depth, self.bias)

    @property
    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Pairs of tensors, one pair for each block on or above the diagonal of the matrix."""
        tensors = self.tensors
        return [(one, other) for place, one in enumerate(tensors) for other in tensors[place:]]

    def size(self, widths: Sequence[int]) -> int:
        """Return p, the number of parameters."""
        return size_of(widths, self.bias)

    def forms(self, first: Tensor, second: Tensor, widths: Sequence[int]) -> np.ndarray:
        """Return the matrix that each coefficient of a block multiplies, (coefficients, rows, columns)."""
        return _forms(self, first, second, tuple(widths))

    def built(self, factors: Factors, widths: Sequence[int]) -> np.ndarray:
        """Return the matrix (p, p) that has the given factors (004 eqs. 196, 198).

        Args:
            factors: coefficients of the forms of each block.
            widths: d_0 ... d_L.
        """
        found, where = np.zeros((self.size(widths),) * 2), places(widths, self.bias)
        for first, second in self.pairs:
            block = np.tensordot(factors[first.name, second.name], self.forms(first, second, widths), 1)
            found[where[first.name], where[second.name]] = block
            if first != second:
                found[where[second.name], where[first.name]] = block.T
        return found

    def factors(self, matrix: np.ndarray, widths: Sequence[int]) -> dict[Pair, np.ndarray]:
        """Return the factors of a matrix (p, p) (004 eqs. 186-188).

        If the matrix is not invariant, the factors are fitted by least squares.
        """
        found, where = {}, places(widths, self.bias)
        for first, second in self.pairs:
            forms = self.forms(first, second, widths)
            block = matrix[where[first.name], where[second.name]]
            found[first.name, second.name] = np.linalg.lstsq(
                forms.reshape(len(forms), block.size).T, block.ravel(), rcond=None
            )[0]
        return found

    def projected(self, matrix: np.ndarray, widths: Sequence[int]) -> np.ndarray:
        """Return the matrix of this structure that is nearest to `matrix` in Frobenius norm."""
        return self.built(self.factors(matrix, widths), widths)


def flat(factors: Factors) -> np.ndarray:
    """Concatenate the factors of all blocks to one vector (004 eq. 195)."""
    return np.concatenate([factors[pair] for pair in sorted(factors)])


def orthonormal_span(columns: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis, in columns, of the span of the columns of a matrix (size, n)."""
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(left[:, values > 1e-10 * max([*values, 0.0])])


@cache
def _forms(structure: Structure, first: Tensor, second: Tensor, widths: tuple[int, ...]) -> np.ndarray:
    rows, columns = (int(np.prod([widths[axis] for axis in one.axes])) for one in (first, second))
    found = [form.reshape(-1, rows, columns) for form in _terms(structure, first, second, widths)]
    return np.concatenate(found) if found else np.zeros((0, rows, columns))


def _terms(
    structure: Structure, first: Tensor, second: Tensor, widths: tuple[int, ...]
) -> Iterator[np.ndarray]:
    """Yield arrays with the forms (invariant matrices) of a block, one array for each term in its equation.

    An array has one form for each entry of the term's factor (its coefficients).

    The first axes of a yielded array are the axes of the factor; the last axes are the axes of the block.
    """
    hidden = range(1, structure.depth)
    one, other = ({axis for axis in tensor.axes if axis in hidden} for tensor in (first, second))
    shared, alone = sorted(one & other), one ^ other
    misprint = _misprint(structure, first, second)
    if structure.group != "permutations":
        if not alone:
            yield _term(first, second, widths, {layer: np.eye(widths[layer]) for layer in shared})
        return
    # As printed, the index of 004 eq. 142 skips this block, so that no equation gives its forms.
    if misprint == "142":
        return
    for same in product((True, False), repeat=len(shared)):
        matrices = {}
        for layer, equal in zip(shared, same, strict=True):
            width = widths[layer]
            ones = np.ones((width, width)) / (1 if misprint in ("132", "141") else width)
            matrices[layer] = np.eye(width) if equal else ones
        term = _term(first, second, widths, matrices)
        if misprint == "128":
            # 004 eq. 128 prints the term as omega_1 1^T / sqrt(d_L) + 1 omega_2^T / sqrt(d_0).
            yield term.sum(1) / np.sqrt(widths[-1])
            yield term.sum(0) / np.sqrt(widths[0])
        else:
            yield term


def _misprint(structure: Structure, first: Tensor, second: Tensor) -> str:
    """Return the number of the block's equation if the equation is misprinted and used as printed.

    Otherwise return an empty string.
    """
    depth = structure.depth
    of_two = {"128" if depth > 2 else "132": ("W1", f"W{depth}"), "141": (f"b{depth - 1}", f"W{depth}")}
    of_two |= {"142": ("b1", f"W{depth}")} if depth > 2 else {}
    found = [name for name, pair in of_two.items() if pair == (first.name, second.name)]
    return found[0] if found and found[0] in structure.printed else ""


def _term(
    first: Tensor, second: Tensor, widths: tuple[int, ...], matrices: Mapping[int, np.ndarray]
) -> np.ndarray:
    """Return the forms of one term of a block, one matrix for each entry of the term's factor.

    Args:
        first, second: the tensors of the block.
        widths: d_0 ... d_L.
        matrices: for each hidden layer that is an axis of both tensors, I or a multiple of 1 1^T. A hidden
            layer that is an axis of only one tensor gets 1 / sqrt(d).
    """
    letters = iter(ascii_lowercase)
    axes = [(side, axis, next(letters)) for side, one in enumerate((first, second)) for axis in one.axes]
    outside = (0, len(widths) - 1)
    given, names, entries = [], [], ""
    for side, axis, letter in axes:
        width = widths[axis]
        if axis in outside:
            entry = next(letters)
            given.append(np.eye(width))
            names.append(entry + letter)
            entries += entry
        elif axis not in matrices:
            given.append(np.ones(width) / np.sqrt(width))
            names.append(letter)
        elif side == 0:
            partner = next(name for number, layer, name in axes if number == 1 and layer == axis)
            given.append(matrices[axis])
            names.append(letter + partner)
    result = entries + "".join(letter for _, _, letter in axes)
    return np.asarray(np.einsum(f"{','.join(names)}->{result}", *given))


def count_invariants(structure: Structure, widths: Sequence[int]) -> dict[Pair, int]:
    """Return the dimension of the space of invariant matrices of each block.

    The dimension is computed from the group's generators and not from the equations of 004: entries that a
    generator exchanges are equal up to a sign, and entries that a generator maps to their negatives are 0.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    maps, where = generators(widths, structure.bias, structure.group), places(widths, structure.bias)
    found = {}
    for first, second in structure.pairs:
        rows, columns = where[first.name], where[second.name]
        height, width = rows.stop - rows.start, columns.stop - columns.start
        size, entries = height * width, np.arange(height * width)
        edges = []
        for order, signs in zip(maps.indices, maps.signs, strict=True):
            moved = (order[rows] - rows.start)[:, None] * width + (order[columns] - columns.start)
            odd = (signs[rows][:, None] * signs[columns] < 0).ravel()
            # The graph has two nodes for each entry of the block: the entry, and the negative of the entry.
            for copy in (0, 1):
                target = moved.ravel() + size * np.where(odd, 1 - copy, copy)
                edges.append(np.stack([entries + size * copy, target]))
        one, other = np.concatenate(edges, axis=1)
        graph = coo_array((np.ones(len(one)), (one, other)), shape=(2 * size, 2 * size))
        labels = connected_components(graph, directed=False)[1]
        free = labels[:size] != labels[size:]
        found[first.name, second.name] = len(np.unique(np.minimum(labels[:size], labels[size:])[free]))
    return found
