"""Claims of the adaptive-methods notes on preconditioners in hindsight, and on the cost of an early choice.

Equations, sections and facts are those of 002, Stratos (2026), "Adaptive Learning Methods", a set of notes
(docs/sources.md). g_t is the gradient of step t, O_T the sum of g_t g_t^T over T steps, and X_t the sum of
x_s x_s^T up to step t. tr is the trace, delta_i the distance of weight i from its best value, and D the
distance of the vector of weights from the best weights.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from curvebench.benchmarks.claims._matrices import power
from curvebench.benchmarks.claims._measures import at_least, at_most, equals, vanishes
from curvebench.benchmarks.claims._moves import moves
from curvebench.benchmarks.claims._online_games import draw_features
from curvebench.benchmarks.claims._parts import Random, bounds, part, printed_and_corrected
from curvebench.property_checks.checks import Measure, PropertyClaim

# Tolerance of the ratio of two bounds, computed with roots of matrices of condition numbers up to 1e6.
ROUNDING = 1e-9
COMPETITORS = 50


def _draw(random: Random) -> np.ndarray:
    """Draw gradients (T, d) of 1 to 40 steps and 1 to 6 dimensions."""
    return draw_features(random, int(random.integers(1, 41)), int(random.integers(1, 7)))


def _draw_full_rank(random: Random) -> tuple[np.ndarray, np.ndarray]:
    """Draw gradients (T, d), d from 2 to 6, and return the gradients and O_T.

    O_T, the sum of g g^T over the gradients g, has a condition number of up to 1e4.
    """
    size = int(random.integers(2, 7))
    scales = 10 ** random.uniform(-1, 1, size)
    gradients = random.normal(size=(size + int(random.integers(10, 31)), size)) * scales
    if random.random() < 0.5:
        gradients = gradients @ np.linalg.qr(random.normal(size=(size, size)))[0]
    return gradients, gradients.T @ gradients


def _trace_of_root(vectors: np.ndarray) -> float:
    """Return tr(X_T^(1/2)), where X_T is the sum of x x^T over the rows x of `vectors`, (T, d).

    The trace is computed as the sum of the singular values of `vectors`, because a root of X_T would have
    only half of the precision.
    """
    return float(np.linalg.svd(vectors, compute_uv=False).sum())


# --- Fact 2.1 on sums of vectors and their preconditioners --------------------------------------------------


def _fact(random: Random) -> Iterator[Measure]:
    """Check Fact 2.1, sum_t x_t^T X_t^(-1/2) x_t <= 2 tr(X_T^(1/2)).

    X_t is the sum of x_s x_s^T up to step t. X_t^(-1/2) x_t is computed as a step of full AdaGrad.
    """
    vectors = _draw(random)
    total = -float((vectors * moves("adagrad_full", vectors, {})).sum())
    trace = _trace_of_root(vectors)
    yield at_most("sum over 2 tr X_T^(1/2)", total / (2 * trace), 1.0, ROUNDING)


def _scalar_fact(random: Random) -> Iterator[Measure]:
    """Check sum_t b_t / sqrt(B_t) <= 2 sqrt(B_T) for numbers b_t >= 0 with sums B_t.

    Some b_t are 0. sqrt(b_t / B_t) is computed as a step of diagonal AdaGrad.
    """
    # Each of the 20 entries of the gradients is an independent sequence of numbers.
    shape = (int(random.integers(1, 61)), 20)
    numbers = random.exponential(size=shape) * 10 ** random.uniform(-3, 3, shape)
    numbers *= random.random(shape) < random.uniform(0.2, 1)
    roots = np.sqrt(numbers)
    totals = -(roots * moves("adagrad", roots, {"epsilon": 0.0})).sum(0)
    bounds = 2 * np.sqrt(numbers.sum(0))
    ratios = totals[bounds > 0] / bounds[bounds > 0]
    yield at_most("greatest sum over 2 sqrt(B_T)", ratios.max(initial=0.0), 1.0, ROUNDING)


def _proof_step(random: Random, printed: bool) -> Iterator[Measure]:
    """Check a step in the proof of Fact 2.1: tr X_t^(1/2) - tr X_(t-1)^(1/2) >= x_t^T X_t^(-1/2) x_t / 2.

    X_t is the sum of x_s x_s^T up to step t. 002 prints X_(t-1) instead of X_t on the right-hand side.
    """
    _, before = _draw_full_rank(random)
    vector = random.normal(size=before.shape[0]) * 10 ** random.uniform(-1, 1)
    after = before + np.outer(vector, vector)
    increase = float(np.trace(power(after, 0.5)) - np.trace(power(before, 0.5)))
    root = power(before if printed else after, 0.5)
    half = 0.5 * float(vector @ np.linalg.solve(root, vector))
    yield at_most("half of the quadratic form over the trace's increase", half / increase, 1.0, 1e-6)


# --- the best diagonal preconditioner and the best learning rate in hindsight -------------------------------


def _best_diagonal(squares: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Return the best diagonal preconditioner in hindsight, sqrt(s_i) / |delta_i| (eq. 37).

    `squares` has the sums s_i of squared gradients, `distances` the |delta_i|.
    """
    return np.sqrt(squares) / np.abs(distances)


