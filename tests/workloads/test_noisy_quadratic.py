"""The noisy quadratic: its noise, and the closed form of the expected loss that whole runs must have."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.registry import find_rule
from curvebench.seeding import WorkloadRandom
from curvebench.workloads.noisy_quadratic import NOISY_QUADRATIC
from tests.workloads.cases import random_of

SEEDS, STEPS, RATES = 400, 30, (0.2, 1.0)


def _expected_losses(settings, rate, momentum):
    """Return E[f] after 0, ..., STEPS steps from theta ~ N(0, I), by the moments of (theta_k, v_k).

    With g = h theta + z, v' = g + mu v and theta' = theta - eta v', the vector (theta, v) has the matrix A
    below, and the noise enters along (-eta, 1).
    """
    h = np.arange(1, settings["d"] + 1) ** -settings["alpha"]
    if settings["batch_size"] is None:
        variance = np.zeros_like(h)
    else:
        variance = settings["noise"] ** 2 * h / settings["batch_size"]
    losses = np.zeros(STEPS + 1)
    for curvature, noise in zip(h, variance, strict=True):
        step = np.array([[1 - rate * curvature, -rate * momentum], [curvature, momentum]])
        into = np.array([-rate, 1.0])
        moments = np.diag([1.0, 0.0])
        for t in range(STEPS + 1):
            losses[t] += 0.5 * curvature * moments[0, 0]
            moments = step @ moments @ step.T + noise * np.outer(into, into)
    return losses


def _runs(rule, backend, hyperparameters, **given):
    """Return the training losses of all seeds and rates, (STEPS + 1, SEEDS, rates), and the settings."""
    settings = NOISY_QUADRATIC.complete({"d": 5, **given})
    randoms = [WorkloadRandom(NOISY_QUADRATIC.name, seed) for seed in range(SEEDS)]
    size = settings["batch_size"]
    bundle = Bundle(
        workload=NOISY_QUADRATIC,
        rule=find_rule(rule),
        problems=[NOISY_QUADRATIC.problem(settings, random) for random in randoms],
        orders=None if size is None else np.zeros((STEPS, SEEDS, size), np.int64),
        hyperparameters={"learning_rate": np.array(RATES), **hyperparameters},
        schedule=np.ones(STEPS),
        evaluations=STEPS,
        settings=settings,
        randoms=randoms,
    )
    return execute(bundle, engine(backend, "float64")).metrics["train_loss"], settings


@pytest.mark.parametrize(
    ("rule", "backend", "momentum", "size"),
    [
        ("sgd", "jax", 0.0, 4),
        ("momentum", "jax", 0.7, 2),
        ("sgd", "torch", 0.0, 1),
        ("sgd", "jax", 0.0, None),
    ],
)
def test_mean_losses_of_runs_are_the_expected_losses(rule, backend, momentum, size):
    given = {"momentum": np.full(len(RATES), momentum)} if momentum else {}
    losses, settings = _runs(rule, backend, given, batch_size=size, alpha=1.5, noise=2.0)
    errors = np.std(losses, axis=1) / np.sqrt(SEEDS)
    for index, rate in enumerate(RATES):
        expected = _expected_losses(settings, rate, momentum)
        deviations = (losses[:, :, index].mean(axis=1) - expected) / errors[:, index]
        assert np.abs(deviations).max() < 4.0
        assert np.abs(deviations).mean() > 0.02  # the seeds differ


def test_expected_losses_of_gradient_descent_have_the_closed_form():
    """E[theta_k^2] = (1 - eta h)^2t + eta^2 s (1 - (1 - eta h)^2t) / (1 - (1 - eta h)^2), s = h / B."""
    settings = NOISY_QUADRATIC.complete({"batch_size": 8})
    h = np.arange(1, 101) ** -1.0
    shrinkage = (1 - 0.7 * h) ** (2 * STEPS)
    floor = 0.7**2 * h / 8 / (1 - (1 - 0.7 * h) ** 2)
    closed = 0.5 * np.sum(h * (shrinkage + floor * (1 - shrinkage)))
    assert _expected_losses(settings, 0.7, 0.0)[-1] == pytest.approx(closed, rel=1e-12)


def test_the_noise_has_the_covariance_of_the_hessian_over_the_batch_size():
    settings = NOISY_QUADRATIC.complete({"d": 4, "batch_size": 8, "noise": 3.0})
    generator = np.random.default_rng(0)
    assert NOISY_QUADRATIC.noise is not None
    draws = np.stack([NOISY_QUADRATIC.noise(settings, generator, 8)["gradient"] for _ in range(20_000)])
    due = np.diag(9.0 / 8.0 / np.arange(1, 5))
    np.testing.assert_allclose(np.cov(draws.T), due, atol=0.05)
    full = NOISY_QUADRATIC.complete({"batch_size": None})
    assert not NOISY_QUADRATIC.noise(full, generator, 4096)["gradient"].any()


def test_a_batch_has_at_most_the_examples_of_an_epoch():
    with pytest.raises(ValueError, match="larger than the 10 training examples"):
        NOISY_QUADRATIC.complete({"train_examples": 10, "batch_size": 11})


def test_examples_are_an_epoch():
    problem = NOISY_QUADRATIC.problem(NOISY_QUADRATIC.complete({"train_examples": 50}), random_of(0))
    assert len(problem.splits["train"]["index"]) == 50
