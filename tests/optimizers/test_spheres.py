"""Spheres alone: the trust region against linear programming, lengths, edge cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers.spheres import NORMS, unit_tangential
from tests.curvebench.alone import alone
from tests.optimizers.paths import path_of_one

OPS = numpy_ops("float64")
RULES: list[tuple[str, dict[str, Any]]] = [
    ("pin_to_sphere", {}),
    ("riemannian_sgd", {}),
    ("trust_region_sphere", {}),
    ("trust_region_sphere", {"norm": "l1"}),
    ("trust_region_sphere", {"norm": "linfinity"}),
    ("weight_normalization", {"scale": "frozen"}),
]
FREE: tuple[str, dict[str, Any]] = ("weight_normalization", {})
named = pytest.mark.parametrize(("optimizer", "options"), RULES, ids=str)


def direction(norm: str, g: np.ndarray, w: np.ndarray) -> np.ndarray:
    """z of one vector."""
    tangent, rounding = unit_tangential(OPS, g, w)
    found = NORMS[norm](OPS, tangent, w / np.linalg.norm(w), rounding)
    return np.asarray(found)


# --- the trust region (002 eq. 73, Lemma S.21) --------------------------------------------------------


def best(norm: str, g: np.ndarray, w: np.ndarray) -> float:
    """max g^T z over |z| <= 1 and w^T z = 0, by linear programming in the two parts of z."""
    n = len(w)
    sums = {"A_ub": np.ones((1, 2 * n)), "b_ub": [1.0]} if norm == "l1" else {}
    found = linprog(
        -np.concatenate([g, -g]),
        A_eq=np.concatenate([w, -w])[None],
        b_eq=[0.0],
        bounds=(0, 1),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10},  # The default accepts |w^T z| up to 1e-7.
        **sums,
    )
    assert found.success
    return -float(found.fun)


def check_direction(norm: str, g: np.ndarray, w: np.ndarray) -> None:
    z, unit = direction(norm, g, w), w / np.linalg.norm(w)
    size = {"l1": np.abs(z).sum(), "l2": np.linalg.norm(z), "linfinity": np.abs(z).max()}[norm]
    assert size <= 1 + 1e-12
    assert abs(unit @ z) <= 1e-12
    tangent = g - unit * (unit @ g)
    wanted = np.linalg.norm(tangent) if norm == "l2" else best(norm, tangent, unit)
    assert abs(tangent @ z - wanted) <= 1e-9 * np.linalg.norm(g)


few = st.integers(-3, 3).map(float)
wide = st.builds(lambda x, k: x * 10.0**k, st.floats(-1, 1, width=16), st.integers(-6, 6))


@given(data=st.data(), norm=st.sampled_from(list(NORMS)), entries=st.sampled_from([few, wide]))
@settings(max_examples=150)
def test_the_trust_region_step_is_feasible_and_best(data: st.DataObject, norm: str, entries: Any):
    """With zeros and ties among the entries of both, and over twelve orders of magnitude."""
    n = data.draw(st.integers(1, 8))
    w, g = (np.array(data.draw(st.lists(entries, min_size=n, max_size=n))) for _ in range(2))
    if np.abs(w).max() > 0:
        check_direction(norm, g, w)


def test_what_is_tied_gets_equal_shares():
    """lambda = -1/2 leaves two entries at 1/2 and two at -1/2; of the cube's face all z are the signs."""
    w, g = np.ones(4), np.array([1.0, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(direction("l1", g, w), [0.25, 0.25, -0.25, -0.25], atol=1e-15)
    np.testing.assert_allclose(direction("linfinity", g, w), [1, 1, -1, -1], atol=1e-15)
    # the median is at the two equal entries, which balance the others
    w, g = np.array([1.0, 1.0, 1.0, 2.0]), np.array([3.0, 0.0, 0.0, -4.0])
    np.testing.assert_allclose(direction("linfinity", g, w), [1, 0.5, 0.5, -1], atol=1e-15)
    # an entry orthogonal to w by itself takes all of an l1 step
    w, g = np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0, 0.0, 7.0, -7.0])
    np.testing.assert_allclose(direction("l1", g, w), [0, 0, 0.5, -0.5], atol=1e-15)


