"""Rates of convergence: the verdict of the claim, and that its checks notice wrong rules."""

import dataclasses

import numpy as np
import pytest

from curvebench import optimizers
from curvebench.benchmarks.claims import notes_rates
from tests.benchmarks.claim_mutations import assert_noticed, mutate

CLAIM = notes_rates.NOTES_RATES


PHASE = "Newton's method on w^4 / 4 has no quadratic phase"


def test_a_quadratic_phase_is_noticed(monkeypatch):
    mutate(monkeypatch, "newton", learning_rate=lambda rate: 3 - 1e-8)  # 3 leads to the minimum at once
    assert_noticed(CLAIM, 2, PHASE)


@pytest.mark.parametrize(
    ("optimizer", "factor", "part"),
    [
        ("sgd", 2.1, "gradient descent"),
        ("sgd", 0.05, "gradient descent"),
        ("newton", 0.9, "Newton's method in its ball"),
        ("newton", 0.9, "Newton's method on w^4 / 4"),
        ("newton", 0.9e-1, "Newton's method on e^w - w"),
    ],
)
def test_another_rate_is_noticed(optimizer, factor, part, monkeypatch):
    mutate(monkeypatch, optimizer, learning_rate=lambda rate: factor * rate)
    assert_noticed(CLAIM, 25, part)


@pytest.mark.parametrize("share", [0.0, 2.0])
def test_another_momentum_is_not_nesterovs(share, monkeypatch):
    real = optimizers.rules()
    right = real["nesterov_lookahead"]

    def update(ops, grad, state, param, hyper):
        return right.update(ops, grad, state, param, {**hyper, "momentum": share * hyper["momentum"]})

    wrong = dataclasses.replace(right, update=update)
    monkeypatch.setattr(notes_rates, "rules", lambda: {**real, "nesterov_lookahead": wrong})
    assert_noticed(CLAIM, 25, "Nesterov's method")


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
