"""The public entry `harness.replay`: equal on all backends, right in a basis, strict about its input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import harness
import optimizers
from harness.errors import InputError

BACKENDS = ("jax", "torch", "numpy")
RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.normal(size=(3, 2)), "b": RNG.normal(size=3)}
GRADS = [{"w": RNG.normal(size=(3, 2)), "b": RNG.normal(size=3)} for _ in range(6)]
WHOLE = np.linalg.qr(RNG.normal(size=(9, 9)))[0]
BLOCK = np.linalg.qr(RNG.normal(size=(6, 6)))[0]


@pytest.mark.parametrize("basis", [None, WHOLE, {"w": BLOCK}], ids=["none", "whole", "block"])
@pytest.mark.parametrize("name", sorted(optimizers.rules()))
def test_all_backends_agree(name: str, basis: Any) -> None:
    paths = [
        harness.replay(name, PARAMS, GRADS, {"learning_rate": 0.125}, backend, basis=basis)
        for backend in BACKENDS
    ]
    for path in paths[:2]:
        for step, expected in zip(path, paths[2], strict=True):
            for key, value in expected.items():
                assert step[key].dtype == np.float64
                np.testing.assert_allclose(step[key], value, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_momentum_by_hand_exactly(backend: str) -> None:
    """Integer gradients and powers of two leave nothing to round."""
    params, grads = {"w": np.array([8.0, -4.0])}, [{"w": np.array([2.0, 1.0])}] * 2
    path = harness.replay("momentum", params, grads, {"learning_rate": 0.5, "momentum": 0.5}, backend)
    assert [step["w"].tolist() for step in path] == [[7.0, -4.5], [5.5, -5.25]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_basis_rotates_parameters_and_gradients(backend: str) -> None:
    """The optimizer run by hand on V^T theta and V^T g, and brought back (000 Alg. 2.1)."""
    flat = lambda arrays: np.concatenate([arrays["w"].ravel(), arrays["b"]])  # noqa: E731
    hyper = {"learning_rate": 0.1}
    by_hand = harness.replay(
        "adam", {"t": WHOLE.T @ flat(PARAMS)}, [{"t": WHOLE.T @ flat(grad)} for grad in GRADS], hyper, "numpy"
    )
    path = harness.replay("adam", PARAMS, GRADS, hyper, backend, basis=WHOLE)
    for step, expected in zip(path, by_hand, strict=True):
        np.testing.assert_allclose(flat(step), WHOLE @ expected["t"], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_float32_stays_float32(backend: str) -> None:
    path = harness.replay("adam", PARAMS, GRADS, {"learning_rate": 0.1}, backend, dtype="float32")
    assert {value.dtype for step in path for value in step.values()} == {np.dtype("float32")}


GOOD: dict[str, Any] = {
    "optimizer": "adam",
    "params": PARAMS,
    "grads": GRADS,
    "hyper": {"learning_rate": 0.1},
    "backend": "numpy",
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"optimizer": "adm"}, ["'adm'", "did you mean 'adam'", "valid:"]),
        ({"backend": "tensorflow"}, ["'tensorflow'", "jax, torch, numpy"]),
        ({"dtype": "float16"}, ["float16", "float32, float64"]),
        ({"hyper": {"learning_rate": 0.1, "beta_1": 0.9}}, ["'beta_1'", "did you mean 'beta1'", "valid:"]),
        ({"hyper": {}}, ["learning_rate", "no default", "valid:"]),
        ({"hyper": {"learning_rate": -1}}, ["learning_rate", "(0, inf)"]),
        ({"params": {}}, ["params is empty"]),
        ({"grads": [{"w": GRADS[0]["w"]}]}, ["step 1", "['w']", "['b', 'w']"]),
        ({"grads": [{"w": np.zeros((2, 3)), "b": np.zeros(3)}]}, ["step 1", "w has shape (2, 3)", "(3, 2)"]),
        ({"basis": np.eye(4)}, ["(4, 4)", "(9, 9)"]),
        ({"basis": {"v": np.eye(4)}}, ["'v'", "valid: w, b"]),
        ({"basis": 2 * np.eye(9)}, ["not orthogonal"]),
    ],
)
def test_bad_input(change: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        harness.replay(**{**GOOD, **change})
    for words in said:
        assert words in str(caught.value)
