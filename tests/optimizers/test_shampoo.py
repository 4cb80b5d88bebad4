"""Shampoo alone: closed forms, the root by SciPy, precision where statistics are singular, wrong options."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power

from harness import replay
from harness.errors import InputError
from tests.optimizers.families.shampoo import shampoo
from tests.optimizers.loops import Leaf

RATE = {"learning_rate": 0.5, "epsilon": 0.0}


@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
def test_diagonal_gradients_give_adagrad(backend: str) -> None:
    """L_t = R_t = diag(sum g^2), so that L^(-1/4) G R^(-1/4) = g / sqrt(sum g^2) (002 eqs. 44 and 53)."""
    rng = np.random.default_rng(0)
    diagonals = [np.diag(rng.uniform(0.5, 2.0, 4) * rng.choice([-1, 1], 4)) for _ in range(5)]
    grads = [{"w": diagonal} for diagonal in diagonals]
    start = {"w": rng.standard_normal((4, 4))}
    path = replay("shampoo", start, grads, RATE, backend)
    for found, expected in zip(path, replay("adagrad", start, grads, RATE, "numpy"), strict=True):
        np.testing.assert_allclose(found["w"], expected["w"], rtol=1e-13, atol=1e-13)


def test_the_first_step_is_the_polar_factor() -> None:
    """(G G^T)^(-1/4) G (G^T G)^(-1/4) = U V^T: Muon's direction."""
    rng = np.random.default_rng(1)
    for shape in ((3, 3), (5, 2), (2, 5)):
        grad = rng.standard_normal(shape)
        u, _, vh = np.linalg.svd(grad, full_matrices=False)
        (found,) = replay("shampoo", {"w": np.zeros(shape)}, [{"w": grad}], RATE, "numpy")
        np.testing.assert_allclose(found["w"], -0.5 * u @ vh, atol=1e-12)


def test_a_vector_gets_full_matrix_adagrad() -> None:
    """A tensor of one axis has the power 1/2: w <- w - eta O_t^(-1/2) g (002 Sec. 5)."""
    rng = np.random.default_rng(2)
    grads = [rng.standard_normal(3) for _ in range(4)]
    hyper = {"learning_rate": 0.5, "epsilon": 0.1}
    path = replay("shampoo", {"w": np.zeros(3)}, [{"w": g} for g in grads], hyper, "numpy")
    w = np.zeros(3)
    for t, found in enumerate(path, start=1):
        second_moment = 0.1 * np.eye(3) + sum(np.outer(g, g) for g in grads[:t])
        w = w - 0.5 * fractional_matrix_power(second_moment, -0.5) @ grads[t - 1]
        np.testing.assert_allclose(found["w"], w, rtol=1e-12)


@pytest.mark.parametrize("power", [0.25, 0.5, 1.0])
def test_both_sides_are_powers_of_the_sums_of_outer_products(power: float) -> None:
    rng = np.random.default_rng(3)
    grads = [rng.standard_normal((3, 2)) for _ in range(4)]
    hyper = {"learning_rate": 0.5, "epsilon": 0.1}
    path = replay(
        "shampoo",
        {"w": np.zeros((3, 2))},
        [{"w": g} for g in grads],
        hyper,
        "numpy",
        options={"power": power},
    )
    w = np.zeros((3, 2))
    for t, found in enumerate(path, start=1):
        left = 0.1 * np.eye(3) + sum(g @ g.T for g in grads[:t])
        right = 0.1 * np.eye(2) + sum(g.T @ g for g in grads[:t])
        g = grads[t - 1]
        w = w - 0.5 * fractional_matrix_power(left, -power) @ g @ fractional_matrix_power(right, -power)
        np.testing.assert_allclose(found["w"], w, rtol=1e-11, atol=1e-12)


def test_the_running_mean_is_corrected_for_its_start() -> None:
    """A constant gradient has the mean G G^T at every step; without epsilon all steps are U V^T."""
    grad = np.random.default_rng(4).standard_normal((3, 3))
    u, _, vh = np.linalg.svd(grad)
    path = replay(
        "shampoo",
        {"w": np.zeros((3, 3))},
        [{"w": grad}] * 4,
        {**RATE, "beta2": 0.5},
        "numpy",
        options={"statistics": "ema"},
    )
    for step, found in enumerate(path, start=1):
        np.testing.assert_allclose(found["w"], -0.5 * step * u @ vh, atol=1e-12)


def test_roots_stay_between_refreshes_while_statistics_go_on() -> None:
    """Scalars, k = 2: the roots are those of 1, 1, then 1 + 4 + 9, which holds the second gradient."""
    path = replay(
        "shampoo",
        {"w": np.zeros(())},
        [{"w": np.array(value)} for value in (1.0, 2.0, 3.0, 14.0)],
        {"learning_rate": 1.0, "epsilon": 0.0},
        "numpy",
        options={"refresh_every": 2},
    )
    steps = np.diff([0.0, *(float(arrays["w"]) for arrays in path)])
    np.testing.assert_allclose(steps, [-1, -2, -3 / np.sqrt(14), -14 / np.sqrt(14)], rtol=1e-14)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("shape", [(8, 3), (3, 8), (6, 2, 2)])
def test_singular_statistics_in_float32_keep_the_size_of_steps(shape: tuple[int, ...], backend: str) -> None:
    """Rounding in the null space is no curvature: without a cutoff its root is 50 times a true one."""
    rng = np.random.default_rng(5)
    grads = [rng.standard_normal(shape).astype(np.float32).astype(np.float64)] * 6
    path = replay("shampoo", {"w": np.zeros(shape)}, [{"w": g} for g in grads], RATE, backend, "float32")
    expected = shampoo(Leaf("weight", np.zeros(shape), grads), RATE, "sum", None, 1)
    for found, wanted in zip(path, expected, strict=True):
        np.testing.assert_allclose(found["w"], wanted, atol=2e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"statistics": "mean"}, "statistics = 'mean' is not one of sum, ema"),
        ({"power": 0}, r"power = 0 is not a number in \(0, 1\], or null"),
        ({"power": True}, "power = True is not a number"),
        ({"power": "1/4"}, "power = '1/4' is not a number"),
        ({"power": 1.5}, "power = 1.5 is not a number"),
        ({"refresh_every": 0}, "refresh_every = 0 is not a whole number from 1 on"),
        ({"refresh_every": None}, "refresh_every = None is not a whole number from 1 on"),
        ({"refreshevery": 2}, "did you mean 'refresh_every'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replay("shampoo", {"w": np.zeros(2)}, [], RATE, "numpy", options=options)


def test_beta2_belongs_to_the_running_mean_alone() -> None:
    with pytest.raises(InputError, match="shampoo has no hyperparameter 'beta2'"):
        replay("shampoo", {"w": np.zeros(2)}, [], {**RATE, "beta2": 0.9}, "numpy")
