"""Momentum alone: gradients taken where each rule wants them."""

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


def test_a_gradient_is_taken_where_an_option_says() -> None:
    """002 eq. 97 and App. F: after a step, theta is 2 and the velocity -1; mu is 1 - 0.25 * 2."""
    hyper, points = {"learning_rate": 0.25, "regularization": 2.0}, {}
    for option in ("exact", "polyak", "nesterov"):
        start = {"w": np.array([3.0])}
        online = Online("regularized_update_descent", start, hyper, options={"gradient": option})
        online.step({"w": np.array([4.0])})
        points[option] = online.gradient_at()["w"].item()
    assert points == {"exact": 1.0, "polyak": 2.0, "nesterov": 1.5}
