"""Spectra of EGOP matrices: eigenvalues, the law of their decay, and the density of eigenvectors.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).

EGOP is the expected gradient outer product, the mean of g g^T over M gradients g of d entries. lambda_k is
its k-th largest eigenvalue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curvebench.benchmarks.claims._matrices import rearrange
from curvebench.optimizers.bases.estimators import egop_matrix
from curvebench.property_checks.checks import Series


def eigenvalues(gradients: np.ndarray) -> np.ndarray:
    """Return the eigenvalues (d,) of the empirical EGOP of gradients (M, d), in descending order.

    If M < d, M eigenvalues are computed from the smaller matrix of inner products, and followed by d - M
    zeros.
    """
    count, size = gradients.shape
    smaller = egop_matrix(gradients) if count >= size else egop_matrix(gradients.T) * (size / count)
    values = np.maximum(np.linalg.eigvalsh(smaller)[::-1], 0.0)
    return np.concatenate([values, np.zeros(size - len(values))])


def stable_rank(values: np.ndarray) -> float:
    """Return the stable rank (000 eq. 3.1).

    The stable rank is the sum of the square roots of the eigenvalues, divided by the largest of these roots.
    """
    roots = np.sqrt(values)
    return float(np.sum(roots)) / float(np.max(roots))


def densities(vectors: np.ndarray) -> np.ndarray:
    """Return the densities |v|_1^2 / d, (count,), of unit vectors v in rows (count, d) (000 Sec. 3)."""
    return np.asarray(np.abs(vectors).sum(-1) ** 2 / vectors.shape[-1])


def density(vector: np.ndarray) -> float:
    """Return the density |v|_1^2 / d of one unit vector v, (d,)."""
    return float(densities(vector))


def kronecker_residual(matrix: np.ndarray, outer: int, inner: int) -> float:
    """Return the relative distance of a matrix from the nearest Kronecker product A (x) B (000 eq. 6.3).

    Args:
        matrix: shape (outer inner, outer inner).
        outer, inner: sizes of A and B.
    """
    values = np.linalg.svd(rearrange(matrix, outer, inner, outer, inner), compute_uv=False)
    return float(np.sqrt(np.sum(values[1:] ** 2) / np.sum(values**2)))


@dataclass(frozen=True)
class Fit:
    """Decay law of eigenvalues, fitted by least squares to their logarithms.

    Args:
        rate: decrease of the logarithm of an eigenvalue per unit of k, or of log k.
        height: logarithm of the constant c.
        r_squared: share of the variance of the logarithms that the law explains.
    """

    rate: float
    height: float
    r_squared: float


def exponential_fit(values: np.ndarray) -> Fit:
    """Fit the law c exp(-rate k), k from 1, to positive eigenvalues in descending order."""
    return _fit(np.arange(1.0, len(values) + 1), values)


def power_law_fit(values: np.ndarray) -> Fit:
    """Fit the law c k^-rate, k from 1, to positive eigenvalues in descending order."""
    return _fit(np.log(np.arange(1.0, len(values) + 1)), values)


def _fit(places: np.ndarray, values: np.ndarray) -> Fit:
    logarithms = np.log(values)
    slope, height = np.polyfit(places, logarithms, 1)
    left = np.sum((logarithms - slope * places - height) ** 2)
    explained = 1.0 - float(left / np.sum((logarithms - logarithms.mean()) ** 2))
    return Fit(float(-slope), float(height), explained)


DECAY_AXES = ("eigenvalue index k", "λₖ / λ₁")


def decay(figure: str, label: str, values: np.ndarray, panel: str = "") -> Series:
    """Return a series for a figure: eigenvalues in descending order, divided by the largest."""
    places = np.arange(1.0, len(values) + 1)
    return Series(figure, label, places, values / values[0], DECAY_AXES, panel=panel, log="y")


def fitted_decay(figure: str, label: str, values: np.ndarray) -> Series:
    """Return a series for a figure: the exponential law that is fitted to eigenvalues.

    The values of the law are divided by the largest eigenvalue.
    """
    places, fit = np.arange(1.0, len(values) + 1), exponential_fit(values)
    law = np.exp(fit.height - fit.rate * places) / values[0]
    return Series(figure, label, places, law, DECAY_AXES, kind="fit", log="y")
