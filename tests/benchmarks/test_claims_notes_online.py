"""Regret and averages: the verdicts of the claims, and that their checks notice wrong rules."""

import itertools

import numpy as np
import pytest

from curvebench.benchmarks.claims import notes_online
from curvebench.benchmarks.claims._online_games import Game, Losses, play
from tests.benchmarks.claim_mutations import assert_noticed, mutate, wrap

REGRET, BATCH = notes_online.NOTES_REGRET, notes_online.NOTES_ONLINE_TO_BATCH
ENVIRONMENTS = {f"the random environment against {name}" for name in notes_online.LEARNERS}
LEARNERS = {check.part for check in BATCH.checks}


@pytest.mark.parametrize(
    ("optimizer", "part"),
    [
        ("mirror_descent", "gradient descent at a constant rate"),
        ("mirror_descent", "gradient descent at the best constant rate"),
        ("mirror_descent", "gradient descent at the rate 1 / sqrt(t)"),
        ("adagrad_norm", "AdaGrad with one norm"),
        ("adagrad", "diagonal AdaGrad, widths of coordinates"),
        ("adagrad", "diagonal AdaGrad, Euclidean diameter"),
        ("adagrad", "AdaGrad's first step"),
        ("adagrad_full", "full AdaGrad"),
        ("shampoo", "Shampoo"),
        ("momentum", "heavy ball at the rate of the proof"),
    ],
)
def test_ascent_breaks_every_bound(optimizer, part, monkeypatch):
    mutate(monkeypatch, optimizer, learning_rate=lambda rate: -rate)
    assert_noticed(REGRET, 12, part)


class Rising(np.random.Generator):
    """A generator whose signs are all 1."""

    def choice(self, *given, **named):
        return np.ones(given[1])


def test_an_environment_that_is_not_random_is_noticed(monkeypatch):
    monkeypatch.setattr(np.random, "default_rng", lambda seed: Rising(np.random.PCG64(seed)))
    assert_noticed(REGRET, 1, *ENVIRONMENTS)


def test_weights_that_have_seen_their_example_are_noticed(monkeypatch):
    wrap(monkeypatch, notes_online, "_paths", lambda right, *given: np.roll(right(*given), -1, axis=1))
    assert_noticed(BATCH, 20, *LEARNERS)


@pytest.mark.parametrize(("examples", "steps"), [(2, 8), (3, 5), (4, 4), (5, 3), (6, 3)])
def test_every_sequence_is_played_once(examples, steps):
    order = notes_online.all_sequences(examples)
    assert {*map(tuple, order.tolist())} == {*itertools.product(range(examples), repeat=steps)}
    assert len(order) == examples**steps


def test_an_average_that_is_worse_than_its_regret_by_little_is_noticed(monkeypatch):
    """Where weights have seen a thousandth of their example, which no standard error of samples shows."""

    def seen(right, *given):
        paths = right(*given)
        return 0.999 * paths + 0.001 * np.roll(paths, -1, axis=1)

    wrap(monkeypatch, notes_online, "_paths", seen)
    assert_noticed(BATCH, 4, *LEARNERS)


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
