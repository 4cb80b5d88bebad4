"""Smooth convex objectives on balls, on which claims about EGOP are checked.

Expectations over the surface of a ball are computed by quadrature instead of sampling. The smallest sum of
smoothness constants is bounded from below and above.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).

EGOP is the expected gradient outer product, E[g g^T]. theta* is the minimizer, c the scale of the sampling
distribution, D_2 the diameter of the ball, H the Lipschitz constant of the Hessian, and smoothness constants
are numbers L_1 ... L_d, one per coordinate, that bound the Hessian by diag(L).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from curvebench.benchmarks.claims._matrices import orthonormal, with_singular_values
from curvebench.benchmarks.claims._parts import Random
from curvebench.optimizers.bases.estimators import egop_matrix

# The maximum absolute third derivative of log(1 + e^z).
STEEPEST_CURVATURE = 1 / (6 * np.sqrt(3))


@dataclass(frozen=True)
class Quadratic:
    """Quadratic objective f(theta) = (theta - theta*)^T H (theta - theta*) / 2.

    Args:
        curvature: H, (d, d), symmetric and positive semi-definite.
        minimizer: theta*, (d,).
    """

    curvature: np.ndarray
    minimizer: np.ndarray

    hessian_lipschitz = 0.0

    def values(self, points: np.ndarray) -> np.ndarray:
        """Return the values of the objective, (M,), at points (M, d)."""
        away = points - self.minimizer
        return np.einsum("mi,ij,mj->m", away, self.curvature, away) / 2

    def gradients(self, points: np.ndarray) -> np.ndarray:
        """Return the gradients of the objective, (M, d), at points (M, d)."""
        return (points - self.minimizer) @ self.curvature

    def hessian(self, point: np.ndarray) -> np.ndarray:
        """Return the Hessian of the objective, (d, d), at a point (d,)."""
        return self.curvature

    def greatest_hessian(self, centre: np.ndarray, radius: float) -> np.ndarray:
        """Return a matrix (d, d) that no Hessian in a ball exceeds in the Loewner order."""
        return self.curvature

    def sphere(self, dimension: int) -> tuple[np.ndarray, np.ndarray]:
        """Return points (M, d) of the unit sphere and their weights (M,) in a quadrature.

        Weighted means of products of two gradients are exact.
        """
        points = np.concatenate([np.eye(dimension), -np.eye(dimension)])
        return points, np.full(len(points), 1 / len(points))

    def rotated(self, basis: np.ndarray) -> Quadratic:
        """Return the objective in a basis V: theta is mapped to f(V theta)."""
        return Quadratic(basis.T @ self.curvature @ basis, basis.T @ self.minimizer)


@dataclass(frozen=True)
class Logistic:
    """Logistic regression f(theta) = sum of log(1 + exp(-b_i a_i^T theta)).

    Args:
        features: a_i, (n, d).
        labels: b_i, 1 or -1, (n,).
        minimizer: theta*, (d,).
    """

    features: np.ndarray
    labels: np.ndarray
    minimizer: np.ndarray

    @property
    def hessian_lipschitz(self) -> float:
        """Lipschitz constant of the Hessian.

        The constant follows from |s''(x) - s''(z)| <= |x - z| / (6 sqrt 3) for s(x) = log(1 + e^x).
        """
        lengths = np.linalg.norm(self.features, axis=1)
        return float(STEEPEST_CURVATURE * np.linalg.norm((self.features.T * lengths) @ self.features, 2))

    def values(self, points: np.ndarray) -> np.ndarray:
        """Return the values of the objective, (M,), at points (M, d)."""
        return np.logaddexp(0.0, -self.labels * (points @ self.features.T)).sum(1)

    def gradients(self, points: np.ndarray) -> np.ndarray:
        """Return the gradients of the objective, (M, d), at points (M, d)."""
        scores = self.labels * (points @ self.features.T)
        return -(self.labels * np.exp(-np.logaddexp(0.0, scores))) @ self.features

    def hessian(self, point: np.ndarray) -> np.ndarray:
        """Return the Hessian of the objective, (d, d), at a point (d,)."""
        return self._weighted(np.abs(self.features @ point))

    def greatest_hessian(self, centre: np.ndarray, radius: float) -> np.ndarray:
        """Return a matrix (d, d) that no Hessian in a ball exceeds in the Loewner order.

        Each term of the Hessian is replaced by its maximum in the ball.
        """
        nearest = np.abs(self.features @ centre) - radius * np.linalg.norm(self.features, axis=1)
        return self._weighted(np.maximum(nearest, 0.0))

    def _weighted(self, scores: np.ndarray) -> np.ndarray:
        curvatures = np.exp(-np.logaddexp(0.0, scores) - np.logaddexp(0.0, -scores))
        return (self.features.T * curvatures) @ self.features

    def sphere(self, dimension: int) -> tuple[np.ndarray, np.ndarray]:
        """Return points (M, d) of the unit sphere and their weights (M,), for d = 2 or 3 (`sphere_rule`)."""
        return sphere_rule(dimension, 32)

    def rotated(self, basis: np.ndarray) -> Logistic:
        """Return the objective in a basis V: theta is mapped to f(V theta)."""
        return Logistic(self.features @ basis, self.labels, basis.T @ self.minimizer)


Objective = Quadratic | Logistic


def sphere_rule(dimension: int, fineness: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points (M, d) and weights (M,) of a quadrature for the uniform distribution on the unit sphere.

    Args:
        dimension: 2 for equidistant points on the circle, or 3 for circles at heights of a Gauss-Legendre
        rule.
        fineness: half of the number of points on each circle.
    """
    angles = 2 * np.pi * np.arange(2 * fineness) / (2 * fineness)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    if dimension == 2:
        return circle, np.full(len(circle), 1 / len(circle))
    heights, weights = np.polynomial.legendre.leggauss(fineness)
    widths = np.sqrt(1 - heights**2)
    points = np.concatenate(
        [
            np.column_stack([width * circle, np.full(len(circle), z)])
            for width, z in zip(widths, heights, strict=True)
        ]
    )
    return points, np.repeat(weights / 2, len(circle)) / len(circle)


