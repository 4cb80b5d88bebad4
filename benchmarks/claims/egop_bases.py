"""Changes of basis: which rules depend on the basis, and which bases are Kronecker products.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization", and 004 is Bernacchia (2025), "Global curvature for second-order optimization of neural
networks" (docs/sources.md).

V is the orthogonal matrix of a change of basis, theta = V theta~. A rule is equivariant if its run in a
basis, converted to the original coordinates, is equal to its run without a change of basis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

import curvebench
from curvebench.benchmarks.claims._matrices import orthonormal, relative_error
from curvebench.benchmarks.claims._measures import agrees, at_least, vanishes
from curvebench.benchmarks.claims._parts import Random, part
from curvebench.benchmarks.claims._spectra import kronecker_residual
from curvebench.property_checks.checks import Measure, PropertyClaim

# Relative tolerance of products of a few orthogonal matrices.
EXACT = 1e-12
# Two paths of iterates count as equal if their relative distance is at most this number.
# The tolerance of paths is large because rounding errors change later gradients and grow along a path.
FOLLOWED = 1e-9
# Two paths count as different if their relative distance is at least this number.
# Typical distances of different paths are above 0.1.
APART = 1e-3


# --- equivariance (000 Sec. 6; 004 App. F) ------------------------------------------------------------------

STEPS = 20
EQUIVARIANT = ("sgd", "momentum")
BY_COORDINATES = ("adam", "adagrad")
DISTANCE = "distance of the paths over their length, {}"


@dataclass(frozen=True)
class Ridges:
    """Nonconvex function f(theta) = sum of c_k cos(a_k^T theta + b_k) of a matrix and a vector.

    Args:
        directions: a_k, (terms, d), for the concatenation of the flattened parameters.
        factors, shifts: c_k and b_k, (terms,).
        start: initial parameters by name.
    """

    directions: np.ndarray
    factors: np.ndarray
    shifts: np.ndarray
    start: Mapping[str, np.ndarray]

    @property
    def size(self) -> int:
        """Number of parameters, d."""
        return self.directions.shape[1]

    @property
    def smoothness(self) -> float:
        """Upper bound of the Lipschitz constant of the gradient."""
        return float(np.abs(self.factors) @ np.sum(self.directions**2, axis=1))

    def gradients(self, params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the gradient of the function for each parameter, by name."""
        slopes = self.factors * np.sin(self.directions @ joined(params) + self.shifts)
        return parted(-slopes @ self.directions, self.start)


def joined(params: Mapping[str, np.ndarray]) -> np.ndarray:
    """Concatenate flattened parameters to one vector (d,)."""
    return np.concatenate([value.ravel() for value in params.values()])


