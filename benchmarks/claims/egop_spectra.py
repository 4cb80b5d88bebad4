"""Decay of the EGOP's spectrum for natural data, and density of random eigenvectors.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).

EGOP is the expected gradient outer product E[g g^T] over random parameters theta. A is the matrix of the
data. lambda_k is the k-th largest eigenvalue of the EGOP, and sigma_k the k-th largest singular value of A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from curvebench.benchmarks.claims._matrices import relative_error, with_singular_values
from curvebench.benchmarks.claims._measures import agrees, at_least, at_most, equals, vanishes
from curvebench.benchmarks.claims._parts import Random, bounds, part, parts_for, printed_and_corrected
from curvebench.benchmarks.claims._spectra import densities
from curvebench.optimizers.bases.estimators import egop_matrix
from curvebench.property_checks.checks import Check, Measure, PropertyClaim

# Tolerance of the ratio of an eigenvalue to its bound; the eigenvalues span 6 orders of magnitude.
ROUNDING = 1e-8


def decaying(random: Random, count: int) -> np.ndarray:
    """Draw singular values k^-alpha with alpha up to 1.5; some values are equal to the value before them."""
    values = np.arange(1, count + 1) ** -random.uniform(0, 1.5)
    for place in range(1, count):
        if random.random() < 0.1:
            values[place] = values[place - 1]
    return np.asarray(values * 10.0 ** random.uniform(-1, 1))


# --- least squares (000 Lemma A.11) -------------------------------------------------------------------------


def least_squares_egop(matrix: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the exact EGOP (n, n) of least squares |A theta - y|^2 / 2 for theta ~ N(0, I).

    Gradients are linear in theta. Their second moments under N(0, I) are therefore equal to the means over
    the 2 n points sqrt(n) e_i and -sqrt(n) e_i, which have the same mean and covariance.
    """
    size = matrix.shape[1]
    points = np.sqrt(size) * np.concatenate([np.eye(size), -np.eye(size)])
    return egop_matrix((points @ matrix.T - targets) @ matrix)


def _draw_least_squares(random: Random) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw A (d, n) and y (d,); return A, y and the n singular values of A.

    The targets y are noisy measurements, or are chosen such that lambda_3 is as large as sigma_2^4.
    """
    count = int(random.integers(3, 11))
    rows = count + int(random.integers(0, 5))
    values = decaying(random, count)
    matrix = with_singular_values(random, rows, count, values)
    if random.integers(3) == 0:
        # A^T y is parallel to the third singular vector.
        # The length of A^T y makes lambda_3 equal to sigma_2^4, and does not change lambda_1.
        left, _, _ = np.linalg.svd(matrix, full_matrices=False)
        lift = random.uniform(values[1] ** 4, values[0] ** 4) - values[2] ** 4
        return matrix, left[:, 2] * np.sqrt(lift) / values[2], values
    noise = random.standard_normal(rows) * 10.0 ** random.uniform(-3, 1)
    return matrix, matrix @ random.standard_normal(count) + noise, values


def _closed_form(random: Random) -> Iterator[Measure]:
    matrix, targets, _ = _draw_least_squares(random)
    pulled, gram = matrix.T @ targets, matrix.T @ matrix
    error = relative_error(least_squares_egop(matrix, targets), gram @ gram + np.outer(pulled, pulled))
    yield vanishes("EGOP less (A^T A)^2 + A^T y y^T A, relative", error, 1e-13)


def _eigenvalues(matrix: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the eigenvalues of the exact EGOP of least squares, in descending order."""
    return np.asarray(np.linalg.eigvalsh(least_squares_egop(matrix, targets))[::-1])


def _decay(random: Random) -> Iterator[Measure]:
    matrix, targets, values = _draw_least_squares(random)
    eigenvalues = _eigenvalues(matrix, targets)
    ratios = eigenvalues[1:] / eigenvalues[0] * (values[0] / values[:-1]) ** 4
    yield at_most("lambda_k / lambda_1 over eq. A.8, greatest", ratios.max(), 1.0, ROUNDING)


def _interlaced(random: Random, printed: bool) -> Iterator[Measure]:
    matrix, targets, values = _draw_least_squares(random)
    eigenvalues, fourth = _eigenvalues(matrix, targets), values**4
    below, above = (fourth[2:], fourth[1:]) if printed else (fourth[1:], fourth[:-1])
    over = float(np.max(eigenvalues[1:] / above))
    under = float(np.max(below / eigenvalues[1 : len(below) + 1]))
    yield at_most("lambda_k over its upper bound, greatest for k >= 2", over, 1.0, ROUNDING)
    yield at_most("the lower bound over lambda_k, greatest for k >= 2", under, 1.0, ROUNDING)
    highest = fourth[0] + float(np.sum((matrix.T @ targets) ** 2))
    yield at_most("lambda_1 over its upper bound", eigenvalues[0] / highest, 1.0, ROUNDING)
    lowest = float(fourth[1] if printed else fourth[0])
    yield at_most("the lower bound over lambda_1", lowest / float(eigenvalues[0]), 1.0, ROUNDING)


