"""Claims of the adaptive-methods notes on convergence rates: gradient descent, Nesterov, Newton.

Equations, lemmas and theorems are those of 002, Stratos (2026), "Adaptive Learning Methods", a set of notes
(docs/sources.md). J is the objective with minimum J* at w*, L its smoothness constant, and the gap is J - J*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

import curvebench
from curvebench.benchmarks.claims._matrices import OPS
from curvebench.benchmarks.claims._measures import at_least, at_most, equals, vanishes
from curvebench.benchmarks.claims._moves import path
from curvebench.benchmarks.claims._parts import Random, bounds, part, printed_and_corrected
from curvebench.optimizers import rules
from curvebench.property_checks.checks import Check, Measure, PropertyClaim

ROUNDING = 1e-9


@dataclass(frozen=True)
class SmoothObjective:
    """Convex function with minimum 0 at 0.

    Args:
        value, gradient: functions of weights (d,).
        smoothness: Lipschitz constant L of the gradient.
    """

    value: Callable[[np.ndarray], float]
    gradient: Callable[[np.ndarray], np.ndarray]
    smoothness: float


def _quadratic(random: Random, size: int) -> SmoothObjective:
    """Draw a quadratic w^T Q w / 2 with a condition number of up to 1e5."""
    turn = np.linalg.qr(random.normal(size=(size, size)))[0]
    eigenvalues = 10 ** random.uniform(-5, 0, size) * 10 ** random.uniform(-2, 2)
    matrix = (turn * eigenvalues) @ turn.T
    return SmoothObjective(
        lambda w: float(w @ matrix @ w) / 2, lambda w: matrix @ w, float(eigenvalues.max())
    )


def _huber(random: Random, size: int) -> SmoothObjective:
    """Draw a sum of Huber functions: squares w_i^2 / 2 that continue linearly beyond a width.

    Such functions are the hardest case for gradient descent and for Nesterov's method.
    """
    widths = 10 ** random.uniform(-4, 0, size)

    def value(weights: np.ndarray) -> float:
        inside = np.minimum(np.abs(weights), widths)
        return float((inside**2 / 2 + inside * (np.abs(weights) - inside)).sum())

    return SmoothObjective(value, lambda w: np.clip(w, -widths, widths), 1.0)


def _strongly_convex(random: Random, size: int) -> SmoothObjective:
    """Draw a strongly convex function (a `Bend`) as a `SmoothObjective`."""
    bend = _bend(random, size)
    return SmoothObjective(bend.value, bend.gradient, bend.bounds[1])


def _smooth(random: Random) -> tuple[SmoothObjective, np.ndarray]:
    """Draw a smooth convex objective, and initial weights."""
    size = int(random.integers(1, 7))
    made = (_quadratic, _huber, _strongly_convex)[random.integers(3)](random, size)
    return made, random.normal(size=size)


# --- convergence of first-order methods ---------------------------------------------------------------------


def _gradient_descent(random: Random) -> Iterator[Measure]:
    """Check the convergence of gradient descent with eta = 1 / L (Lemma S.5).

    For every T, J(w_(T+1)) - J* <= L |w_1 - w*|^2 / (2 T).
    """
    function, start = _smooth(random)
    steps = int(random.integers(50, 151)) - 1
    weights = path("sgd", start, [function.gradient] * steps, {"learning_rate": 1 / function.smoothness})
    losses = [function.value(each) for each in weights]
    ratios = [
        loss * 2 * number / (function.smoothness * float(start @ start))
        for number, loss in enumerate(losses[1:], 1)
    ]
    yield at_most("greatest gap over its bound", max(ratios), 1.0, ROUNDING)
    rise = float(np.diff(losses).max()) / losses[0]
    yield vanishes("greatest rise of the loss in a step, relative", rise, 1e-12)


def _nesterov(random: Random) -> Iterator[Measure]:
    """Check the convergence of Nesterov's method, J(w_T) - J* <= 2 L |w_1 - w*|^2 / (T + 1)^2 (A.1).

    The look-ahead point is y_(t+1) = w_(t+1) + t / (t + 3) (w_(t+1) - w_t).

    In the look-ahead form (eqs. 28-31), the factor t / (t + 3) is the momentum mu_(t+1), with mu_t = (t - 1)
    / (t + 2). Since the momentum changes at every step, the functions of the rule are called directly.
    """
    function, start = _smooth(random)
    rule = rules()["nesterov_lookahead"]
    assert rule.gradient_at is not None
    weights, state, ratios = start, rule.init(OPS, start), []
    for number in range(1, int(random.integers(50, 301))):
        gap = function.value(weights)
        ratios.append(gap * (number + 1) ** 2 / (2 * function.smoothness * float(start @ start)))
        hyper = {"learning_rate": 1 / function.smoothness, "momentum": (number - 1) / (number + 2)}
        gradient = function.gradient(rule.gradient_at(OPS, state, weights, hyper))
        weights, state = rule.update(OPS, gradient, state, weights, hyper)
    yield at_most("greatest gap over its bound", max(ratios), 1.0, ROUNDING)


# --- Newton's method near the minimum -----------------------------------------------------------------------

# The maximum absolute slope of 1 / cosh^2.
STEEPEST_BEND = 4 / (3 * np.sqrt(3))
QUADRATURE, SHARES = (numbers.tolist() for numbers in np.polynomial.legendre.leggauss(20))


@dataclass(frozen=True)
class Bend:
    """Strongly convex function with minimum at 0.

    The function is w^T Q w / 2 + sum_i c_i (log cosh(a_i^T w - b_i) + tanh(b_i) a_i^T w).

    Args:
        curvature: Q, (d, d).
        features: a_i, (n, d).
        shifts, sizes: b_i and c_i, (n,).
    """

    curvature: np.ndarray
    features: np.ndarray
    shifts: np.ndarray
    sizes: np.ndarray

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """Return the gradient, (d,).

        For small x, the terms of tanh(x - b) + tanh(b) would cancel. Another form of the sum keeps the
        relative precision.
        """
        margins = self.features @ weights
        near = np.clip(margins, -1.0, 1.0)
        slopes = np.where(
            near == margins,
            np.sinh(near) / (np.cosh(near - self.shifts) * np.cosh(self.shifts)),
            np.tanh(margins - self.shifts) + np.tanh(self.shifts),
        )
        return self.curvature @ weights + (self.sizes * slopes) @ self.features

    def hessian(self, weights: np.ndarray) -> np.ndarray:
        """Return the Hessian, (d, d)."""
        bends = self.sizes * (1 - np.tanh(self.features @ weights - self.shifts) ** 2)
        return self.curvature + (self.features.T * bends) @ self.features

    def value(self, weights: np.ndarray) -> float:
        """Return the gap J - J*. It is computed as an integral of the slope, which is precise near 0, too."""
        places = [(1 + place) / 2 for place in QUADRATURE]
        slopes = [float(self.gradient(place * weights) @ weights) for place in places]
        return sum(share * slope for share, slope in zip(SHARES, slopes, strict=True)) / 2

    @property
    def bounds(self) -> tuple[float, float, float]:
        """Three constants, valid on the whole space: m, M and L.

        m is the constant of strong convexity, M the smoothness constant, and L the Lipschitz constant of the
        Hessian.
        """
        gram = (self.features.T * self.sizes) @ self.features
        greatest = float(np.linalg.eigvalsh(gram).max())
        longest = float(np.linalg.norm(self.features, axis=1).max())
        return (
            float(np.linalg.eigvalsh(self.curvature).min()),
            float(np.linalg.eigvalsh(self.curvature + gram).max()),
            STEEPEST_BEND * longest * greatest,
        )


def _bend(random: Random, size: int) -> Bend:
    """Draw a strongly convex function with condition number M / m from about 1 to 1e4.

    M is the smoothness constant, and m the constant of strong convexity.
    """
    turn = np.linalg.qr(random.normal(size=(size, size)))[0]
    count = max(1, int(random.integers(-9, 11)))
    # With these shifts b_i, the Hessian changes fastest at the minimum.
    hardest = np.full(count, np.arctanh(1 / np.sqrt(3)))
    features, sizes = random.normal(size=(count, size)), random.random(count)
    greatest = np.linalg.eigvalsh((features.T * sizes) @ features).max()
    return Bend(
        (turn * 10 ** random.uniform(-1, 0, size)) @ turn.T,
        features,
        hardest if random.random() < 0.5 else random.normal(size=count),
        10 ** random.uniform(-1, 3) * sizes / greatest,
    )


def _newton(random: Random) -> Iterator[Measure]:
    """Check the quadratic convergence of Newton's method (Theorem A.1, Lemma S.6).

    The iterates are in the ball |w - w*| <= m / L, with the constants of `Bend.bounds`.
    """
    size = int(random.integers(1, 7))
    function = _bend(random, size)
    convexity, smoothness, bending = function.bounds
    radius = convexity / bending
    start = random.normal(size=size)
    start *= radius * max(random.random(), random.random() < 0.5) / np.linalg.norm(start)
    burn_in = int(np.ceil(np.log(smoothness**2 / (2 * convexity**2)) / np.log(4)))
    online = curvebench.Online("newton", {"w": start}, {"learning_rate": 1.0})
    weights = start
    linear, halved, squared, quadratic = [], [], [], []
    for number in range(1, burn_in + 8):
        before, distance = weights, float(np.linalg.norm(weights))
        weights = online.step({"w": function.gradient(before)}, hessian=function.hessian(before))["w"]
        # The rounding error of a step is proportional to the size of the weights and to the condition number.
        rounding = 1e-14 * smoothness / convexity * distance
        reached = max(float(np.linalg.norm(weights)) - rounding, 0.0)
        gap = function.value(weights) if reached else 0.0
        linear.append(gap / (smoothness * convexity**2 / (2 * bending**2) * 4.0**-number))
        halved.append(reached / (radius * 2.0**-number))
        squared.append(reached / (bending / (2 * convexity) * distance**2) if reached else 0.0)
        after = number - burn_in
        if after >= 1:
            doubly = 2 * convexity**4 / (smoothness * bending**2) * 2.0 ** -(2.0**after)
            quadratic.append((gap if gap > smoothness * rounding**2 else 0.0) / doubly)
    yield at_most("gap over M m^2 / (2 L^2) 4^-k", max(linear), 1.0, ROUNDING)
    yield at_most("distance over m / L 2^-k", max(halved), 1.0, ROUNDING)
    yield at_most("distance over L / (2 m) times the last one squared", max(squared), 1.0, ROUNDING)
    yield at_most("gap over 2 m^4 / (M L^2) 2^-2^k after the burn-in", max(quadratic), 1.0, ROUNDING)


# --- Newton's method far from the minimum -------------------------------------------------------------------


def _quartic_gaps(random: Random) -> list[float]:
    """Return J - J* of Newton's method on w^4 / 4 from a random start, after 0 to 40 steps."""
    weights = float(random.choice([-1, 1]) * 10 ** random.uniform(-3, 3))
    online = curvebench.Online("newton", {"w": np.array([weights])}, {"learning_rate": 1.0})
    gaps = [weights**4 / 4]
    for _ in range(40):
        gradient, hessian = np.array([weights**3]), np.array([[3 * weights**2]])
        weights = float(online.step({"w": gradient}, hessian=hessian)["w"][0])
        gaps.append(weights**4 / 4)
    return gaps


