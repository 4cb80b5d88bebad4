"""The EGOP and the Hessian: the verdicts of the claims, and that their checks notice wrong constants."""

import dataclasses
import itertools

import numpy as np
import pytest

from curvebench.benchmarks.claims import _smooth_objectives, egop_hessians
from curvebench.benchmarks.claims._smooth_objectives import (
    Ball,
    Logistic,
    Quadratic,
    draw_logistic_ball,
    least_sum,
    sphere_rule,
)
from curvebench.benchmarks.claims.egop_hessians import HESSIAN_LIPSCHITZ, HESSIAN_SANDWICH, Factorization
from tests.benchmarks.claim_mutations import assert_noticed, wrap

QUADRATICS = "c^2 H^2 <= EGOP <= 2 c^2 H^2, quadratics"
LOGISTIC = "the EGOP up to its error, logistic regression"
DIAGONAL = "the EGOP is diagonal in its own basis"
DENSE = "dense vectors bound the sum from below"
EIGENVECTORS = "eigenvectors bound the sum from below"
UPPER = "eigenvalues bound the sum in the EGOP basis"
FORM = "the quadratic form of the Hessian"
LIPSCHITZ = "the Lipschitz constant"


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_an_outer_product_of_another_size_is_noticed(factor, monkeypatch):
    wrap(monkeypatch, _smooth_objectives, "outer_product", lambda right, *given: factor * right(*given))
    assert_noticed(HESSIAN_SANDWICH, 12, QUADRATICS)


def test_a_centre_that_is_too_far_is_noticed(monkeypatch):
    def wrong(right, random, objective, scale):
        ball = right(random, objective, scale)
        return dataclasses.replace(
            ball, centre=objective.minimizer + 1.5 * (ball.centre - objective.minimizer)
        )

    wrap(monkeypatch, _smooth_objectives, "draw_ball", wrong)
    assert_noticed(HESSIAN_SANDWICH, 12, QUADRATICS, LOGISTIC)


def test_an_error_bound_that_is_too_small_is_noticed(monkeypatch):
    monkeypatch.setattr(_smooth_objectives, "STEEPEST_CURVATURE", 1e-4)
    assert_noticed(HESSIAN_SANDWICH, 20, LOGISTIC)


def test_nodes_that_are_too_few_are_noticed(monkeypatch):
    monkeypatch.setattr(Logistic, "sphere", lambda self, dimension: sphere_rule(dimension, 2))
    assert_noticed(HESSIAN_SANDWICH, 12, LOGISTIC)


def test_another_basis_is_noticed(monkeypatch):
    monkeypatch.setattr(Ball, "rotated", lambda self, basis: self)
    assert_noticed(HESSIAN_SANDWICH, 8, DIAGONAL)


@pytest.mark.parametrize(
    ("lower", "upper", "part"), [(0.4, 1, DENSE), (0.4, 1, EIGENVECTORS), (1, 1.2, UPPER)]
)
def test_sums_of_another_size_are_noticed(lower, upper, part, monkeypatch):
    def wrong(right, hessian):
        least, some = right(hessian)
        return lower * least, upper * some

    wrap(monkeypatch, _smooth_objectives, "least_sum", wrong)
    assert_noticed(HESSIAN_SANDWICH, 20, part)


def test_a_form_without_its_second_term_is_noticed(monkeypatch):
    def wrong(right, own, *given):
        return right(dataclasses.replace(own, targets=2 * own.targets), *given)

    wrap(monkeypatch, Factorization, "quadratic_form", wrong)
    assert_noticed(HESSIAN_LIPSCHITZ, 2, FORM)


def test_a_constant_that_is_too_small_is_noticed(monkeypatch):
    wrap(monkeypatch, egop_hessians, "lipschitz_constant", lambda right, *given: 0.45 * right(*given))
    assert_noticed(HESSIAN_LIPSCHITZ, 8, LIPSCHITZ)


# --- what several claims on EGOP draw -------------------------------------------------------------------


def test_the_least_sum_of_matrices_by_hand():
    for hessian, expected in (
        (np.diag([1.0, 2.0, 0.0]), 3.0),
        (np.ones((2, 2)), 4.0),
        (np.array([[2.0, 1.0], [1.0, 1.0]]), 5.0),  # H_11 + H_22 + 2 |H_12|
        (np.zeros((2, 2)), 0.0),
    ):
        lower, upper = least_sum(hessian)
        assert lower == pytest.approx(expected, rel=1e-8)
        assert upper == pytest.approx(expected, rel=1e-8)


def test_the_least_sum_is_not_below_that_of_any_signs():
    random = np.random.default_rng(0)
    for _ in range(10):
        root = random.standard_normal((5, 3))
        hessian = root @ root.T
        signs = np.array(list(itertools.product([-1.0, 1.0], repeat=5)))
        lower, upper = least_sum(hessian)
        assert np.einsum("si,ij,sj->s", signs, hessian, signs).max() <= upper
        assert lower <= 5 * np.linalg.norm(hessian, 2) * (1 + 1e-9)
        assert upper == pytest.approx(lower, rel=2e-9)


@pytest.mark.parametrize("dimension", [2, 3])
def test_the_rule_of_the_sphere_integrates_polynomials(dimension):
    points, weights = sphere_rule(dimension, 8)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)
    np.testing.assert_allclose((points.T * weights) @ points, np.eye(dimension) / dimension, atol=1e-14)
    assert weights @ points[:, 0] ** 4 == pytest.approx(3 / (dimension * (dimension + 2)))


def test_derivatives_of_the_logistic_loss_by_differences():
    ball = draw_logistic_ball(np.random.default_rng(1), (-1, 0))
    objective, point = ball.objective, ball.centre
    steps = 1e-5 * np.eye(len(point))
    values = objective.values(point + steps) - objective.values(point - steps)
    np.testing.assert_allclose(objective.gradients(point[None])[0], values / 2e-5, rtol=1e-6, atol=1e-6)
    slopes = objective.gradients(point + steps) - objective.gradients(point - steps)
    np.testing.assert_allclose(objective.hessian(point), slopes / 2e-5, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(objective.gradients(objective.minimizer[None]), 0, atol=1e-10)


def test_no_hessian_in_a_ball_exceeds_the_greatest():
    random = np.random.default_rng(2)
    ball = draw_logistic_ball(random, (0, 0.5))
    greatest = ball.objective.greatest_hessian(ball.centre, ball.radius)
    for direction in random.standard_normal((50, ball.dimension)):
        point = ball.centre + ball.radius * random.random() * direction / np.linalg.norm(direction)
        assert np.linalg.eigvalsh(greatest - ball.objective.hessian(point))[0] > -1e-12


def test_the_outer_product_of_a_quadratic():
    curvature, away = np.diag([3.0, 1.0]), np.array([0.5, 0.0])
    ball = Ball(Quadratic(curvature, np.zeros(2)), away, 2.0)
    expected = curvature @ (4 * np.eye(2) + np.outer(away, away)) @ curvature
    np.testing.assert_allclose(ball.egop, expected, atol=1e-14)
    assert ball.gamma == 0
