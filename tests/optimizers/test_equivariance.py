"""Which rules notice a change of basis (000 Sec. 6): adaptive ones do, except a signed permutation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import replay

ADAPTIVE = ("adagrad", "adam", "adamw")
WITHOUT_DECAY = {"adagrad": {}, "adam": {}, "adamw": {"weight_decay": 0.0}}
seeds = st.integers(0, 2**32 - 1)


def instance(seed: int, dimension: int) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    rng = np.random.default_rng(seed)
    grads = [{"w": rng.standard_normal(dimension)} for _ in range(6)]
    return {"w": rng.standard_normal(dimension)}, grads


def orthogonal(seed: int, dimension: int) -> np.ndarray:
    """A random orthogonal matrix."""
    factor, _ = np.linalg.qr(np.random.default_rng([seed, 1]).standard_normal((dimension, dimension)))
    return np.asarray(factor)


@given(seed=seeds, dimension=st.integers(1, 8), momentum=st.floats(0.0, 0.95))
def test_sgd_and_momentum_do_not_notice_an_orthogonal_basis(
    seed: int, dimension: int, momentum: float
) -> None:
    params, grads = instance(seed, dimension)
    basis = orthogonal(seed, dimension)
    for optimizer, hyper in (("sgd", {}), ("momentum", {"momentum": momentum})):
        settings = {"learning_rate": 0.3, **hyper}
        path = replay(optimizer, params, grads, settings, "numpy", basis=basis)
        plain = replay(optimizer, params, grads, settings, "numpy")
        for found, expected in zip(path, plain, strict=True):
            np.testing.assert_allclose(found["w"], expected["w"], rtol=0, atol=1e-12)


@given(seed=seeds, dimension=st.integers(1, 8), optimizer=st.sampled_from(ADAPTIVE))
def test_adaptive_rules_do_not_notice_a_signed_permutation(seed: int, dimension: int, optimizer: str) -> None:
    rng = np.random.default_rng(seed)
    basis = np.eye(dimension)[rng.permutation(dimension)] * rng.choice([-1.0, 1.0], dimension)
    params, grads = instance(seed, dimension)
    path = replay(optimizer, params, grads, {"learning_rate": 0.3}, "numpy", basis=basis)
    for found, expected in zip(
        path, replay(optimizer, params, grads, {"learning_rate": 0.3}, "numpy"), strict=True
    ):
        np.testing.assert_array_equal(found["w"], expected["w"])


@given(seed=seeds, dimension=st.integers(2, 8), optimizer=st.sampled_from(ADAPTIVE))
def test_adaptive_rules_notice_every_other_rotation(seed: int, dimension: int, optimizer: str) -> None:
    check_first_step("numpy", seed, dimension, optimizer)


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("optimizer", ADAPTIVE)
def test_adaptive_rules_notice_a_rotation_on_every_backend(backend: str, optimizer: str) -> None:
    check_first_step(backend, 0, 5, optimizer)


def check_first_step(backend: str, seed: int, dimension: int, optimizer: str) -> None:
    """The first step without epsilon is -eta V sign(V^T g), and no entry's sign times eta."""
    basis = orthogonal(seed, dimension)
    params, grads = instance(seed, dimension)
    hyper = {"learning_rate": 0.5, "epsilon": 0.0, **WITHOUT_DECAY[optimizer]}
    after = replay(optimizer, params, grads[:1], hyper, backend, basis=basis)[0]["w"]
    step = after - params["w"]
    np.testing.assert_allclose(step, -0.5 * basis @ np.sign(basis.T @ grads[0]["w"]), rtol=0, atol=1e-12)
    assert np.abs(np.abs(step) - 0.5).max() > 1e-6


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