def _quartic(random: Random) -> Iterator[Measure]:
    """Check that on w^4 / 4 the gap after T steps is (16/81)^T times the first gap (A.2.1).

    The reason is that w_(t+1) = 2/3 w_t.
    """
    gaps = _quartic_gaps(random)
    error = max(abs(gap / gaps[0] / (16 / 81) ** number - 1) for number, gap in enumerate(gaps))
    yield vanishes("greatest error of (16/81)^T, relative", error, 1e-12)


def _no_quadratic_phase(random: Random, printed: bool) -> Iterator[Measure]:
    """Check that on w^4 / 4 the gap decreases more slowly than 2^(-2^T): the quotient of the two grows.

    002 prints 2^(-2T).
    """
    gaps = _quartic_gaps(random)
    first, last = (gaps[steps] * 2.0 ** (2 * steps if printed else 2**steps) for steps in (4, 8))
    quantity = "gap over that of the quadratic phase, after 8 steps over after 4"
    yield at_least(quantity, last / first, 1.0)


def _jump(random: Random) -> Iterator[Measure]:
    """Check that on e^w - w a step from -100 leads beyond 1e43, and no further step leads back (A.2.1)."""
    online = curvebench.Online("newton", {"w": np.array([-100.0])}, {"learning_rate": 1.0})

    def stepped(weights: float) -> float:
        # A common factor of gradient and Hessian does not change the step; e^-w keeps both finite.
        gradient = np.array([-np.expm1(-weights)])
        return float(online.step({"w": gradient}, hessian=np.ones((1, 1)))["w"][0])

    weights = stepped(-100.0)
    yield at_least("w after one step", weights, 1e43)
    second = stepped(weights)
    yield equals("w after two steps, over w after one", second / weights, 1.0, 1e-12)
    for _ in range(100):
        second = stepped(second)
    yield at_least("w after 100 more", second, 1e43)


