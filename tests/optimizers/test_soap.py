"""SOAP alone: a closed form, scales, cadence."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench import replay
from curvebench.optimizers import rules
from curvebench.steps.layout import layout
from curvebench.steps.update import Update, Work
from curvebench.workloads.workload import Role
from tests.optimizers.families.soap import SOAP
from tests.optimizers.paths import assert_paths_close, instance

# shapes whose first statistics have full rank, or a null space of one dimension
SHAPES = {"square": (4, 4), "tall": (4, 3), "convolution": (3, 2, 2, 2), "cube": (3, 2, 4)}
BARE = {"learning_rate": 0.5, "weight_decay": 0.0, "epsilon": 0.0}


# --- closed forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("basis", ["orthogonal_iteration", "eigendecomposition"])
def test_with_diagonal_statistics_soap_is_adam_one_step_later(basis: str):
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


# --- scales ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(("dtype", "scale"), [("float64", 1e140), ("float64", 1e-140), ("float32", 1e-15)])
def test_without_epsilon_the_scale_of_gradients_does_not_matter(dtype: str, scale: float, backend: str):
    params, grads = instance({"square": (3, 3), "tall": (3, 2), "vector": (4,)}, seed=7)
    hyper = {**SOAP, "epsilon": 0.0}
    scaled = [{name: scale * value for name, value in grad.items()} for grad in grads]
    options = {"refresh_every": 3}
    path = replay("soap", params, scaled, hyper, backend, dtype, options=options)
    plain = replay("soap", params, grads, hyper, "numpy", options=options)
    assert_paths_close(path, plain, 1e-11 if dtype == "float64" else 1e-3)


def test_squares_that_underflow_and_a_late_first_gradient_leave_finite_parameters():
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
def test_the_first_step_decomposes_and_the_others_iterate(every: int | None, works: list[Work]):
    rule = rules()["soap"].choose({"refresh_every": every})
    for shape in ((3, 2), (3,)):
        update = Update(rule, layout({"w": shape}, {"w": Role("weight")}))
        assert [update.work_of(step) for step in (1, 2, 3, 4)] == works
        assert update.cadence == set(works)
