"""Momentum alone: closed forms, and gradients of a function that are taken where each rule wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from harness import Online

BACKENDS = ["numpy", "jax", "torch"]
CURVATURES = np.array([1.0, 2.0, 4.0])
START = np.array([3.0, -5.0, 1.0])


def slope(w: np.ndarray) -> np.ndarray:
    """The gradient of a parabola."""
    return CURVATURES * w


def followed(
    optimizer: str,
    hyper: dict[str, float],
    schedule: Sequence[float],
    backend: str = "numpy",
    gradient: Callable[[np.ndarray], np.ndarray] = slope,
    options: Mapping[str, object] | None = None,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Where gradients were taken, one a multiplier of the schedule, and the parameters after each update."""
    online = Online(optimizer, {"w": START}, hyper, backend, options=options)
    points, path = [], []
    for multiplier in schedule:
        points.append(online.gradient_at(multiplier)["w"])
        path.append(online.step({"w": gradient(points[-1])}, multiplier)["w"])
    return points, path


@pytest.mark.parametrize("backend", BACKENDS)
def test_double_momentum_moves_the_weights_that_look_ahead(backend: str) -> None:
    """002 Lemma S.10 with constant rate and momentum: equal to the last bit, all numbers being short."""
    hyper, steps = {"learning_rate": 0.125, "momentum": 0.5}, [1.0] * 8
    ahead, _ = followed("nesterov_lookahead", hyper, steps, backend)
    points, path = followed("nesterov", hyper, steps, backend)
    np.testing.assert_array_equal(points, ahead)
    np.testing.assert_array_equal(path[:-1], ahead[1:])


def test_a_changing_rate_adds_its_change_times_the_velocity() -> None:
    """002 Lemma S.10: x_{t+1} = x_t - eta_t (g + mu v_t) + (eta_t - eta_{t+1}) mu v_t."""
    hyper, schedule = {"learning_rate": 0.125, "momentum": 0.5}, [1.0, 1.0, 0.5, 0.25, 0.25, 2.0, 1.0]
    ahead, _ = followed("nesterov_lookahead", hyper, schedule)
    rates = 0.125 * np.array(schedule)
    velocity = np.zeros(3)
    for t in range(len(schedule) - 1):
        gradient = slope(ahead[t])
        velocity = gradient + 0.5 * velocity
        double = ahead[t] - rates[t] * (gradient + 0.5 * velocity)
        extra = (rates[t] - rates[t + 1]) * 0.5 * velocity
        np.testing.assert_array_equal(ahead[t + 1], double + extra)
    _, path = followed("nesterov", hyper, schedule)
    np.testing.assert_array_equal(path[0], ahead[1])  # until the rate changes
    assert (path[1] != ahead[2]).all()


# --- regularized update descent ----------------------------------------------------------------------


@pytest.mark.parametrize(("gradient", "other"), [("polyak", "momentum"), ("nesterov", "nesterov_lookahead")])
def test_its_approximations_are_the_two_momenta(gradient: str, other: str) -> None:
    """002 App. F: at a constant rate v is -eta times their velocity, and mu = 1 - eta gamma."""
    rate, regularization = 0.125, 4.0
    hyper = {"learning_rate": rate, "regularization": regularization}
    name, options = "regularized_update_descent", {"gradient": gradient}
    points, path = followed(name, hyper, [1.0] * 8, options=options)
    momentum = {"learning_rate": rate, "momentum": 1 - rate * regularization}
    other_points, other_path = followed(other, momentum, [1.0] * 8)
    np.testing.assert_array_equal(points, other_points)
    np.testing.assert_array_equal(path, other_path)


def test_it_descends_its_own_objective_in_the_velocity() -> None:
    """002 eq. 97 on J = h theta^2 / 2 is a linear map of (theta, v)."""
    rate, regularization, steps = 0.3, 1.5, 12
    hyper = {"learning_rate": rate, "regularization": regularization}
    points, path = followed("regularized_update_descent", hyper, [1.0] * steps)
    for place, curvature in enumerate(CURVATURES):
        # v_{t+1} = v - eta d/dv (h (theta + v)^2 / 2 + gamma v^2 / 2)
        velocity = np.array([-rate * curvature, 1 - rate * (curvature + regularization)])
        both = np.array([velocity + np.eye(2)[0], velocity])
        for t in range(1, steps + 1):
            theta, v = np.linalg.matrix_power(both, t) @ [START[place], 0.0]
            np.testing.assert_allclose(path[t - 1][place], theta, rtol=0, atol=1e-12)
            if t < steps:
                np.testing.assert_allclose(points[t][place], theta + v, rtol=0, atol=1e-12)


def test_its_momentum_follows_the_scheduled_rate() -> None:
    """mu_t = 1 - eta_t gamma, of the rate that the schedule has multiplied: a larger one keeps less."""
    online = Online(
        "regularized_update_descent", {"w": np.zeros(1)}, {"learning_rate": 0.5, "regularization": 1.0}
    )
    online.step({"w": np.array([-2.0])}, schedule=1.0)  # v = 1
    after = [float(online.step({"w": np.zeros(1)}, schedule)["w"][0]) for schedule in (1.0, 0.5, 2.0)]
    np.testing.assert_array_equal(np.diff([1.0, *after]), [0.5, 0.375, 0.0])
