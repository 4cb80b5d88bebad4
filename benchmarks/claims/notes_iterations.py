"""Power, orthogonal and online orthogonal iteration: limits, convergence rates, and tracking of a basis.

Equations are those of 002, Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
lambda_1 > lambda_2 > ... are the eigenvalues of the matrix, and "ratios" are lambda_(i+1) / lambda_i.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from curvebench.benchmarks.claims._matrices import OPS, orthonormal, relative_error
from curvebench.benchmarks.claims._measures import agrees, at_least, at_most, equals, vanishes
from curvebench.benchmarks.claims._parts import Random, bounds, part, printed_and_corrected
from curvebench.optimizers import matrix_functions
from curvebench.property_checks.checks import Measure, PropertyClaim

ROUNDING = 1e-9
# A convergence rate is fitted to errors in this range.
# Smaller errors are dominated by rounding, and larger errors by components that decay faster.
MEASURED = (1e-13, 1e-9)
# Relative tolerance of the logarithm of a fitted convergence rate.
RATE_TOLERANCE = 0.1


def _tangent(basis: np.ndarray, exact: np.ndarray) -> float:
    """Return the tangent of the largest angle between the spans of two matrices' columns.

    Both matrices are (n, m), with orthonormal columns.
    """
    along = exact.T @ basis
    across = basis - exact @ along
    return float(np.linalg.norm(across @ np.linalg.inv(along), 2))


def _angle(basis: np.ndarray, exact: np.ndarray) -> float:
    """Return the largest angle between two spans, accurate for small angles."""
    return float(np.arctan(_tangent(basis, exact)))


def _errors(basis: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return the sine of the angle between corresponding columns of two matrices."""
    inner = np.sum(basis * exact, axis=0)
    return np.asarray(np.linalg.norm(basis - exact * inner, axis=0))


def _spectrum(random: Random, size: int, least: float, greatest: float) -> np.ndarray:
    """Draw descending eigenvalues (size,), the first of any magnitude.

    The ratios lambda_(i+1) / lambda_i are from `least` to `greatest`.
    """
    ratios = random.uniform(least, greatest, size - 1)
    return np.asarray(10.0 ** random.uniform(-100, 100) * np.cumprod([1.0, *ratios]))


# --- power iteration ------------------------------------------------------------------------------------


def _power_iteration(random: Random) -> Iterator[Measure]:
    size, steps = int(random.integers(2, 9)), int(random.integers(1, 40))
    values = _spectrum(random, size, 0.3, 0.95)
    vectors = orthonormal(random, size, size)
    matrix, start = (vectors * values) @ vectors.T, orthonormal(random, size, 1)[:, 0]
    found = matrix_functions.power_iteration(OPS, matrix, start, steps)
    shares = vectors.T @ start
    # Eq. 141, divided by the power of lambda_1 to avoid overflow.
    expected = vectors @ ((values / values[0]) ** steps * shares)
    expected /= np.linalg.norm(expected)
    yield agrees("q_k less eq. 141's direction", found, expected, ROUNDING)
    leading = vectors[:, :1]
    bound = (values[1] / values[0]) ** steps * _tangent(start[:, None], leading)
    ratio = _tangent(found[:, None], leading) / (bound + ROUNDING)
    yield at_most(
        "tan angle(q_k, v_1) over (lambda_2 / lambda_1)^k tan angle(q_0, v_1)", ratio, 1.0, ROUNDING
    )


def _power_iteration_without_gap(random: Random) -> Iterator[Measure]:
    size = int(random.integers(3, 9))
    multiplicity = int(random.integers(2, size + 1))
    values = np.ones(size)
    values[multiplicity:] = random.uniform(0, 0.5, size - multiplicity)
    vectors, start = orthonormal(random, size, size), orthonormal(random, size, 1)[:, 0]
    found = matrix_functions.power_iteration(OPS, (vectors * values) @ vectors.T, start, 80)
    projected = vectors[:, :multiplicity] @ (vectors[:, :multiplicity].T @ start)
    error = relative_error(found, projected / np.linalg.norm(projected))
    yield vanishes("q_80 less the normalized projection onto the leading eigenspace", error, ROUNDING)


# --- orthogonal iteration -------------------------------------------------------------------------------


def _subspace(random: Random) -> Iterator[Measure]:
    size = int(random.integers(3, 9))
    leading, steps = int(random.integers(1, size)), int(random.integers(1, 30))
    values = _spectrum(random, size, 0.3, 0.95)
    vectors = orthonormal(random, size, size)
    matrix, basis = (vectors * values) @ vectors.T, orthonormal(random, size, leading)
    first = _tangent(basis, vectors[:, :leading])
    for _ in range(steps):
        basis = matrix_functions.orthogonal_iteration(OPS, matrix, basis)
    bound = (values[leading] / values[leading - 1]) ** steps * first
    ratio = _tangent(basis, vectors[:, :leading]) / (bound + ROUNDING)
    yield at_most(
        "tan of the subspace's angle over (lambda_m+1 / lambda_m)^k times the first", ratio, 1.0, ROUNDING
    )


