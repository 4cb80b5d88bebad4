"""Momentum alone: gradients of a parabola taken where each rule wants them."""

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
