"""What several claims draw and compare: matrices with given singular values, Loewner orders, roots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.benchmarks.claims._parts import Random

OPS = numpy_ops("float64")  # what the project's own functions of matrices take
ROUNDING = 1e-9  # of roots of matrices whose nonzero singular values span 3 orders of magnitude


def orthonormal(random: Random, rows: int, columns: int) -> np.ndarray:
    """A matrix (rows, columns) with orthonormal columns; rows >= columns."""
    return np.asarray(np.linalg.qr(random.standard_normal((rows, columns)))[0])


def with_singular_values(
    random: Random, rows: int, columns: int, values: Sequence[float] | np.ndarray
) -> np.ndarray:
    """U diag(values) V^T, (rows, columns), with random singular vectors and at most min(m, n) values."""
    count = len(values)
    left, right = orthonormal(random, rows, count), orthonormal(random, columns, count)
    return np.asarray((left * np.asarray(values)) @ right.T)


def spread_values(random: Random, count: int) -> np.ndarray:
    """Singular values over up to 3 orders of magnitude; now and then all equal."""
    return 10.0 ** random.uniform(-3 * random.integers(2), 0, count)


def semidefinite(random: Random, size: int, rank: int) -> np.ndarray:
    """A symmetric positive semi-definite matrix (size, size) of a rank, eigenvalues over 2 orders."""
    vectors = orthonormal(random, size, rank)
    return np.asarray((vectors * 10.0 ** random.uniform(-2, 0, rank)) @ vectors.T)


def power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    """A power of a symmetric positive semi-definite matrix; of its pseudo-inverse where below 0.

    Eigenvalues of at most 1e-13 times the largest are rounding and count as 0.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    counts = values > 1e-13 * max(values[-1], 0.0)
    return np.asarray((vectors[:, counts] * values[counts] ** exponent) @ vectors[:, counts].T)


def loewner_ratio(smaller: np.ndarray, larger: np.ndarray) -> float:
    """The least c with `smaller` <= c `larger` in the Loewner order; infinite where there is none.

    Both (n, n), symmetric and positive semi-definite.
    """
    if not larger.any():
        return 0.0 if not smaller.any() else np.inf
    inverse = power(larger, -0.5)
    outside = np.eye(len(larger)) - inverse @ power(larger, 0.5)
    leak = np.linalg.norm(outside @ smaller @ outside, 2)
    if leak > ROUNDING * max(np.linalg.norm(smaller, 2), np.linalg.norm(larger, 2)):
        return np.inf
    return float(np.linalg.eigvalsh(inverse @ smaller @ inverse)[-1])


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """|found - expected| over |expected|, Frobenius norms; that of `found` where `expected` is 0."""
    size = float(np.linalg.norm(expected))
    return float(np.linalg.norm(found - expected)) / (size or 1.0)


def rearrange(matrix: np.ndarray, m: int, n: int, d: int, l: int) -> np.ndarray:  # noqa: E741
    """The entries of (m n, d l) as (m d, n l): row-major vec(A) vec(B)^T of A (x) B (002 eq. 102).

    A matrix of another shape with as many entries is read as the same row-major list of them.
    """
    return np.asarray(matrix.reshape(m, n, d, l).swapaxes(1, 2).reshape(m * d, n * l))