def logarithmic_rate(errors: np.ndarray) -> float:
    """Return the logarithm of the factor by which an error changes per step.

    The factor is fitted to the steps at which the error is in the range MEASURED.
    """
    low, high = MEASURED
    inside = np.flatnonzero((errors < high) & (errors > low))
    first, last = inside[0], inside[-1]
    return float(np.log(errors[last] / errors[first]) / (last - first))


def _separated_ratios(random: Random, size: int) -> np.ndarray:
    """Draw ratios of successive eigenvalues, (size - 1,), distinct elements of 0.3, 0.45, 0.6 and 0.75."""
    return np.asarray(random.permutation([0.3, 0.45, 0.6, 0.75])[: size - 1])


def _iterated(random: Random, ratios: np.ndarray, columns: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the exact eigenvectors (n, n), and 150 bases (n, columns) of orthogonal iteration."""
    from scipy.linalg import expm

    size = len(ratios) + 1
    values, vectors = np.cumprod([1.0, *ratios]), orthonormal(random, size, size)
    matrix, mixed = (vectors * values) @ vectors.T, np.triu(random.uniform(0.1, 0.3, (size, size)), 1)
    # The start mixes pairs of eigenvectors, so that no component is initially too small to be measured.
    basis = (vectors @ expm(mixed - mixed.T))[:, :columns]
    bases = []
    for _ in range(150):
        basis = matrix_functions.orthogonal_iteration(OPS, matrix, basis)
        bases.append(basis)
    return vectors, bases


def _rates(random: Random) -> Iterator[Measure]:
    size = int(random.integers(2, 6))
    ratios = _separated_ratios(random, size)
    leading = int(random.integers(1, size))
    vectors, bases = _iterated(random, ratios, leading)
    rate = logarithmic_rate(np.array([_tangent(basis, vectors[:, :leading]) for basis in bases]))
    quantity = "log rate of the subspace's error over log(lambda_m+1 / lambda_m)"
    yield equals(quantity, rate / np.log(ratios[leading - 1]), 1.0, RATE_TOLERANCE)
    vectors, bases = _iterated(random, ratios, size)
    rate = logarithmic_rate(np.array([_errors(basis, vectors).max() for basis in bases]))
    quantity = "log rate of the whole basis's error over max_i log(lambda_i+1 / lambda_i)"
    yield equals(quantity, rate / np.log(ratios.max()), 1.0, RATE_TOLERANCE)


def _column_rates(random: Random, printed: bool) -> Iterator[Measure]:
    size = int(random.integers(3, 6))
    ratios = _separated_ratios(random, size)
    vectors, bases = _iterated(random, ratios, size)
    errors = np.array([_errors(basis, vectors) for basis in bases])
    for column in range(size - 1):  # The last column is left out, because it has no next eigenvalue.
        neighbours = ratios[column : column + 1] if printed else ratios[max(column - 1, 0) : column + 1]
        ratio = logarithmic_rate(errors[:, column]) / np.log(neighbours.max())
        yield equals("log rate of a column's error over what is said", ratio, 1.0, RATE_TOLERANCE)


# --- online iteration -----------------------------------------------------------------------------------


def _generator_of_rotation(random: Random, size: int) -> np.ndarray:
    """Draw a skew-symmetric matrix (size, size) of spectral norm 1."""
    matrix = random.standard_normal((size, size))
    skew = matrix - matrix.T
    return np.asarray(skew / np.linalg.norm(skew, 2))


def _tracking(random: Random) -> Iterator[Measure]:
    from scipy.linalg import expm

    size, steps = int(random.integers(2, 7)), 150
    ratios = random.uniform(0.3, 0.8, size - 1)
    values, drift = np.cumprod([1.0, *ratios]), float(10.0 ** random.uniform(-4, -2.3))
    turn = expm(drift * _generator_of_rotation(random, size))
    # The minus sign makes the signs of the columns differ from the signs that QR chooses.
    exact = -orthonormal(random, size, size)
    first = basis = plain = exact
    drifted, behind, flips, plain_flips = 0.0, 0.0, 0, 0
    angles = np.zeros(size - 1)
    for _ in range(steps):
        before, exact = exact, turn @ exact
        matrix = (exact * values) @ exact.T
        basis_before, (basis, order) = basis, matrix_functions.online_orthogonal_iteration(OPS, matrix, basis)
        plain_before, plain = plain, matrix_functions.orthogonal_iteration(OPS, matrix, plain)
        for m in range(1, size):
            moved = _angle(before[:, :m], exact[:, :m])
            # The drift increases the angle of the spans. A step then multiplies its tangent by the ratio.
            bound = np.arctan(ratios[m - 1] * np.tan(angles[m - 1] + moved))
            angles[m - 1] = _angle(basis[:, :m], exact[:, :m])
            drifted = max(drifted, angles[m - 1] / (bound + ROUNDING))
        flips += int(np.sum(np.sum(basis * basis_before[:, order], axis=0) < 0))
        plain_flips += int(np.sum(np.sum(plain * plain_before, axis=0) < 0))
        behind = max(behind, float(_errors(basis, exact).max()))
    yield at_most(
        "angle of a leading span over atan(ratio tan(angle before + drift))", drifted, 1.0, ROUNDING
    )
    # The error of a span is at most drift r / (1 - r), where r is the ratio of eigenvalues.
    # The error of a column is at most the sum of the errors of the spans with and without this column.
    greatest = float(ratios.max())
    bound = 2 * drift * greatest / (1 - greatest)
    quantity = "greatest error of a column over 2 drift r / (1 - r), r the greatest ratio"
    yield at_most(quantity, behind / bound, 1.0, bound)
    yield equals("sign flips, corrected", flips, 0)
    yield at_least("sign flips, not corrected", plain_flips, 1)
    fixed = float(_errors(first, exact).max())
    yield at_most("last error over that of the first basis", float(_errors(basis, exact).max()) / fixed, 0.5)


def _crossing(random: Random) -> Iterator[Measure]:
    size = int(random.integers(2, 5))
    vectors, order = orthonormal(random, size, size), random.permutation(size)
    while np.array_equal(order, np.arange(size)):
        order = random.permutation(size)
    start = np.cumprod([1.0, *random.uniform(0.7, 0.9, size - 1)])
    basis = plain = vectors
    # The eigenvalues change their order, but the columns of the plain iteration keep the initial order.
    # Rounding errors, which grow in each step, would exchange the columns only after more than 30 steps.
    steps = 30
    for step in range(steps + 1):
        share = step / steps
        values = (1 - share) * start + share * start[order]
        matrix = (vectors * values) @ vectors.T
        basis, _ = matrix_functions.online_orthogonal_iteration(OPS, matrix, basis)
        plain = matrix_functions.orthogonal_iteration(OPS, matrix, plain)
    exact = vectors[:, np.argsort(-values)]
    quantity = "error of the worst column after eigenvalues crossed, order corrected"
    yield vanishes(quantity, _errors(basis, exact).max(), ROUNDING)
    yield at_least("the same, order not corrected", _errors(plain, exact).max(), 0.5)


COLUMNS = "each column converges at a rate of its own"

ITERATIONS = PropertyClaim(
    id="notes.iterations",
    sentence=(
        "Power iteration converges like (lambda_2 / lambda_1)^k, orthogonal iteration's subspace like "
        "(lambda_m+1 / lambda_m)^k and its whole basis like the greatest such ratio; one iteration a step "
        "with sign and order correction follows the exact basis of a matrix that drifts."
    ),
    source="002 Q.1, Q.2, Q.2.1, eqs. 141-145, footnotes 27 and 28",
    setting=(
        "Symmetric matrices of 2 to 8 rows, eigenvalues at scales over 200 orders of magnitude, random "
        "starts. Bounds hold for the tangent of the angle at every step. Rates are read where errors lie "
        "between 1e-9 and 1e-13, with ratios 0.3 to 0.75 that differ by 0.15 or more so that one leads, "
        "from eigenvectors whose pairs are mixed by 0.1 to 0.3 radians, so that no term starts too small to "
        "be seen, and are met up to 10 % in the logarithm. Footnote 28 gives column i the rate lambda_i+1 / "
        "lambda_i: run as printed (for all but the last, which has none); as corrected it is the greater of "
        "that and lambda_i / lambda_i-1, since a column is what two leading spans differ by. Drift: 150 "
        "steps that rotate the eigenvectors by 1e-4 to 5e-3 each, from the exact basis, with signs that QR "
        "does not give; and eigenvalues that cross while eigenvectors stay, where without the correction "
        "the old order is a fixed point in exact arithmetic."
    ),
    checks=(
        part("power iteration", "002 Q.1, eq. 141", _power_iteration, 40),
        part("power iteration without a gap", "002 footnote 27", _power_iteration_without_gap, 20),
        *bounds(
            part("the subspace's error is bounded", "002 Q.2", _subspace, 40),
        ),
        part("rates of the subspace and of the whole basis", "002 Q.2, footnote 28", _rates, 12),
        *printed_and_corrected(COLUMNS, "002 footnote 28", _column_rates, 12),
        part("online iteration follows a basis that rotates", "002 Q.2.1, eqs. 144-145", _tracking, 8),
        part("it follows eigenvalues that cross", "002 Q.2.1", _crossing, 12),
    ),
)

CLAIMS = (ITERATIONS,)
