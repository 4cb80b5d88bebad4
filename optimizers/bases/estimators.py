"""Estimators of leading eigenvectors of the expected gradient outer product.

`Whole` decomposes all gradients at once, `Randomized` projects them to a random subspace first, and
`Streaming` reads each gradient only once and does not store it.

The EGOP is the expected gradient outer product, E[g g^T]. An EGOP is estimated from M gradients g, each of d
entries (n entries for a group of the parameters). V has the eigenvectors of the EGOP in columns; with rank r,
V has only the r leading eigenvectors.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from curvebench.optimizers.options import OptionError

OVERSAMPLING = 10  # Columns of a random sketch in addition to the rank (Halko et al. 2011 advise 5 or 10).
WIDER = 4  # Width of a sketch divided by the rank, if no iteration improves the sketch.
ITERATIONS = 2  # Power iterations of a random sketch; each reduces the influence of small singular values.


def egop_matrix(gradients: np.ndarray) -> np.ndarray:
    """Return the empirical EGOP, the mean of g g^T over the gradients g (000 Alg. 2.1 line 3).

    Args:
        gradients: (M, d), one gradient per row.

    Returns:
        Shape (d, d), float64, exactly symmetric.
    """
    g = np.asarray(gradients, np.float64)
    return g.T @ g / len(g)


# Function from gradients (M, n) to the EGOP's eigenvectors (n, n) and eigenvalues (n,), largest first.
Decomposition = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def leading_first(values: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reverse the order of ascending eigenvalues and of their eigenvectors, and set negative values to 0."""
    return vectors[:, ::-1], np.maximum(values[::-1], 0.0)


def by_numpy(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decompose the EGOP of gradients (M, n) with NumPy.

    If M < n, the EGOP does not have full rank, and the SVD of the gradients is used instead.
    """
    count, dimension = gradients.shape
    if count >= dimension:
        return leading_first(*np.linalg.eigh(egop_matrix(gradients)))
    _, singular, rows = np.linalg.svd(gradients, full_matrices=True)
    return rows.T, np.concatenate([singular**2 / count, np.zeros(dimension - count)])


def checked(gradients: np.ndarray) -> np.ndarray:
    """Convert gradients (M, d) to float64 and check them.

    Raises:
        OptionError: if there is no gradient, or a gradient is not finite.
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
    """Choose the sign of each column so that its entry of largest magnitude is positive.

    If several entries have the largest magnitude, the first of them becomes positive.
    """
    largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(vectors.shape[1])]
    return np.asarray(vectors * np.where(largest < 0, -1.0, 1.0))


def eigenbasis(gradients: np.ndarray, decompose: Decomposition = by_numpy) -> tuple[np.ndarray, np.ndarray]:
    """Return the orthonormal eigenbasis of the empirical EGOP (000 Alg. 2.1 line 4; the SVD: 000 C.6).

    Eigenvectors are unique up to sign if eigenvalues differ. `with_signs` chooses the sign. A coordinate in
    which every gradient is 0 has its unit vector as eigenvector, in one of the last columns. Inside an
    eigenspace of several dimensions, such as the null space if M < d, LAPACK chooses the eigenvectors, which
    may differ between machines. `with_random_null_space` replaces the eigenvectors of the null space.

    Args:
        gradients: (M, d), one gradient per row.
        decompose: function that decomposes the EGOP. It receives the gradients without the coordinates in
            which all gradients are 0.

    Returns:
        V (d, d) with eigenvectors in columns, and the eigenvalues (d,), both float64, with the largest
        eigenvalue first.

    Raises:
        OptionError: if there is no gradient, or a gradient is not finite.
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
    """Complete orthonormal columns (d, r) to an orthonormal basis (d, d) with random columns.

    The new columns are a uniformly random orthonormal basis of the orthogonal complement of `leading`. Their
    eigenvalues are NaN in the result, because they are not known.
    """
    dimension, rank = leading.shape
    complement = random.standard_normal((dimension, dimension - rank))
    # Project twice, because a single projection of an ill-conditioned matrix leaves large rounding errors.
    for _ in range(2):
        complement = np.linalg.qr(complement - leading @ (leading.T @ complement))[0]
    unknown = np.full(dimension - rank, np.nan)
    return np.concatenate([leading, complement], axis=1), np.concatenate([eigenvalues, unknown])


def with_random_null_space(
    matrix: np.ndarray, eigenvalues: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Replace the eigenvectors in the EGOP's null space by a uniformly random orthonormal basis of the space.

    The null space consists of the columns whose eigenvalue is 0 up to rounding (at most n eps times the
    largest), and of columns from a random completion, whose eigenvalues are NaN.

    Args:
        matrix: V (n, r), orthonormal columns, largest eigenvalue first.
        eigenvalues: (r,), where NaN stands for an eigenvalue that is not known.

    Returns:
        V (n, r) with all other columns unchanged, and the eigenvalues unchanged.
    """
    values = np.nan_to_num(eigenvalues)
    null = values <= len(matrix) * np.finfo(np.float64).eps * values.max(initial=0.0)
    rotation, upper = np.linalg.qr(random.standard_normal((null.sum(), null.sum())))
    changed = matrix.copy()
    # The signs of the diagonal of R make the random rotation Q uniform (Mezzadri 2007).
    changed[:, null] = matrix[:, null] @ (rotation * np.sign(np.diag(upper)))
    return changed, eigenvalues


@dataclass
class Whole:
    """Estimator of the `rank` leading eigenvectors that stores all gradients and decomposes them at once."""

    size: int
    rank: int
    random: np.random.Generator
    decompose: Decomposition = by_numpy
    pieces: list[np.ndarray] = field(default_factory=list)

    def add(self, gradients: np.ndarray) -> None:
        self.pieces.append(gradients)

    def taken(self) -> np.ndarray:
        """Return all gradients that were added, (M, n), and drop the estimator's references to them.

        Each array is dropped as soon as it is copied, because memory may be too small for two copies of all
        gradients.
        """
        at = sum(map(len, self.pieces))
        gradients = np.empty((at, self.size))
        # Copy and drop the last array first, because the allocator returns memory from the end of its heap.
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
    """Estimator of the leading eigenvectors by a randomized SVD of the gradients (Halko et al.; 000 C.6)."""

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
    """Estimator of the leading eigenvectors that reads each gradient once and does not store it.

    The estimator stores two matrices of 4 r + 10 columns, whatever the number of gradients is: an orthonormal
    basis Omega of random vectors, and the sketch Y = P Omega of the EGOP P. The eigenvectors are those of
    Nystroem's approximation Y (Omega^T Y)^-1 Y^T of P (Tropp, Yurtsever, Udell, Cevher 2017, Algorithm
    3). Since the gradients are gone, no power iteration can improve the sketch. To compensate, the sketch
    is `WIDER` times as wide as the rank (docs/performance.md has the errors).
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
        # With this shift, a Cholesky factor exists even if P does not have full rank.
        # The shift is subtracted from the eigenvalues below.
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
    """Estimator that changes the result of another estimator by a random function, such as `completed`."""

    estimator: Whole | Streaming | Changed
    change: Change
    random: np.random.Generator

    def add(self, gradients: np.ndarray) -> None:
        self.estimator.add(gradients)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        return self.change(*self.estimator.result(), self.random)
