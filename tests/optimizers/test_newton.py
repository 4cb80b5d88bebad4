"""Newton's method alone: closed forms on parabolas, changes of coordinates, singular Hessians."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench import replay
from curvebench.spec.errors import InputError

BACKENDS = ["numpy", "jax", "torch"]
ONE = {"learning_rate": 1.0}


def random_problem(seed: int, dimension: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A symmetric matrix with eigenvalues of both signs, a minimum or saddle, and a start."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
    values = rng.uniform(0.5, 2.0, dimension) * rng.choice([-1, 1], dimension)
    return (basis * values) @ basis.T, rng.standard_normal(dimension), rng.standard_normal(dimension)


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
    (found,) = replay("newton", {"w": start}, [gradient], hyper, "numpy", needs=[{"hessian": hessian}])
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
    path = replay(
        "newton",
        {"w": change @ start},
        [{"w": g} for g in grads],
        ONE,
        "numpy",
        needs=[{"hessian": one} for one in hessians],
    )
    inside = replay(
        "newton",
        {"w": start},
        [{"w": change.T @ g} for g in grads],
        ONE,
        "numpy",
        needs=[{"hessian": change.T @ hessian @ change} for hessian in hessians],
    )
    for found, wanted in zip(path, inside, strict=True):
        np.testing.assert_allclose(found["w"], change @ wanted["w"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_singular_hessian_gives_no_number_and_a_damped_one_does(backend: str) -> None:
    """Along its null space a damped step is the gradient over the damping."""
    start, grads, needs = (
        {"w": np.zeros(2)},
        [{"w": np.array([1.0, 2.0])}],
        [{"hessian": np.diag([1.0, 0.0])}],
    )
    (lost,) = replay("newton", start, grads, ONE, backend, needs=needs)
    assert not np.isfinite(lost["w"]).all()
    (found,) = replay("newton", start, grads, {**ONE, "damping": 1.0}, backend, needs=needs)
    np.testing.assert_array_equal(found["w"], [-0.5, -2.0])


def test_a_need_that_is_missing_or_of_another_rule_is_refused() -> None:
    start, grads = {"w": np.zeros(2)}, [{"w": np.ones(2)}]
    with pytest.raises(InputError, match=r"newton needs .* at every step, and got none"):
        replay("newton", start, grads, ONE, "numpy", needs=[None])
    with pytest.raises(InputError, match="newton has no need 'layers'"):
        replay("newton", start, grads, ONE, "numpy", needs=[{"hessian": np.eye(2), "layers": {}}])
