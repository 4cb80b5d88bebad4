"""What the EGOP basis promises to Adagrad: the verdicts, and that the checks notice broken bounds."""

import numpy as np
import pytest

from benchmarks.claims import egop_bounds
from benchmarks.claims._smooth_objectives import Ball
from benchmarks.claims._spectra import stable_rank
from benchmarks.claims.egop_bounds import ADAGRAD_BOUND, SMOOTHNESS_BOUND, projected
from tests.benchmarks.claim_mutations import failing, few, mutate, verdicts_of

RATIO = "2 sr / (d beta_1), quadratics"
GENERAL = "eq. A.5 and Theorem A.1, logistic regression"
CONSTANT = "sr / (d beta_1) is exceeded without a constant"
QUADRATICS = "eq. 3.4 in both bases, quadratics"
LOGISTIC = "eq. 3.4 in both bases, logistic regression"
SPECTRUM = "eq. 3.3 in the EGOP basis, quadratics"


@pytest.mark.parametrize("claim", [SMOOTHNESS_BOUND, ADAGRAD_BOUND], ids=lambda claim: claim.id)
def test_the_verdicts(claim):
    assert verdicts_of(few(claim, 4)) == {"": "reproduced"}


def test_a_smaller_stable_rank_is_noticed(monkeypatch):
    right = stable_rank
    monkeypatch.setattr(egop_bounds, "stable_rank", lambda values: 0.4 * right(values))
    parts = {RATIO, CONSTANT}
    assert failing(few(SMOOTHNESS_BOUND, 12, parts)) == {(part, "") for part in parts}


def test_a_greater_ratio_is_noticed(monkeypatch):
    right = egop_bounds._greatest_ratio
    monkeypatch.setattr(egop_bounds, "_greatest_ratio", lambda ball: 2.5 * right(ball))
    parts = {RATIO, GENERAL}
    assert failing(few(SMOOTHNESS_BOUND, 12, parts)) == {(part, "") for part in parts}


def test_a_basis_that_is_not_the_eigenbasis_is_noticed(monkeypatch):
    right = Ball.rotated

    def wrong(self, basis):
        return right(self, np.roll(np.eye(self.dimension), 1, axis=0))

    monkeypatch.setattr(Ball, "rotated", wrong)
    assert failing(few(SMOOTHNESS_BOUND, 20, {CONSTANT})) == {(CONSTANT, "")}


@pytest.mark.parametrize("factor", [0.0, -1.0], ids=["still", "ascent"])
def test_weights_that_do_not_learn_are_noticed(factor, monkeypatch):
    mutate(monkeypatch, "adagrad", learning_rate=lambda rate: factor * rate)
    monkeypatch.setattr(egop_bounds, "draw_descent", _long)
    parts = {QUADRATICS, LOGISTIC, SPECTRUM}
    assert failing(few(ADAGRAD_BOUND, 4, parts)) == {(part, "") for part in parts}


def _long(random, ball):
    """From the edge of the ball, far from the minimum, with eta of half of the diameter."""
    start = ball.centre - ball.radius * ball.spectrum[1][:, 0]
    return egop_bounds.Descent(ball, start, ball.radius, 1e-8, 1000)


def test_a_bound_that_is_too_small_is_noticed(monkeypatch):
    right = egop_bounds.Descent.bound
    monkeypatch.setattr(egop_bounds.Descent, "bound", lambda self, constants: 0.01 * right(self, constants))
    parts = {QUADRATICS, LOGISTIC, SPECTRUM}
    assert failing(few(ADAGRAD_BOUND, 12, parts)) == {(part, "") for part in parts}


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


def test_a_point_inside_stays():
    point = np.array([0.3, -0.4])
    assert projected(point, np.array([1.0, 5.0]), 0.6) is point