def parted(flat: np.ndarray, like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Split a vector (d,) into arrays with the names and shapes of `like`; the inverse of `joined`."""
    bounds = np.cumsum([value.size for value in like.values()])[:-1]
    pieces = np.split(flat, bounds)
    return {name: piece.reshape(like[name].shape) for name, piece in zip(like, pieces, strict=True)}


def draw_ridges(random: Random) -> Ridges:
    """Draw a function of a matrix (2 to 3 rows and columns) and a vector, 6 to 12 parameters in total."""
    rows, columns = (int(length) for length in random.integers(2, 4, 2))
    start = {"w": random.standard_normal((rows, columns)), "b": random.standard_normal(columns)}
    count, size = int(random.integers(2, 7)), rows * columns + columns
    return Ridges(
        random.standard_normal((count, size)),
        random.standard_normal(count),
        random.uniform(0, 2 * np.pi, count),
        start,
    )


def signed_permutation(random: Random, size: int, signed: bool = True) -> np.ndarray:
    """Draw a permutation matrix (d, d); with `signed`, its nonzero entries are 1 or -1."""
    signs = random.choice([-1.0, 1.0], size) if signed else np.ones(size)
    return np.asarray(np.eye(size)[random.permutation(size)] * signs)


def _path(optimizer: str, function: Ridges, rate: float, basis: np.ndarray | None = None) -> np.ndarray:
    """Run a rule in a basis, and return the iterates theta_0 ... theta_20, (21, d).

    The iterates are in original coordinates.
    """
    online = curvebench.Online(optimizer, function.start, {"learning_rate": rate}, basis=basis)
    path = (joined(online.step(function.gradients(online.params))) for _ in range(STEPS))
    return np.array([joined(function.start), *path])


def path_error(path: np.ndarray, other: np.ndarray) -> float:
    """Return the maximum distance between two paths (T, d), relative to the extent of `path`.

    The extent is the maximum distance of the points of `path` from its start.
    """
    farthest = np.linalg.norm(path - path[0], axis=1).max()
    return float(np.linalg.norm(path - other, axis=1).max() / farthest)


def _rate(random: Random, optimizer: str, function: Ridges) -> float:
    """Draw a learning rate for a rule.

    For gradient descent the rate is relative to 1 / smoothness, so that rounding errors do not grow. For
    Adam, the rate is about the length of a step in each coordinate.
    """
    unit = 1 / function.smoothness if optimizer in EQUIVARIANT else 1.0
    return unit * float(10.0 ** random.uniform(-1.5, -0.5))


def _distance(random: Random, optimizer: str, drawn: Callable[[Random, int], np.ndarray]) -> float:
    """Return the relative distance between two paths of a rule: without a basis, and in a basis.

    The basis is `drawn(random, d)`.
    """
    function = draw_ridges(random)
    rate = _rate(random, optimizer, function)
    found = _path(optimizer, function, rate, drawn(random, function.size))
    return path_error(_path(optimizer, function, rate), found)


def _orthogonal(random: Random, size: int) -> np.ndarray:
    return orthonormal(random, size, size)


def _equivariant(random: Random) -> Iterator[Measure]:
    for optimizer in EQUIVARIANT:
        yield vanishes(DISTANCE.format(optimizer), _distance(random, optimizer, _orthogonal), FOLLOWED)


def _of_coordinates(random: Random, signed: bool) -> Iterator[Measure]:
    drawn = partial(signed_permutation, signed=signed)
    for optimizer in (*EQUIVARIANT, *BY_COORDINATES):
        yield vanishes(DISTANCE.format(optimizer), _distance(random, optimizer, drawn), FOLLOWED)


def _not_equivariant(random: Random) -> Iterator[Measure]:
    for optimizer in BY_COORDINATES:
        yield at_least(DISTANCE.format(optimizer), _distance(random, optimizer, _orthogonal), APART)


def _composed(random: Random) -> Iterator[Measure]:
    """Compare a rule in a basis V with the same rule on f(V theta~), started at V^T theta_0.

    The gradients of f(V theta~) are computed by the chain rule.
    """
    for optimizer in (*EQUIVARIANT, *BY_COORDINATES):
        function = draw_ridges(random)
        rate = _rate(random, optimizer, function)
        basis = orthonormal(random, function.size, function.size)
        path = _path(optimizer, function, rate, basis)
        online = curvebench.Online(optimizer, {"w": basis.T @ path[0]}, {"learning_rate": rate})
        composed = [path[0]]
        for _ in range(STEPS):
            gradient = joined(function.gradients(parted(composed[-1], function.start)))
            composed.append(basis @ online.step({"w": basis.T @ gradient})["w"])
        error = path_error(path, np.array(composed))
        yield vanishes(DISTANCE.format(optimizer), error, FOLLOWED)


EQUIVARIANCE = PropertyClaim(
    id="egop.equivariance",
    sentence=(
        "SGD, with and without momentum, takes the same path in every orthogonal basis; Adam and Adagrad do "
        "so only where the basis permutes coordinates and changes their signs."
    ),
    source="000 Sec. 1, Sec. 6, Alg. 2.1; 001 App. C.2; 004 App. F",
    setting=(
        "Sums of cosines of 6 to 12 parameters, a matrix and a vector, that one basis rotates; 20 steps from "
        "V^T theta_0 with the project's own rules and bases, on NumPy in float64. Gradients are taken at the "
        "rule's own parameters. Distances are over the length of the path: at most 1e-9 is rounding, and "
        "1e-3 or more counts as another path."
    ),
    checks=(
        part("a basis around a rule is the rule on f(V theta)", "000 Alg. 2.1", _composed, 10),
        part("SGD and momentum in orthogonal bases", "000 Sec. 6; 004 eqs. 81-84", _equivariant, 10),
        part("all four under signed permutations", "004 App. F, eq. 85", _of_coordinates, 10, signed=True),
        part("all four under permutations", "004 App. F, eq. 85", _of_coordinates, 10, signed=False),
        part("Adam and Adagrad in orthogonal bases differ", "000 Sec. 1; 004 App. F", _not_equivariant, 10),
    ),
)


# --- Kronecker products of bases (000 Lemma G.1) ------------------------------------------------------------


def _by_columns(matrix: np.ndarray) -> np.ndarray:
    """Return vec(A), the concatenated columns, as in vec(A B C) = (C^T (x) A) vec(B)."""
    return matrix.ravel(order="F")


def _two_sided(random: Random) -> Iterator[Measure]:
    rows, columns = (int(length) for length in random.integers(1, 7, 2))
    left, right = orthonormal(random, rows, rows), orthonormal(random, columns, columns)
    basis = np.kron(right.T, left.T)
    gradient = random.standard_normal((rows, columns))
    error = relative_error(basis @ _by_columns(gradient), _by_columns(left.T @ gradient @ right))
    yield vanishes("V vec(G) less vec(Q_L^T G Q_R), relative", error, EXACT)
    yield agrees("V^T V less I, relative", basis.T @ basis, np.eye(len(basis)), EXACT)
    yield vanishes("Kronecker residual of V", kronecker_residual(basis, columns, rows), EXACT)


def proof_basis(random: Random, outer: int, inner: int) -> np.ndarray:
    """Draw an orthogonal matrix whose first two columns have entries of equal magnitude.

    All entries of the first column are positive; the second half of the second column is negative (line 1815
    of the source of 000).
    """
    size = outer * inner
    halves = np.repeat([1.0, -1.0], size // 2)
    columns = np.column_stack([np.ones(size), halves, random.standard_normal((size, size - 2))])
    basis = np.linalg.qr(columns)[0]
    return np.asarray(basis * np.sign(np.sum(basis * columns, axis=0)))


def _not_kronecker(random: Random) -> Iterator[Measure]:
    outer, inner = (int(length) for length in random.integers(2, 7, 2))
    inner += outer * inner % 2
    basis = proof_basis(random, outer, inner)
    residual = kronecker_residual(basis, outer, inner) * np.sqrt(outer * inner)
    # The first two columns of A (x) B use the same column of A, but the first two columns of V do not.
    # The first two columns of V have a distance of at least 0.92, the root of 0.86, from such columns.
    yield at_least("Kronecker residual of V times sqrt(n_in n_out)", residual, 0.92)


KRONECKER_SUBSET = PropertyClaim(
    id="egop.kronecker-subset",
    sentence=(
        "Every two-sided rotation of a matrix gradient is one orthogonal V on its entries, but some "
        "orthogonal V are no Kronecker product."
    ),
    source="000 Lemma G.1; 001 Lemma 20",
    setting=(
        "Random orthogonal Q_L and Q_R of 1 to 6 rows, entries by columns as in the proof. Of the proof's V, "
        "whose first two columns are 1 and (1, -1) in halves, the others are random; n_in and n_out are 2 or "
        "more and their product is even. How far V is from a Kronecker product is the share of eq. 6.3: all "
        "singular values of the rearranged matrix but the first. Its first two columns alone leave a "
        "residual of 0.92 / sqrt(n_in n_out) or more."
    ),
    checks=(
        part("two-sided rotations are orthogonal", "000 Lemma G.1", _two_sided, 40),
        part("the V of the proof is no product", "000 l. 1811-1821", _not_kronecker, 40),
    ),
)


CLAIMS = (EQUIVARIANCE, KRONECKER_SUBSET)
