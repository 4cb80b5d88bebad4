"""Momentum alone: gradients of a parabola taken where each rule wants them, and a rate that changes."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench import Online


@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
def test_double_momentum_moves_the_weights_that_look_ahead(backend: str) -> None:
    """002 Lemma S.10 with constant rate and momentum: equal to the last bit, all numbers being short."""
    hyper, start = {"learning_rate": 0.125, "momentum": 0.5}, {"w": np.array([3.0, -5.0, 1.0])}
    ahead, double = (
        Online(optimizer, start, hyper, backend) for optimizer in ("nesterov_lookahead", "nesterov")
    )
    for _ in range(8):
        points = [online.gradient_at()["w"] for online in (ahead, double)]
        np.testing.assert_array_equal(*points)
        gradient = {"w": np.array([1.0, 2.0, 4.0]) * points[0]}
        ahead.step(gradient)
        after = double.step(gradient)["w"]
    np.testing.assert_array_equal(after, ahead.gradient_at()["w"])


def test_regularized_momentum_follows_the_scheduled_rate() -> None:
    """mu_t = 1 - eta_t gamma, of the rate that the schedule has multiplied: a larger one keeps less."""
    online = Online(
        "regularized_update_descent", {"w": np.zeros(1)}, {"learning_rate": 0.5, "regularization": 1.0}
    )
    online.step({"w": np.array([-2.0])}, schedule=1.0)  # v = 1
    after = [float(online.step({"w": np.zeros(1)}, schedule)["w"][0]) for schedule in (1.0, 0.5, 2.0)]
    np.testing.assert_array_equal(np.diff([1.0, *after]), [0.5, 0.375, 0.0])
