"""Random matrices with singular values that are given."""

from __future__ import annotations

import numpy as np


def orthonormal(rows: int, columns: int, generator: np.random.Generator) -> np.ndarray:
    """A matrix (rows, columns), columns <= rows, of orthonormal columns, uniform under rotations.

    The QR factor of a Gaussian matrix is uniform once R has a positive diagonal (Mezzadri, "How to
    generate random matrices from the classical compact groups", 2007).
    """
    q, r = np.linalg.qr(generator.normal(size=(rows, columns)))
    return q * np.where(np.diagonal(r) < 0, -1.0, 1.0)


def power_law_matrix(rows: int, columns: int, alpha: float, generator: np.random.Generator) -> np.ndarray:
    """A matrix (rows, columns) with singular values k^-alpha, k = 1, 2, ..., and random singular vectors.

    Source: 000 Sec. 6 and C.6.
    """
    rank = min(rows, columns)
    singular_values = np.arange(1, rank + 1) ** -float(alpha)
    left = orthonormal(rows, rank, generator)
    right = orthonormal(columns, rank, generator)
    return (left * singular_values) @ right.T