def _best_rate(squares: np.ndarray, distances: np.ndarray) -> float:
    """Return the best learning rate in hindsight, eta* of Sec. 3 (before eq. 32)."""
    return float(np.linalg.norm(distances) / np.sqrt(squares.sum()))


def _bound(diagonal: np.ndarray, squares: np.ndarray, distances: np.ndarray) -> float:
    """Return the regret bound of eq. 20 with A = diag(a) and eta = 1, where `diagonal` is a.

    A coordinate without gradients has a = 0 and contributes nothing.
    """
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=squares > 0)
    return float(distances**2 @ diagonal + squares @ inverse) / 2


def _diagonal_over_norm(squares: np.ndarray, distances: np.ndarray) -> float:
    """Return the bound with the best diagonal (eq. 38) divided by the bound with the best rate (eq. 32)."""
    rates = np.full(len(squares), 1 / _best_rate(squares, distances))
    best = _best_diagonal(squares, distances)
    return _bound(best, squares, distances) / _bound(rates, squares, distances)


def _diagonal_optimum(random: Random) -> Iterator[Measure]:
    """Check the best diagonal preconditioner in hindsight, a_i = sqrt(sum_t g_ti^2) / |delta_i|.

    This a minimizes eq. 36, and half of the minimum is eq. 38.
    """
    from scipy.optimize import minimize

    squares = (_draw(random) ** 2).sum(0) + 1e-6
    distances = random.normal(size=len(squares)) * 10 ** random.uniform(-1, 1, len(squares))

    def parts(logarithms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return distances**2 * np.exp(logarithms), squares * np.exp(-logarithms)

    def objective(logarithms: np.ndarray) -> float:
        return float(np.sum(parts(logarithms)))

    stated = np.log(_best_diagonal(squares, distances))
    least = objective(stated)
    found = minimize(
        lambda logarithms: objective(logarithms) / least,
        np.zeros(len(stated)),
        jac=lambda logarithms: np.subtract(*parts(logarithms)) / least,
        method="BFGS",
        options={"gtol": 1e-8},
    ).fun
    spread = 10 ** random.uniform(-3, 1, (COMPETITORS, 1))
    others = stated + spread * random.normal(size=(COMPETITORS, len(stated)))
    others_least = min(map(objective, others))
    yield at_most("value at eq. 37 over the least of others", least / others_least, 1.0, 1e-12)
    yield equals("value at eq. 37 over the minimum found numerically", 1 / float(found), 1.0, 1e-6)
    bound = float((np.abs(distances) * np.sqrt(squares)).sum())
    yield equals("half of the value over eq. 38", least / 2 / bound, 1.0, 1e-12)


def _diagonal_below_norm(random: Random) -> Iterator[Measure]:
    """Check that the bound with the best diagonal is at most the bound with the best rate (eqs. 38, 32)."""
    squares = (_draw(random) ** 2).sum(0)
    distances = np.abs(random.normal(size=len(squares)))
    yield at_most("eq. 38 over eq. 32", _diagonal_over_norm(squares, distances), 1.0, 1e-12)


def _diagonal_equal_norm(random: Random) -> Iterator[Measure]:
    """Check that the bounds of eqs. 38 and 32 differ unless |delta_i| is proportional to sqrt(sum_t g_ti^2).

    The check starts from proportional values, and multiplies each |delta_i| by e^s or by e^-s, with s from
    0.3 to 1. Both factors occur. The roots of sum_t g_ti^2 lie between 0.5 and 2, in at most 6 dimensions.
    The bound of eq. 38 divided by the bound of eq. 32 is then below 0.9988.
    """
    size = int(random.integers(2, 7))
    roots = random.uniform(0.5, 2, size)
    even = _diagonal_over_norm(roots**2, roots * 10 ** random.uniform(-2, 2))
    yield equals("eq. 38 over eq. 32 in proportion", even, 1.0, 1e-12)
    signs = random.permutation([1.0, -1.0, *random.choice([-1.0, 1.0], size - 2)])
    uneven = _diagonal_over_norm(roots**2, roots * np.exp(signs * random.uniform(0.3, 1)))
    yield at_most("eq. 38 over eq. 32 out of proportion", uneven, 0.999)


# --- the best matrix preconditioner in hindsight ------------------------------------------------------------


def _full_optimum(random: Random) -> Iterator[Measure]:
    """Check that c O^(1/2) / tr(O^(1/2)) minimizes tr(A^(-1) O) over A with tr(A) <= c (eq. 40, O = O_T)."""
    _, outer = _draw_full_rank(random)
    size, budget = len(outer), float(10 ** random.uniform(-1, 1))

    def objective(matrix: np.ndarray) -> float:
        return float(np.trace(np.linalg.solve(matrix, outer)))

    root = power(outer, 0.5)
    stated = budget * root / np.trace(root)
    least = objective(stated)
    others = []
    for spread in 10 ** random.uniform(-3, 0, COMPETITORS):
        factor = power(stated, 0.5) @ (np.eye(size) + spread * random.normal(size=(size, size)))
        other = factor @ factor.T
        others.append(objective(budget * other / np.trace(other)))
    yield at_most("value at eq. 40 over the least of others", least / min(others), 1.0, ROUNDING)
    # tr(A^(-1) O) is convex. A is optimal if the gradient, -A^(-1) O A^(-1), is a multiple of I.
    gradient = np.linalg.solve(stated, np.linalg.solve(stated, outer).T)
    distance = float(np.abs(gradient / np.trace(gradient) - np.eye(size) / size).max())
    yield vanishes("distance of the gradient from a multiple of I, relative", distance, ROUNDING)


def _full_below_diagonal(random: Random) -> Iterator[Measure]:
    """Check that the full bound is at most the diagonal bound (Lemma S.1): tr(O^(1/2)) <= sum sqrt(O_ii)."""
    gradients = _draw(random)
    ratio = _trace_of_root(gradients) / float(np.linalg.norm(gradients, axis=0).sum())
    yield at_most("eq. 41 over eq. 42", ratio, 1.0, ROUNDING)


def _full_equal_diagonal(random: Random) -> Iterator[Measure]:
    """Check a lower bound of the gap between the diagonal and the full bound (eqs. 41 and 42).

    The lower bound is |off-diagonal entries of O^(1/2)|^2 / (2 max_i sqrt(O_ii)) with O = O_T.
    """
    _, outer = _draw_full_rank(random)
    roots = np.sqrt(np.diag(outer))
    root = power(outer, 0.5)
    other = float((root**2).sum() - (np.diag(root) ** 2).sum())
    gap = float(roots.sum() - np.trace(root))
    yield at_least("gap over its lower bound", gap / (other / (2 * roots.max())), 1.0, 1e-6)


def _diagonal_order(random: Random, printed: bool) -> Iterator[Measure]:
    """Check that the full and the diagonal bound (eqs. 41 and 42) are equal for a diagonal matrix O_T.

    The printed statement requires that the diagonal entries are in descending order.
    """
    size = int(random.integers(2, 7))
    gradients = np.linalg.qr(random.normal(size=(size + 5, size)))[0] * 10 ** random.uniform(-1, 1, size)
    outer = gradients.T @ gradients
    entries = np.diag(outer)
    gap = 1 - float(np.trace(power(outer, 0.5)) / np.sqrt(entries).sum())
    if printed and (np.diff(entries) > 0).any():
        yield at_least("1 - eq. 41 over eq. 42, entries that do not descend", gap, ROUNDING)
    else:
        yield equals("1 - eq. 41 over eq. 42, O_T diagonal", gap, 0.0, ROUNDING)


# --- the cost of choosing preconditioners during a run and not in hindsight ---------------------------------


def _within(ratio: float) -> Iterator[Measure]:
    yield at_most("per-step bound over the one in hindsight, from above", ratio, 1.5, ROUNDING)
    yield at_least("per-step bound over the one in hindsight, from below", ratio, 1.0, ROUNDING)


def _norm_factor(random: Random) -> Iterator[Measure]:
    """Compare the bound of norm AdaGrad with the bound of the best rate in hindsight (eq. 32).

    The bound of norm AdaGrad is D^2 / (2 eta_T) + sum_t eta_t |g_t|^2 / 2. It is computed twice: with the
    rates eta_t of eq. 33, and with these rates times sqrt(1/2).
    """
    gradients = _draw(random)
    steps = -moves("adagrad_norm", gradients, {"epsilon": 0.0})
    known = float(np.linalg.norm(gradients))
    last = len(gradients) - 1 - int((np.linalg.norm(gradients, axis=1)[::-1] > 0).argmax())
    # eta_T / D, computed from the last step of the rule.
    rate = float(gradients[last] @ steps[last] / (gradients[last] @ gradients[last]))
    # The two terms of the bound of norm AdaGrad, divided by D.
    first, second = 1 / (2 * rate), float((gradients * steps).sum()) / 2
    yield from _within((first + second) / known)
    scaled = (first * np.sqrt(2) + second / np.sqrt(2)) / known
    yield at_most("the same with rates sqrt(1/2) as large", scaled, np.sqrt(2), ROUNDING)


def _diagonal_factor(random: Random) -> Iterator[Measure]:
    """Compare the bound of diagonal AdaGrad with the bound of the best diagonal in hindsight (eqs. 39, 38).

    The bound of AdaGrad is sum_i delta_i (sqrt(s_i) / 2 + sum_t g_ti^2 / sqrt(s_ti) / 2), where s_ti is the
    sum of squared gradients up to step t, and s_i the sum over all steps.
    """
    gradients = _draw(random)
    distances = np.abs(random.normal(size=gradients.shape[1])) + 1e-3
    steps = -moves("adagrad", gradients, {"epsilon": 0.0})
    roots = np.sqrt((gradients**2).sum(0))
    per_step = distances * (roots + (gradients * steps).sum(0)) / 2
    yield from _within(float(per_step.sum() / (distances @ roots)))


def _full_factor(random: Random) -> Iterator[Measure]:
    """Compare the bound of full AdaGrad with the bound of the best matrix in hindsight (eqs. 43 and 41).

    The bound of AdaGrad is D (tr(O_T^(1/2)) + sum_t g_t^T O_t^(-1/2) g_t) / 2.
    """
    gradients = _draw(random)
    trace = _trace_of_root(gradients)
    total = -float((gradients * moves("adagrad_full", gradients, {})).sum())
    yield from _within((trace + total) / 2 / trace)


NOTES_HINDSIGHT = PropertyClaim(
    id="notes.hindsight",
    sentence=(
        "A diagonal preconditioner chosen in hindsight has no worse a bound than one learning rate, a full "
        "one than a diagonal one, each is the best of its kind, and choosing at every step costs a factor of "
        "at most 1.5."
    ),
    source="002 Fact 2.1, eqs. 32-43, Lemma S.1",
    setting=(
        "Random gradients, 1 to 40 in 1 to 6 dimensions: dense, sparse with zeros, heavy-tailed, "
        "rank-deficient, nearly one direction. Where O_T must have full rank, condition numbers up to about "
        "1e4. Negative powers of singular matrices are pseudo-inverses. Sums with A_t^(-1) g_t come from the "
        "steps of the three AdaGrad rules without epsilon. Eqs. 38 and 32 are compared as eq. 20 at eq. 37 "
        "and at eta*. Minima are compared with a numerical solver's or "
        "with a condition that proves them, and with 50 competitors, some of them near. The factor 1.5 "
        "compares bounds before Fact 2.1 is put in, with D = D_1. Wrong as printed: the proof of Fact 2.1 "
        "has X_(t-1) where X_t is meant; Lemma S.1 asks for descending entries of a diagonal O_T, where any "
        "order gives equality (and writes G G^T for the G^T G of its proof)."
    ),
    checks=(
        *bounds(
            part("Fact 2.1", "002 Fact 2.1", _fact, 40),
            part("Fact 2.1 for numbers", "002 Fact 2.1", _scalar_fact, 15),
        ),
        *printed_and_corrected("the step of Fact 2.1's proof", "002 Fact 2.1", _proof_step, 40),
        part("eq. 37 is the best diagonal", "002 eqs. 36-38", _diagonal_optimum, 15),
        part("eq. 38 is at most eq. 32", "002 eqs. 32, 38", _diagonal_below_norm, 40),
        part("and equal in proportion only", "002 eqs. 32, 38", _diagonal_equal_norm, 40),
        part("eq. 40 is the best matrix", "002 eq. 40", _full_optimum, 15),
        part("eq. 41 is at most eq. 42", "002 eqs. 41-42, Lemma S.1", _full_below_diagonal, 40),
        part("and less unless O_T is diagonal", "002 Lemma S.1", _full_equal_diagonal, 40),
        *printed_and_corrected("equality for diagonal O_T", "002 Lemma S.1", _diagonal_order, 40),
        *bounds(
            part("1.5 times the best learning rate", "002 eqs. 32-34", _norm_factor, 40),
            part("1.5 times the best diagonal", "002 eqs. 38-39", _diagonal_factor, 40),
            part("1.5 times the best matrix", "002 eqs. 41, 43", _full_factor, 40),
        ),
    ),
)

CLAIMS: tuple[PropertyClaim, ...] = (NOTES_HINDSIGHT,)
