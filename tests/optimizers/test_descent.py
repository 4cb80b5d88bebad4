"""Every rule minimizes: a parabola, Rosenbrock's valley and a matrix parabola; and goes on after a stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from curvebench import Online
from curvebench.optimizers import rules

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Objective:
    """A function of arrays with its gradient and Hessian, and where it is begun."""

    start: Arrays
    loss: Callable[[Arrays], float]
    gradient: Callable[[Arrays], Arrays]
    hessian: Callable[[Arrays], np.ndarray]


def quadratic(target: np.ndarray, start: np.ndarray, curvature: np.ndarray | float = 1.0) -> Objective:
    """1/2 sum of c (w - target)^2."""
    scale = np.broadcast_to(curvature, target.shape)
    return Objective(
        {"w": start},
        lambda point: float(0.5 * np.sum(scale * (point["w"] - target) ** 2)),
        lambda point: {"w": scale * (point["w"] - target)},
        lambda point: np.diag(scale.ravel()),
    )


def parabola(shape: Domain) -> Objective:
    """Condition number 10 in 10 dimensions."""
    target, start = shape(np.random.default_rng(0).standard_normal((2, 10)))
    return quadratic(target, start, np.geomspace(0.1, 1, 10) * 10 / 10**0.5)


def matrix_parabola(shape: Domain) -> Objective:
    """1/2 |W - T|^2 for 5 x 3 matrices."""
    target, start = shape(np.random.default_rng(1).standard_normal((2, 5, 3)))
    return quadratic(target, start)


def rosenbrock() -> Objective:
    """100 (y - x^2)^2 + (1 - x)^2 from (-1.2, 1)."""

    def gradient(point: Arrays) -> Arrays:
        x, y = point["w"]
        return {"w": np.array([-400 * x * (y - x**2) - 2 * (1 - x), 200 * (y - x**2)])}

    def hessian(point: Arrays) -> np.ndarray:
        x, y = point["w"]
        return np.array([[1200 * x**2 - 400 * y + 2, -400 * x], [-400 * x, 200.0]])

    def loss(point: Arrays) -> float:
        x, y = point["w"]
        return float(100 * (y - x**2) ** 2 + (1 - x) ** 2)

    return Objective({"w": np.array([-1.2, 1.0])}, loss, gradient, hessian)


# --- where a rule can go ---------------------------------------------------------------------------

Domain = Callable[[np.ndarray], np.ndarray]


def anywhere(pair: np.ndarray) -> np.ndarray:
    return pair


def on_spheres(pair: np.ndarray) -> np.ndarray:
    """Target and start with rows of equal length: such a rule keeps the radius."""
    rows = pair if pair.ndim > 2 else pair[:, None]
    equal = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(2 * equal.reshape(pair.shape))


def on_simplices(pair: np.ndarray) -> np.ndarray:
    weights = np.exp(pair)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def orthonormal(pair: np.ndarray) -> np.ndarray:
    return np.stack([np.linalg.qr(one)[0] for one in pair])


@dataclass(frozen=True)
class Descent:
    """How a rule minimizes the test functions, and what is expected of it.

    Args:
        parabola, matrix, rosenbrock: learning rate and steps; None where it has nothing to minimize there.
        domain: where target and start lie.
        hyper: what is not at its default.
        cools: whether the rate falls linearly to 0: steps of a fixed length end no nearer than that.
        leaves: whether it may go up again: AdamNMF's G / sqrt(A B) has no bound on a matrix.
    """

    parabola: tuple[float, int] | None
    matrix: tuple[float, int]
    rosenbrock: tuple[float, int] | None = None
    domain: Domain = anywhere
    hyper: Mapping[str, float] | None = None
    cools: bool = False
    leaves: bool = False


DESCENTS: Mapping[str, Descent] = {
    "sgd": Descent((0.1, 100), (0.3, 30), (2e-3, 2000)),
    "momentum": Descent((0.05, 150), (0.1, 100), (3e-3, 500)),
    "nesterov": Descent((0.1, 60), (0.1, 60), (5e-4, 1500)),
    "nesterov_lookahead": Descent((0.1, 60), (0.1, 60), (5e-4, 1500)),
    "regularized_update_descent": Descent(
        (0.1, 100), (0.1, 100), (3e-4, 2000), hyper={"regularization": 9.0}
    ),
    "adagrad": Descent((1.0, 60), (1.0, 60), (1.5, 1500)),
    "adagrad_norm": Descent((2.0, 60), (2.0, 60)),
    "adagrad_full": Descent((1.0, 60), (1.0, 100), (4.0, 500)),
    "rmsprop": Descent((0.1, 100), (0.1, 100), (0.15, 500), cools=True),
    "adam": Descent((0.3, 100), (0.3, 100), (0.8, 500), cools=True),
    "adamw": Descent((0.3, 100), (0.3, 100), (0.8, 500), hyper={"weight_decay": 0.0}, cools=True),
    "adam_atan2": Descent((0.3, 100), (0.3, 100), (0.5, 500), cools=True),
    "scion": Descent((0.1, 100), (0.1, 100), cools=True),
    "lion": Descent((0.2, 100), (0.2, 100), (0.01, 1000), cools=True),
    "ademamix": Descent((0.3, 100), (0.3, 100), (0.8, 500), cools=True),
    "adopt": Descent((0.3, 100), (0.3, 100), (2.0, 500), cools=True),
    "laprop": Descent((0.3, 100), (0.3, 100), (0.8, 500), cools=True),
    "mars": Descent((0.3, 100), (0.3, 100), (0.8, 500), cools=True),
    "prodigy": Descent((1.0, 100), (1.0, 100), cools=True),
    "adafactor": Descent((0.3, 100), (0.3, 100), (0.045, 2000), cools=True),
    "adam_nmf": Descent((0.1, 100), (0.03, 250), (0.0015, 4000), cools=True, leaves=True),
    "newton": Descent((1.0, 1), (1.0, 1), (1.0, 10)),
    "sophia_h": Descent((0.5, 300), (0.5, 300), (0.3, 1500), hyper={"gamma": 1.0}, cools=True),
    "sophia_g": Descent((0.5, 300), (0.5, 300), (0.3, 1500), hyper={"gamma": 1.0}, cools=True),
    "adahessian": Descent((0.3, 100), (0.3, 100), cools=True),
    "lbfgs": Descent((1.0, 40), (1.0, 10), (1.0, 60)),
    "steepest_descent": Descent((0.3, 100), (0.3, 100), (0.01, 1500), cools=True),
    "sign_descent": Descent((0.1, 100), (0.1, 100), (0.0015, 4000), cools=True),
    "mirror_descent": Descent((0.1, 100), (0.3, 30), (2e-3, 2000)),
    "exponentiated_gradient": Descent((3.0, 100), (3.0, 100), domain=on_simplices),
    "shampoo": Descent((1.0, 100), (1.0, 100), (4.0, 500)),
    "idealized_shampoo": Descent((0.3, 100), (0.3, 100), cools=True),
    "soap": Descent((0.3, 100), (0.3, 100), (0.2, 500), hyper={"weight_decay": 0.0}, cools=True),
    "muon": Descent((0.3, 100), (0.3, 100), hyper={"others_weight_decay": 0.0}, cools=True),
    "spectral": Descent((0.3, 100), (0.3, 100), hyper={"others_weight_decay": 0.0}, cools=True),
    "spectral_full": Descent((0.1, 100), (0.1, 100), cools=True),
    "spectral_diagonal": Descent((0.1, 100), (0.1, 100), cools=True),
    "pin_to_sphere": Descent((0.2, 100), (0.2, 100), domain=on_spheres),
    "riemannian_sgd": Descent((0.2, 100), (0.2, 100), domain=on_spheres),
    "trust_region_sphere": Descent((0.5, 100), (0.5, 100), domain=on_spheres, cools=True),
    "weight_normalization": Descent((0.1, 200), (1.0, 150)),
    "manifold_muon": Descent(None, (0.2, 100), domain=orthonormal, cools=True),
}


NEEDED: Mapping[str, Callable[[Objective, Arrays], np.ndarray]] = {
    "loss": lambda objective, point: np.array(objective.loss(point)),
    "hessian": lambda objective, point: objective.hessian(point),
    "diagonal_factors": lambda objective, point: np.stack(
        [np.ones(point["w"].size), np.diag(objective.hessian(point))]
    ),
}


def fallen(optimizer: str, objective: Objective, rate: float, steps: int) -> float:
    """Return the last loss divided by the first; the least loss instead of the last if the loss may rise
    again.
    """
    how = DESCENTS[optimizer]
    online = Online(
        optimizer, objective.start, {"learning_rate": rate, **(how.hyper or {})}, kinds={"w": kind(objective)}
    )
    needs = rules()[optimizer].needs
    losses = [objective.loss(objective.start)]
    for step in range(steps):
        schedule = 1 - step / steps if how.cools else 1.0
        point = online.gradient_at(schedule)
        needed = {need.name: NEEDED[need.name](objective, point) for need in needs}
        losses.append(objective.loss(online.step(objective.gradient(point), schedule, **needed)))
    return (min(losses) if how.leaves else losses[-1]) / losses[0]


def kind(objective: Objective) -> str:
    return "weight" if objective.start["w"].ndim == 2 else "vector"


# One parameter is no network, which those for layers need (test_symo.py). Residuals are those of a workload
# (test_gauss_newton.py).
@pytest.mark.parametrize(
    "optimizer",
    [
        name
        for name, rule in rules().items()
        if rule.for_model is None and not any(need.is_gaussian for need in rule.needs)
    ],
)
def test_a_rule_minimizes_where_it_can_go(optimizer: str) -> None:
    """To a thousandth of the loss at the start, which a rate that is far too small leaves where it was."""
    how = DESCENTS[optimizer]
    if how.parabola is not None:
        assert fallen(optimizer, parabola(how.domain), *how.parabola) < 1e-3
    else:
        assert optimizer == "manifold_muon"  # this rule leaves vectors to another rule
    if how.rosenbrock is not None:
        assert fallen(optimizer, rosenbrock(), *how.rosenbrock) < 1e-3
    assert fallen(optimizer, matrix_parabola(how.domain), *how.matrix) < 1e-3
    if not rules()[optimizer].compares_losses:  # a line search extends short steps
        assert fallen(optimizer, matrix_parabola(how.domain), 1e-6, 20) > 0.9
