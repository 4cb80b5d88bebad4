"""What the EGOP basis promises to Adagrad: the verdicts, and that the checks notice broken bounds."""

import numpy as np
import pytest

from curvebench.benchmarks.claims import egop_bounds
from curvebench.benchmarks.claims._smooth_objectives import Ball
from curvebench.benchmarks.claims.egop_bounds import ADAGRAD_BOUND, SMOOTHNESS_BOUND, projected
from tests.benchmarks.claim_mutations import assert_noticed, mutate, wrap

RATIO = "2 sr / (d beta_1), quadratics"
GENERAL = "eq. A.5 and Theorem A.1, logistic regression"
CONSTANT = "sr / (d beta_1) is exceeded without a constant"
QUADRATICS = "eq. 3.4 in both bases, quadratics"
LOGISTIC = "eq. 3.4 in both bases, logistic regression"
SPECTRUM = "eq. 3.3 in the EGOP basis, quadratics"


def test_a_smaller_stable_rank_is_noticed(monkeypatch):
    wrap(monkeypatch, egop_bounds, "stable_rank", lambda right, values: 0.4 * right(values))
    assert_noticed(SMOOTHNESS_BOUND, 12, RATIO, CONSTANT)


def test_a_greater_ratio_is_noticed(monkeypatch):
    wrap(monkeypatch, egop_bounds, "_greatest_ratio", lambda right, ball: 2.5 * right(ball))
    assert_noticed(SMOOTHNESS_BOUND, 12, RATIO, GENERAL)


def test_a_basis_that_is_not_the_eigenbasis_is_noticed(monkeypatch):
    def wrong(right, ball, basis):
        return right(ball, np.roll(np.eye(ball.dimension), 1, axis=0))

    wrap(monkeypatch, Ball, "rotated", wrong)
    assert_noticed(SMOOTHNESS_BOUND, 20, CONSTANT)


@pytest.mark.parametrize("factor", [0.0, -1.0], ids=["still", "ascent"])
def test_weights_that_do_not_learn_are_noticed(factor, monkeypatch):
    mutate(monkeypatch, "adagrad", learning_rate=lambda rate: factor * rate)
    monkeypatch.setattr(egop_bounds, "draw_descent", _long)
    assert_noticed(ADAGRAD_BOUND, 4, QUADRATICS, LOGISTIC, SPECTRUM)


def _long(random, ball):
    """From the edge of the ball, far from the minimum, with eta of half of the diameter."""
    start = ball.centre - ball.radius * ball.spectrum[1][:, 0]
    return egop_bounds.Descent(ball, start, ball.radius, 1e-8, 1000)


def test_a_bound_that_is_too_small_is_noticed(monkeypatch):
    wrap(monkeypatch, egop_bounds.Descent, "bound", lambda right, *given: 0.01 * right(*given))
    assert_noticed(ADAGRAD_BOUND, 12, QUADRATICS, LOGISTIC, SPECTRUM)


def test_the_projection_is_the_nearest_point():
    random = np.random.default_rng(0)
    for _ in range(20):
        size = int(random.integers(1, 6))
        point, weights = 3 * random.standard_normal(size), 10.0 ** random.uniform(-3, 3, size)
        found = projected(point, weights, 1.0)
        assert np.linalg.norm(found) <= 1 + 1e-9
        rivals = random.standard_normal((200, size))
        rivals /= np.maximum(1, np.linalg.norm(rivals, axis=1))[:, None]
        distances = ((rivals - point) ** 2) @ weights
        assert ((found - point) ** 2) @ weights <= distances.min() * (1 + 1e-9)
