"""Gaussians around a spectral factorization: local coordinates, their Fisher-Rao metric, and gradients.

In citations, 003 is Lin et al. (2025), "Spectral-factorized Positive-definite Curvature Learning for NN
Training" (docs/sources.md).

The Gaussians are N(mu, S^-1) with S = B diag(d) B^T, where B is orthogonal and d positive, or S = alpha S_1
(x) S_2 with two such factors of determinant 1. The local coordinates are delta (change of mu), m (change of
log d) and M (rotation of B).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from curvebench.benchmarks.claims._matrices import OPS, orthonormal
from curvebench.benchmarks.claims._parts import Random
from curvebench.optimizers.matrix_functions import CAYLEYS, EXPONENTIALS, KroneckerSpectrum, Spectrum

# Range of the differences between logarithms of neighbouring eigenvalues.
GAPS = (0.05, 1.0)


def draw_values(random: Random, size: int, tied: bool = False) -> np.ndarray:
    """Draw eigenvalues (n,) whose logarithms have mean 0 and differ by at least 0.05.

    With `tied`, in half of the cases some eigenvalues are equal.
    """
    logarithms = np.cumsum(random.uniform(*GAPS, size))
    if tied and random.integers(2):
        logarithms[random.integers(size) :] = logarithms[-1]
    return np.exp(random.permutation(logarithms - logarithms.mean()))


def draw_spectrum(random: Random, size: int, tied: bool = False) -> Spectrum:
    """Draw a random basis and eigenvalues as in `draw_values`, times a common factor from 0.01 to 100."""
    scale = 10.0 ** random.uniform(-2, 2)
    return Spectrum(orthonormal(random, size, size), scale * draw_values(random, size, tied))


def draw_kronecker(random: Random, shape: Sequence[int], tied: bool = False) -> KroneckerSpectrum:
    """Draw S as a Kronecker product: factors of determinant 1, times a number alpha from 0.01 to 100."""
    scale = np.array([10.0 ** random.uniform(-2, 2)])
    factors = tuple(
        Spectrum(orthonormal(random, size, size), draw_values(random, size, tied)) for size in shape
    )
    return KroneckerSpectrum(scale, factors)


def identity(shape: Sequence[int]) -> Any:
    """Return the spectral factorization of S = I.

    S is one matrix if `shape` has one length; otherwise S has one Kronecker factor per length.
    """
    factors = tuple(Spectrum(np.eye(size), np.ones(size)) for size in shape)
    return factors[0] if len(factors) == 1 else KroneckerSpectrum(np.ones(1), factors)


def assembled(spectrum: Any, exponent: float = 1.0) -> Any:
    """Return the power S^`exponent` as a matrix (n, n), for S = B diag(d) B^T or S = alpha S_1 (x) S_2.

    The arrays may be NumPy arrays or torch tensors.
    """
    if isinstance(spectrum, Spectrum):
        return (spectrum.basis * spectrum.values**exponent) @ spectrum.basis.T
    factors = [assembled(factor, exponent) for factor in spectrum.factors]
    return spectrum.scale**exponent * reduce(_kron, factors)


def _kron(first: Any, second: Any) -> Any:
    product = first[:, None, :, None] * second[None, :, None, :]
    return product.reshape(len(first) * len(second), -1)


@dataclass(frozen=True)
class LocalCoordinates:
    """Local coordinates eta of Gaussians, with a Gaussian N(mu, S^-1) as origin (003 eqs. 9 and 18).

    If S is one matrix, eta consists of m (n,), M (n (n - 1) / 2,) and delta. If S has two Kronecker factors,
    eta consists of the logarithm of alpha, then for each factor M and all entries of m but the last (the
    entries of m sum to 0), then delta.

    Args:
        origin: the spectral factorization of S.
        printed: whether mu moves by eq. 18 as printed, which lacks the factor alpha^(-1/2).
    """

    origin: Spectrum | KroneckerSpectrum
    printed: bool = False

    @property
    def factors(self) -> tuple[Spectrum, ...]:
        return (self.origin,) if isinstance(self.origin, Spectrum) else self.origin.factors

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of rows of each factor of S."""
        return tuple(len(factor.values) for factor in self.factors)

    @property
    def blocks(self) -> dict[str, slice]:
        """Slices of the coordinate vector by name: `alpha`, `m1`, `M1`, ..., `delta`."""
        constrained = isinstance(self.origin, KroneckerSpectrum)
        counts = {"alpha": 1} if constrained else {}
        for number, length in enumerate(self.lengths, start=1):
            counts[f"m{number}"] = length - constrained
            counts[f"M{number}"] = length * (length - 1) // 2
        counts["delta"] = int(np.prod(self.lengths))
        ends = np.cumsum(list(counts.values()))
        return {
            name: slice(int(end) - count, int(end))
            for (name, count), end in zip(counts.items(), ends, strict=True)
        }

    def moved(self, ops: Any, eta: Any) -> Any:
        """Return the spectral factorization at the local coordinates eta."""
        blocks, factors = self.blocks, []
        for number, (factor, length) in enumerate(zip(self.factors, self.lengths, strict=True), start=1):
            growth = eta[blocks[f"m{number}"]]
            if isinstance(self.origin, KroneckerSpectrum):
                # A Kronecker factor has determinant 1, so that the changes of its log d must sum to 0.
                # The coordinates contain all changes but the last one, which is minus the sum of the others.
                growth = ops.asarray(np.eye(length)[:, :-1] - np.eye(length)[:, -1:]) @ growth
            skews = ops.asarray(_skews(length).reshape(-1, length * length))
            skew = ops.reshape(eta[blocks[f"M{number}"]] @ skews, (length, length))
            values = ops.asarray(factor.values) * EXPONENTIALS["exact"](ops, growth, 0.0)
            factors.append(Spectrum(CAYLEYS["exact"](ops, ops.asarray(factor.basis), skew), values))
        if isinstance(self.origin, Spectrum):
            return factors[0]
        scale = ops.asarray(self.origin.scale) * EXPONENTIALS["exact"](ops, eta[blocks["alpha"]], 0.0)
        return KroneckerSpectrum(scale, tuple(factors))

    @property
    def mean_map(self) -> np.ndarray:
        """Matrix B diag(d)^(-1/2), which maps delta to the change of mu."""
        origin = self.origin
        if isinstance(origin, KroneckerSpectrum):
            bases, values = (reduce(np.kron, parts) for parts in zip(*origin.factors, strict=True))
            origin = Spectrum(bases, values if self.printed else origin.scale * values)
        return np.asarray(origin.basis * origin.values**-0.5)

    def metric(self) -> np.ndarray:
        """Return the Fisher-Rao metric at the origin, -E[Hessian of log q] (003 App. I).

        q is the density of the Gaussian. The metric is computed by automatic differentiation of the
        cross-entropy, so that the expectation over q at the origin is exact.
        """
        ops, torch = _torch()
        covariance, moves = ops.asarray(assembled(self.origin, -1.0)), ops.asarray(self.mean_map)

        def cross_entropy(eta: Any) -> Any:
            precision, offset = assembled(self.moved(ops, eta)), moves @ eta[self.blocks["delta"]]
            quadratic = (precision * covariance).sum() + offset @ precision @ offset
            return (quadratic - torch.logdet(precision)) / 2

        return np.asarray(torch.autograd.functional.hessian(cross_entropy, self._zero(ops)).numpy())

    def gradient(self, slope: np.ndarray, curvature: np.ndarray, gamma: float) -> np.ndarray:
        """Return the gradient of E[l(w)] + gamma / 2 log det S at the origin (003 eq. 4).

        The gradient is with respect to the local coordinates. The weights w are drawn from the Gaussian; l is
        a quadratic loss.

        Args:
            slope: gradient of l at mu, (n,).
            curvature: Hessian of l, (n, n).
            gamma: 1 with the entropy term, 0 without.
        """
        ops, torch = _torch()
        moves = ops.asarray(self.mean_map)

        def expected_loss(eta: Any) -> Any:
            precision, offset = assembled(self.moved(ops, eta)), moves @ eta[self.blocks["delta"]]
            curved = ops.asarray(curvature)
            spread = torch.trace(torch.linalg.solve(precision, curved)) + offset @ curved @ offset
            return ops.asarray(slope) @ offset + (spread + gamma * torch.logdet(precision)) / 2

        return np.asarray(torch.autograd.functional.jacobian(expected_loss, self._zero(ops)).numpy())

    def _zero(self, ops: Any) -> Any:
        return ops.asarray(np.zeros(self.blocks["delta"].stop))

    def at(self, eta: np.ndarray) -> Any:
        """Return the spectral factorization at coordinates eta, as NumPy arrays."""
        return self.moved(OPS, eta)


def _skews(length: int) -> np.ndarray:
    """Return the basis E_ij - E_ji, i > j, of skew-symmetric matrices, (n (n - 1) / 2, n, n).

    E_ij has a 1 in row i and column j, and 0 elsewhere. The linear combination with coefficients M is
    Skew(Tril(M)).
    """
    rows, columns = np.tril_indices(length, -1)
    found = np.zeros((len(rows), length, length))
    found[np.arange(len(rows)), rows, columns] = 1.0
    return found - found.swapaxes(1, 2)


def _torch() -> Any:
    import torch

    from curvebench.arrays.torch_ops import torch_ops

    return torch_ops(dtype="float64"), torch
