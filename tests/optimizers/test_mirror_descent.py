"""Mirror descent alone: projections, domains, scales, starts; what it solves, the claims hold it to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.optimizers.paths import path_of_one

RADIUS = 0.8
DOMAINS = ("ball", "box", "simplex")


def moved(
    start: np.ndarray,
    *grads: np.ndarray,
    mirror: str = "euclidean",
    domain: str = "simplex",
    backend: str = "numpy",
    dtype: str = "float64",
) -> list[np.ndarray]:
    """Return the path of one parameter."""
    hyper = {"learning_rate": 0.5} | ({"radius": RADIUS} if domain in ("ball", "box") else {})
    options = {"mirror": mirror, "domain": domain}
    return path_of_one("mirror_descent", start, grads, hyper, options, backend, dtype)


# --- projections ------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**31),
    size=st.integers(1, 8),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 1e3, 1e12, 1e200]),
    ties=st.booleans(),
)
@settings(max_examples=150)
def test_the_projection_onto_the_simplex_is_nearest(seed: int, size: int, scale: float, ties: bool):
    """p is nearest to v where (v - p) (u - p) <= 0 for every corner u, and the domain is their hull."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(-2, 3, size).astype(float) if ties else rng.standard_normal(size)
    point = scale * drawn
    (found,) = moved(point, np.zeros(size))
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1, abs=1e-14)
    pull = (point - found) / max(scale, 1.0)
    assert (pull - pull @ found).max() <= 1e-12


@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
def test_projections_known_by_hand(backend: str):
    """Each row is a vector."""
    for domain, points, expected in (
        (
            "simplex",
            [[0.75, 0.5], [3.0, 1.0], [-7.0, -7.0], [1e150, -1e150]],
            [[0.625, 0.375], [1.0, 0.0], [0.5, 0.5], [1.0, 0.0]],
        ),
        ("ball", [[3.0, 4.0], [3e200, 4e200], [0.3, 0.4]], [[0.48, 0.64], [0.48, 0.64], [0.3, 0.4]]),
        ("box", [[3.0, -0.5], [-9.0, 0.8]], [[0.8, -0.5], [-0.8, 0.8]]),
    ):
        (found,) = moved(np.array(points), np.zeros((len(points), 2)), domain=domain, backend=backend)
        np.testing.assert_allclose(found, expected, rtol=1e-15, err_msg=domain)


# --- the domain -------------------------------------------------------------------------------------


def excess(vector: np.ndarray, domain: str) -> float:
    """Return by how much a vector violates the constraint of a domain; at most 0 if it lies in the domain."""
    if domain == "ball":
        return float(np.linalg.norm(vector)) - RADIUS
    if domain == "box":
        return float(np.abs(vector).max()) - RADIUS
    return max(-vector.min(), abs(vector.sum() - 1))


@given(
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([1e-140, 1e-3, 1.0, 1e3, 1e140]),
    way=st.sampled_from([*(("euclidean", domain) for domain in DOMAINS), ("entropy", "simplex")]),
    shape=st.sampled_from([(), (1,), (5,), (3, 1), (1, 4), (3, 4), (2, 3, 2, 2)]),
)
@settings(max_examples=150)
def test_vectors_stay_in_the_domain(seed: int, scale: float, way: tuple[str, str], shape: tuple[int, ...]):
    """From any start, inside or not."""
    rng = np.random.default_rng(seed)
    grads = [scale * rng.standard_normal(shape) for _ in range(4)]
    for found in moved(rng.standard_normal(shape), *grads, mirror=way[0], domain=way[1]):
        assert found.shape == shape
        for vector in found.reshape(shape[0] if len(shape) > 1 else 1, -1):
            assert excess(vector, way[1]) <= 1e-14


# --- large steps and starts under the entropy -----------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
def test_weights_below_the_range_of_numbers_come_back(backend: str, dtype: str):
    """The mirrored point remembers them: g and then -g lead back to where the run began."""
    start, grad = np.array([0.25, 0.25, 0.5]), np.array([1e4, 0.0, 0.0])
    one, two = moved(start, grad, -grad, mirror="entropy", backend=backend, dtype=dtype)
    assert one[0] == 0
    np.testing.assert_allclose(one[1:], [1 / 3, 2 / 3], rtol=1e-6)
    np.testing.assert_allclose(two, start, rtol=1e-3 if dtype == "float32" else 1e-11)


@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
def test_weights_share_what_a_huge_gradient_leaves(backend: str):
    grad = np.array([-1e140, 1e140, -1e140])
    (found,) = moved(np.full(3, 1 / 3), grad, mirror="entropy", backend=backend)
    np.testing.assert_allclose(found, [0.5, 0.0, 0.5], rtol=1e-15)


def test_a_weight_of_zero_stays_zero():
    (found,) = moved(np.array([0.0, 0.25, 0.75]), np.array([-5.0, 0.0, 0.0]), mirror="entropy")
    np.testing.assert_allclose(found, [0.0, 0.25, 0.75], rtol=1e-15)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ([1.0, 3.0], [0.25, 0.75]),  # positive: divided by its sum
        ([-0.5, 1.5], [0.5, 0.5]),  # the entropy of a negative number is not defined
        ([0.0, 0.0], [0.5, 0.5]),
    ],
)
def test_a_start_outside_the_simplex_is_brought_into_it(start: list[float], expected: list[float]):
    (found,) = moved(np.array(start), np.zeros(2), mirror="entropy")
    np.testing.assert_allclose(found, expected, rtol=1e-15)
