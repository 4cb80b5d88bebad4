"""One battery for every rule: against plain loops, PyTorch and Optax, exact cases and edge cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness import replay
from optimizers import rules
from tests.optimizers import references

BACKENDS = ("numpy", "jax", "torch")
SHAPES = {"matrix": (3, 2), "vector": (4,), "one": (1,), "scalar": ()}
STEPS = 12

# every hyperparameter away from its default, so that none can be ignored
SETTINGS: dict[str, dict[str, float]] = {
    "sgd": {"learning_rate": 0.3},
    "momentum": {"learning_rate": 0.2, "momentum": 0.7},
    "adagrad": {"learning_rate": 0.4, "epsilon": 0.05, "initial_accumulator": 0.3},
    "adam": {"learning_rate": 0.1, "beta1": 0.8, "beta2": 0.95, "epsilon": 0.02},
    "adamw": {"learning_rate": 0.1, "beta1": 0.8, "beta2": 0.95, "epsilon": 0.02, "weight_decay": 0.3},
}
ADAPTIVE = ("adagrad", "adam", "adamw")


def instance(seed: int = 0, scale: float = 1.0) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """Random parameters and the gradients of `STEPS` steps."""
    rng = np.random.default_rng(seed)
    draw = {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
    grads = [
        {name: np.asarray(scale * rng.standard_normal(shape)) for name, shape in SHAPES.items()}
        for _ in range(STEPS)
    ]
    return {name: np.asarray(value) for name, value in draw.items()}, grads


def constant(value: Any, steps: int) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """Zero parameters and the same gradient at every step."""
    array = np.asarray(value, np.float64)
    return {"w": np.zeros_like(array)}, [{"w": array}] * steps


def assert_paths_close(path: list[Any], expected: list[Any], tolerance: float) -> None:
    assert len(path) == len(expected)
    for step, (found, wanted) in enumerate(zip(path, expected, strict=True), start=1):
        assert set(found) == set(wanted)
        for name in wanted:
            assert found[name].shape == wanted[name].shape
            np.testing.assert_allclose(
                found[name], wanted[name], rtol=tolerance, atol=tolerance, err_msg=f"step {step}, {name}"
            )


def test_every_rule_is_in_the_battery() -> None:
    assert set(SETTINGS) == set(references.LOOPS) == set(rules())
    for name, rule in rules().items():
        assert set(SETTINGS[name]) == set(rule.hyperparameters)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", SETTINGS)
def test_path_is_that_of_a_plain_loop(optimizer: str, backend: str) -> None:
    params, grads = instance()
    hyper = SETTINGS[optimizer]
    assert_paths_close(
        replay(optimizer, params, grads, hyper, backend),
        references.loop(optimizer, params, grads, hyper),
        1e-13,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", SETTINGS)
def test_path_is_that_of_pytorch(optimizer: str, backend: str) -> None:
    params, grads = instance(seed=1)
    hyper = SETTINGS[optimizer]
    assert_paths_close(
        replay(optimizer, params, grads, hyper, backend),
        references.pytorch(optimizer, params, grads, hyper),
        1e-13,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", SETTINGS)
def test_path_is_that_of_optax(optimizer: str, backend: str) -> None:
    params, grads = instance(seed=2)
    hyper = {**SETTINGS[optimizer], **({"epsilon": 0.0} if optimizer == "adagrad" else {})}
    assert_paths_close(
        replay(optimizer, params, grads, hyper, backend),
        references.optax_path(optimizer, params, grads, hyper),
        1e-13,
    )


def test_defaults_are_those_of_pytorch() -> None:
    import torch

    classes = {"adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    for name, cls in classes.items():
        theirs = cls([torch.zeros(1)]).defaults
        ours = rules()[name].complete({"learning_rate": 0.1})
        assert ours["epsilon"] == theirs["eps"]
        if name == "adagrad":
            assert ours["initial_accumulator"] == theirs["initial_accumulator_value"]
        else:
            assert (ours["beta1"], ours["beta2"]) == theirs["betas"]
        assert ours.get("weight_decay", 0.0) == theirs["weight_decay"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_integers_and_powers_of_two_are_exact(backend: str, dtype: str) -> None:
    integers = np.array([3.0, -2.0, 1.0, -7.0])
    sign = np.sign(integers)

    def final(optimizer: str, value: np.ndarray, steps: int, **hyper: float) -> np.ndarray:
        return replay(optimizer, *constant(value, steps), hyper, backend, dtype)[-1]["w"]

    np.testing.assert_array_equal(final("sgd", integers, 5, learning_rate=0.25), -1.25 * integers)
    # velocities 1, 1.5, 1.75 times the gradient
    np.testing.assert_array_equal(
        final("momentum", integers, 3, learning_rate=0.5, momentum=0.5), -0.5 * 4.25 * integers
    )
    # roots of 1, 2, 3 and 4 squares: the first and the fourth move by rate and half the rate
    path = replay("adagrad", *constant(integers, 4), {"learning_rate": 0.5, "epsilon": 0.0}, backend, dtype)
    np.testing.assert_array_equal(path[0]["w"], -0.5 * sign)
    np.testing.assert_allclose(path[3]["w"] - path[2]["w"], -0.25 * sign, rtol=1e-6)
    # v_0 = 16 and a gradient of 3: 3 / (5 + 1) is one half
    np.testing.assert_array_equal(
        final("adagrad", np.array([3.0, -3.0]), 1, learning_rate=0.5, epsilon=1.0, initial_accumulator=16.0),
        [-0.25, 0.25],
    )
    # without memory the means are g and g^2, and Adam is the sign
    memoryless = {"beta1": 0.0, "beta2": 0.0, "epsilon": 0.0}
    np.testing.assert_array_equal(final("adam", integers, 4, learning_rate=0.25, **memoryless), -sign)
    # w <- w / 2 - sign: 1 + 1/2 + 1/4
    np.testing.assert_array_equal(
        final("adamw", integers, 3, learning_rate=1.0, weight_decay=0.5, **memoryless), -1.75 * sign
    )
    # a constant gradient has itself as mean; XLA multiplies by 1 / (1 - beta^t), hence not to the last bit
    halves = {"beta1": 0.5, "beta2": 0.5, "epsilon": 0.0}
    np.testing.assert_allclose(
        final("adam", integers, 4, learning_rate=0.25, **halves),
        -sign,
        rtol=1e-6 if dtype == "float32" else 1e-15,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", SETTINGS)
def test_zero_gradients_without_epsilon_move_nothing(optimizer: str, backend: str) -> None:
    params, _ = instance()
    zero = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    hyper = {"learning_rate": 0.5}
    if optimizer in ADAPTIVE:
        hyper["epsilon"] = 0.0
    if optimizer == "adamw":
        hyper["weight_decay"] = 0.0
    for arrays in replay(optimizer, params, [zero] * 3, hyper, backend):
        for name, value in params.items():
            np.testing.assert_array_equal(arrays[name], value)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", ADAPTIVE)
def test_a_zero_entry_waits_without_epsilon_for_its_first_gradient(optimizer: str, backend: str) -> None:
    grads = [{"w": np.array([0.0, 2.0])}, {"w": np.array([0.0, -1.0])}, {"w": np.array([5.0, 1.0])}]
    hyper = {"learning_rate": 0.5, "epsilon": 0.0}
    path = replay(optimizer, {"w": np.zeros(2)}, grads, hyper, backend)
    assert path[0]["w"][0] == path[1]["w"][0] == 0.0
    assert path[0]["w"][1] == pytest.approx(-0.5, rel=1e-14)
    assert path[2]["w"][0] < 0.0
    assert np.isfinite([arrays["w"] for arrays in path]).all()


@pytest.mark.parametrize(("dtype", "scale"), [("float64", 1e140), ("float64", 1e-140), ("float32", 1e-15)])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", ADAPTIVE)
def test_huge_and_tiny_gradients_move_like_ordinary_ones(
    optimizer: str, backend: str, dtype: str, scale: float
) -> None:
    """002 eq. 47: without epsilon the update does not depend on the gradients' scale."""
    hyper = {"learning_rate": 0.5, "epsilon": 0.0}
    params, grads = instance(seed=3)
    _, scaled = instance(seed=3, scale=scale)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    assert_paths_close(
        replay(optimizer, params, scaled, hyper, backend, dtype),
        replay(optimizer, params, grads, hyper, backend, dtype),
        tolerance,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", ADAPTIVE)
def test_squares_that_underflow_leave_finite_parameters(optimizer: str, backend: str) -> None:
    params, grads = constant([1e-200, -1e-200, 0.0], 3)
    path = replay(optimizer, params, grads, {"learning_rate": 1.0, "epsilon": 0.0}, backend)
    for arrays in path:
        np.testing.assert_array_equal(arrays["w"], 0.0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", SETTINGS)
def test_float32_stays_float32_and_is_near_float64(optimizer: str, backend: str) -> None:
    params, grads = instance(seed=4)
    path = replay(optimizer, params, grads, SETTINGS[optimizer], backend, "float32")
    assert {array.dtype for arrays in path for array in arrays.values()} == {np.dtype("float32")}
    assert_paths_close(path, references.loop(optimizer, params, grads, SETTINGS[optimizer]), 1e-5)


def table(backend: str, dtype: str) -> Any:
    """The array functions of a backend."""
    if backend == "numpy":
        from harness.backends.numpy_ops import numpy_ops

        return numpy_ops(dtype)
    if backend == "torch":
        from harness.backends.torch_ops import torch_ops

        return torch_ops("cpu", dtype)
    from harness.backends.jax_ops import jax_ops

    return jax_ops(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", SETTINGS)
def test_lanes_of_different_settings_are_runs_alone(optimizer: str, backend: str, dtype: str) -> None:
    """Arrays (S, K, n) under hyperparameters (1, K, 1): each lane is its own run, in its own precision."""
    rule, seeds, settings, size, steps = rules()[optimizer], 2, 3, 5, 4
    rng = np.random.default_rng(5)
    start = rng.standard_normal((seeds, settings, size))
    grads = rng.standard_normal((steps, seeds, settings, size))
    values = [
        {name: value * (1 + 0.05 * k) for name, value in SETTINGS[optimizer].items()} for k in range(settings)
    ]
    # float64 stays on, so that a value that widened would show
    with references.jax_float64():
        ops = table(backend, dtype)
        hyper = {
            name: ops.asarray(np.array([value[name] for value in values]).reshape(1, settings, 1))
            for name in rule.hyperparameters
        }
        param = ops.asarray(start)
        state = rule.init(ops, param)
        for step in range(steps):
            stepped = {**hyper, "step": ops.zeros((1, 1, 1)) + ops.asarray(np.array(step + 1.0))}
            param, state = rule.update(ops, ops.asarray(grads[step]), state, param, stepped)
        found = ops.to_numpy(param)
        kinds = {str(ops.to_numpy(array).dtype) for array in (param, *state)}
    assert kinds == {dtype}
    tolerance = 1e-13 if dtype == "float64" else 1e-5
    for seed in range(seeds):
        for k in range(settings):
            alone = references.loop(
                optimizer, {"w": start[seed, k]}, [{"w": g[seed, k]} for g in grads], values[k]
            )
            np.testing.assert_allclose(found[seed, k], alone[-1]["w"], rtol=tolerance, atol=tolerance)
