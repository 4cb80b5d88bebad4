"""EGOP and Hessian: bounds of one by the other, and the Lipschitz constant of the Hessian.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).

EGOP is the expected gradient outer product over points of a ball with centre theta_c and scale c; theta* is
the minimizer. Line numbers (l.) are of the source text of 000.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvebench.benchmarks.claims._matrices import loewner_ratio
from curvebench.benchmarks.claims._measures import agrees, at_most, vanishes
from curvebench.benchmarks.claims._parts import Random, bounds, part, printed_and_corrected
from curvebench.benchmarks.claims._smooth_objectives import (
    Ball,
    draw_logistic_ball,
    draw_quadratic_ball,
    outer_product,
    sphere_rule,
)
from curvebench.benchmarks.claims._spectra import density
from curvebench.property_checks.checks import Measure, PropertyClaim

# Tolerance of the smallest r with X <= r Y in the Loewner order.
# X or Y is a squared Hessian, whose eigenvalues span 4 orders of magnitude.
ROUNDING = 1e-8
# Relative tolerance of EGOPs that are computed by quadrature.
QUADRATURE = 1e-10
# Tolerance of ratios with the smallest sum of smoothness constants.
# The smallest sum is the value of a semidefinite program, with a relative error of at most 1e-9.
SUMS = 1e-6


# --- the EGOP between two multiples of the squared Hessian (000 Lemmas A.2-A.7) -----------------------------


def _logistic_ball(random: Random) -> Ball:
    """Draw a ball of random size around the minimizer of a logistic regression.

    In small balls the Hessian is nearly constant, in large balls it varies much.
    """
    return draw_logistic_ball(random, (-3, 0.5))


def _drawn(random: Random) -> Ball:
    return (draw_quadratic_ball if random.integers(2) else _logistic_ball)(random)


def sandwiched(ball: Ball) -> np.ndarray:
    """Return the matrix between the two bounds of 000 Lemma A.6, which are multiples of c^2 H^2.

    The matrix is H (c^2 I + (theta_c - theta*) (theta_c - theta*)^T) H, where H is the Hessian at the
    minimizer.
    """
    away = ball.centre - ball.objective.minimizer
    inner = ball.scale**2 * np.eye(ball.dimension) + np.outer(away, away)
    return np.asarray(ball.curvature @ inner @ ball.curvature)


def _between(ball: Ball, middle: np.ndarray, what: str) -> Iterator[Measure]:
    square = ball.scale**2 * ball.curvature @ ball.curvature
    yield at_most(f"least r with c^2 H^2 <= r {what}", loewner_ratio(square, middle), 1.0, ROUNDING)
    yield at_most(f"least r with {what} <= r c^2 H^2", loewner_ratio(middle, square), 2.0, ROUNDING)


def _quadratics(random: Random) -> Iterator[Measure]:
    ball = draw_quadratic_ball(random)
    yield from _between(ball, ball.egop, "EGOP")


def _logistic(random: Random) -> Iterator[Measure]:
    ball = _logistic_ball(random)
    middle = sandwiched(ball)
    yield from _between(ball, middle, "G")
    error = float(np.linalg.norm(ball.egop - middle, 2))
    yield at_most("|EGOP - G| over 2 H lambda_max M_3 + H^2 M_4", error / ball.gamma, 1.0, ROUNDING)
    points, weights = sphere_rule(ball.dimension, 64)
    finer = outer_product(ball.objective, ball.centre + ball.radius * points, weights)
    yield agrees("EGOP less that with twice as many nodes, relative", ball.egop, finer, QUADRATURE)


def _diagonal(random: Random, printed: bool) -> Iterator[Measure]:
    ball = _drawn(random)
    values, vectors = ball.spectrum
    there = ball.rotated(vectors)
    # As printed, the distribution rho(theta~ - V^T theta_c) has the mean theta_c + V^T theta_c.
    if printed:
        there = Ball(there.objective, there.centre + ball.centre, ball.scale)
    yield agrees("EGOP of f(V theta) less diag(lambda), relative", there.egop, np.diag(values), QUADRATURE)


def _lower(random: Random, printed: bool) -> Iterator[Measure]:
    ball = _drawn(random)
    size = ball.dimension
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=size)))
    dense = signs * (size**0.5 if printed else size**-0.5)
    greatest = float(np.einsum("si,ij,sj->s", dense, ball.egop, dense).max())
    below = (greatest - ball.gamma) / _root(ball) * size / (2 * ball.scale)
    yield at_most("Lemma A.2's bound over the least sum", below / ball.sums()[0], 1.0, SUMS)


def _root(ball: Ball) -> float:
    """Return sqrt(lambda_max(EGOP) + gamma), where gamma is `ball.gamma` (000 eq. A.2)."""
    return float(np.sqrt(ball.spectrum[0][0] + ball.gamma))


def _corollary(random: Random) -> Iterator[Measure]:
    ball = _drawn(random)
    values, vectors = ball.spectrum
    greatest = max(density(vector) * value for value, vector in zip(values, vectors.T, strict=True))
    below = (greatest - ball.gamma) / _root(ball) * ball.dimension / (2 * ball.scale)
    yield at_most("Corollary A.3's bound over the least sum", below / ball.sums()[0], 1.0, SUMS)


def _upper(random: Random) -> Iterator[Measure]:
    ball = _drawn(random)
    values, vectors = ball.spectrum
    there = ball.rotated(vectors)
    # An upper bound of the change of the Hessian in the ball: the Lipschitz constant times the diameter D_2.
    change = ball.objective.hessian_lipschitz * 2 * ball.radius
    bound = ball.dimension * (np.sqrt(ball.gamma) / ball.scale + change) + np.sqrt(values).sum() / ball.scale
    yield at_most("least sum over Lemma A.4's bound", there.sums()[1] / float(bound), 1.0, SUMS)
    # Smoothness constants as in line 1510 of 000.
    constants = np.sqrt(values + ball.gamma) / ball.scale + change
    greatest = there.objective.greatest_hessian(there.centre, there.radius)
    least = loewner_ratio(greatest, np.diag(constants))
    yield at_most("least r with the Hessians <= r diag(L) of the proof", least, 1.0, ROUNDING)


HESSIAN_SANDWICH = PropertyClaim(
    id="egop.hessian-sandwich",
    sentence=(
        "Near a minimum the EGOP lies between c^2 H^2 and 2 c^2 H^2, up to an error that the Lipschitz "
        "constant of the Hessian bounds; it is diagonal in its own basis; and its spectrum bounds the sums "
        "of coordinate-wise smoothness constants, from below in the original coordinates and from above in "
        "its own."
    ),
    source="000 Lemmas A.2, A.4, A.6, A.7, Corollary A.3; 001 Lemmas 6, 8, 11, 14",
    setting=(
        "Quadratics in 2 to 8 dimensions, some with a singular Hessian, and logistic regressions in 2 and 3 "
        "dimensions with 40 examples that no plane separates. Samples are uniform on a sphere of radius c "
        "sqrt(d) whose centre is up to c from the minimum; the ball inside is Theta. Expectations are sums "
        "over points: exact for quadratics, to 1e-10 for logistic regressions, which twice as many points "
        "show. Hessians of logistic regressions have the constant |sum |a_i| a_i a_i^T| / (6 sqrt 3). The "
        "least sum of smoothness constants is a semidefinite program, taken from its dual where a bound from "
        "below is asked for, and for a matrix above all Hessians in the ball where one from above is. Two "
        "misprints: in eq. A.3 rho~ is centred at theta_c + V^T theta_c and not at V^T theta_c, and Lemma "
        "A.2 gives the dense vectors entries of magnitude d^(1/2) and not d^(-1/2)."
    ),
    checks=(
        part("c^2 H^2 <= EGOP <= 2 c^2 H^2, quadratics", "000 Lemma A.6; 001 Lemma 11", _quadratics, 40),
        *bounds(
            part(
                "the EGOP up to its error, logistic regression", "000 Lemma A.6; 001 Lemma 11", _logistic, 20
            ),
        ),
        *printed_and_corrected(
            "the EGOP is diagonal in its own basis", "000 Lemma A.7, eq. A.3; 001 Lemma 14", _diagonal, 20
        ),
        *bounds(
            *printed_and_corrected(
                "dense vectors bound the sum from below", "000 Lemma A.2; 001 Lemma 6", _lower, 20
            ),
            part(
                "eigenvectors bound the sum from below", "000 Corollary A.3; 001 Corollary 7", _corollary, 20
            ),
            part("eigenvalues bound the sum in the EGOP basis", "000 Lemma A.4; 001 Lemma 8", _upper, 20),
        ),
    ),
)


# --- the Hessian of a factorization (000 Lemmas E.3, E.4) ---------------------------------------------------


@dataclass(frozen=True)
class Factorization:
    """Objective of matrix factorization, f(L, R) = |A(L R^T) - b|^2 (000 eq. E.6).

    A maps a matrix X to the m measurements <A_i, X>.

    Args:
        maps: A_i, (m, d_1, d_2).
        targets: b, (m,).
        rank: k, the number of columns of L and R.
    """

    maps: np.ndarray
    targets: np.ndarray
    rank: int

    @property
    def size(self) -> int:
        """Number of parameters, (d_1 + d_2) k."""
        return (self.maps.shape[1] + self.maps.shape[2]) * self.rank

    def factors(self, parameters: Any) -> tuple[Any, Any]:
        """Split parameters (..., n) into L (..., d_1, k) and R (..., d_2, k)."""
        split, lead = self.maps.shape[1] * self.rank, parameters.shape[:-1]
        left, right = parameters[..., :split], parameters[..., split:]
        return left.reshape(*lead, -1, self.rank), right.reshape(*lead, -1, self.rank)

    def quadratic_form(self, parameters: np.ndarray, direction: np.ndarray) -> float:
        """Return v^T Hessian v for a direction v, by the formula of 000 Lemma E.4."""
        (left, right), (u, v) = self.factors(parameters), self.factors(direction)
        first, second = self._measured(u @ right.T + left @ v.T), self._measured(u @ v.T)
        return float(2 * first @ first + 4 * (self._measured(left @ right.T) - self.targets) @ second)

    def _measured(self, matrix: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("mij,ij->m", self.maps, matrix))

    def hessians(self, points: np.ndarray) -> np.ndarray:
        """Return the Hessians (points, n, n) at parameters (points, n), by automatic differentiation."""
        import torch

        maps, targets = torch.from_numpy(self.maps), torch.from_numpy(self.targets)
        given = torch.from_numpy(points).requires_grad_()
        left, right = self.factors(given)
        # Each term of the sum depends on one point only.
        # The derivatives of the sum are therefore the derivatives of the terms.
        total = torch.square(torch.einsum("mij,pik,pjk->pm", maps, left, right) - targets).sum()
        (slopes,) = torch.autograd.grad(total, given, create_graph=True)
        rows = [torch.autograd.grad(slope.sum(), given, retain_graph=True)[0] for slope in slopes.T]
        return np.asarray(torch.stack(rows, 1).numpy())


def draw_factorization(random: Random) -> Factorization:
    """Draw a factorization problem: up to 4 measurements, matrices of up to 3 rows and columns, rank up to 3.

    Sometimes all sizes are 1.
    """
    m, rows, columns, rank = (int(size) for size in random.integers(1, (5, 4, 4, 4)))
    if random.integers(3) == 0:
        m = rows = columns = rank = 1
    maps = random.standard_normal((m, rows, columns)) * 10.0 ** random.uniform(-1, 1)
    return Factorization(maps, random.standard_normal(m) * 10.0 ** random.uniform(-1, 1), rank)


def _form(random: Random) -> Iterator[Measure]:
    function = draw_factorization(random)
    points, directions = random.standard_normal((2, 10, function.size)) * 10.0 ** random.uniform(-1, 1)
    hessians = function.hessians(points)
    expected = np.einsum("pi,pij,pj->p", directions, hessians, directions)
    found = [function.quadratic_form(*pair) for pair in zip(points, directions, strict=True)]
    sizes = np.linalg.norm(hessians, axis=(1, 2)) * np.sum(directions**2, axis=1)
    error = float(np.max(np.abs(np.array(found) - expected) / sizes))
    yield vanishes("quadratic form less that by autograd, relative", error, 1e-12)


def lipschitz_constant(function: Factorization, radius: float) -> float:
    """Return the Lipschitz constant of the Hessian in a ball as 000 Lemma E.3 states it.

    The constant is 12 B sum |A_i|_F^2, where B is the radius of the ball.
    """
    return 12 * radius * float(np.sum(function.maps**2))


def _lipschitz(random: Random) -> Iterator[Measure]:
    function = draw_factorization(random)
    radius, size = float(10.0 ** random.uniform(-1, 1)), function.size
    ends = random.standard_normal((2, 40, size))
    ends[0, :10] = np.abs(ends[0, :10])
    # When all factors are 1 x 1, the Hessian changes fastest at the point with all entries equal.
    ends[0, 0] = 1.0
    # Put the second points of the first 20 pairs on the lines from the first points to 0.
    ends[1, :20] = ends[0, :20] * (1 - 10.0 ** random.uniform(-4, 0, (20, 1)))
    ends[1, 20:30] = ends[0, 20:30] + 1e-3 * ends[1, 20:30]
    lengths = np.linalg.norm(ends, axis=2, keepdims=True)
    # Scale each pair of points so that the longer of the two vectors has the length `radius`.
    ends *= radius / np.maximum(lengths[0], lengths[1])
    first, second = (function.hessians(points) for points in ends)
    changes = np.linalg.norm(first - second, 2, axis=(1, 2)) / np.linalg.norm(ends[0] - ends[1], axis=1)
    greatest = float(changes.max()) / lipschitz_constant(function, radius)
    yield at_most("change of the Hessian over 12 B sum |A_i|^2 times the distance", greatest, 1.0, 1e-9)


HESSIAN_LIPSCHITZ = PropertyClaim(
    id="egop.hessian-lipschitz",
    sentence=(
        "The Hessian of |A(L R^T) - b|^2 has a closed form, and in the ball of radius B it is Lipschitz with "
        "the constant 12 B sum |A_i|_F^2."
    ),
    source="000 Lemmas E.3, E.4, eq. E.6; 001 Lemmas 16, 17",
    setting=(
        "Up to 4 measurements of products of factors of up to 3 rows and 3 columns. The closed form is "
        "compared with PyTorch's Hessian in float64. The Hessians of 40 pairs in the ball are compared: "
        "anywhere, near each other, and on a line to 0, one of each pair on the sphere. With numbers for "
        "factors half of the constant is reached, the most that was seen."
    ),
    checks=(
        part("the quadratic form of the Hessian", "000 Lemma E.4", _form, 20),
        *bounds(
            part("the Lipschitz constant", "000 Lemma E.3", _lipschitz, 20),
        ),
    ),
)

CLAIMS = (HESSIAN_SANDWICH, HESSIAN_LIPSCHITZ)
