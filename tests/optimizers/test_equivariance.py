"""Changes of coordinates that keep the steps of a rule (000 Sec. 6): its declared symmetry, and no others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvebench import replay
from curvebench.optimizers import rules
from tests.optimizers.references import BATTERY

seeds = st.integers(0, 2**32 - 1)


def instance(seed: int, dimension: int) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    rng = np.random.default_rng(seed)
    grads = [{"w": rng.standard_normal(dimension)} for _ in range(6)]
    return {"w": rng.standard_normal(dimension)}, grads


def orthogonal(seed: int, dimension: int) -> np.ndarray:
    """Return a random orthogonal matrix."""
    factor, _ = np.linalg.qr(np.random.default_rng([seed, 1]).standard_normal((dimension, dimension)))
    return np.asarray(factor)


def of(symmetry: str) -> list[str]:
    """Return the entries of the battery with this symmetry."""
    return [label for label, entry in BATTERY.items() if entry.symmetry == symmetry]


@given(
    seed=seeds,
    dimension=st.integers(1, 8),
    label=st.sampled_from([*of("orthogonal"), *of("signed_permutation")]),
)
@settings(max_examples=200)
def test_a_rule_does_not_notice_its_own_changes(seed: int, dimension: int, label: str) -> None:
    """Gradient descent any orthogonal basis, to rounding; adaptive rules a signed permutation, exactly."""
    entry, rng = BATTERY[label], np.random.default_rng(seed)
    params, grads = instance(seed, dimension)
    basis, tolerance = orthogonal(seed, dimension), 1e-12
    if entry.symmetry == "signed_permutation":
        basis, tolerance = np.eye(dimension)[rng.permutation(dimension)], 0.0
        basis *= rng.choice([-1.0, 1.0], dimension)
    path = replay(entry.optimizer, params, grads, entry.hyper, "numpy", basis=basis, options=entry.options)
    plain = replay(entry.optimizer, params, grads, entry.hyper, "numpy", options=entry.options)
    for found, expected in zip(path, plain, strict=True):
        np.testing.assert_allclose(found["w"], expected["w"], rtol=0, atol=tolerance)


@given(seed=seeds, dimension=st.integers(2, 8), label=st.sampled_from(of("signed_permutation")))
def test_adaptive_rules_notice_every_other_rotation(seed: int, dimension: int, label: str) -> None:
    check_rotated("numpy", seed, dimension, label)


@pytest.mark.parametrize(
    ("label", "backend"),
    [
        *((label, "torch") for label in of("signed_permutation")),
        *((label, "jax") for label in of("signed_permutation") if label in rules()),
    ],
)
def test_adaptive_rules_notice_a_rotation_on_every_backend(label: str, backend: str) -> None:
    check_rotated(backend, 0, 5, label)


def check_rotated(backend: str, seed: int, dimension: int, label: str) -> None:
    """Check that the path is V times the path of a loop on V^T w and V^T g, and differs from the path on w
    and g.
    """
    entry, basis = BATTERY[label], orthogonal(seed, dimension)
    params, grads = instance(seed, dimension)
    path = replay(entry.optimizer, params, grads, entry.hyper, backend, basis=basis, options=entry.options)
    inside = entry.path({"w": basis.T @ params["w"]}, [{"w": basis.T @ g["w"]} for g in grads], entry.hyper)
    plain = entry.path(params, grads, entry.hyper)
    for found, rotated in zip(path, inside, strict=True):
        np.testing.assert_allclose(found["w"], basis @ rotated["w"], rtol=0, atol=1e-12)
    assert np.abs(path[-1]["w"] - plain[-1]["w"]).max() > 1e-6


# --- orthogonal along each axis -----------------------------------------------------------------------

MATRICES = {"square": (3, 3), "tall": (4, 2), "wide": (2, 5), "convolution": (3, 2, 2, 2)}
FULL_RANK = 3  # steps after which every statistic of these shapes has full rank


def turned(array: np.ndarray, bases: list[np.ndarray]) -> np.ndarray:
    """Return a tensor with each axis multiplied by its matrix."""
    for axis, basis in enumerate(bases):
        array = np.moveaxis(np.tensordot(basis, array, axes=(1, axis)), 0, axis)
    return array


def check_sides(label: str, seed: int, hyper: Mapping[str, float]) -> None:
    entry, rng = BATTERY[label], np.random.default_rng(seed)
    bases = {
        name: [orthogonal(seed + 7 * axis, length) for axis, length in enumerate(shape)]
        for name, shape in MATRICES.items()
    }
    draws = [
        {name: rng.standard_normal(shape) for name, shape in MATRICES.items()} for _ in range(2 + FULL_RANK)
    ]
    moved = [{name: turned(value, bases[name]) for name, value in draw.items()} for draw in draws]

    def path(given: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        return replay(entry.optimizer, given[0], given[1:], hyper, "numpy", options=entry.options)

    for found, plain in zip(path(moved), path(draws), strict=True):
        for name in MATRICES:
            wanted = turned(plain[name], bases[name])
            np.testing.assert_allclose(found[name], wanted, rtol=0, atol=1e-8, err_msg=name)


@given(seed=st.integers(0, 2**31), label=st.sampled_from(of("sides")))
@settings(max_examples=40)
def test_matrix_rules_without_epsilon_turn_with_the_sides_too(seed: int, label: str) -> None:
    check_sides(label, seed, {**BATTERY[label].hyper, **BATTERY[label].still})


# --- the order of entries -----------------------------------------------------------------------------


def test_a_basis_acts_on_rows_laid_end_to_end() -> None:
    """vec is the row-major ravel of each parameter, in the order of the block."""
    rng = np.random.default_rng(0)
    params = {"weight": rng.standard_normal((2, 3)), "bias": rng.standard_normal(2)}
    grad = {name: rng.standard_normal(value.shape) for name, value in params.items()}
    hyper = {"learning_rate": 0.5, "epsilon": 0.0}

    def moved(basis: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return -0.5 * basis @ np.sign(basis.T @ gradient)

    whole = orthogonal(1, 8)
    after = replay("adam", params, [grad], hyper, "numpy", basis=whole)[0]
    step = moved(whole, np.concatenate([grad["weight"].ravel(), grad["bias"]]))
    np.testing.assert_allclose(after["weight"], params["weight"] + step[:6].reshape(2, 3), atol=1e-14)
    np.testing.assert_allclose(after["bias"], params["bias"] + step[6:], atol=1e-14)

    block = orthogonal(2, 6)
    after = replay("adam", params, [grad], hyper, "numpy", basis={"weight": block})[0]
    step = moved(block, grad["weight"].ravel())
    np.testing.assert_allclose(after["weight"], params["weight"] + step.reshape(2, 3), atol=1e-14)
    np.testing.assert_allclose(after["bias"], params["bias"] - 0.5 * np.sign(grad["bias"]), atol=1e-14)
