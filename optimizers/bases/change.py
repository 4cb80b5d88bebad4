"""Linear changes of coordinates theta = J c of parameters, each made of one matrix V."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from curvebench.optimizers.rule import Array, Ops

Applied = Callable[[Ops, Array, Array], Array]


@dataclass(frozen=True)
class Change:
    """A form of J, for the parameters that a basis rotates together.

    In every form c starts at J^T theta_0, which reconstructs theta_0 wherever J J^T theta_0 is theta_0, and
    a gradient g is J^T g in c.

    Args:
        name: as it is stored beside V.
        leading: whether c begins with a coordinate for each column of V.
        entries: whether c has an entry for each one of theta, after those.
        to_parameters: `to_parameters(ops, V, c) -> J c`, V of shape (S, n, r), one a seed, c (S, K, number of
            coordinates), theta (S, K, number of entries).
        to_coordinates: `to_coordinates(ops, V, theta) -> J^T theta`.
    """

    name: str
    leading: bool
    entries: bool
    to_parameters: Applied
    to_coordinates: Applied

    def coordinates(self, entries: int, columns: int) -> int:
        """How many coordinates so many entries have, with so many columns of V."""
        return columns * self.leading + entries * self.entries


def _product(ops: Ops, matrix: Array, flat: Array) -> Array:
    return ops.from_basis(matrix, flat)


def _transposed_product(ops: Ops, matrix: Array, flat: Array) -> Array:
    return ops.to_basis(matrix, flat)


def _for_each_filter(applied: Applied) -> Applied:
    def shared(ops: Ops, matrix: Array, flat: Array) -> Array:
        seeds, settings, size = flat.shape
        filters = ops.reshape(flat, (seeds, -1, matrix.shape[-1]))
        return ops.reshape(applied(ops, matrix, filters), (seeds, settings, size))

    return shared


def _joined(ops: Ops, matrix: Array, flat: Array) -> Array:
    """theta_d + V (theta_r - V^T theta_d) (000 Alg. D.1 line 5)."""
    leading, rest = flat[..., : matrix.shape[-1]], flat[..., matrix.shape[-1] :]
    return rest + _product(ops, matrix, leading - _transposed_product(ops, matrix, rest))


def _parted(ops: Ops, matrix: Array, flat: Array) -> Array:
    """V^T theta and (I - V V^T) theta (000 D.1.1, l. 1254-1255)."""
    leading = _transposed_product(ops, matrix, flat)
    return ops.concatenate([leading, flat - _product(ops, matrix, leading)], -1)


ROTATION = Change("rotation", False, True, _product, _transposed_product)  # V of shape (n, n): 000 Alg. 2.1
REDUCED = Change("reduced", True, False, _product, _transposed_product)  # the span of V_r alone: 000 D.1.1
# I (x) V, one V for all filters of a convolution: 000 D.1.2, Alg. D.2
SHARED = Change("shared", False, True, _for_each_filter(_product), _for_each_filter(_transposed_product))
# I (x) Q on the weight that the data enter, by x -> Q^T x: no product in a step (000 App. D, l. 1205-1209)
DATA = Change("data", False, True, SHARED.to_parameters, SHARED.to_coordinates)
# [V_r, I - V_r V_r^T], a coordinate more for each column: 000 Alg. D.1
AUXILIARY = Change("auxiliary", True, True, _joined, _parted)

CHANGES = {change.name: change for change in (ROTATION, REDUCED, SHARED, DATA, AUXILIARY)}
