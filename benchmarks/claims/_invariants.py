"""The matrices that maps of hidden units leave alone: their blocks, by factors (004 Thm. 3.1, App. J)."""

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
Pair = tuple[str, str]  # the names of two tensors
Factors = Mapping[Pair, np.ndarray]  # the coefficients of each block, of a length without the hidden widths


@dataclass(frozen=True)
class Structure:
    """The form of matrices that a group leaves alone (004 Thm. 3.1; eqs. 118-142).

    A block of two tensors has an axis for each layer of units that they touch. An axis of inputs or outputs
    carries entries of a factor; the two axes of a hidden layer that both touch carry I or 1 1^T / d; the axis
    of one that only one touches carries 1 / sqrt(d). Signs leave I alone, and no 1.

    Args:
        depth: L.
        bias: whether there are biases.
        group: signed permutations (as orthogonal maps), or permutations.
        printed: the equations that are taken as they are printed.
    """

    depth: int
    bias: bool
    group: SymmetryGroup
    printed: frozenset[Misprint] = frozenset()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """In the order of the parameters."""
        return tensors_of(self.depth, self.bias)

    @property
    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """The blocks on and above the diagonal."""
        tensors = self.tensors
        return [(one, other) for place, one in enumerate(tensors) for other in tensors[place:]]

    def size(self, widths: Sequence[int]) -> int:
        """p."""
        return size_of(widths, self.bias)

    def forms(self, first: Tensor, second: Tensor, widths: Sequence[int]) -> np.ndarray:
        """A block for each of its coefficients, (coefficients, rows, columns)."""
        return _forms(self, first, second, tuple(widths))

    def built(self, factors: Factors, widths: Sequence[int]) -> np.ndarray:
        """The matrix (p, p) of factors at hidden widths (004 eqs. 196 and 198)."""
        found, where = np.zeros((self.size(widths),) * 2), places(widths, self.bias)
        for first, second in self.pairs:
            block = np.tensordot(factors[first.name, second.name], self.forms(first, second, widths), 1)
            found[where[first.name], where[second.name]] = block
            if first != second:
                found[where[second.name], where[first.name]] = block.T
        return found

    def factors(self, matrix: np.ndarray, widths: Sequence[int]) -> dict[Pair, np.ndarray]:
        """The factors of a matrix (p, p): least squares where it has another form (004 eqs. 186-188)."""
        found, where = {}, places(widths, self.bias)
        for first, second in self.pairs:
            forms = self.forms(first, second, widths)
            block = matrix[where[first.name], where[second.name]]
            found[first.name, second.name] = np.linalg.lstsq(
                forms.reshape(len(forms), block.size).T, block.ravel(), rcond=None
            )[0]
        return found

    def projected(self, matrix: np.ndarray, widths: Sequence[int]) -> np.ndarray:
        """The nearest matrix of this form."""
        return self.built(self.factors(matrix, widths), widths)


def flat(factors: Factors) -> np.ndarray:
    """All factors in a vector (004 eq. 195)."""
    return np.concatenate([factors[pair] for pair in sorted(factors)])


def orthonormal_span(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the span of columns (size, n)."""
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
    """For each term of a block's equation, its form for each entry of the factor, (entries..., axes...)."""
    hidden = range(1, structure.depth)
    one, other = ({axis for axis in tensor.axes if axis in hidden} for tensor in (first, second))
    shared, alone = sorted(one & other), one ^ other
    misprint = _misprint(structure, first, second)
    if structure.group != "permutations":
        if not alone:
            yield _term(first, second, widths, {layer: np.eye(widths[layer]) for layer in shared})
        return
    if misprint == "142":  # no equation
        return
    for same in product((True, False), repeat=len(shared)):
        matrices = {}
        for layer, equal in zip(shared, same, strict=True):
            width = widths[layer]
            ones = np.ones((width, width)) / (1 if misprint in ("132", "141") else width)
            matrices[layer] = np.eye(width) if equal else ones
        term = _term(first, second, widths, matrices)
        if misprint == "128":  # omega_1 1^T / sqrt(d_L) + 1 omega_2^T / sqrt(d_0)
            yield term.sum(1) / np.sqrt(widths[-1])
            yield term.sum(0) / np.sqrt(widths[0])
        else:
            yield term


def _misprint(structure: Structure, first: Tensor, second: Tensor) -> str:
    """The equation of this block that is taken as printed; empty where it is right."""
    depth = structure.depth
    of_two = {"128" if depth > 2 else "132": ("W1", f"W{depth}"), "141": (f"b{depth - 1}", f"W{depth}")}
    of_two |= {"142": ("b1", f"W{depth}")} if depth > 2 else {}
    found = [name for name, pair in of_two.items() if pair == (first.name, second.name)]
    return found[0] if found and found[0] in structure.printed else ""


def _term(
    first: Tensor, second: Tensor, widths: tuple[int, ...], matrices: Mapping[int, np.ndarray]
) -> np.ndarray:
    """The forms of one term: matrices of the layers that both touch, by layer, 1 / sqrt(d) of the others."""
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
    """How many dimensions of each block the group leaves alone, from its generators and no equation.

    Entries that a generator exchanges are equal but for a sign; those that it makes the opposite of
    themselves are 0.
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
            for copy in (0, 1):  # of an entry, and of its opposite
                target = moved.ravel() + size * np.where(odd, 1 - copy, copy)
                edges.append(np.stack([entries + size * copy, target]))
        one, other = np.concatenate(edges, axis=1)
        graph = coo_array((np.ones(len(one)), (one, other)), shape=(2 * size, 2 * size))
        labels = connected_components(graph, directed=False)[1]
        free = labels[:size] != labels[size:]
        found[first.name, second.name] = len(np.unique(np.minimum(labels[:size], labels[size:])[free]))
    return found
