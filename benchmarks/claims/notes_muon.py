"""Muon: steepest descent under three norms, and the polynomial iterations for the polar factor.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).

G is the gradient with singular value decomposition U S V^T, |.|_F the Frobenius norm, and phi the polynomial
of a Newton-Schulz step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from curvebench.benchmarks.claims._matrices import (
    OPS,
    orthonormal,
    relative_error,
    spread_values,
    with_singular_values,
)
from curvebench.benchmarks.claims._measures import agrees, at_least, at_most, equals, vanishes
from curvebench.benchmarks.claims._moves import stepped
from curvebench.benchmarks.claims._parts import Random, part, printed_and_corrected
from curvebench.optimizers.matrix_functions import COEFFICIENTS, newton_schulz, polynomials
from curvebench.property_checks.checks import Check, Measure, PropertyClaim

ROUNDING = 1e-12
# Maximum error of an iteration that has converged.
# The error of an iteration is the relative error of a matrix, or the distance of singular values from 1.
REACHED = 1e-9
# The smallest normalized singular value that 5 steps of Jordan's polynomial move close to 1.
THRESHOLD = 1.5e-3
STEPS = 5

Norm = Callable[[np.ndarray], float]


# --- steepest descent (002 eqs. 65-69) --------------------------------------------------------------------


def _singular_values(matrix: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.svd(matrix, compute_uv=False))


# Norm and dual norm, by the value of the option `norm` of the rule `steepest_descent`.
NORMS: Mapping[str, tuple[Norm, Norm]] = {
    "frobenius": (lambda x: float(np.linalg.norm(x)), lambda x: float(np.linalg.norm(x))),
    "max": (lambda x: float(np.abs(x).max()), lambda x: float(np.abs(x).sum())),
    "spectral": (lambda x: float(_singular_values(x)[0]), lambda x: float(_singular_values(x).sum())),
}


def _closed_form(norm: str, gradient: np.ndarray) -> np.ndarray:
    """Return the steepest direction in a norm: G / |G|_F, sign(G) or U V^T (002 eq. 69).

    U and V have the singular vectors whose singular values are larger than rounding errors.
    """
    if norm == "frobenius":
        return gradient / np.linalg.norm(gradient)
    if norm == "max":
        return np.sign(gradient)
    u, values, vh = np.linalg.svd(gradient, full_matrices=False)
    counts = values > 1e-13 * values[0]
    return np.asarray(u[:, counts] @ vh[counts])


def _gradient(random: Random) -> np.ndarray:
    """Draw a gradient of any rank and scale, whose singular values span up to 3 orders of magnitude.

    In some cases, one entry is set to 0 afterwards.
    """
    m, n = (int(length) for length in random.integers(1, 7, 2))
    values = spread_values(random, int(random.integers(1, min(m, n) + 1))) * 10.0 ** random.uniform(-4, 4)
    gradient = with_singular_values(random, m, n, values)
    if random.integers(4) == 0 and gradient.size > 1:
        gradient[random.integers(m), random.integers(n)] = 0.0
    if not gradient.any():
        gradient[0, 0] = 1.0
    return gradient


def _step(
    optimizer: str, gradient: np.ndarray, rate: float, options: Mapping[str, Any], **hyper: float
) -> np.ndarray:
    """Return one update of a rule, for a weight matrix that starts at 0."""
    return stepped(optimizer, np.zeros_like(gradient), [gradient], {"learning_rate": rate, **hyper}, options)


def _rivals(random: Random, step: np.ndarray) -> Iterator[np.ndarray]:
    """Yield 30 random steps at three distances from `step`, which must not be better than `step`."""
    size = np.abs(step).max()
    for distance in (1e-3, 1e-1, 10.0):
        for _ in range(10):
            yield step + distance * size * random.standard_normal(step.shape)


def _trust_region(random: Random) -> Iterator[Measure]:
    gradient, rate = _gradient(random), float(10.0 ** random.uniform(-3, 1))
    for name, (norm, dual) in NORMS.items():
        step = _step("steepest_descent", gradient, rate, {"norm": name, "principle": "trust_region"})
        yield at_most(f"|Delta| over eta, {name}", norm(step) / rate, 1.0, ROUNDING)
        gain = -float(np.sum(gradient * step))
        yield at_least(f"-<G, Delta> over eta |G|_*, {name}", gain / (rate * dual(gradient)), 1.0, ROUNDING)
        rivals = [-float(np.sum(gradient * rival)) * rate / norm(rival) for rival in _rivals(random, step)]
        yield at_most(
            f"-<G, Delta> of the best of 30 rivals over it, {name}", max(rivals) / gain, 1.0, ROUNDING
        )
        error = relative_error(step, -rate * _closed_form(name, gradient))
        yield vanishes(f"Delta less eq. 69's, relative, {name}", error, REACHED)


def _majorization(random: Random) -> Iterator[Measure]:
    gradient, rate = _gradient(random), float(10.0 ** random.uniform(-3, 1))
    for name, (norm, dual) in NORMS.items():
        step = _step("steepest_descent", gradient, rate, {"norm": name, "principle": "majorization"})

        def objective(candidate: np.ndarray, norm: Norm = norm) -> float:
            return float(np.sum(gradient * candidate)) + norm(candidate) ** 2 / (2 * rate)

        least = objective(step)
        bound = rate * dual(gradient) ** 2 / 2
        yield at_least(f"objective over -eta |G|_*^2 / 2, {name}", -least / bound, 1.0, ROUNDING)
        rivals = [objective(rival) for rival in _rivals(random, step)]
        rivals += [objective(factor * step) for factor in (0.0, 0.9, 1.1)]
        quantity = f"objective less that of the best of 33 rivals, relative, {name}"
        yield vanishes(quantity, (least - min(rivals)) / bound, ROUNDING)
        error = relative_error(step, -rate * dual(gradient) * _closed_form(name, gradient))
        yield vanishes(f"Delta less eq. 69's, relative, {name}", error, REACHED)


def _directions(random: Random) -> Iterator[Measure]:
    gradient, rate = _gradient(random), float(10.0 ** random.uniform(-3, 1))
    for name in NORMS:
        first, second = (
            _step("steepest_descent", gradient, rate, {"norm": name, "principle": principle})
            for principle in ("trust_region", "majorization")
        )
        error = relative_error(second / np.linalg.norm(second), first / np.linalg.norm(first))
        yield vanishes(f"directions of the two principles, {name}", error, ROUNDING)
    plain = {"orthogonalization": "svd", "nesterov": False, "scale": "none"}
    muon = _step("muon", gradient, rate, plain, momentum=0.0)
    spectral = _step("steepest_descent", gradient, rate, {"norm": "spectral"})
    yield agrees("Muon's step less the spectral norm's", muon, spectral, ROUNDING)
    column = gradient[:, :1] if gradient[:, 0].any() else np.ones((len(gradient), 1))
    descent = _step("sgd", column, rate, {})
    for name in ("frobenius", "spectral"):
        step = _step("steepest_descent", column, rate, {"norm": name, "principle": "majorization"})
        yield agrees(f"a column's step less gradient descent's, {name}", step, descent, ROUNDING)
    sign = _step("sign_descent", column, rate, {})
    step = _step("steepest_descent", column, rate, {"norm": "max"})
    yield agrees("a column's step less sign descent's, max", step, sign, ROUNDING)


# --- Newton-Schulz iteration for the polar factor (002 Q.3) -----------------------------------------------


def _flattened(
    left: np.ndarray, values: np.ndarray, right: np.ndarray, coefficients: str, steps: int
) -> np.ndarray:
    """Return the values to which Muon's iteration maps the singular values of U diag(values) V^T.

    The results are in the order of `values`.
    """
    options = {
        "coefficients": coefficients,
        "steps": steps,
        "nesterov": False,
        "scale": "none",
        "orthogonalization": "newton_schulz",
    }
    step = -_step("muon", (left * values) @ right.T, 1.0, options, momentum=0.0)
    return np.asarray(np.einsum("mi,mn,ni->i", left, step, right))


def _convergence(random: Random) -> Iterator[Measure]:
    m, n = (int(length) for length in random.integers(1, 13, 2))
    values = spread_values(random, min(m, n))
    left, right = orthonormal(random, m, min(m, n)), orthonormal(random, n, min(m, n))
    least = values.min() / np.linalg.norm(values)
    # A step multiplies singular values below 1/2 by more than 11/8.
    steps = int(np.ceil(np.log(1 / least) / np.log(11 / 8))) + 7
    scale = 10.0 ** random.uniform(-8, 8)
    for name in ("cubic", "quintic"):
        reached = _flattened(left, scale * values, right, name, steps)
        yield vanishes(f"distance of singular values from 1, {name}", np.abs(reached - 1).max(), REACHED)


def _rising(random: Random) -> Iterator[Measure]:
    inside = [
        *random.uniform(0, 1, 50),
        *10.0 ** random.uniform(-6, -1, 50),
        *1 - 10.0 ** random.uniform(-6, -1, 50),
    ]
    for name, polynomial in (("cubic", polynomials.CUBIC), ("quintic", polynomials.QUINTIC)):
        values = [polynomials.evaluate(polynomial, x) for x in inside]
        rises = [(value - x) / (1 - x) for value, x in zip(values, inside, strict=True)]
        yield at_most(f"greatest phi(x) on (0, 1), {name}", max(values), 1.0, ROUNDING)
        yield at_least(f"least (phi(x) - x) / (1 - x), {name}", min(rises), 1e-7)
        yield equals(f"phi(1), {name}", polynomials.evaluate(polynomial, 1.0), 1.0, ROUNDING)


def _jordan(random: Random, printed: bool) -> Iterator[Measure]:
    m, n = (int(length) for length in random.integers(1, 13, 2))
    values = 10.0 ** random.uniform(-5, 0, min(m, n))
    left, right = orthonormal(random, m, min(m, n)), orthonormal(random, n, min(m, n))
    reached = [_flattened(left, values, right, "jordan", STEPS)]
    normalized = [values / np.linalg.norm(values)]
    # The matrices have two singular values, x and sqrt(1 - x^2). A single value would be normalized to 1.
    for x in 10.0 ** random.uniform(np.log10(THRESHOLD), 0, 100):
        pair = np.array([x, np.sqrt(1 - x**2)])
        normalized.append(pair)
        reached.append(_flattened(np.eye(2), pair, np.eye(2), "jordan", STEPS))
    before, after = np.concatenate(normalized), np.concatenate(reached)
    low, high, tolerance = (0.7, 1.3, 0.0) if printed else (0.68, 1.21, 0.005)
    if not printed:
        after = after[before >= THRESHOLD]
    yield at_least("least singular value after 5 steps", after.min(), low, tolerance)
    yield at_most("greatest singular value after 5 steps", after.max(), high, tolerance)


FLATTENS = "five steps of (3.4445, -4.7750, 2.0315) flatten singular values"

MUON = PropertyClaim(
    id="notes.muon",
    sentence=(
        "Steepest descent under the Frobenius, max and spectral norm has eq. 69's closed forms, with one "
        "direction for both principles; the polynomials (3/2, -1/2) and (15/8, -5/4, 3/8) converge to the "
        "polar factor, and Jordan's brings singular values near to 1 in 5 steps."
    ),
    source="002 Sec. 7, eqs. 65-69, Q.3, eqs. 146-147",
    setting=(
        "Gradients of 1 to 6 rows and columns of any rank, singular values over up to 3 orders of "
        "magnitude, some entries 0; the optimum by the dual norm and against 30 rivals. Of a singular "
        "gradient U V^T is taken without its null space, where any choice is as good. Iterations: matrices "
        "of up to 12 rows and columns, scales over 16 orders of magnitude. That Jordan's polynomial brings "
        "all singular values to 1 +- 0.3 is run as printed, on normalized values from about 1e-5 to 1; as "
        "corrected those of at least 1.5e-3 come into [0.68, 1.21], two digits, so with a tolerance of "
        "0.005."
    ),
    checks=(
        part("the trust-region principle", "002 eqs. 67 and 69", _trust_region, 30),
        part("the majorization-minimization principle", "002 eqs. 68 and 69", _majorization, 30),
        part("directions, vectors and Muon's", "002 Sec. 7, after eq. 69", _directions, 20),
        part("the first two polynomials rise to 1", "002 eq. 146", _rising, 10),
        part("their iterations converge to the polar factor", "002 eq. 147", _convergence, 30),
        *printed_and_corrected(FLATTENS, "002 Q.3.1", _jordan, 10),
    ),
)


# --- checks of the claim notes.newton-schulz-order ----------------------------------------------------


def _systems(random: Random) -> Iterator[Measure]:
    # The rows are the conditions phi(1) = 1, phi'(1) = 0 and phi''(1) = 0 on three coefficients.
    conditions = np.array([[1.0, 1.0, 1.0], [1.0, 3.0, 5.0], [0.0, 6.0, 20.0]])
    for name, polynomial in (("cubic", polynomials.CUBIC), ("quintic", polynomials.QUINTIC)):
        size = len(polynomial)
        solved = np.linalg.solve(conditions[:size, :size], np.eye(size)[0])
        yield agrees(f"coefficients less the solution, {name}", np.array(polynomial), solved, ROUNDING)


def _error_after_a_step(random: Random, error: float, coefficients: str) -> float:
    """Return the error 1 - phi(1 - error) after one step.

    The matrix is 2 x 2 with normalized singular values 1 - error and nearly 0.
    """
    left, right = orthonormal(random, 2, 2), orthonormal(random, 2, 2)
    pair = np.array([1 - error, np.sqrt(error * (2 - error))])
    return float(1 - _flattened(left, pair, right, coefficients, 1)[0])


def _orders(random: Random) -> Iterator[Measure]:
    error = float(10.0 ** random.uniform(-2.5, -1.5))
    # For the cubic polynomial, the error 1 - phi(1 - e) is 3/2 e^2 - e^3 / 2.
    # For the quintic polynomial, the error is 5/2 e^3 - 15/8 e^4 + 3/8 e^5.
    for name, order, leading in (("cubic", 2, 3 / 2), ("quintic", 3, 5 / 2)):
        whole = _error_after_a_step(random, error, name)
        half = _error_after_a_step(random, error / 2, name)
        yield equals(f"local order, {name}", np.log2(whole / half), order, error)
        quantity = f"error after a step over {leading} e^{order}, {name}"
        yield equals(quantity, whole / (leading * error**order), 1.0, error)


def _no_fixed_point(random: Random) -> Iterator[Measure]:
    yield at_least("|phi(1) - 1|", abs(polynomials.evaluate(polynomials.JORDAN, 1.0) - 1), 0.1)
    m, n = (int(length) for length in random.integers(1, 9, 2))
    size = min(m, n)
    left, right = orthonormal(random, m, size), orthonormal(random, n, size)
    values = random.uniform(0.1, 1, size)
    distances = [np.abs(_flattened(left, values, right, "jordan", steps) - 1) for steps in (20, 21, 22, 23)]
    # A step moves a singular value that is within 0.1 of 1 out of this range, since phi(1) is far from 1.
    least = float(np.max(distances, axis=0).min())
    quantity = "distance from 1, greatest of steps 20 to 23, least of all singular values"
    yield at_least(quantity, least, 0.1)


class _Counted(np.ndarray):
    """Array that counts the multiplications and additions of all matrix products in which it occurs."""

    operations = 0.0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        plain = [np.asarray(x) for x in inputs]
        result = getattr(ufunc, method)(*plain, **keywords)
        if ufunc is np.matmul:
            _Counted.operations += 2.0 * result.size * plain[0].shape[-1]
        else:
            _Counted.operations += max(x.size for x in plain)
        return np.asarray(result).view(_Counted)


def counted_operations(rows: int, columns: int, random: Random) -> float:
    """Count the multiplications and additions of 5 steps of Jordan's polynomial."""
    matrix = random.standard_normal((rows, columns)).view(_Counted)
    _Counted.operations = 0.0
    newton_schulz(OPS, matrix, COEFFICIENTS["jordan"], STEPS)
    return _Counted.operations


