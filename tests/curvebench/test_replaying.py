"""The public entry `curvebench.replay`: equal on all backends, right in a basis, strict about its input."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import curvebench
from curvebench import optimizers
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.rule import Part
from curvebench.steps.layout import layout
from curvebench.steps.update import Update
from curvebench.workloads.workload import Role

BACKENDS = ("jax", "torch", "numpy")
RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.normal(size=(3, 2)), "b": RNG.normal(size=3)}
GRADS = [{"w": RNG.normal(size=(3, 2)), "b": RNG.normal(size=3)} for _ in range(6)]
WHOLE = np.linalg.qr(RNG.normal(size=(9, 9)))[0]
BLOCK = np.linalg.qr(RNG.normal(size=(6, 6)))[0]
FACTORS = [RNG.normal(size=(9, 12)) for _ in GRADS]
HESSIANS = [factor @ factor.T for factor in FACTORS]


BASES = {"whole": WHOLE, "block": {"w": BLOCK}}
IN_BASES = ("sgd", "adam", "shampoo", "muon", "newton", "nesterov_lookahead", "adagrad_norm")


@pytest.mark.parametrize(
    ("name", "basis"),
    # a basis is the same for all rules, and the battery compares each on every backend without one
    [(name, "whole") for name in IN_BASES]
    + [(name, "block") for name in ("adam", "shampoo", "newton")]
    + [
        pytest.param(name, "whole", marks=pytest.mark.long)
        for name, rule in optimizers.rules().items()
        if name not in IN_BASES and rule.for_model is None  # a rule for whole models takes no basis
    ],
)
def test_all_backends_agree(name: str, basis: str) -> None:
    needs = [{"hessian": one} for one in HESSIANS] if optimizers.rules()[name].needs else None
    paths = [
        curvebench.replay(
            name, PARAMS, GRADS, {"learning_rate": 0.125}, backend, basis=BASES[basis], needs=needs
        )
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
    path = curvebench.replay("momentum", params, grads, {"learning_rate": 0.5, "momentum": 0.5}, backend)
    assert [step["w"].tolist() for step in path] == [[7.0, -4.5], [5.5, -5.25]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_basis_rotates_parameters_and_gradients(backend: str) -> None:
    """The optimizer run by hand on V^T theta and V^T g, and brought back (000 Alg. 2.1)."""
    flat = lambda arrays: np.concatenate([arrays["w"].ravel(), arrays["b"]])  # noqa: E731
    hyper = {"learning_rate": 0.1}
    by_hand = curvebench.replay(
        "adam", {"t": WHOLE.T @ flat(PARAMS)}, [{"t": WHOLE.T @ flat(grad)} for grad in GRADS], hyper, "numpy"
    )
    path = curvebench.replay("adam", PARAMS, GRADS, hyper, backend, basis=WHOLE)
    for step, expected in zip(path, by_hand, strict=True):
        np.testing.assert_allclose(flat(step), WHOLE @ expected["t"], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_float32_stays_float32(backend: str) -> None:
    path = curvebench.replay("adam", PARAMS, GRADS, {"learning_rate": 0.1}, backend, dtype="float32")
    assert {value.dtype for step in path for value in step.values()} == {np.dtype("float32")}


# --- one gradient after another --------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_may_be_wanted_elsewhere(backend: str) -> None:
    """002 eqs. 28-31 by hand: x = w - eta mu v, v = g + mu v, w = w - eta v, with a schedule."""
    hyper = {"learning_rate": 0.5, "momentum": 0.5}
    online = curvebench.Online("nesterov_lookahead", {"w": np.array([8.0])}, hyper, backend)
    np.testing.assert_array_equal(online.gradient_at()["w"], [8.0])
    np.testing.assert_array_equal(online.step({"w": np.array([4.0])})["w"], [6.0])
    np.testing.assert_array_equal(online.gradient_at()["w"], [5.0])
    np.testing.assert_array_equal(online.gradient_at(schedule=0.5)["w"], [5.5])
    np.testing.assert_array_equal(online.step({"w": np.array([2.0])}, schedule=0.5)["w"], [5.0])


def test_a_step_of_newton_by_hand() -> None:
    """On a quadratic function of all parameters a step ends at the minimum, in any basis and order."""
    matrix = HESSIANS[0]
    target = RNG.normal(size=9)
    start = np.concatenate([PARAMS["w"].ravel(), PARAMS["b"]])
    slope = matrix @ (start - target)
    grads = {"w": slope[:6].reshape(3, 2), "b": slope[6:]}
    for basis in (None, WHOLE, {"b": np.linalg.qr(RNG.normal(size=(3, 3)))[0]}):
        (after,) = curvebench.replay(
            "newton",
            PARAMS,
            [grads],
            {"learning_rate": 1.0},
            "numpy",
            basis=basis,
            needs=[{"hessian": matrix}],
        )
        np.testing.assert_allclose(after["w"].ravel(), target[:6], rtol=1e-9)
        np.testing.assert_allclose(after["b"], target[6:], rtol=1e-9)


def test_a_part_needs_nothing_that_the_whole_rule_does_not() -> None:
    part = Part(dataclasses.replace(optimizers.rules()["newton"], scope="leaf"))
    whole = dataclasses.replace(optimizers.rules()["sgd"], scope="leaf", part=lambda role, shape: part)
    roles = {"w": Role("weight", 0)}
    update = Update(whole, layout({"w": (3,)}, roles))
    with pytest.raises(OptionError, match="sgd: the rule of a weight, newton, needs 'hessian', which the"):
        assert update.groups
    assert Update(dataclasses.replace(whole, needs=part.rule.needs), layout({"w": (3,)}, roles)).groups


def test_kinds_may_be_given_for_some_parameters() -> None:
    hyper = {"learning_rate": 0.1}
    some = curvebench.replay("muon", PARAMS, GRADS, hyper, "numpy", kinds={"b": "bias"})
    none = curvebench.replay("muon", PARAMS, GRADS, hyper, "numpy")
    np.testing.assert_array_equal(some[-1]["w"], none[-1]["w"])
