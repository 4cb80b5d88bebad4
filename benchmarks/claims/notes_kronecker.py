"""Kronecker products: identities, the nearest product to a matrix, and bounds on an outer product.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from curvebench.benchmarks.claims._matrices import (
    loewner_ratio,
    orthonormal,
    power,
    rearrange,
    relative_error,
    semidefinite,
    spread_values,
    with_singular_values,
)
from curvebench.benchmarks.claims._measures import agrees, at_least, at_most, vanishes
from curvebench.benchmarks.claims._parts import Random, part, printed_and_corrected
from curvebench.property_checks.checks import Measure, PropertyClaim

# Relative tolerance of sums of some dozen products.
EXACT = 1e-13
# Relative tolerance of results that use inverse roots or the Loewner order.
# The eigenvalues of a matrix span up to 6 orders of magnitude.
ROUNDING = 1e-8


def _sizes(random: Random, count: int, greatest: int = 4) -> list[int]:
    return [int(size) for size in random.integers(1, greatest + 1, count)]


def _drawn(random: Random, *sizes: int) -> np.ndarray:
    """Draw an array of shape `sizes`, of one of three kinds.

    Its entries are normal, span 4 orders of magnitude, or are small integers.
    """
    kind = random.integers(3)
    if kind == 0:
        return np.asarray(random.integers(-2, 3, sizes), np.float64)
    scale = 10.0 ** random.uniform(-2, 2, sizes) if kind == 1 else 1.0
    return np.asarray(random.standard_normal(sizes) * scale)


# --- identities (002 eqs. 98-107) -----------------------------------------------------------------------


def _definition(random: Random) -> Iterator[Measure]:
    m, d, n, length = _sizes(random, 4)
    a, b = _drawn(random, m, d), _drawn(random, n, length)
    by_entries = np.empty((m * n, d * length))
    for i1, j1, i2, j2 in np.ndindex(m, n, d, length):
        by_entries[i1 * n + j1, i2 * length + j2] = a[i1, i2] * b[j1, j2]
    product = np.kron(a, b)
    yield agrees("eq. 98, relative error", product, by_entries, EXACT)
    middle = _drawn(random, d, n)
    # vec(A X B) = (A (x) B^T) vec(X) in row-major order.
    right = np.kron(a, b.T) @ middle.ravel()
    yield vanishes("eq. 99, relative error", _against(right, (a @ middle @ b).ravel(), a, middle, b), EXACT)
    yield agrees("the transpose, relative error", product.T, np.kron(a.T, b.T), EXACT)


def _against(found: np.ndarray, expected: np.ndarray, *factors: np.ndarray) -> float:
    """Return |found - expected|_F divided by the product of the factors' Frobenius norms.

    Unlike |expected|_F, the product of norms is not small if terms of `expected` cancel.
    """
    size = float(np.prod([np.linalg.norm(factor) for factor in factors]))
    return float(np.linalg.norm(found - expected)) / (size or 1.0)


def _mixed_product(random: Random) -> Iterator[Measure]:
    m, d, n, length, p, q = _sizes(random, 6, 3)
    a, b, c, e = (_drawn(random, *shape) for shape in ((m, d), (n, length), (d, p), (length, q)))
    found = np.kron(a, b) @ np.kron(c, e)
    yield vanishes("eq. 100, relative error", _against(found, np.kron(a @ c, b @ e), a, b, c, e), EXACT)


def _square(random: Random) -> Iterator[Measure]:
    m, n = _sizes(random, 2)
    a, b = _drawn(random, m, m), _drawn(random, n, n)
    product = np.kron(a, b)
    size = float(np.linalg.norm(product)) or 1.0
    trace = abs(np.trace(product) - np.trace(a) * np.trace(b)) / size
    yield vanishes("eq. 104, relative error", trace, EXACT * m * n)
    products = np.outer(np.linalg.eigvals(a), np.linalg.eigvals(b)).ravel()
    least = [np.linalg.svd(product - value * np.eye(m * n), compute_uv=False)[-1] for value in products]
    yield vanishes("least singular value of A (x) B - lambda mu I, relative", max(least) / size, ROUNDING)


def _powers(random: Random) -> Iterator[Measure]:
    m, n = _sizes(random, 2)
    a = semidefinite(random, m, int(random.integers(1, m + 1)))
    b = semidefinite(random, n, int(random.integers(1, n + 1)))
    exponent = float(random.choice([random.uniform(-1, 3), 0.25, 0.5, -0.5]))
    error = relative_error(power(np.kron(a, b), exponent), np.kron(power(a, exponent), power(b, exponent)))
    yield vanishes("eq. 105, relative error", error, ROUNDING)
    values = np.linalg.eigvalsh(np.kron(a, b))
    yield at_least("eq. 106, least eigenvalue over the greatest", values[0] / values[-1], 0.0, EXACT)
    larger_a = a + semidefinite(random, m, int(random.integers(1, m + 1)))
    larger_b = b + semidefinite(random, n, int(random.integers(1, n + 1)))
    ratio = loewner_ratio(np.kron(a, b), np.kron(larger_a, larger_b))
    yield at_most("eq. 107, least c with A' (x) B' <= c A (x) B", ratio, 1.0, ROUNDING)


# --- the nearest Kronecker product (002 G.1) --------------------------------------------------------------


def _rearranged(random: Random) -> Iterator[Measure]:
    m, n, d, length = _sizes(random, 4)
    a, b = _drawn(random, m, d), _drawn(random, n, length)
    found = rearrange(np.kron(a, b), m, n, d, length)
    yield agrees("eq. 101, relative error", found, np.outer(a, b), EXACT)
    c = _drawn(random, m * n, d * length)
    plain = float(np.linalg.norm(c - np.kron(a, b)))
    moved = float(np.linalg.norm(rearrange(c, m, n, d, length) - np.outer(a, b)))
    yield vanishes("Lemma G.1, relative error", abs(moved - plain) / (plain or 1.0), EXACT)


def _twice(random: Random, printed: bool) -> Iterator[Measure]:
    m, n, d, length = _sizes(random, 4)
    matrix = random.standard_normal((m * n, d * length))
    once = rearrange(matrix, m, n, d, length)
    # The printed statement applies the same rearrangement again; the corrected statement exchanges n and d.
    again = rearrange(once, m, n, d, length) if printed else rearrange(once, m, d, n, length)
    yield agrees("eq. 103, relative error", again.ravel(), matrix.ravel())


def _alternating_least_squares(
    matrix: np.ndarray, m: int, n: int, d: int, length: int, random: Random
) -> float:
    """Return the distance |C - A (x) B|_F of the matrix C from a product found by alternating least squares.

    There are 30 rounds, in which A and B are fitted in turn. B starts at random.
    """
    blocks = matrix.reshape(m, n, d, length)
    b = random.standard_normal((n, length))
    for _ in range(30):
        a = np.einsum("injl,nl->ij", blocks, b) / np.sum(b**2)
        b = np.einsum("injl,ij->nl", blocks, a) / np.sum(a**2)
    return float(np.linalg.norm(matrix - np.kron(a, b)))


def _nearest(random: Random) -> Iterator[Measure]:
    m, n, d, length = _sizes(random, 4)
    if random.integers(2):
        matrix = random.standard_normal((m * n, d * length))
    else:
        # The matrix is a sum of up to three orthogonal Kronecker products; two have equal singular values.
        terms = orthonormal(random, m * d, min(m * d, n * length, 3))
        others = orthonormal(random, n * length, terms.shape[1])
        values = np.array([1.0, 1.0, 0.3])[: terms.shape[1]]
        # Rearranging with exchanged sizes n and d is the inverse of `rearrange`.
        matrix = rearrange((terms * values) @ others.T, m, d, n, length)
    u, values, vh = np.linalg.svd(rearrange(matrix, m, n, d, length), full_matrices=False)
    # The factors A and B are determined up to a scale: only the product of their norms, sigma_1, is fixed.
    share = float(10.0 ** random.uniform(-2, 2))
    a, b = share * u[:, 0].reshape(m, d), values[0] / share * vh[0].reshape(n, length)
    distance, size = float(np.linalg.norm(matrix - np.kron(a, b))), float(np.linalg.norm(matrix))
    rest = float(np.linalg.norm(values[1:]))
    yield vanishes(
        "|C - A* (x) B*|_F less the other singular values', relative", abs(distance - rest) / size, EXACT
    )
    found = _alternating_least_squares(matrix, m, n, d, length, random)
    quantity = "|C - A* (x) B*|_F less the best by alternating least squares, relative"
    yield vanishes(quantity, (distance - found) / size, EXACT)


# --- outer products (002 G.3) -----------------------------------------------------------------------------


def _outer_product(random: Random) -> Iterator[Measure]:
    m, n = _sizes(random, 2, 5)
    rank = int(random.integers(1, min(m, n) + 1))
    matrix = with_singular_values(random, m, n, spread_values(random, rank))
    outer = np.outer(matrix, matrix)
    left, right = matrix @ matrix.T, matrix.T @ matrix
    bounds = {
        "A A^T (x) I (Lemma G.3)": np.kron(left, np.eye(n)),
        "I (x) A^T A (Lemma G.3)": np.kron(np.eye(m), right),
        "(A A^T (x) A^T A)^1/2 (Cor. G.5)": np.kron(power(left, 0.5), power(right, 0.5)),
    }
    for name, bound in bounds.items():
        ratio = loewner_ratio(outer, bound) / rank
        yield at_most(f"least c with a a^T <= c {name}, over r", ratio, 1.0, ROUNDING)


def geometric_mean(first: np.ndarray, second: np.ndarray, share: float) -> np.ndarray:
    """Return the geometric mean of positive definite X and Y, X^1/2 (X^-1/2 Y X^-1/2)^(1 - share) X^1/2.

    If X and Y commute, the geometric mean is X^share Y^(1 - share) (Kubo and Ando 1980, "Means of positive
    linear operators").
    """
    root, inverse = power(first, 0.5), power(first, -0.5)
    return np.asarray(root @ power(inverse @ second @ inverse, 1 - share) @ root)


def _commuting_pairs(random: Random, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Draw two pairs of matrices with X_i <= Y_i in the Loewner order.

    X_1 commutes with X_2, and Y_1 with Y_2, but X_i does not commute with Y_i.
    """
    bases = [orthonormal(random, size, size) for _ in range(2)]
    pairs = []
    for _ in range(2):
        lower, upper = ((basis * 10.0 ** random.uniform(-1, 1, size)) @ basis.T for basis in bases)
        # Scale `upper` to its smallest multiple that is at least `lower` in the Loewner order.
        pairs.append((lower, loewner_ratio(lower, upper) * upper))
    return pairs


def _mean_order(random: Random, printed: bool) -> Iterator[Measure]:
    size, share = int(random.integers(2, 6)), float(random.uniform(0.1, 0.9))
    commuting = _commuting_pairs(random, size)
    lowers = [semidefinite(random, size, size) for _ in range(2)]
    general = [(lower, lower + semidefinite(random, size, 1)) for lower in lowers]
    if not printed:
        (x1, y1), (x2, y2) = commuting
        lower, upper = (power(a, share) @ power(b, 1 - share) for a, b in ((x1, x2), (y1, y2)))
        yield at_most(
            "least c with X <= c Y, products that commute", loewner_ratio(lower, upper), 1.0, ROUNDING
        )
        (x1, y1), (x2, y2) = general
        ratio = loewner_ratio(geometric_mean(x1, x2, share), geometric_mean(y1, y2, share))
        yield at_most("least c with X <= c Y, geometric means", ratio, 1.0, ROUNDING)
        return
    (x1, y1), (x2, y2) = general
    difference = power(y1, share) @ power(y2, 1 - share) - power(x1, share) @ power(x2, 1 - share)
    symmetric = (difference + difference.T) / 2
    scale = float(np.linalg.norm(difference, 2))
    quantity = "Y - X less its transpose, over its norm"
    yield vanishes(quantity, float(np.linalg.norm(difference - difference.T, 2)) / scale, ROUNDING)
    least = float(np.linalg.eigvalsh(symmetric)[0]) / scale
    yield at_least("least eigenvalue of the symmetric part of Y - X, over its norm", least, 0.0, ROUNDING)


MEANS = "means X_1^alpha X_2^(1 - alpha) keep the Loewner order"
TWICE = "rearranging twice gives the matrix back"

KRONECKER = PropertyClaim(
    id="notes.kronecker",
    sentence=(
        "The identities of the Kronecker product hold; the leading singular pair of the rearranged matrix "
        "gives the nearest Kronecker product; a a^T is at most r A A^T (x) I, r I (x) A^T A and, by the "
        "order of geometric means, r (A A^T (x) A^T A)^1/2."
    ),
    source="002 App. G, eqs. 98-110, Lemmas G.1 and G.3, Cor. G.2 and G.5, Fact G.4",
    setting=(
        "Matrices of 1 to 5 rows and columns: normal, over 4 orders of magnitude, or small whole numbers "
        "with zeros; positive semi-definite ones of any rank, whose negative powers are those of the "
        "pseudo-inverse; singular values over up to 3 orders of magnitude, and equal ones. The nearest "
        "product is compared with where alternating least squares end. Rearranging is printed as its own "
        "inverse for given sizes m, n, d, l: run so, and as corrected with n and d exchanged in the second "
        "call. Fact G.4 is printed for all pairs X_i <= Y_i, where the products need not be symmetric: run "
        "so, and as corrected where X_1 commutes with X_2 and Y_1 with Y_2 (not X_i with Y_i), and else for "
        "the geometric mean, which is that product where they commute."
    ),
    checks=(
        part("entries, vec(A X B) and transposes", "002 eqs. 98-99", _definition, 40),
        part("the mixed-product property", "002 eq. 100", _mixed_product, 40),
        part("trace and eigenvalues", "002 G.2, eq. 104", _square, 40),
        part("powers and order", "002 eqs. 105-107", _powers, 40),
        part("the rearranged product is an outer product", "002 eq. 101, Lemma G.1", _rearranged, 40),
        *printed_and_corrected(TWICE, "002 eq. 103", _twice, 40),
        part("the nearest Kronecker product", "002 Cor. G.2", _nearest, 40),
        part("bounds on an outer product", "002 Lemma G.3, Cor. G.5", _outer_product, 40),
        *printed_and_corrected(MEANS, "002 Fact G.4", _mean_order, 30),
    ),
)

CLAIMS = (KRONECKER,)