def _cost(random: Random) -> Iterator[Measure]:
    m = int(random.integers(60, 121))
    n = int(random.integers(m, min(2 * m, 201)))
    yield equals("operations over 30 m^3, square", counted_operations(m, m, random) / (30 * m**3), 1.0, 0.05)
    tall = counted_operations(n, m, random) / (STEPS * (4 * m**2 * n + 2 * m**3))
    yield equals("operations over 5 (4 m^2 n + 2 m^3), m <= n < 2 m", tall, 1.0, 0.05)


ORDER = PropertyClaim(
    id="notes.newton-schulz-order",
    sentence=(
        "The polynomials (3/2, -1/2) and (15/8, -5/4, 3/8) converge with local orders 2 and 3; Jordan's has "
        "no fixed point at 1; 5 steps of a quintic cost about 30 m^3 operations for a square matrix."
    ),
    source="002 Q.3, Q.3.1",
    setting=(
        "2 x 2 matrices whose leading normalized singular value is 1 - e, e from 0.003 to 0.03: orders and "
        "leading terms are met up to e, the size of the next term. Jordan's: 20 to 23 steps on matrices of "
        "up to 8 rows and columns. Operations are counted while the project's iteration runs on matrices of "
        "60 to 200 rows and columns, n < 2 m (from there on it takes several steps at once, which costs "
        "less); 'about' is taken as 5 %, for the terms in m^2."
    ),
    checks=(
        Check("the conditions at 1 give both polynomials", "002 Q.3.1", _systems, {"quick": 1, "paper": 1}),
        part("local orders 2 and 3", "002 Q.3", _orders, 20),
        part("Jordan's polynomial has no fixed point at 1", "002 Q.3.1", _no_fixed_point, 20),
        part("5 steps cost about 30 m^3 operations", "002 Q.3.1, Compute", _cost, 5),
    ),
)

CLAIMS = (MUON, ORDER)
