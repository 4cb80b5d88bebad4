"""Steepest descent alone: both problems solved numerically, dual norms, exact cases, scales, options."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from harness import replay

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
    """The update of a parameter that begins at 0."""
    options = {"norm": norm, "principle": principle}
    (after,) = replay(
        "steepest_descent",
        {"w": np.zeros_like(grad)},
        [{"w": grad}],
        {"learning_rate": RATE},
        backend,
        options=options,
    )
    return after["w"]


def room(update: np.ndarray, norm: str, bound: float) -> np.ndarray:
    """Smooth functions of an update of two columns that are nonnegative where its norm is within a bound."""
    if norm == "frobenius":
        return np.array([bound**2 - (update**2).sum()])
    if norm == "max":
        return np.concatenate([bound - update.ravel(), bound + update.ravel()])
    gap = bound**2 * np.eye(2) - update.T @ update  # positive semidefinite by its trace and determinant
    return np.array([np.trace(gap), np.linalg.det(gap)])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(3))
def test_the_trust_region_step_solves_its_problem(norm: str, seed: int) -> None:
    """002 eq. 67: min <G, D> with |D| <= eta."""
    grad = np.random.default_rng(seed).standard_normal((3, 2))
    solved = minimize(
        lambda flat: grad.ravel() @ flat,
        -0.1 * grad.ravel(),
        jac=lambda flat: grad.ravel(),
        constraints={"type": "ineq", "fun": lambda flat: room(flat.reshape(3, 2), norm, RATE)},
        options={"maxiter": 500, "ftol": 1e-12},
    )
    update = moved(grad, norm, "trust_region")
    assert (grad * update).sum() == pytest.approx(solved.fun, rel=1e-5)
    np.testing.assert_allclose(update, solved.x.reshape(3, 2), atol=5e-3)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(3))
def test_the_majorization_step_solves_its_problem(norm: str, seed: int) -> None:
    """002 eq. 68: min <G, D> + |D|^2 / (2 eta), with a bound t on |D| as one more variable."""
    grad = np.random.default_rng(seed).standard_normal((3, 2))
    solved = minimize(
        lambda point: grad.ravel() @ point[:-1] + point[-1] ** 2 / (2 * RATE),
        np.append(-0.1 * grad.ravel(), 1.0),
        jac=lambda point: np.append(grad.ravel(), point[-1] / RATE),
        constraints={"type": "ineq", "fun": lambda p: room(p[:-1].reshape(3, 2), norm, p[-1])},
        bounds=[(None, None)] * 6 + [(0, None)],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    update = moved(grad, norm, "majorization")
    value = (grad * update).sum() + NORMS[norm](update) ** 2 / (2 * RATE)
    assert value == pytest.approx(solved.fun, rel=1e-5)
    np.testing.assert_allclose(update, solved.x[:-1].reshape(3, 2), atol=2e-2)


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
