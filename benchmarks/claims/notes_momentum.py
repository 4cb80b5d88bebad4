"""Claims of the adaptive-methods notes on Polyak's, Nesterov's and double momentum, also in Adam.

Equations, sections and lemmas are those of 002, Stratos (2026), "Adaptive Learning Methods", a set of notes
(docs/sources.md). w_t are weights, g_t gradients, v_t velocities, x_t look-ahead points, and mu is the
momentum. Double momentum is Nesterov's momentum, written for the look-ahead points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import curvebench
from curvebench.benchmarks.claims._measures import at_least, at_most, equals, vanishes
from curvebench.benchmarks.claims._parts import Random, part
from curvebench.engine.schedules import multipliers
from curvebench.property_checks.checks import Measure, PropertyClaim

Weights = np.ndarray
Gradient = Callable[[int, Weights], np.ndarray]
DESCENT = "regularized_update_descent"


@dataclass(frozen=True)
class Valley:
    """Losses l_t(w) = (w - c_t)^T Q (w - c_t) / 2 + sum_i cos(w_i) / 10, whose minimum may move with t."""

    # Q, (d, d), with eigenvalues in (0, 1].
    curvature: np.ndarray
    # c_t, (T, d).
    centers: np.ndarray

    @property
    def steps(self) -> int:
        """Number of losses, T."""
        return len(self.centers)

    def gradient(self, number: int, weights: Weights) -> np.ndarray:
        """Return the gradient of loss `number` at given weights."""
        return self.curvature @ (weights - self.centers[number]) - 0.1 * np.sin(weights)


def _valley(random: Random, steps: int) -> Valley:
    """Draw losses in 1 to 6 dimensions with condition numbers up to 1e3 and a fixed or moving minimum."""
    size = int(random.integers(1, 7))
    turn = np.linalg.qr(random.normal(size=(size, size)))[0]
    curvature = (turn * 10 ** random.uniform(-3, 0, size)) @ turn.T
    moves = random.normal(size=(steps, size)) * random.choice([0.0, 0.3])
    return Valley(curvature, random.normal(size=size) + moves)


@dataclass(frozen=True)
class Path:
    """Record of a run of a rule.

    Args:
        weights: w_1 ... w_(T+1), (T + 1, d).
        points: x_1 ... x_T, the points at which gradients were taken, (T, d).
        gradients: gradients at the points x_t, (T, d).
    """

    weights: np.ndarray
    points: np.ndarray
    gradients: np.ndarray


def _run(
    optimizer: str,
    gradient: Gradient,
    start: Weights,
    steps: int,
    hyper: Mapping[str, float],
    options: Mapping[str, Any] | None = None,
    schedule: np.ndarray | None = None,
    point: Callable[[Weights, list[np.ndarray]], Weights] | None = None,
) -> Path:
    """Run a rule on gradients of changing losses.

    Args:
        optimizer, hyper, options: name of the rule, its hyperparameters and options.
        gradient: `gradient(number, weights)` is the gradient of the loss of step `number`.
        start: initial weights, (d,).
        steps: number of steps.
        schedule: factor of the learning rate at each step; None for a constant rate.
        point: `point(weights, past gradients)` is the point at which the gradient is taken; None for the
            point that the rule itself determines.
    """
    online = curvebench.Online(optimizer, {"w": start}, hyper, options=options)
    weights = [start]
    points: list[np.ndarray] = []
    gradients: list[np.ndarray] = []
    for number in range(steps):
        factor = 1.0 if schedule is None else float(schedule[number])
        at = online.gradient_at(factor)["w"] if point is None else point(weights[-1], gradients)
        points.append(at)
        gradients.append(gradient(number, at))
        weights.append(online.step({"w": gradients[-1]}, factor)["w"])
    return Path(np.array(weights), np.array(points), np.array(gradients))


def _path_error(one: np.ndarray, other: np.ndarray) -> float:
    """Return the maximum distance between two paths, relative to the extent of the second path.

    The extent is the maximum distance of the second path from its start.
    """
    span = np.abs(other - other[0]).max()
    return float(np.abs(one - other).max() / span)


def _draw_rates(random: Random) -> dict[str, float]:
    momentum = float(random.choice([0.0, random.uniform(0, 0.9), 0.9, 0.99]))
    return {"learning_rate": float(10 ** random.uniform(-2, 0)), "momentum": momentum}


def _draw(random: Random, least: int = 10) -> tuple[Valley, dict[str, float], Weights]:
    """Draw losses of up to 60 steps, a learning rate and a momentum, and a start."""
    valley, hyper = _valley(random, int(random.integers(least, 61))), _draw_rates(random)
    return valley, hyper, random.normal(size=valley.centers.shape[1:])


# --- momentum -----------------------------------------------------------------------------------------------


def _double(random: Random) -> Iterator[Measure]:
    """Check that the weights of double momentum are the look-ahead points x_t of eqs. 28-31 (Sec. 2.3.1)."""
    valley, hyper, start = _draw(random)
    lookahead = _run("nesterov_lookahead", valley.gradient, start, valley.steps, hyper)
    fast = _run("nesterov", valley.gradient, start, valley.steps, hyper)
    yield vanishes(
        "distance of both from each other, relative", _path_error(fast.points, lookahead.points), 1e-11
    )


def _classical(random: Random) -> Iterator[Measure]:
    """Check that double momentum is Nesterov's classical iteration (eq. 167, footnote 3).

    The classical iteration is w_(t+1) = x_t - eta g_t, x_(t+1) = w_(t+1) + mu (w_(t+1) - w_t).
    """
    valley, hyper, start = _draw(random)
    path = _run("nesterov_lookahead", valley.gradient, start, valley.steps, hyper)
    stepped = path.points - hyper["learning_rate"] * path.gradients
    yield vanishes("error of eq. 167, relative", _path_error(stepped, path.weights[1:]), 1e-11)
    led = path.weights[1:-1] + hyper["momentum"] * np.diff(path.weights, axis=0)[:-1]
    yield vanishes("error of footnote 3, relative", _path_error(led, path.points[1:]), 1e-11)


def _changing_rate(random: Random) -> Iterator[Measure]:
    """Check the equivalence of Lemma S.10 for learning rates that change; the lemma is for a constant rate.

    If the rate changes, the look-ahead point x_(t+1) moves by an additional (eta_t - eta_(t+1)) mu v_t.
    """
    steps = int(random.integers(10, 61))
    valley, hyper = _valley(random, steps), _draw_rates(random)
    name = ("cosine", "linear", "inverse_sqrt")[random.integers(3)]
    rates = hyper["learning_rate"] * multipliers({"name": name, "warmup": 0.1}, steps)
    start = random.normal(size=valley.centers.shape[1:])
    schedule = rates / hyper["learning_rate"]
    path = _run("nesterov_lookahead", valley.gradient, start, steps, hyper, schedule=schedule)
    velocities = -np.diff(path.weights, axis=0) / rates[:, None]
    double = path.points - rates[:, None] * (path.gradients + hyper["momentum"] * velocities)
    missed = hyper["momentum"] * -np.diff(rates)[:, None] * velocities[:-1]
    error = float(np.abs(double[:-1] + missed - path.points[1:]).max())
    yield vanishes("error of Lemma S.10, relative", error / float(np.abs(path.points - start).max()), 1e-11)


def _velocity(random: Random) -> Iterator[Measure]:
    """Check the velocity for a constant gradient g: after t steps it is (1 - mu^t) g / (1 - mu) (eq. 27)."""
    momentum = float(random.choice([0.0, 0.5, 0.9, 0.95, 0.99]))
    steps = int(np.ceil(np.log(1e-9) / np.log(max(momentum, 1e-9)))) + 1
    gradient = random.normal(size=int(random.integers(1, 7)))
    rate = float(10 ** random.uniform(-3, 1))
    hyper = {"learning_rate": rate, "momentum": momentum}
    path = _run("momentum", lambda number, weights: gradient, np.zeros(len(gradient)), steps, hyper)
    velocities = -np.diff(path.weights, axis=0) / rate
    limit = gradient / (1 - momentum)
    shares = (velocities / limit).mean(1)
    stated = 1 - momentum ** np.arange(1, steps + 1)
    # Rounding errors of differences are relative to the weights, which grow with the number of steps.
    rounding = 1e-13 * steps
    yield vanishes("velocity over g / (1 - mu), less 1 - mu^t", np.abs(shares - stated).max(), rounding)
    yield equals("last velocity over g / (1 - mu)", shares[-1], 1.0, 1e-9 + rounding)


def _lagging(random: Random) -> Iterator[Measure]:
    """Check that momentum lags behind plain gradient descent (claims I and II in the proof of Lemma S.3).

    The points w_t + mu / (1 - mu) (w_t - w_(t-1)) follow plain gradient descent.
    """
    valley, hyper, start = _draw(random)
    path = _run("momentum", valley.gradient, start, valley.steps, hyper)
    rate, momentum = hyper["learning_rate"], hyper["momentum"]
    moves = np.diff(path.weights, axis=0)
    # The velocity before the first step is v_0 = 0.
    before = np.concatenate([np.zeros((1, moves.shape[1])), moves[:-1]])
    points = path.weights[:-1] + momentum / (1 - momentum) * before
    stepped = points - rate / (1 - momentum) * path.gradients
    yield vanishes("error of claim I, relative", _path_error(stepped[:-1], points[1:]), 1e-10)
    longest = float(np.linalg.norm(moves, axis=1).max()) / rate
    steepest = float(np.linalg.norm(path.gradients, axis=1).max())
    yield at_most("longest velocity over L / (1 - mu)", longest * (1 - momentum) / steepest, 1.0, 1e-12)


def _update_descent(random: Random) -> Iterator[Measure]:
    """Check that regularized update descent (eq. 97) is Polyak's or Nesterov's momentum (App. F).

    The rule is Polyak's momentum if the gradient is taken at the weights theta, and Nesterov's momentum if
    the gradient is taken at theta + mu v.
    """
    valley, hyper, start = _draw(random)
    rate = hyper["learning_rate"]
    regularized = {"learning_rate": rate, "regularization": (1 - hyper["momentum"]) / rate}
    for approximation, optimizer in (("polyak", "momentum"), ("nesterov", "nesterov_lookahead")):
        options = {"gradient": approximation}
        one = _run(DESCENT, valley.gradient, start, valley.steps, regularized, options)
        other = _run(optimizer, valley.gradient, start, valley.steps, hyper)
        yield vanishes(f"distance from {optimizer}, relative", _path_error(one.weights, other.weights), 1e-11)


def _update_descent_minimum(random: Random) -> Iterator[Measure]:
    """Check that exact regularized update descent converges to v = 0 and the minimum of J (App. F).

    J is the objective.
    """
    size = int(random.integers(1, 7))
    turn = np.linalg.qr(random.normal(size=(size, size)))[0]
    curvature = (turn * random.uniform(0.3, 1, size)) @ turn.T
    minimum = random.normal(size=size)
    hyper = {
        "learning_rate": float(random.uniform(0.3, 0.8)),
        "regularization": float(random.uniform(0.2, 0.9)),
    }
    start = minimum + random.normal(size=size)
    path = _run(DESCENT, lambda number, weights: curvature @ (weights - minimum), start, 400, hyper)
    left = np.linalg.norm(path.weights[-1] - minimum) / np.linalg.norm(path.weights[0] - minimum)
    yield vanishes("distance left after 400 steps, relative", left, 1e-9)
    last = np.abs(path.weights[-1] - path.weights[-2]).max() / np.abs(path.weights[1] - path.weights[0]).max()
    yield vanishes("last velocity over the first", last, 1e-9)


NOTES_MOMENTUM = PropertyClaim(
    id="notes.momentum",
    sentence=(
        "Double momentum moves through the very points where Nesterov's momentum takes its gradients, and on "
        "a constant gradient g the velocity tends to g / (1 - mu)."
    ),
    source="002 Secs. 2.2, 2.3, App. F, Lemmas S.3, S.10",
    setting=(
        "Runs of 10 to 60 steps on losses in 1 to 6 dimensions, quadratics of condition numbers up to 1e3 "
        "with a cosine added, so that they are not convex, whose minimum rests or moves at random. Learning "
        "rates of 0.01 to 1, momentum of 0 to 0.99, constant in a run as in the rules; Lemma S.10 is also "
        "taken with cosine, linear and inverse square root schedules, where double momentum alone is not "
        "exact and the lemma says by how much. Regularized update descent has gamma = (1 - mu) / eta, above "
        "the printed (0, 1), where it is compared with momentum; its minimum is looked for with gamma "
        "between 0.2 and 0.9. The bound of Lemma S.3 is a part of notes.regret."
    ),
    checks=(
        part("double momentum is Nesterov's", "002 Sec. 2.3.1, Lemma S.10", _double, 20),
        part("the classical form", "002 footnote 3, eq. 167", _classical, 20),
        part("changing learning rates", "002 Lemma S.10", _changing_rate, 20),
        part("the velocity of a constant gradient", "002 eq. 27", _velocity, 10),
        part("the lagging weights of heavy ball", "002 Lemma S.3", _lagging, 20),
        part("regularized update descent", "002 App. F", _update_descent, 20),
        part("where it rests", "002 App. F", _update_descent_minimum, 5),
    ),
)


# --- Nesterov's momentum in Adam ----------------------------------------------------------------------------


def _led_by_velocity(hyper: Mapping[str, float]) -> Callable[[Weights, list[np.ndarray]], Weights]:
    """Return a function that computes w_t - eta mu v_(t-1) (eq. 28) from the past gradients."""

    def point(weights: Weights, gradients: list[np.ndarray]) -> Weights:
        velocity = np.zeros_like(weights)
        for gradient in gradients:
            velocity = gradient + hyper["momentum"] * velocity
        return weights - hyper["learning_rate"] * hyper["momentum"] * velocity

    return point


def _led_by_mean(hyper: Mapping[str, float]) -> Callable[[Weights, list[np.ndarray]], Weights]:
    """Return a function that computes w_t - eta beta_1 m from the past gradients (Sec. 4.3).

    m is the bias-corrected running mean of the past gradients.
    """
    beta = hyper["beta1"]

    def point(weights: Weights, gradients: list[np.ndarray]) -> Weights:
        if not gradients:
            return weights
        shares = beta ** np.arange(len(gradients) - 1, -1, -1)
        return weights - hyper["learning_rate"] * beta * (shares @ np.array(gradients)) / shares.sum()

    return point


def _without_transform(random: Random) -> Iterator[Measure]:
    """Check that momentum with gradients at the look-ahead points is double momentum (Sec. 2.3.2).

    This is true for a rule that does not transform gradients.
    """
    valley, hyper, start = _draw(random, least=20)
    lookahead = _run("momentum", valley.gradient, start, valley.steps, hyper, point=_led_by_velocity(hyper))
    double = _run("nesterov", valley.gradient, start, valley.steps, hyper)
    yield vanishes("distance of both, relative", _path_error(double.points, lookahead.points), 1e-11)


def _with_transform(random: Random) -> Iterator[Measure]:
    """Check that Adam with double momentum differs from Adam with look-ahead gradients (Sec. 4.3).

    Both the weights and the points at which gradients are taken must differ.
    """
    steps = int(random.integers(20, 61))
    valley = _valley(random, steps)
    start = random.normal(size=valley.centers.shape[1:])
    hyper = {
        "learning_rate": float(10 ** random.uniform(-2, -0.5)),
        "beta1": float(random.uniform(0.5, 0.95)),
        "beta2": float(1 - 10 ** random.uniform(-3, -1)),
        "epsilon": 0.0,
    }
    lookahead = _run("adam", valley.gradient, start, valley.steps, hyper, point=_led_by_mean(hyper))
    double = _run("adam", valley.gradient, start, valley.steps, hyper, {"nesterov": True})
    yield at_least(
        "distance from the points ahead, relative", _path_error(double.points, lookahead.points), 1e-3
    )
    yield at_least(
        "distance from the weights, relative", _path_error(double.weights, lookahead.weights), 1e-3
    )


NOTES_NADAM = PropertyClaim(
    id="notes.nadam",
    sentence=(
        "Adding the gradient to the momentum once more is Nesterov's momentum in gradient descent; in Adam "
        "it is not Adam with the gradient of the look-ahead point."
    ),
    source="002 Secs. 2.3.2, 4.3, Fig. 1",
    setting=(
        "The losses of notes.momentum, 20 to 60 steps. The look-ahead point of Adam is w_t - eta beta_1 "
        "times the corrected first moment, which the source does not divide by the root of the second. "
        "Gradients are fed at that point to Adam and compared with the rule's own Nesterov option, weights "
        "with points and weights with weights. The same feeding on heavy ball is the control. Not equal "
        "means apart by more than a thousandth of the distance covered, where equal paths are within 1e-11."
    ),
    checks=(
        part("equal in gradient descent", "002 Sec. 2.3.2", _without_transform, 20),
        part("not equal in Adam", "002 Sec. 4.3", _with_transform, 20),
    ),
)

CLAIMS: tuple[PropertyClaim, ...] = (NOTES_MOMENTUM, NOTES_NADAM)
