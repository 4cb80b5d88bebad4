"""Linear changes of coordinates theta = J c for parameters, each made from one matrix V.

The optimizer runs on the coordinates c; the loss is computed at the parameters theta. V has n rows, one per
parameter entry of a group, and r <= n orthonormal columns. J is the matrix of the change. Arrays hold several
runs at once, S seeds times K settings.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from curvebench.optimizers.arrays import Array, Ops

Applied = Callable[[Ops, Array, Array], Array]


@dataclass(frozen=True)
class Change:
    """A way to build J from V, for the parameters that a basis transforms together.

    The coordinates start at c = J^T theta_0 for the initial parameters theta_0. The run therefore starts at
    the parameters J J^T theta_0, which may differ from theta_0. A gradient g with respect to theta becomes
    J^T g with respect to c.

    Args:
        name: name under which the change is stored with V.
        leading: whether c begins with a coordinate for each column of V.
        entries: whether c has a coordinate for each entry of theta, after the coordinates for columns of V.
        to_parameters: `to_parameters(ops, V, c) -> J c`, with V (seeds, n, r), c (seeds, settings, number of
            coordinates) and theta (seeds, settings, number of entries).
        to_coordinates: `to_coordinates(ops, V, theta) -> J^T theta`.
    """

    name: str
    leading: bool
    entries: bool
    to_parameters: Applied
    to_coordinates: Applied

    def coordinates(self, entries: int, columns: int) -> int:
        """Return the number of coordinates c for given numbers of parameter entries and columns of V."""
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
    """Return J c = theta_d + V (theta_r - V^T theta_d) for the coordinates c = (theta_r, theta_d).

    theta_r has an entry for each column of V, and theta_d for each entry of theta (000 Alg. D.1 line 5).
    """
    leading, entries = flat[..., : matrix.shape[-1]], flat[..., matrix.shape[-1] :]
    return entries + _product(ops, matrix, leading - _transposed_product(ops, matrix, entries))


def _parted(ops: Ops, matrix: Array, flat: Array) -> Array:
    """Return J^T theta = (V^T theta, (I - V V^T) theta) (000 D.1.1, lines 1254-1255)."""
    leading = _transposed_product(ops, matrix, flat)
    return ops.concatenate([leading, flat - _product(ops, matrix, leading)], -1)


# J = V, of shape (n, n) (000 Alg. 2.1).
ROTATION = Change("rotation", False, True, _product, _transposed_product)
# J = V_r, the r leading columns of V: parameters stay in the span of these columns (000 D.1.1).
REDUCED = Change("reduced", True, False, _product, _transposed_product)
# J = I (x) V, a Kronecker product: one V for all filters of a convolution (000 D.1.2, Alg. D.2).
SHARED = Change("shared", False, True, _for_each_filter(_product), _for_each_filter(_transposed_product))
# J = I (x) V, a Kronecker product, for the weight that multiplies the data (000 App. D, lines 1205-1209).
# The data x are replaced by V^T x before the run, so that no step needs a product with V.
DATA = Change("data", False, True, SHARED.to_parameters, SHARED.to_coordinates)
# J = [V_r, I - V_r V_r^T]: c has r coordinates more than theta has entries (000 Alg. D.1).
AUXILIARY = Change("auxiliary", True, True, _joined, _parted)

CHANGES = {change.name: change for change in (ROTATION, REDUCED, SHARED, DATA, AUXILIARY)}
