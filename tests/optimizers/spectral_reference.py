"""Algorithm of 003 in plain NumPy on whole matrices, with roots, inverses and products as printed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np


def generator(values: np.ndarray, inside: np.ndarray, tie_tolerance: float) -> np.ndarray:
    """Return Skew(Tril(U)), computed pair by pair."""
    lower = np.zeros_like(inside)
    for i in range(len(values)):
        for j in range(i):
            gap = values[i] - values[j]
            if abs(gap) > tie_tolerance * max(values[i], values[j]):
                lower[i, j] = -inside[i, j] / gap
    return lower - lower.T


def cayley(skew: np.ndarray, kind: str) -> np.ndarray:
    """Return (I + X) (I - X)^-1, or the product of 003 Sec. 3.4 without an inverse."""
    identity = np.eye(len(skew))
    if kind == "exact":
        return (identity + skew) @ np.linalg.inv(identity - skew)
    product: np.ndarray = identity
    for power, count in ((1, 2), (2, 1), (4, 1)):
        for _ in range(count):
            product = product @ (identity + np.linalg.matrix_power(skew, power))
    return product


@dataclass(frozen=True)
class Ways:
    """Options of a step under the rule's names, with its hyperparameters."""

    rate: float
    gamma: float
    damping: float
    rotation_rate: float
    exponential: str
    cayley: str
    normalized: bool
    tie_tolerance: float

    def turned(self, basis: np.ndarray, values: np.ndarray, curvature: np.ndarray) -> np.ndarray:
        """Return B Cayley(beta_2 / 2 Skew(Tril(U))) for a curvature H."""
        skew = generator(values, basis.T @ curvature @ basis, self.tie_tolerance)
        length = float(np.sqrt(np.sum(skew**2))) or 1.0
        rate = self.rotation_rate / length if self.normalized else self.rate
        return basis @ cayley(rate / 2 * skew, self.cayley)


def full_step(
    basis: np.ndarray, values: np.ndarray, curvature: np.ndarray, ways: Ways
) -> tuple[np.ndarray, np.ndarray]:
    """Take the step of 003 Fig. 1, top, or of Fig. 5."""
    curved = np.array([basis[:, i] @ curvature @ basis[:, i] + ways.damping for i in range(len(values))])
    if ways.exponential == "exact":
        new = values * np.exp(ways.rate / values * (-ways.gamma * values + curved))
    else:
        new = (1 - ways.gamma * ways.rate) * values + ways.rate * curved
    return ways.turned(basis, values, curvature), new


@dataclass(frozen=True)
class Kronecker:
    """State of the scheme: alpha, and B and d of each axis."""

    scale: float
    bases: list[np.ndarray]
    values: list[np.ndarray]

    def factor(self, axis: int, exponent: float = 1.0) -> np.ndarray:
        """Return a power of S_l."""
        return (self.bases[axis] * self.values[axis] ** exponent) @ self.bases[axis].T

    def whole(self, exponent: float = 1.0) -> np.ndarray:
        """Return a power of S for the row-major vector of a tensor."""
        factors = [self.factor(axis, exponent) for axis in range(len(self.bases))]
        return self.scale**exponent * reduce(np.kron, factors)

    def around(self, tensor: np.ndarray, axis: int) -> np.ndarray:
        """Return Q of an axis, G S^-1 G^T over all other axes, without alpha."""
        moved = tensor
        for axis_of_others in range(tensor.ndim):
            if axis_of_others != axis:
                # This is not the inverse of S: a truncated map leaves B not exactly orthogonal.
                inverse = self.factor(axis_of_others, -1.0)
                moved = np.moveaxis(np.tensordot(inverse, moved, axes=(1, axis_of_others)), 0, axis_of_others)
        others = [axis_of_others for axis_of_others in range(tensor.ndim) if axis_of_others != axis]
        return np.tensordot(tensor, moved, axes=(others, others))

    def stepped(self, tensor: np.ndarray, ways: Ways) -> Kronecker:
        """Take the step of 003 Fig. 1, bottom, or of Fig. 6, right, with damping times traces."""
        bases, values, means = [], [], []
        for axis, (basis, before) in enumerate(zip(self.bases, self.values, strict=True)):
            count = tensor.size // len(before)
            around = self.around(tensor, axis)
            traces = [np.trace(self.factor(o, -1.0)) for o in range(tensor.ndim) if o != axis]
            curved = np.diag(basis.T @ around @ basis) + ways.damping * math.prod(traces)
            if ways.exponential == "exact":
                m = (-ways.gamma * before + curved / (self.scale * count)) / before
                new, mean = before * np.exp(ways.rate * (m - m.mean())), ways.rate * m.mean()
            else:
                n = (1 - ways.gamma * ways.rate) * before + ways.rate / (self.scale * count) * curved
                mean = np.log(n).mean()
                new = np.exp(np.log(n) - mean)
            bases.append(ways.turned(basis, before, around / (self.scale * count)))
            values.append(new)
            means.append(mean)
        return Kronecker(self.scale * math.exp(np.mean(means)), bases, values)
