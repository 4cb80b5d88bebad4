"""Oracles of the property claims of 002 that no mutation covers: formulas by hand, and derivatives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from curvebench.benchmarks.claims import (
    _matrices,
    notes_curvature,
    notes_kronecker,
    notes_online,
    notes_rates,
    notes_weight_decay,
)
from curvebench.benchmarks.claims._online_games import Game, Losses, play
from curvebench.benchmarks.claims.notes_iterations import logarithmic_rate
from curvebench.benchmarks.claims.notes_shampoo import running_mean_weights

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


# --- iterations ---


def test_the_rate_is_read_between_rounding_and_the_start():
    errors = np.maximum(0.5 ** np.arange(100.0), 1e-15)
    errors[:20] = 1.0
    assert logarithmic_rate(errors) == pytest.approx(np.log(0.5))


# --- kronecker ---


def test_the_least_factor_of_an_order():
    small = np.diag([1.0, 2.0])
    assert _matrices.loewner_ratio(small, np.eye(2)) == pytest.approx(2)
    assert _matrices.loewner_ratio(small, np.diag([1.0, 0.0])) == np.inf
    assert _matrices.loewner_ratio(small, np.zeros((2, 2))) == np.inf
    assert _matrices.loewner_ratio(np.zeros((2, 2)), np.zeros((2, 2))) == 0


def test_the_geometric_mean_of_commuting_matrices_is_their_product():
    first, second = np.diag([1.0, 4.0]), np.diag([9.0, 16.0])
    np.testing.assert_allclose(notes_kronecker.geometric_mean(first, second, 0.5), np.diag([3.0, 8.0]))
    np.testing.assert_allclose(notes_kronecker.geometric_mean(first, second, 1.0), first)


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


# --- shampoo ---


def test_the_weights_are_those_of_a_corrected_running_mean():
    values, mean = [1.0, 2.0, 4.0], 0.0
    for value in values:
        mean = 0.5 * mean + 0.5 * value
    np.testing.assert_allclose(running_mean_weights(3, 0.5) @ values, mean / (1 - 0.5**3))


# --- weight decay ---


def test_sensitivity_by_hand():
    losses = np.array([[0.1, 0.01, 1.0], [1.0, 1.0, 1.0]])
    assert notes_weight_decay._sensitivities(losses) == pytest.approx([1.0, 0.0])
