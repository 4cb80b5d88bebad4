"""Newton's method alone: closed forms on parabolas, its rates and failures, and changes of coordinates."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import Online, replay

BACKENDS = ["numpy", "jax", "torch"]
ONE = {"learning_rate": 1.0}


def random_problem(seed: int, dimension: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A symmetric matrix with eigenvalues of both signs, a minimum or saddle, and a start."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
    values = rng.uniform(0.5, 2.0, dimension) * rng.choice([-1, 1], dimension)
    return (basis * values) @ basis.T, rng.standard_normal(dimension), rng.standard_normal(dimension)


def line(
    start: float,
    slope: Callable[[float], float],
    curvature: Callable[[float], float],
    steps: int,
    **hyper: float,
) -> list[float]:
    """The path on a function of one number, the start in front."""
    online = Online("newton", {"w": np.array(start)}, {**ONE, **hyper})
    path = [start]
    for _ in range(steps):
        grads, hessian = {"w": np.array(slope(path[-1]))}, np.array([[curvature(path[-1])]])
        path.append(float(online.step(grads, hessian=hessian)["w"]))
    return path


@given(
    seed=st.integers(0, 2**32 - 1),
    dimension=st.integers(1, 6),
    rate=st.floats(0.1, 1.0),
    damping=st.sampled_from([0.0, 3.0, 50.0]),
)
def test_damping_and_rate_leave_a_share_of_the_error(
    seed: int, dimension: int, rate: float, damping: float
) -> None:
    """Along an eigenvector with the value h: 1 - eta h / (h + damping)."""
    hessian, centre, start = random_problem(seed, dimension)
    gradient = {"w": hessian @ (start - centre)}
    hyper = {"learning_rate": rate, "damping": damping}
    (found,) = replay("newton", {"w": start}, [gradient], hyper, "numpy", hessians=[hessian])
    values, vectors = np.linalg.eigh(hessian)
    kept = 1 - rate * values / (values + damping)
    np.testing.assert_allclose(
        found["w"] - centre, vectors @ (kept * (vectors.T @ (start - centre))), atol=1e-12
    )


@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 5))
def test_undamped_it_does_not_notice_a_linear_change_of_coordinates(seed: int, dimension: int) -> None:
    """w = A u for any invertible A: gradients A^T g, Hessians A^T H A."""
    rng = np.random.default_rng([seed, 1])
    change = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0] * rng.uniform(0.1, 10, dimension)
    _, _, start = random_problem(seed, dimension)
    hessians = [random_problem(seed + step, dimension)[0] for step in range(3)]
    grads = rng.standard_normal((3, dimension))
    path = replay("newton", {"w": change @ start}, [{"w": g} for g in grads], ONE, "numpy", hessians=hessians)
    inside = replay(
        "newton",
        {"w": start},
        [{"w": change.T @ g} for g in grads],
        ONE,
        "numpy",
        hessians=[change.T @ hessian @ change for hessian in hessians],
    )
    for found, wanted in zip(path, inside, strict=True):
        np.testing.assert_allclose(found["w"], change @ wanted["w"], rtol=1e-9, atol=1e-9)


def test_the_distance_halves_and_then_squares() -> None:
    """002 Thm. A.1 on m w^2 / 2 + L |w|^3 / 6, from the Newton ball's rim: w <- L w^2 / (2 (m + L w))."""
    m, lipschitz = 0.5, 2.0
    path = line(
        m / lipschitz, lambda w: m * w + lipschitz / 2 * w * abs(w), lambda w: m + lipschitz * abs(w), 5
    )
    for k, (before, after) in enumerate(pairwise(path), start=1):
        np.testing.assert_allclose(after, lipschitz * before**2 / (2 * (m + lipschitz * before)), rtol=1e-8)
        assert after <= m / lipschitz * 2.0**-k
        assert after <= lipschitz / (2 * m) * before**2


def test_where_the_hessian_moves_too_much_it_is_slow_or_lost() -> None:
    """002 Sec. A.2.1: w^4 / 4 gives 2/3 of w at every step, and e^w - w at -100 throws w beyond 10^43."""
    slow = line(1.0, lambda w: w**3, lambda w: 3 * w**2, 10)
    np.testing.assert_allclose(slow, (2 / 3) ** np.arange(11), rtol=1e-13)
    (_, far) = line(-100.0, lambda w: np.exp(w) - 1, np.exp, 1)
    assert far > 1e43
    near = line(-100.0, lambda w: np.exp(w) - 1, np.exp, 150, damping=1.0)
    assert abs(near[-1]) < 1e-8, "damped, it comes back"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_singular_hessian_gives_no_number_and_a_damped_one_does(backend: str) -> None:
    """Along its null space a damped step is the gradient over the damping."""
    start, grads, hessians = {"w": np.zeros(2)}, [{"w": np.array([1.0, 2.0])}], [np.diag([1.0, 0.0])]
    (lost,) = replay("newton", start, grads, ONE, backend, hessians=hessians)
    assert not np.isfinite(lost["w"]).all()
    (found,) = replay("newton", start, grads, {**ONE, "damping": 1.0}, backend, hessians=hessians)
    np.testing.assert_array_equal(found["w"], [-0.5, -2.0])
