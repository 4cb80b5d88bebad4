"""Steepest descent alone: dual norms, and scales at the ends of the range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.optimizers.paths import path_of_one

RATE = 0.5
NORMS: dict[str, Callable[[np.ndarray], float]] = {
    "frobenius": lambda m: float(np.linalg.norm(m)),
    "max": lambda m: float(np.abs(m).max()),
    "spectral": lambda m: float(np.linalg.norm(m, 2)),
}
DUALS: dict[str, Callable[[np.ndarray], float]] = {
    "frobenius": NORMS["frobenius"],
    "max": lambda m: float(np.abs(m).sum()),
    "spectral": lambda m: float(np.linalg.norm(m, "nuc")),
}
PRINCIPLES = ("trust_region", "majorization")


def moved(grad: np.ndarray, norm: str, principle: str, backend: str = "numpy") -> np.ndarray:
    """Return the update of a parameter that begins at 0."""
    options = {"norm": norm, "principle": principle}
    (after,) = path_of_one("steepest_descent", np.zeros_like(grad), [grad], RATE, options, backend)
    return after


@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 5),
    columns=st.integers(1, 5),
    rank=st.integers(1, 5),
    norm=st.sampled_from(list(NORMS)),
)
@settings(max_examples=100)
def test_steps_are_dual_to_the_gradient(seed: int, rows: int, columns: int, rank: int, norm: str) -> None:
    """<G, D> = -eta |G|_* and |D| = eta; by majorization |D| = eta |G|_*, and no competitor is lower."""
    rng = np.random.default_rng(seed)
    grad = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))
    dual = DUALS[norm](grad)
    step = moved(grad, norm, "trust_region")
    assert (grad * step).sum() == pytest.approx(-RATE * dual, rel=1e-10)
    assert NORMS[norm](step) == pytest.approx(RATE, rel=1e-10)

    def surrogate(update: np.ndarray) -> float:
        return float((grad * update).sum() + NORMS[norm](update) ** 2 / (2 * RATE))

    update = moved(grad, norm, "majorization")
    np.testing.assert_allclose(update, dual * step, rtol=1e-10, atol=1e-12 * dual)
    lowest = surrogate(update)
    for size in (1e-3, 0.1, 1.0):
        competitor = update + size * dual * rng.standard_normal(grad.shape)
        assert surrogate(competitor) >= lowest - 1e-10 * dual**2


@pytest.mark.parametrize("principle", PRINCIPLES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
def test_scales_at_the_ends_of_the_range(backend: str, norm: str, principle: str) -> None:
    grad = np.random.default_rng(3).standard_normal((3, 2))
    plain = moved(grad, norm, principle)
    for scale in (2.0**-900, 2.0**900):
        share = scale if principle == "majorization" else 1.0
        found = moved(scale * grad, norm, principle, backend)
        np.testing.assert_allclose(found / share, plain, rtol=1e-12)
    np.testing.assert_array_equal(moved(0 * grad, norm, principle, backend), 0.0)
