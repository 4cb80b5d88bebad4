"""Estimators of leading eigenvectors of the expected gradient outer product.

They decompose all gradients at once, or sketch their range at random, or need a single pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from curvebench.optimizers.options import OptionError

OVERSAMPLING = 10  # Number of columns of a sketch beyond the rank (Halko et al. 2011 advise 5 or 10).
WIDER = 4  # A sketch that no iteration improves has this multiple of the rank as its width.
ITERATIONS = 2  # Iterations of the random range; each reduces the share of small singular values.


def egop_matrix(gradients: np.ndarray) -> np.ndarray:
    """Return the empirical EGOP, (1/M) sum of g g^T (000 Alg. 2.1 line 3).

    Args:
        gradients: (M, d), one gradient per row.

    Returns:
        Shape (d, d), float64, symmetric to the last bit.
    """
    g = np.asarray(gradients, np.float64)
    return g.T @ g / len(g)


# Returns V (n, n) and the eigenvalues (n,) of the EGOP of gradients (M, n) in float64, leading first.
Decomposition = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def leading_first(values: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return V and eigenvalues of an EGOP from ascending eigenvalues; values below 0 by rounding become 0."""
    return vectors[:, ::-1], np.maximum(values[::-1], 0.0)


def by_numpy(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decompose the EGOP of gradients on the host, by the SVD if it cannot have full rank."""
    count, dimension = gradients.shape
    if count >= dimension:
        return leading_first(*np.linalg.eigh(egop_matrix(gradients)))
    _, singular, rows = np.linalg.svd(gradients, full_matrices=True)
    return rows.T, np.concatenate([singular**2 / count, np.zeros(dimension - count)])


def checked(gradients: np.ndarray) -> np.ndarray:
    """Return gradients (M, d) in float64.

    Raises:
        OptionError: if there is no gradient, or one is not finite.
    """
    g = np.asarray(gradients, np.float64)
    if g.ndim != 2 or len(g) == 0:
        raise OptionError(f"egop: gradients have the shape {g.shape}; (samples, dimension) is needed")
    finite = np.isfinite(g).all(axis=1)
    if not finite.all():
        raise OptionError(
            f"egop: {np.sum(~finite)} of {len(g)} sampled gradients are not finite; "
            "set the option sampling to parameters nearer to 0, such as {normal: 0.1}"
        )
    return g


def with_signs(vectors: np.ndarray) -> np.ndarray:
    """Give each column the sign that makes its entry of largest magnitude positive, the first of ties."""
    largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(vectors.shape[1])]
    return np.asarray(vectors * np.where(largest < 0, -1.0, 1.0))


def eigenbasis(gradients: np.ndarray, decompose: Decomposition = by_numpy) -> tuple[np.ndarray, np.ndarray]:
    """Return the orthonormal eigenbasis of the empirical EGOP (000 Alg. 2.1 line 4; the SVD: 000 C.6).

    Eigenvectors are unique up to sign if eigenvalues differ. The sign is chosen so that the entry of largest
    magnitude, the first of equal entries, is positive. A coordinate in which every gradient is 0 keeps its
    unit vector, after all others. Inside an eigenspace of several dimensions, such as the null space if M <
    d, the basis is LAPACK's, and may differ between machines (`with_random_null_space`).

    Args:
        gradients: (M, d), one gradient per row.
        decompose: function that decomposes the EGOP of the coordinates in which a gradient is not 0.

    Returns:
        V of shape (d, d) with eigenvectors in columns, and the eigenvalues (d,), both float64, leading first.

    Raises:
        OptionError: if there is no gradient, or one is not finite.
    """
    g = checked(gradients)
    dimension = g.shape[1]
    live = np.flatnonzero(np.any(g != 0, axis=0))
    dead = np.setdiff1d(np.arange(dimension), live)
    basis, eigenvalues = np.zeros((dimension, dimension)), np.zeros(dimension)
    if live.size:
        vectors, eigenvalues[: live.size] = decompose(g[:, live])
        basis[live, : live.size] = with_signs(vectors)
    basis[dead, np.arange(live.size, dimension)] = 1.0
    return basis, eigenvalues


def completed(
    leading: np.ndarray, eigenvalues: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Complete orthonormal columns (d, r) to a basis (d, d) by random columns.

    The random columns are a uniformly random orthonormal basis of the complement. Their eigenvalues in (d,)
    are not known.
    """
    dimension, rank = leading.shape
    complement = random.standard_normal((dimension, dimension - rank))
    # A single projection leaves rounding errors that grow with the condition of the random matrix.
    for _ in range(2):
        complement = np.linalg.qr(complement - leading @ (leading.T @ complement))[0]
    unknown = np.full(dimension - rank, np.nan)
    return np.concatenate([leading, complement], axis=1), np.concatenate([eigenvalues, unknown])


def with_random_null_space(
    matrix: np.ndarray, eigenvalues: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return another eigenbasis of the same matrix, in which the basis of the null space is uniformly random.

    The null space has the columns whose eigenvalue is 0 up to rounding, at most n eps lambda_1, and the
    columns of a random complement, whose eigenvalues are not known.

    Args:
        matrix: V (n, r), orthonormal, leading first.
        eigenvalues: (r,); NaN if not known.

    Returns:
        V (n, r) with all other columns unchanged, and the eigenvalues unchanged.
    """
    values = np.nan_to_num(eigenvalues)
    null = values <= len(matrix) * np.finfo(np.float64).eps * values.max(initial=0.0)
    rotation, upper = np.linalg.qr(random.standard_normal((null.sum(), null.sum())))
    changed = matrix.copy()
    # Without the signs, the rotation would not be uniform.
    changed[:, null] = matrix[:, null] @ (rotation * np.sign(np.diag(upper)))
    return changed, eigenvalues


@dataclass
class Whole:
    """All eigenvectors, or the leading ones, by a decomposition of all gradients at once."""

    size: int
    rank: int
    random: np.random.Generator
    decompose: Decomposition = by_numpy
    pieces: list[np.ndarray] = field(default_factory=list)

    def add(self, gradients: np.ndarray) -> None:
        self.pieces.append(gradients)

    def taken(self) -> np.ndarray:
        """Return all gradients that were added, (M, n), and release them here.

        Two copies may not fit into memory.
        """
        at = sum(map(len, self.pieces))
        gradients = np.empty((at, self.size))
        # Pop the last first, because the allocator returns memory from the end of its heap.
        while self.pieces:
            piece = self.pieces.pop()
            at -= len(piece)
            gradients[at : at + len(piece)] = piece
        return gradients

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        vectors, eigenvalues = eigenbasis(self.taken(), self.decompose)
        return vectors[:, : self.rank], eigenvalues[: self.rank]


@dataclass
class Randomized(Whole):
    """Leading eigenvectors as right singular vectors of the gradients, by Halko's random range (000 C.6)."""

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        g = checked(self.taken())
        width = min(self.size, self.rank + OVERSAMPLING)
        basis = np.linalg.qr(g.T @ self.random.standard_normal((len(g), width)))[0]
        for _ in range(ITERATIONS):
            basis = np.linalg.qr(g.T @ np.linalg.qr(g @ basis)[0])[0]
        _, singular, vh = np.linalg.svd(g @ basis, full_matrices=False)
        leading = basis @ vh.T[:, : self.rank]
        return with_signs(leading), singular[: self.rank] ** 2 / len(g)


@dataclass
class Streaming:
    """Leading eigenvectors from one pass over the gradients, with memory for 4 r + 10 vectors whatever M is.

    The sketch is Y = P Omega for the EGOP P and a Gaussian Omega. The eigenvectors are those of Nystroem's
    approximation Y (Omega^T Y)^-1 Y^T of P (Tropp, Yurtsever, Udell, Cevher 2017, Algorithm 3). No iteration
    improves the sketch, so that it is `WIDER` times as wide as the rank (docs/performance.md has the errors).
    """

    size: int
    rank: int
    random: np.random.Generator
    count: int = 0

    def __post_init__(self) -> None:
        width = min(self.size, WIDER * self.rank + OVERSAMPLING)
        self.test = np.linalg.qr(self.random.standard_normal((self.size, width)))[0]
        self.sketch = np.zeros((self.size, width))

    def add(self, gradients: np.ndarray) -> None:
        g = checked(gradients)
        self.sketch += g.T @ (g @ self.test)
        self.count += len(g)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        if not self.count:
            checked(np.zeros((0, self.size)))
        sketch = self.sketch / self.count
        # The shift keeps the factor definite if P does not have full rank; it is subtracted again below.
        shift = np.sqrt(self.size) * np.finfo(np.float64).eps * max(np.linalg.norm(sketch), 1e-280)
        shifted = sketch + shift * self.test
        inner = self.test.T @ shifted
        factor = np.linalg.cholesky((inner + inner.T) / 2)
        vectors, singular, _ = np.linalg.svd(np.linalg.solve(factor, shifted.T).T, full_matrices=False)
        eigenvalues = np.maximum(singular**2 - shift, 0.0)
        return with_signs(vectors[:, : self.rank]), eigenvalues[: self.rank]


Change = Callable[[np.ndarray, np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]


@dataclass
class Changed:
    """Vectors and eigenvalues of another estimator, changed at random, for example completed."""

    estimator: Whole | Streaming | Changed
    change: Change
    random: np.random.Generator

    def add(self, gradients: np.ndarray) -> None:
        self.estimator.add(gradients)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        return self.change(*self.estimator.result(), self.random)