# --- lengths and edge cases ----------------------------------------------------------------------------


@named
def test_lengths_do_not_drift(optimizer: str, options: dict[str, Any]):
    rng = np.random.default_rng(5)
    w = rng.standard_normal((3, 4))
    path = path_of_one(optimizer, w, rng.standard_normal((200, 3, 4)), 0.1, options)
    lengths = np.linalg.norm(w, axis=1)
    for found in path[::50] + path[-1:]:
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), lengths, rtol=1e-14)
    assert np.abs(path[-1] - w).max() > 0.1


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("scale", "dtype"), [(1e140, "float64"), (1e-140, "float64"), (1e30, "float32"), (1e-30, "float32")]
)
@named
def test_huge_and_tiny_gradients_stay_on_the_sphere(
    optimizer: str, options: dict[str, Any], scale: float, dtype: str, backend: str
):
    w, *grads = np.random.default_rng(6).standard_normal((5, 4))
    for found in path_of_one(optimizer, w, [scale * g for g in grads], 0.5, options, backend, dtype):
        np.testing.assert_allclose(np.linalg.norm(found), np.linalg.norm(w), rtol=1e-6)


@pytest.mark.parametrize(("optimizer", "options"), [*RULES, FREE], ids=str)
def test_what_has_no_direction_moves_nothing(optimizer: str, options: dict[str, Any]):
    """Zeros; and a gradient along the vector, whose rounding a trust region must not blow up."""
    rng = np.random.default_rng(8)
    np.testing.assert_array_equal(
        path_of_one(optimizer, np.zeros(3), rng.standard_normal((3, 3)), options=options), 0
    )
    for _ in range(0 if (optimizer, options) == FREE else 20):
        w = rng.standard_normal(6)
        (found,) = path_of_one(optimizer, w, [-rng.uniform() * w], 0.5, options)
        np.testing.assert_allclose(found, w, rtol=1e-13)
    if optimizer == "pin_to_sphere":  # a step onto the centre
        np.testing.assert_array_equal(path_of_one(optimizer, [2.0, 4.0], [[4.0, 8.0]])[0], [2, 4])


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@named
def test_a_gradient_that_is_not_finite_shows(optimizer: str, options: dict[str, Any], backend: str):
    w = np.ones((2, 3))
    for bad in (np.nan, np.inf):
        grad = np.array([[1.0, bad, 2.0], [1.0, 0.0, 2.0]])
        with np.errstate(invalid="ignore"):
            (found,) = path_of_one(optimizer, w, [grad], 0.5, options, backend)
        assert np.isnan(found[0]).all()
        assert np.isfinite(found[1]).all()


@pytest.mark.usefixtures("all_passes")
def test_compiled_programs_find_the_same_ties_at_each_use():
    """XLA calculates z once for the step and once for its length: if they differed, so would lengths."""
    rng = np.random.default_rng(11)
    w, grads = rng.standard_normal((3, 2)), rng.standard_normal((300, 3, 2))
    for norm, path in alone(compiled_paths, w, grads).items():
        lengths = np.linalg.norm(path, axis=-1)
        np.testing.assert_allclose(lengths / np.linalg.norm(w, axis=1), 1, rtol=1e-14, err_msg=norm)


def compiled_paths(w: np.ndarray, grads: np.ndarray) -> dict[str, list[np.ndarray]]:
    """Return the path of the trust region on JAX, by norm."""
    return {
        norm: path_of_one("trust_region_sphere", w, grads, 0.2, {"norm": norm}, "jax")
        for norm in ("l1", "linfinity")
    }
