"""Momentum: the verdicts of the claims, and that their checks notice wrong rules."""

import pytest

from curvebench.benchmarks.claims import notes_momentum
from tests.benchmarks.claim_mutations import assert_noticed, mutate

MOMENTUM, NADAM = notes_momentum.NOTES_MOMENTUM, notes_momentum.NOTES_NADAM


@pytest.mark.parametrize(
    ("optimizer", "part"),
    [
        ("nesterov", "double momentum is Nesterov's"),
        ("nesterov_lookahead", "the classical form"),
        ("nesterov_lookahead", "changing learning rates"),
        ("momentum", "the velocity of a constant gradient"),
        ("momentum", "the lagging weights of heavy ball"),
        ("momentum", "regularized update descent"),
        ("nesterov_lookahead", "regularized update descent"),
    ],
)
def test_another_momentum_is_noticed(optimizer, part, monkeypatch):
    mutate(monkeypatch, optimizer, momentum=lambda momentum: 0.99 * momentum)
    assert_noticed(MOMENTUM, 8, part)


@pytest.mark.parametrize(
    "part", ["double momentum is Nesterov's", "the classical form", "changing learning rates"]
)
def test_polyaks_momentum_is_not_nesterovs(part, monkeypatch):
    mutate(monkeypatch, "nesterov_lookahead", instead="momentum")
    assert_noticed(MOMENTUM, 8, part)


def test_update_descent_that_climbs_is_noticed(monkeypatch):
    mutate(monkeypatch, "regularized_update_descent", learning_rate=lambda rate: rate / 100)
    assert_noticed(MOMENTUM, 3, "where it rests")


def test_heavy_ball_without_the_point_ahead_is_not_double_momentum(monkeypatch):
    monkeypatch.setattr(notes_momentum, "_led_by_velocity", lambda hyper: lambda weights, gradients: weights)
    assert_noticed(NADAM, 8, "equal in gradient descent")


def test_an_adam_without_nesterov_equals_one_without_the_point_ahead(monkeypatch):
    mutate(monkeypatch, "adam", options={"nesterov": False})
    monkeypatch.setattr(notes_momentum, "_led_by_mean", lambda hyper: lambda weights, gradients: weights)
    assert_noticed(NADAM, 3, "not equal in Adam")
