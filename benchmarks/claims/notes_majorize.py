"""Majorization and smoothness: descent at eta <= 1 / L in several norms, and definitions of smoothness.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).

A function is L-smooth in a norm |.| if its gradient changes, in the dual norm |.|_*, by at most L times the
change of its argument. eta is the learning rate, and W the matrix of weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

import curvebench
from curvebench.benchmarks.claims._matrices import orthonormal, semidefinite
from curvebench.benchmarks.claims._measures import at_most, equals, vanishes
from curvebench.benchmarks.claims._parts import Random, bounds, part
from curvebench.property_checks.checks import Measure, PropertyClaim

# Tolerance for the excess of a loss over its bound, relative to the size of the loss.
# A loss is a sum of some dozen products.
EXACT = 1e-13
ROUNDING = 1e-10
STEPS = 15


# --- descent (002 App. P) -------------------------------------------------------------------------------

Function = Callable[[np.ndarray], float]
Gradient = Callable[[np.ndarray], np.ndarray]


def _nuclear(matrix: np.ndarray) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False).sum())


# Name of the rule, its options, the norm and the dual norm, for each method of descent.
DESCENTS: Mapping[str, tuple[str, dict[str, str], Function, Function]] = {
    "frobenius": ("sgd", {}, lambda x: float(np.linalg.norm(x)), lambda x: float(np.linalg.norm(x))),
    "max": (
        "steepest_descent",
        {"norm": "max", "principle": "majorization"},
        lambda x: float(np.abs(x).max()),
        lambda x: float(np.abs(x).sum()),
    ),
    "spectral": (
        "steepest_descent",
        {"norm": "spectral", "principle": "majorization"},
        lambda x: float(np.linalg.norm(x, 2)),
        _nuclear,
    ),
}


@dataclass(frozen=True)
class Smooth:
    """Smooth function of matrices.

    Args:
        value, gradient: functions of a matrix (m, n).
        constants: by norm, the constant L of eq. 132 or an upper bound of it.
    """

    value: Function
    gradient: Gradient
    constants: Mapping[str, float]


def _ridges(random: Random, shape: tuple[int, int]) -> Smooth:
    """Draw a nonconvex sum of c_k cos(<A_k, W> + b_k), with the upper bound sum |c_k| |A_k|_*^2 of L."""
    matrices = random.standard_normal((int(random.integers(1, 5)), *shape))
    shifts, factors = random.uniform(0, 2 * np.pi, len(matrices)), random.standard_normal(len(matrices))

    def inner(weight: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("kmn,mn->k", matrices, weight) + shifts)

    return Smooth(
        value=lambda weight: float(factors @ np.cos(inner(weight))),
        gradient=lambda weight: -np.einsum("k,kmn->mn", factors * np.sin(inner(weight)), matrices),
        constants={
            name: float(sum(abs(c) * dual(matrix) ** 2 for c, matrix in zip(factors, matrices, strict=True)))
            for name, (_, _, _, dual) in DESCENTS.items()
        },
    )


def _signs(size: int) -> np.ndarray:
    """Return all sign vectors, (2^size, size)."""
    return np.array(list(itertools.product([-1.0, 1.0], repeat=size)))


def _quadratic(random: Random, shape: tuple[int, int]) -> Smooth:
    """Draw a quadratic <W, P W Q> / 2 + <B, W> with positive semi-definite P and Q and known constants L."""
    p, q = (semidefinite(random, size, int(random.integers(1, size + 1))) for size in shape)
    offset = p @ random.standard_normal(shape) @ q
    signs = _signs(shape[0] * shape[1])
    values = [np.sort(np.linalg.eigvalsh(matrix))[::-1] for matrix in (p, q)]
    count = min(shape)
    return Smooth(
        value=lambda weight: float(np.sum(weight * (p @ weight @ q)) / 2 + np.sum(offset * weight)),
        gradient=lambda weight: p @ weight @ q + offset,
        constants={
            "frobenius": float(values[0][0] * values[1][0]),
            # For the Hessian H, the maximum of |H X|_1 over |X|_max <= 1 is attained at sign matrices.
            # For a semi-definite H, the maximum of |H X|_1 is the maximum of x^T H x over sign vectors x.
            "max": float(np.einsum("si,ij,sj->s", signs, np.kron(p, q), signs).max()),
            # The maximum of |P X Q|_nuc over |X|_2 <= 1, by von Neumann's trace inequality.
            "spectral": float(values[0][:count] @ values[1][:count]),
        },
    )


def _descent(random: Random) -> Iterator[Measure]:
    shape = (int(random.integers(1, 4)), int(random.integers(1, 4)))
    function = (_quadratic if random.integers(2) else _ridges)(random, shape)
    start = random.standard_normal(shape)
    for name, (optimizer, options, norm, dual) in DESCENTS.items():
        rate = float(random.choice([1.0, random.uniform(0.1, 1)])) / function.constants[name]
        online = curvebench.Online(optimizer, {"w": start}, {"learning_rate": rate}, options=options)
        values, bounds, slack = [function.value(start)], [], []
        for _ in range(STEPS):
            weight = online.params["w"]
            gradient = function.gradient(weight)
            # The loss after a step is bounded by the minimum of the majorizing surrogate.
            bounds.append(values[-1] - rate * dual(gradient) ** 2 / 2)
            for _ in range(5):
                away = random.standard_normal(shape) * 10.0 ** random.uniform(-1, 1)
                error = function.value(weight + away) - values[-1] - float(np.sum(gradient * away))
                slack.append(error * 2 * rate / norm(away) ** 2)
            values.append(function.value(online.step({"w": gradient})["w"]))
        size = max(1.0, *np.abs(values))
        rise = float(np.diff(values).max()) / size
        yield vanishes(f"greatest rise of the loss in {STEPS} steps, relative, {name}", rise, EXACT)
        above = max(value - bound for value, bound in zip(values[1:], bounds, strict=True)) / size
        yield vanishes(f"loss above the surrogate's minimum, relative, {name}", above, EXACT)
        yield at_most(f"linearization error over |x - z|^2 / (2 eta), {name}", max(slack), 1.0, 1e-8)


# --- smoothness (002 App. O) ----------------------------------------------------------------------------

ORDERS: Mapping[str, tuple[float, float]] = {"l1": (1, np.inf), "l2": (2, 2), "linfinity": (np.inf, 1)}


def operator_norm(hessian: np.ndarray, norm: str) -> tuple[float, np.ndarray]:
    """Return the maximum of |H h|_* over |h| = 1 (002 eq. 135), and a point h that attains the maximum.

    h is an extreme point of the ball |h| <= 1.
    """
    size = len(hessian)
    if norm == "l2":
        values, vectors = np.linalg.eigh(hessian)
        candidates = vectors[:, [np.argmax(np.abs(values))]].T
    else:
        candidates = np.eye(size) if norm == "l1" else _signs(size)
    lengths = np.linalg.norm(candidates @ hessian, ORDERS[norm][1], axis=1)
    return float(lengths.max()), candidates[np.argmax(lengths)]


def _symmetric(random: Random, size: int) -> np.ndarray:
    """Draw an indefinite symmetric matrix of any rank.

    Its eigenvalues span 4 orders of magnitude, or are two opposite numbers.
    """
    values = random.choice([-1.0, 1.0], size) * 10.0 ** random.uniform(-2, 2, size)
    values[random.random(size) < 0.2] = 0.0
    values[0] = 1.0
    if size > 1 and random.integers(2):
        values[:2] = 200.0, -200.0
    vectors = orthonormal(random, size, size)
    return np.asarray((vectors * values) @ vectors.T)


def _constants(random: Random) -> Iterator[Measure]:
    size = int(random.integers(1, 7))
    hessian = _symmetric(random, size)
    for name, (order, dual) in ORDERS.items():
        constant, extreme = operator_norm(hessian, name)
        steps = random.standard_normal((200, size)) * (random.random((200, size)) < 0.7)
        steps = steps[steps.any(1)]
        lengths = np.linalg.norm(steps, order, axis=1)
        slopes = np.linalg.norm(steps @ hessian, dual, axis=1) / lengths
        yield at_most(
            f"eq. 133's quotient over L of eq. 132, {name}", float(slopes.max()) / constant, 1.0, ROUNDING
        )
        attained = float(np.linalg.norm(hessian @ extreme, dual) / np.linalg.norm(extreme, order))
        yield equals(f"the same where it is greatest, {name}", attained / constant, 1.0, ROUNDING)
        errors = np.abs(np.einsum("si,ij,sj->s", steps, hessian, steps)) / lengths**2
        yield at_most(
            f"eq. 134's quotient over L of eq. 132, {name}", float(errors.max()) / constant, 1.0, ROUNDING
        )
        if name == "l2":
            attained = abs(float(extreme @ hessian @ extreme))
            yield equals("eq. 134's greatest quotient over L, l2", attained / constant, 1.0, ROUNDING)


def _limits(random: Random) -> Iterator[Measure]:
    size, terms = int(random.integers(1, 7)), int(random.integers(1, 5))
    directions, shifts = random.standard_normal((terms, size)), random.uniform(0.3, 1.2, terms)
    factors = random.choice([-1.0, 1.0], terms) * random.uniform(0.5, 2, terms)
    point, small = random.standard_normal(size) * 0.01, 1e-4

    def value(x: np.ndarray) -> float:
        return float(factors @ np.cos(directions @ x + shifts))

    def gradient(x: np.ndarray) -> np.ndarray:
        return -(factors * np.sin(directions @ x + shifts)) @ directions

    hessian = -(directions.T * (factors * np.cos(directions @ point + shifts))) @ directions
    for name, (order, dual) in ORDERS.items():
        bound = float(np.sum(np.abs(factors) * np.linalg.norm(directions, dual, axis=1) ** 2))
        steps = random.standard_normal((50, size)) * 10.0 ** random.uniform(-2, 1, (50, 1))
        lengths = np.linalg.norm(steps, order, axis=1)
        slopes = [np.linalg.norm(gradient(point + step) - gradient(point), dual) for step in steps]
        yield at_most(
            f"eq. 133 over its bound, {name}, cosines", float(np.max(slopes / lengths)) / bound, 1.0, ROUNDING
        )
        errors = [abs(value(point + step) - value(point) - gradient(point) @ step) for step in steps]
        quantity = f"eq. 134 over its bound, {name}, cosines"
        yield at_most(quantity, float(np.max(2 * np.array(errors) / lengths**2)) / bound, 1.0, 1e-8)
        constant, extreme = operator_norm(hessian, name)
        # A central difference has an error of second order in the distance.
        change = gradient(point + small * extreme) - gradient(point - small * extreme)
        slope = float(np.linalg.norm(change, dual)) / (2 * small * float(np.linalg.norm(extreme, order)))
        yield equals(f"slope of the gradient over |Hessian|, {name}, cosines", slope / constant, 1.0, 1e-5)
        if name == "l2":
            error = value(point + small * extreme) + value(point - small * extreme) - 2 * value(point)
            yield equals(
                "second difference over |Hessian|, l2, cosines", abs(error) / small**2 / constant, 1.0, 1e-5
            )


def _strict(random: Random) -> Iterator[Measure]:
    size = int(random.integers(2, 7))
    i, j = random.choice(size, 2, replace=False)
    scale = float(10.0 ** random.uniform(-2, 2))
    mixed, opposed = np.zeros((2, size, size))
    mixed[i, j] = mixed[j, i] = opposed[i, i] = scale
    opposed[j, j] = -scale
    for name, hessian in (("l1", mixed), ("linfinity", opposed)):
        constant, _ = operator_norm(hessian, name)
        # In the l1 norm, the quotient is largest in the direction `equal`.
        equal = np.eye(size)[[i]] + np.eye(size)[[j]]
        steps = np.concatenate([random.standard_normal((200, size)), np.eye(size), equal, _signs(size)])
        errors = np.abs(np.einsum("si,ij,sj->s", steps, hessian, steps))
        quotients = errors / np.linalg.norm(steps, ORDERS[name][0], axis=1) ** 2
        quantity = f"eq. 134's greatest quotient over L of eq. 132, {name}"
        yield equals(quantity, float(quotients.max()) / constant, 0.5, ROUNDING)


MAJORIZE = PropertyClaim(
    id="notes.majorize",
    sentence=(
        "With eta at most 1 / L in the norm of the step, majorization-minimization never raises the loss; a "
        "bounded Hessian is the same as a Lipschitz gradient and bounds the linearization error, and in the "
        "Euclidean norm all three are the same."
    ),
    source="002 App. O, P, eqs. 132-140, Lemmas S.17 and S.18",
    setting=(
        "Descent: quadratics with known L and sums of cosines (not convex, L from |h''| <= 1) of matrices "
        "up to 3 x 3, 15 steps under the Frobenius (as gradient descent), max and spectral norms, eta = 1 / "
        "L or less. Smoothness: indefinite Hessians of up to 6 rows, L at the extreme points of the norm's "
        "ball, 200 random pairs; cosines, where differences over a distance of 1e-4 stand for the limit. "
        "That eq. 134 can hold with half of eq. 132's L is shown where the Hessian is one mixed derivative "
        "(l1) or two opposed ones (l-infinity)."
    ),
    checks=(
        part("the loss never rises and stays under its surrogate", "002 App. P, eqs. 137-140", _descent, 15),
        part("(132) = (133) => (134), quadratics", "002 Lemmas S.17 and S.18", _constants, 30),
        *bounds(
            part("(132) = (133) => (134), cosines and limits", "002 Lemmas S.17 and S.18", _limits, 20),
        ),
        part("(134) is weaker outside the Euclidean norm", "002 App. O", _strict, 10),
    ),
)

CLAIMS = (MAJORIZE,)