NOTES_RATES = PropertyClaim(
    id="notes.rates",
    sentence=(
        "Gradient descent comes as near as 1 / T, Nesterov's method as 1 / T^2, and Newton's, once near "
        "enough, first as 4^-k and then as 2^-2^k; far from the minimum Newton's method may be slower or "
        "leave for good."
    ),
    source="002 App. A.1-A.2, Theorem A.1, Lemmas S.5-S.9",
    setting=(
        "Functions of 1 to 6 variables with a known minimum: quadratics with condition numbers up to 1e5, "
        "sums of Huber functions (convex, not strongly, and the hardest case of both bounds), and quadratics "
        "with sums of log cosh, whose m, M and L are known. Learning rate 1 / L; every T up to 150 (gradient "
        "descent) and 300 (Nesterov, with the momentum t / (t + 3)). Newton's method starts on the edge of "
        "its ball or inside; L of the Hessian is a bound on the whole space, so that the ball is no larger "
        "than the theorem's; a step's own rounding, 1e-14 M / m of the weights that it moves, is taken off. "
        "On e^w - w gradient and Hessian are both multiplied by e^-w, which changes no step and keeps them "
        "finite. Wrong as printed: A.2.1 says that on w^4 / 4 the quadratic phase, 2^(-2T), is never "
        "entered, where Theorem A.1 has 2^(-2^T); (16/81)^T is below 4^(-T)."
    ),
    checks=(
        *bounds(
            part("gradient descent", "002 A.1, Lemma S.5", _gradient_descent, 25),
            part("Nesterov's method", "002 A.1", _nesterov, 25),
            part("Newton's method in its ball", "002 Theorem A.1, Lemma S.6", _newton, 25),
        ),
        part("Newton's method on w^4 / 4", "002 A.2.1", _quartic, 5),
        *printed_and_corrected(
            "Newton's method on w^4 / 4 has no quadratic phase", "002 A.2.1", _no_quadratic_phase, 5
        ),
        Check("Newton's method on e^w - w", "002 A.2.1", _jump, {"quick": 1, "paper": 1}),
    ),
)

CLAIMS: tuple[PropertyClaim, ...] = (NOTES_RATES,)