NATURAL_DATA = PropertyClaim(
    id="egop.natural-data",
    sentence=(
        "With f(theta) = |A theta - y|^2 / 2 the EGOP under a standard normal distribution has eigenvalues "
        "that decay with the fourth powers of A's singular values: lambda_k / lambda_1 <= (sigma_(k-1) / "
        "sigma_1)^4."
    ),
    source="000 Sec. 4.1, eqs. 4.1, A.8, Lemma A.11; 001 Lemma 19",
    setting=(
        "3 to 10 singular values k^-alpha, alpha up to 1.5, some of them equal; y from measurements with "
        "noise, or along one singular vector, so long that eq. A.8 holds with equality. The expectation is "
        "exact, since gradients are linear. The proof prints the interlacing in the wrong direction, "
        "sigma_k^4 >= lambda_k >= sigma_(k+1)^4 for k >= 2; adding a semi-definite matrix of rank one cannot "
        "lower an eigenvalue, and sigma_k^4 <= lambda_k <= sigma_(k-1)^4."
    ),
    checks=(
        part("the EGOP of least squares", "000 l. 1672", _closed_form, 40),
        part("the decay of the eigenvalues", "000 eq. A.8", _decay, 60),
        *printed_and_corrected("the interlacing of the eigenvalues", "000 l. 1679-1681", _interlaced, 60),
    ),
)


# --- any loss of A theta (000 Lemma A.10) -------------------------------------------------------------------


LOSSES: Mapping[str, Callable[[Any], Any]] = {
    "log-sum-exp": lambda scores: scores.logsumexp(-1),
    "logistic": lambda scores: (1 + (-scores).exp()).log().sum(-1),
    "quartic": lambda scores: (scores**4).sum(-1),
    "cosines": lambda scores: (2 * scores + 1).cos().sum(-1),
    "a product": lambda scores: (1 + scores**2).log().sum(-1) + scores.prod(-1),
}


def gradients_of(function: Callable[[Any], Any], points: np.ndarray) -> np.ndarray:
    """Return gradients (M, n) of a function at points (M, n), by automatic differentiation."""
    import torch

    given = torch.from_numpy(points).requires_grad_()
    return np.asarray(torch.autograd.grad(function(given).sum(), given)[0].numpy())


def _spectral(random: Random, loss: Callable[[Any], Any]) -> Iterator[Measure]:
    import torch

    size = int(random.integers(2, 9))
    values = decaying(random, size)
    matrix = with_singular_values(random, size, size, values)
    points = random.standard_normal((4 * size, size)) * 10.0 ** random.uniform(-1, 0.3)
    data = torch.from_numpy(matrix)
    egop = egop_matrix(gradients_of(lambda theta: loss(theta @ data.T), points))
    inner = egop_matrix(gradients_of(loss, points @ matrix.T))
    yield agrees("EGOP less A^T M A, relative", egop, matrix.T @ inner @ matrix, 1e-12)
    eigenvalues, among = np.linalg.eigvalsh(egop)[::-1], np.linalg.eigvalsh(inner)[::-1]
    yield _against_lemma(eigenvalues, values, among)


def _against_lemma(eigenvalues: np.ndarray, values: np.ndarray, inner: np.ndarray) -> Measure:
    bounds = (values / values[0]) ** 2 * inner[0] / inner[-1]
    greatest = float(np.max(eigenvalues / eigenvalues[0] / bounds))
    return at_most("lambda_k / lambda_1 over its bound, greatest", greatest, 1.0, ROUNDING)


def _attained(random: Random) -> Iterator[Measure]:
    """Check a case where the bound is an equality.

    The function is h(A theta) with h(z) = |z|^2 / 2, at points theta for which z = A theta has covariance I.
    The EGOP with respect to theta is A^T M A, where M is the EGOP with respect to z. Here M = I, so that the
    EGOP with respect to theta is A^T A.
    """
    size = int(random.integers(2, 9))
    values = decaying(random, size)
    matrix = with_singular_values(random, size, size, values)
    images = np.sqrt(size) * np.concatenate([np.eye(size), -np.eye(size)])
    egop = egop_matrix(images @ matrix)
    eigenvalues = np.linalg.eigvalsh(egop)[::-1]
    yield _against_lemma(eigenvalues, values, np.linalg.eigvalsh(egop_matrix(images))[::-1])
    least = float(np.min(eigenvalues / eigenvalues[0] / (values / values[0]) ** 2))
    yield equals("lambda_k / lambda_1 over (sigma_k / sigma_1)^2, least", least, 1.0, ROUNDING)


