"""Spectral-factorized curvature alone: closed forms, starts, cadence, overflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from curvebench.optimizers import rules
from curvebench.optimizers.rule import HyperparameterError
from curvebench.steps.layout import layout, roles_of
from curvebench.steps.update import Update, Work
from tests.optimizers.paths import instance, path_of_one

# S = I at first, no damping, decay or momentum
BARE: Mapping[str, Any] = {"start": "identity", "velocity": False}
NUMBERS = {"learning_rate": 0.5, "damping": 0.0}


def drawn(shape: tuple[int, ...], steps: int, seed: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    params, grads = instance({"w": shape}, seed=seed, steps=steps)
    return params["w"], [grad["w"] for grad in grads]


# --- closed forms --------------------------------------------------------------------------------


def test_the_diagonal_rule_whose_share_is_1_is_our_adagrad():
    start, grads = drawn((3, 2), 12)
    adagrad = path_of_one("adagrad", start, grads, {"learning_rate": 0.5, "initial_accumulator": 1.0})
    hyper = {**NUMBERS, "curvature_rate": 1.0, "gamma": 0.0}
    np.testing.assert_allclose(path_of_one("spectral_diagonal", start, grads, hyper, BARE), adagrad, 1e-9)


def test_two_steps_by_hand():
    """From S = I the first step turns nothing, and the second turns by the Cayley map of one angle."""
    one, two = np.array([2.0, 1.0]), np.array([1.0, 3.0])
    hyper = {**NUMBERS, "curvature_rate": 0.5}
    options = {**BARE, "normalized": False, "tie_tolerance": 0.0}
    path = path_of_one("spectral_full", [0.0, 0.0], [one, two], hyper, options)
    np.testing.assert_allclose(path[0], [-0.5 * 2 / np.sqrt(2.5), -0.5 * 1 / 1], rtol=1e-15)
    # d = (2.5, 1), U_21 = -3 / (1 - 2.5) = 2, X = 0.25 * 2 = 1/2: cos = 3/5, sin = 4/5
    basis, values = np.array([[0.6, -0.8], [0.8, 0.6]]), np.array([1.25 + 0.5, 0.5 + 4.5])
    step = -0.5 * basis @ (values**-0.5 * (basis.T @ two))
    np.testing.assert_allclose(path[1] - path[0], step, rtol=1e-14)


# --- the start -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["spectral", "spectral_full", "spectral_diagonal"])
@pytest.mark.parametrize("scale", [1e-120, 1e120])
def test_a_start_by_the_gradient_leaves_out_its_scale(name: str, scale: float):
    start, grads = drawn((4, 3), 12)
    path = path_of_one(name, start, [scale * grad for grad in grads], {**NUMBERS, "damping": 0.0})
    np.testing.assert_allclose(path, path_of_one(name, start, grads, NUMBERS), rtol=0, atol=1e-9)


def test_a_gradient_that_is_0_starts_from_the_identity():
    start, grads = drawn((4, 3), 3)
    given = [0 * grads[0], *grads[1:]]
    by_gradient, identity = (
        path_of_one("spectral", start, given, NUMBERS, {"start": one}) for one in ("gradient", "identity")
    )
    np.testing.assert_array_equal(by_gradient, identity)


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize("name", ["spectral", "spectral_full", "spectral_diagonal"])
def test_a_curvature_of_which_nothing_is_left_is_nan_and_does_not_stand_still(name: str):
    """At a gradient of 0 all is forgotten where curvature_rate and gamma are 1, but for the damping."""
    start, grads = drawn((3, 2), 3)
    hyper = {**NUMBERS, "curvature_rate": 1.0, "gamma": 1.0}
    given = [grads[0], 0 * grads[1], grads[2]]
    first, *later = path_of_one(name, start, given, hyper)
    assert np.isfinite(first).all()
    assert np.isnan(later).all()
    damped = path_of_one(name, start, given, {**hyper, "damping": 1e-8})
    assert np.isfinite(damped).all()
    assert (damped[2] != damped[1]).all()


# --- cadence -------------------------------------------------------------------------------------


def test_the_curvature_and_the_correction_have_cadences_of_their_own():
    rule = rules()["spectral"].choose({"refresh_every": 2, "orthogonalize_every": 3})
    update = Update(rule, layout({"w": (3, 2)}, roles_of({"w": (3, 2)})))
    both = Work.REFRESH | Work.OBSERVE
    works = [update.work_of(step) for step in range(1, 8)]
    assert works == [
        Work.START | Work.OBSERVE, Work.NONE, Work.REFRESH, Work.OBSERVE, Work.REFRESH, Work.NONE, both
    ]  # fmt: skip
    assert update.cadence == set(works)


# --- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", ["spectral", "spectral_full", "spectral_diagonal"])
def test_an_exponential_that_overflows_is_no_number(name: str, backend: str):
    """And not a direction of 0, with which a run would go on as if nothing were wrong."""
    options = {"exponential": "exact", "start": "identity"}
    with np.errstate(all="ignore"):
        path = path_of_one(name, np.ones((3, 2)), [np.full((3, 2), 1e3)], NUMBERS, options, backend)
    assert np.isnan(path[0]).all()


def test_numbers_that_an_option_takes_away_are_refused():
    for options, number in (({"normalized": False}, "rotation_rate"), ({"velocity": False}, "momentum")):
        with pytest.raises(HyperparameterError, match=f"spectral has no hyperparameter '{number}'"):
            rules()["spectral"].choose(options).complete({"learning_rate": 0.1, number: 0.5})
