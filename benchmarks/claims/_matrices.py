"""Functions of matrices for several claims: random draws, roots, the Loewner order, rearrangement.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.benchmarks.claims._parts import Random

# Array functions of NumPy, which the project's own matrix functions take as an argument.
OPS = numpy_ops("float64")
# Relative tolerance of results that use roots of matrices.
# The nonzero singular values of a matrix span 3 orders of magnitude.
ROUNDING = 1e-9


def orthonormal(random: Random, rows: int, columns: int) -> np.ndarray:
    """Draw a matrix (rows, columns) with orthonormal columns; `rows` must be at least `columns`."""
    return np.asarray(np.linalg.qr(random.standard_normal((rows, columns)))[0])


def with_singular_values(
    random: Random, rows: int, columns: int, values: Sequence[float] | np.ndarray
) -> np.ndarray:
    """Draw a matrix (rows, columns) with given singular values and random singular vectors.

    Args:
        random: generator of the instance.
        rows, columns: shape of the matrix.
        values: at most min(rows, columns) singular values.
    """
    count = len(values)
    left, right = orthonormal(random, rows, count), orthonormal(random, columns, count)
    return np.asarray((left * np.asarray(values)) @ right.T)


def spread_values(random: Random, count: int) -> np.ndarray:
    """Draw `count` singular values: in half of the cases from 0.001 to 1, otherwise all equal to 1."""
    return 10.0 ** random.uniform(-3 * random.integers(2), 0, count)


def semidefinite(random: Random, size: int, rank: int) -> np.ndarray:
    """Draw a positive semi-definite matrix (size, size) of a given rank.

    Its nonzero eigenvalues are from 0.01 to 1.
    """
    vectors = orthonormal(random, size, rank)
    return np.asarray((vectors * 10.0 ** random.uniform(-2, 0, rank)) @ vectors.T)


def power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    """Return a power of a symmetric positive semi-definite matrix.

    With a negative exponent, this is a power of the pseudo-inverse. Eigenvalues up to 1e-13 times the largest
    are rounding errors and count as 0.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    counts = values > 1e-13 * max(values[-1], 0.0)
    return np.asarray((vectors[:, counts] * values[counts] ** exponent) @ vectors[:, counts].T)


def loewner_ratio(smaller: np.ndarray, larger: np.ndarray) -> float:
    """Return the smallest c with `smaller` <= c `larger` in the Loewner order; infinity if no c satisfies it.

    Args:
        smaller, larger: symmetric positive semi-definite matrices, (n, n).
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
    """Return |found - expected| / |expected| in Frobenius norms, or |found| if `expected` is 0."""
    size = float(np.linalg.norm(expected))
    return float(np.linalg.norm(found - expected)) / (size or 1.0)


def rearrange(matrix: np.ndarray, m: int, n: int, d: int, l: int) -> np.ndarray:  # noqa: E741
    """Rearrange the entries of a matrix (m n, d l) to shape (m d, n l).

    A (x) B becomes vec(A) vec(B)^T with row-major vec (002 eq. 102). A matrix of another shape with the same
    number of entries is read as the row-major list of its entries.
    """
    return np.asarray(matrix.reshape(m, n, d, l).swapaxes(1, 2).reshape(m * d, n * l))