SPECTRAL_RATIO = PropertyClaim(
    id="egop.spectral-ratio",
    sentence=(
        "For f(theta) = h(A theta) with a nonsingular A the EGOP's eigenvalues decay at least with the "
        "squares of A's singular values, up to the condition number of h's own EGOP at A theta."
    ),
    source="000 Lemma A.10, eqs. 4.1, A.7; 001 Lemma 18",
    setting=(
        "2 to 8 singular values k^-alpha, alpha up to 1.5. h is log-sum-exp, logistic, quartic, a sum of "
        "cosines, or a product with a sum of logarithms; expectations are means over 4 n normal points, so "
        "exact; gradients of f and of h by PyTorch. The bound is attained where h is quadratic and A theta "
        "has the covariance I."
    ),
    checks=(
        *bounds(
            *parts_for("the ratios of eigenvalues, {}", "000 Lemma A.10", _spectral, 15, loss=LOSSES),
        ),
        part("the bound is attained", "000 Lemma A.10", _attained, 15),
    ),
)


# --- the density of random vectors (000 Sec. 3) -------------------------------------------------------------

LIMIT = 2 / np.pi
STANDARD_ERRORS = 5.0
# Upper limit of sqrt(d) |density - 2 / pi|, about 7 standard deviations.
SPREAD = 2.5


def unit_vectors(random: Random, count: int, size: int) -> np.ndarray:
    """Draw unit vectors (count, d), uniform on the sphere."""
    drawn = random.standard_normal((count, size))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def _densities(random: Random, count: int, size: int) -> np.ndarray:
    return densities(unit_vectors(random, count, size))


def _mean(random: Random) -> Iterator[Measure]:
    for size, count in ((10, 4000), (100, 2000), (1000, 400), (10_000, 100)):
        found = _densities(random, count, size)
        error = float(found.std(ddof=1) / np.sqrt(count))
        # For i != j, E |v_i v_j| is 2 / (pi d); the d diagonal terms contribute 1 / d each.
        expected = LIMIT + (1 - LIMIT) / size
        quantity = f"mean density less 2 / pi + (1 - 2 / pi) / d, in standard errors, d = {size}"
        yield equals(quantity, (float(found.mean()) - expected) / error, 0.0, STANDARD_ERRORS)
        if size >= 100:
            farthest = float(np.max(np.abs(found - LIMIT)))
            quantity = f"greatest distance of a density from 2 / pi, times sqrt(d), d = {size}"
            yield at_most(quantity, farthest * float(np.sqrt(size)), SPREAD)


def _above(random: Random) -> Iterator[Measure]:
    shares = {size: float(np.mean(_densities(random, 400, size) > 0.6)) for size in (30, 1000, 3000)}
    yield at_least("share of densities above 0.6, d = 1000", shares[1000], 0.98)
    yield equals("share of densities above 0.6, d = 3000", shares[3000], 1.0)
    yield at_least("that share less the one of d = 30", shares[3000] - shares[30], 0.1)


RANDOM_DENSITY = PropertyClaim(
    id="egop.random-density",
    sentence=(
        "The density |v|_1^2 / d of a random unit vector tends to 2 / pi in high dimensions, and exceeds 0.6 "
        "with high probability."
    ),
    source="000 Sec. 3, l. 225-227, App. A, l. 511-513",
    setting=(
        "Vectors uniform on the sphere, d from 10 to 10,000. The mean density is 2 / pi + (1 - 2 / pi) / d; "
        "it must be met within 5 standard errors. A density's standard deviation is about 0.34 / sqrt(d), "
        "from the variance (2 pi - 6) (2 / pi)^2 / d of the normal approximation: the share above 0.6 is "
        "then 0.8 for d = 30, 0.9997 for d = 1000, and all but 1e-8 for d = 3000. 400 vectors of each."
    ),
    checks=(
        Check("the mean tends to 2 / pi", "000 l. 513", _mean, {"quick": 3, "paper": 20}),
        Check("the density exceeds 0.6", "000 l. 227, l. 513", _above, {"quick": 3, "paper": 20}),
    ),
)

CLAIMS = (NATURAL_DATA, SPECTRAL_RATIO, RANDOM_DENSITY)