def outer_product(objective: Objective, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the EGOP (d, d) over points (M, d) with weights (M,), computed by the project's own function."""
    return egop_matrix(objective.gradients(points) * np.sqrt(len(weights) * weights)[:, None])


@dataclass(frozen=True)
class Ball:
    """Objective on a ball that contains the objective's minimizer.

    Points are sampled uniformly on the surface of the ball. This distribution is isotropic, with covariance
    c^2 I (000 Assumption 1).

    Args:
        objective: the objective f.
        centre: theta_c, (d,), at distance at most c from the minimizer.
        scale: c, so that the radius is c sqrt(d).
    """

    objective: Objective
    centre: np.ndarray
    scale: float

    @property
    def dimension(self) -> int:
        """Dimension d of the parameters."""
        return len(self.centre)

    @property
    def radius(self) -> float:
        """Radius of the ball, half of D_2."""
        return self.scale * float(np.sqrt(self.dimension))

    @property
    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Points (M, d) and weights (M,) of the quadrature for expectations over the ball's surface."""
        points, weights = self.objective.sphere(self.dimension)
        return self.centre + self.radius * points, weights

    @cached_property
    def egop(self) -> np.ndarray:
        """Expected gradient outer product E[g g^T] over the points of the ball's surface, (d, d)."""
        return outer_product(self.objective, *self.nodes)

    @cached_property
    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues (d,) of the EGOP in descending order, and eigenvectors (d, d) in columns."""
        values, vectors = np.linalg.eigh(self.egop)
        return np.maximum(values[::-1], 0.0), vectors[:, ::-1]

    @cached_property
    def curvature(self) -> np.ndarray:
        """Hessian of the objective at its minimum, (d, d)."""
        return self.objective.hessian(self.objective.minimizer)

    def moment(self, power: int) -> float:
        """Return the moment M_p = E |theta - theta*|^p for p = `power` (000 Lemma A.6)."""
        points, weights = self.nodes
        return float(weights @ np.linalg.norm(points - self.objective.minimizer, axis=1) ** power)

    @property
    def gamma(self) -> float:
        """Constant gamma = 2 H lambda_max M_3 + H^2 M_4 of 000 eq. A.2, which is 0 for quadratics.

        H is the Lipschitz constant of the Hessian, lambda_max the Hessian's largest eigenvalue, and M_p a
        `moment`.
        """
        lipschitz = self.objective.hessian_lipschitz
        greatest = float(np.linalg.norm(self.curvature, 2))
        return 2 * lipschitz * greatest * self.moment(3) + lipschitz**2 * self.moment(4)

    def rotated(self, basis: np.ndarray) -> Ball:
        """Return the ball in the coordinates V^T theta."""
        return Ball(self.objective.rotated(basis), basis.T @ self.centre, self.scale)

    def sums(self) -> tuple[float, float]:
        """Return a lower and an upper bound of the smallest sum of smoothness constants in the ball.

        Smoothness constants L, one per coordinate, satisfy |v^T Hessian v| <= v^T diag(L) v everywhere in the
        ball (000 Lemma A.5).
        """
        greatest = self.objective.greatest_hessian(self.centre, self.radius)
        return least_sum(self.curvature)[0], least_sum(greatest)[1]


def least_sum(hessian: np.ndarray) -> tuple[float, float]:
    """Return a lower and an upper bound of the smallest sum of smoothness constants for one Hessian.

    Smoothness constants L are such that diag(L) - `hessian` is positive semi-definite. The relative
    difference of the two bounds is at most 1e-9.

    The sum is minimized by a semidefinite program, which is solved by Newton's method along its central path.
    With the path's parameter mu, the matrix mu (diag(L) - hessian)^-1, scaled to a diagonal of ones, is
    feasible in the dual problem and yields the lower bound.

    Args:
        hessian: (d, d), symmetric and positive semi-definite.
    """
    norm = float(np.linalg.norm(hessian, 2))
    if norm == 0:
        return 0.0, 0.0
    scaled, size = hessian / norm, len(hessian)
    constants, mu = np.full(size, 2.0), 1.0
    while True:
        for _ in range(50):
            inverse = np.linalg.inv(np.diag(constants) - scaled)
            slope, curvature = 1 / mu - np.diag(inverse), inverse * inverse
            step = np.linalg.solve(curvature, slope)
            decrement = math.sqrt(max(float(slope @ step), 0.0))
            # The damping of the step keeps diag(L) - hessian positive definite.
            constants = constants - step / (1 + decrement)
            if decrement < 1e-6:
                break
        root = np.sqrt(np.diagonal(inverse))
        lower, upper = float(np.sum(scaled * inverse / np.outer(root, root))), float(constants.sum())
        if upper - lower <= 1e-9 * upper:
            return lower * norm, upper * norm
        mu /= 5


# --- drawing objectives ----------------------------------------------------------------------------


def draw_basis(random: Random, size: int) -> np.ndarray:
    """Draw an orthogonal matrix (d, d).

    In half of the cases, all entries of the first column have the same magnitude.
    """
    first = random.choice([-1.0, 1.0], (size, 1))
    others = random.standard_normal((size, size - 1))
    if random.integers(2):
        first = random.standard_normal((size, 1))
    return np.asarray(np.linalg.qr(np.concatenate([first, others], axis=1))[0])


def draw_quadratic(random: Random) -> Quadratic:
    """Draw a quadratic in 2 to 8 dimensions.

    The eigenvalues of its Hessian span 2 orders of magnitude or are equal; some may be 0.
    """
    size = int(random.integers(2, 9))
    values = np.sort(10.0 ** random.uniform(-2 * random.integers(2), 0, size))[::-1]
    if random.random() < 0.3:
        values[int(random.integers(1, size)) :] = 0.0
    basis = draw_basis(random, size)
    return Quadratic((basis * values) @ basis.T, random.standard_normal(size))


def draw_logistic(random: Random) -> Logistic:
    """Draw a logistic regression of 40 examples in 2 or 3 dimensions.

    The matrix of features has decaying singular values, and no plane separates the two labels.
    """
    while True:
        size = int(random.integers(2, 4))
        values = np.sqrt(40.0) * np.arange(1, size + 1) ** -random.uniform(0, 2)
        features = with_singular_values(random, 40, size, values) * random.choice([0.5, 1.0, 2.0])
        features = features @ orthonormal(random, size, size)
        chances = 1 / (1 + np.exp(-(features @ random.standard_normal(size))))
        labels = np.where(random.random(40) < chances, 1.0, -1.0)
        drawn = Logistic(features, labels, np.zeros(size))
        minimizer = _minimizer(drawn)
        if minimizer is not None:
            return replace(drawn, minimizer=minimizer)


def _minimizer(objective: Logistic) -> np.ndarray | None:
    """Return the minimizer by Newton's method with step halving.

    None is returned if the minimum is at infinity, or if the method does not converge in 50 steps.
    """
    point = objective.minimizer
    for _ in range(50):
        gradient = objective.gradients(point[None])[0]
        step = np.linalg.solve(objective.hessian(point), gradient)
        if gradient @ step < 1e-28:
            return point
        share = 1.0
        while objective.values((point - share * step)[None])[0] > objective.values(point[None])[0]:
            share /= 2
            if share < 1e-6:
                return point if gradient @ step < 1e-24 else None
        point = point - share * step
        if np.linalg.norm(point) > 30:  # The minimum is at infinity, because a plane separates the labels.
            return None
    return None


def draw_ball(random: Random, objective: Objective, scale: float) -> Ball:
    """Draw a ball with scale c = `scale`.

    The distance of its centre from the minimizer is 0, c or a random number in between.
    """
    direction = random.standard_normal(len(objective.minimizer))
    distance = scale * float(random.choice([0.0, 1.0, random.random()]))
    return Ball(objective, objective.minimizer + distance * direction / np.linalg.norm(direction), scale)


def draw_quadratic_ball(random: Random) -> Ball:
    """Draw a ball around the minimum of a quadratic, with c from 0.1 to 10."""
    return draw_ball(random, draw_quadratic(random), float(10.0 ** random.uniform(-1, 1)))


def draw_logistic_ball(random: Random, nearness: tuple[float, float]) -> Ball:
    """Draw a ball around the minimum of a logistic regression.

    Args:
        random: generator of the instance.
        nearness: lower and upper bound of log10(c H d^(3/2) / lambda_max), where H is the Lipschitz constant
            of the Hessian and lambda_max its largest eigenvalue. The number is small if the Hessian is nearly
            constant in the ball.
    """
    objective = draw_logistic(random)
    size = len(objective.minimizer)
    greatest = float(np.linalg.norm(objective.hessian(objective.minimizer), 2))
    unit = greatest / (objective.hessian_lipschitz * size**1.5)
    return draw_ball(random, objective, unit * float(10.0 ** random.uniform(*nearness)))
