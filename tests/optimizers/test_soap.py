"""SOAP alone: another implementation, closed forms, full rank, cadence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from curvebench import replay
from curvebench.engine.layout import layout
from curvebench.engine.program import Update, Work
from curvebench.optimizers import rules
from curvebench.workloads.workload import Role
from tests.optimizers.families.soap import SOAP, oracle
from tests.optimizers.oracles import pytorch_path
from tests.optimizers.paths import assert_paths_close, instance, path_of_one

# shapes whose first statistics have full rank, or a null space of one dimension
SHAPES = {"square": (4, 4), "tall": (4, 3), "convolution": (3, 2, 2, 2), "cube": (3, 2, 4)}
BARE = {"learning_rate": 0.5, "weight_decay": 0.0, "epsilon": 0.0}


# --- pytorch_optimizer, in float64 and with epsilon 0 ---------------------------------------------------


@pytest.mark.parametrize("every", [1, 2])
def test_path_is_that_of_pytorch_optimizer(every: int) -> None:
    params, grads = instance({**SHAPES, "vector": (2,)}, seed=1)
    hyper = {**SOAP, "epsilon": 0.0}
    expected = pytorch_path(oracle(precondition_frequency=every), params, grads, hyper)
    found = replay("soap", params, grads, hyper, "numpy", options={"refresh_every": every})
    assert_paths_close(found, expected, 1e-12)


# --- closed forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("basis", ["orthogonal_iteration", "eigendecomposition"])
def test_with_diagonal_statistics_soap_is_adam_one_step_later(basis: str) -> None:
    """G = diag(g): both statistics are diagonal, and every basis permutes entries."""
    rng = np.random.default_rng(2)
    sizes = np.array([8.0, 4.0, 2.0, 1.0])
    grads = [{"w": np.diag(sizes * rng.uniform(0.9, 1.1, 4) * rng.choice([-1, 1], 4))} for _ in range(8)]
    start = {"w": rng.standard_normal((4, 4))}
    hyper = {"learning_rate": 0.5, "beta1": 0.8, "beta2": 0.9, "epsilon": 0.1}
    options = {"refresh_every": 1, "basis": basis}
    path = replay("soap", start, grads, {**hyper, "weight_decay": 0.0}, "numpy", options=options)
    np.testing.assert_array_equal(path[0]["w"], start["w"])
    adam = replay("adam", start, grads[1:], hyper, "numpy")
    assert_paths_close(path[1:], adam, 1e-13)


def test_the_second_step_is_the_sign_in_the_basis_of_the_first_gradient() -> None:
    """Adam's first direction is the sign: W <- W - eta Q_L sign(Q_L^T G_2 Q_R) Q_R^T."""
    rng = np.random.default_rng(3)
    one, two = (rng.standard_normal((4, 4)) for _ in range(2))
    u, _, vh = np.linalg.svd(one)
    path = replay("soap", {"w": np.zeros((4, 4))}, [{"w": one}, {"w": two}], BARE, "numpy")
    np.testing.assert_array_equal(path[0]["w"], 0.0)
    np.testing.assert_allclose(path[1]["w"], -0.5 * u @ np.sign(u.T @ two @ vh.T) @ vh, atol=1e-12)


# --- properties at full rank -----------------------------------------------------------------------------


@pytest.mark.parametrize("basis", ["orthogonal_iteration", "eigendecomposition"])
def test_the_path_turns_with_the_sides_of_the_gradient(basis: str) -> None:
    rng = np.random.default_rng(6)
    params, grads = instance({"w": (4, 4)}, seed=6)
    left, right = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2))
    options = {"refresh_every": 2, "basis": basis}

    def path(turn: Any) -> list[np.ndarray]:
        moved = [turn(grad["w"]) for grad in grads]
        return path_of_one("soap", turn(params["w"]), moved, SOAP, options)

    for found, plain in zip(path(lambda w: left @ w @ right), path(lambda w: w), strict=True):
        np.testing.assert_allclose(found, left @ plain @ right, atol=1e-10)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(("dtype", "scale"), [("float64", 1e140), ("float64", 1e-140), ("float32", 1e-15)])
def test_without_epsilon_the_scale_of_gradients_does_not_matter(
    dtype: str, scale: float, backend: str
) -> None:
    params, grads = instance({"square": (3, 3), "tall": (3, 2), "vector": (4,)}, seed=7)
    hyper = {**SOAP, "epsilon": 0.0}
    scaled = [{name: scale * value for name, value in grad.items()} for grad in grads]
    options = {"refresh_every": 3}
    path = replay("soap", params, scaled, hyper, backend, dtype, options=options)
    plain = replay("soap", params, grads, hyper, "numpy", options=options)
    assert_paths_close(path, plain, 1e-11 if dtype == "float64" else 1e-3)


def test_squares_that_underflow_and_a_late_first_gradient_leave_finite_parameters() -> None:
    """Statistics stay 0 and give some basis; the last gradient then moves by the rate in it."""
    tiny, late = np.full((3, 3), 1e-200), np.eye(3)
    path = replay("soap", {"w": np.zeros((3, 3))}, [{"w": tiny}] * 3 + [{"w": late}], BARE, "numpy")
    np.testing.assert_array_equal(path[2]["w"], 0.0)
    assert np.isfinite(path[3]["w"]).all()
    assert path[3]["w"].any()


# --- cadence ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "works"),
    [
        (1, [Work.START, Work.REFRESH, Work.REFRESH, Work.REFRESH]),
        (3, [Work.START, Work.NONE, Work.NONE, Work.REFRESH]),
        (None, [Work.START, Work.NONE, Work.NONE, Work.NONE]),
    ],
)
def test_the_first_step_decomposes_and_the_others_iterate(every: int | None, works: list[Work]) -> None:
    rule = rules()["soap"].choose({"refresh_every": every})
    for shape in ((3, 2), (3,)):
        update = Update(rule, layout({"w": shape}, {"w": Role("weight")}))
        assert [update.work_of(step) for step in (1, 2, 3, 4)] == works
        assert update.cadence == set(works)
