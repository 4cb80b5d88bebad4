"""Oracles of the property claims of 002 that no mutation covers: formulas by hand, and derivatives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from curvebench.benchmarks.claims import notes_curvature, notes_online, notes_rates
from curvebench.benchmarks.claims._online_games import Game, Losses, play

# --- curvature ---


def test_the_derivatives_of_a_linear_classifier_by_hand():
    """The gradient of the logits W x is (p - e_y) x^T, and their second derivative is 0."""
    model = notes_curvature._classifier(np.random.default_rng(1), linear=True)
    assert not model.logit_hessians.any()
    examples, classes, size = model.gradients.shape
    slopes = model.predicted[:, None, :] - np.eye(classes)
    features = model.gradients.reshape(examples, classes, classes, -1) / slopes[..., None]
    np.testing.assert_allclose(features, np.broadcast_to(features[:, :1, :1], features.shape))
    assert features.shape[-1] * classes == size


# --- online ---


@pytest.mark.parametrize(("examples", "steps"), [(2, 8), (3, 5), (4, 4), (5, 3), (6, 3)])
def test_every_sequence_is_played_once(examples, steps):
    order = notes_online.all_sequences(examples)
    assert {*map(tuple, order.tolist())} == {*itertools.product(range(examples), repeat=steps)}
    assert len(order) == examples**steps


def test_a_game_by_hand():
    losses = Losses("squared", np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
    played = play(Game(losses, 1.0, np.array([0.0])), "sgd", {"learning_rate": 0.5})
    # g_1 = -1, w_2 = 0.5; g_2 = 2 (1 - 4) = -6; the best of (w - 1)^2 / 2 + (2 w - 4)^2 / 2 up to 1 is 1
    assert played.weights.ravel().tolist() == [0.0, 0.5]
    assert played.gradients.ravel().tolist() == [-1.0, -6.0]
    assert played.best == pytest.approx([1.0])
    assert played.regret == pytest.approx(0.5 + 4.5 - 0.0 - 2.0)
    assert (played.distance, played.first_distance) == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize("kind", ["linear", "squared", "logistic"])
def test_gradients_of_losses_are_their_slopes(kind):
    random = np.random.default_rng(1)
    losses = Losses(kind, random.normal(size=(5, 3)), random.choice([-1.0, 1.0], 5))
    weights, step = random.normal(size=3), 1e-6
    for axis in np.eye(3):
        slope = (losses.at(weights + step * axis) - losses.at(weights - step * axis)).sum() / (2 * step)
        assert losses.gradient(weights) @ axis == pytest.approx(slope, abs=1e-8)


# --- rates ---


def test_derivatives_of_the_bend():
    random = np.random.default_rng(0)
    for _ in range(20):
        bend = notes_rates._bend(random, 3)
        weights, step = 0.5 * random.normal(size=3), 1e-6
        for axis in np.eye(3):
            ahead, behind = weights + step * axis, weights - step * axis
            slope = (bend.value(ahead) - bend.value(behind)) / (2 * step)
            assert bend.gradient(weights) @ axis == pytest.approx(slope, rel=1e-4, abs=1e-6)
            bent = (bend.gradient(ahead) - bend.gradient(behind)) / (2 * step)
            assert bend.hessian(weights) @ axis == pytest.approx(bent, rel=1e-4, abs=1e-4)
        convexity, smoothness, _ = bend.bounds
        eigenvalues = np.linalg.eigvalsh(bend.hessian(weights))
        assert convexity <= eigenvalues[0] * (1 + 1e-9)
        assert eigenvalues[-1] <= smoothness * (1 + 1e-9)
