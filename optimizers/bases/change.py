"""Linear changes of coordinates theta = J c for parameters, each made from one matrix V."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from curvebench.optimizers.arrays import Array, Ops

Applied = Callable[[Ops, Array, Array], Array]


@dataclass(frozen=True)
class Change:
    """A form of J, for the parameters that a basis changes together.

    In every form c starts at J^T theta_0, which reconstructs theta_0 if J J^T theta_0 is theta_0, and a
    gradient g becomes J^T g in c.

    Args:
        name: name under which it is stored with V.
        leading: whether c begins with a coordinate for each column of V.
        entries: whether c has, after these, a coordinate for each entry of theta.
        to_parameters: `to_parameters(ops, V, c) -> J c`, with V of shape (S, n, r), one per seed, c (S, K,
            number of coordinates), theta (S, K, number of entries).
        to_coordinates: `to_coordinates(ops, V, theta) -> J^T theta`.
    """

    name: str
    leading: bool
    entries: bool
    to_parameters: Applied
    to_coordinates: Applied

    def coordinates(self, entries: int, columns: int) -> int:
        """Return the number of coordinates for a number of entries and of columns of V."""
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
    leading, entries = flat[..., : matrix.shape[-1]], flat[..., matrix.shape[-1] :]
    return entries + _product(ops, matrix, leading - _transposed_product(ops, matrix, entries))


def _parted(ops: Ops, matrix: Array, flat: Array) -> Array:
    """V^T theta and (I - V V^T) theta (000 D.1.1, l. 1254-1255)."""
    leading = _transposed_product(ops, matrix, flat)
    return ops.concatenate([leading, flat - _product(ops, matrix, leading)], -1)


ROTATION = Change("rotation", False, True, _product, _transposed_product)  # V of shape (n, n) (000 Alg. 2.1).
REDUCED = Change("reduced", True, False, _product, _transposed_product)  # The span of V_r only (000 D.1.1).
# I (x) V, with one V for all filters of a convolution (000 D.1.2, Alg. D.2).
SHARED = Change("shared", False, True, _for_each_filter(_product), _for_each_filter(_transposed_product))
# I (x) Q on the weight that the data enter, by x -> Q^T x, so that a step needs no product (000 App. D, l.
# 1205-1209).
DATA = Change("data", False, True, SHARED.to_parameters, SHARED.to_coordinates)
# [V_r, I - V_r V_r^T], with an additional coordinate for each column (000 Alg. D.1).
AUXILIARY = Change("auxiliary", True, True, _joined, _parted)

CHANGES = {change.name: change for change in (ROTATION, REDUCED, SHARED, DATA, AUXILIARY)}
