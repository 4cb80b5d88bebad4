"""Adagrad alone: what its matrix does where it is singular."""

from __future__ import annotations

import numpy as np

from tests.optimizers.paths import path_of_one


def test_a_singular_second_moment_moves_within_the_span_of_gradients() -> None:
    """The pseudo-inverse, to rounding: 3 of 8 dimensions, at every scale."""
    rng = np.random.default_rng(2)
    span = np.linalg.qr(rng.standard_normal((8, 3)))[0]
    for scale in (1e-100, 1.0, 1e100):
        grads = scale * rng.standard_normal((20, 3)) @ span.T
        moved = np.diff([np.zeros(8), *path_of_one("adagrad_full", np.zeros(8), grads)], axis=0)
        assert np.abs(moved - moved @ span @ span.T).max() < 1e-12
        assert 0.01 < np.abs(moved).max() <= 0.5 * (1 + 1e-12)
