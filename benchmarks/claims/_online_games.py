"""Online games: convex losses, rules that play against the losses, and the best weights in hindsight.

In step t a player chooses weights w_t, then a convex loss l_t is revealed. Regret is the sum of l_t(w_t)
minus the sum of l_t(u) for the best fixed weights u in hindsight. The domain is a box around 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

import curvebench
from curvebench.benchmarks.claims._matrices import power
from curvebench.benchmarks.claims._parts import Random

Kind = Literal["linear", "squared", "logistic", "adversarial"]
KINDS: tuple[Kind, ...] = ("linear", "squared", "logistic", "adversarial")
# Kinds of losses that are fixed before the game. Losses of other kinds are chosen against the played weights.
OBLIVIOUS = KINDS[:3]
# Tolerance of the ratio of a regret to its bound.
# A regret is a sum of some hundred products, minus a minimum that is computed numerically.
ROUNDING = 1e-9

# `projection(weights (d,), gradients so far (t, d))` returns weights in the domain.
Projection = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Losses:
    """Convex and differentiable losses l_1 ... l_T of the weights, as functions of the margins a_t^T w.

    Args:
        kind: `linear` for a^T w, `squared` for (a^T w - b)^2 / 2, `logistic` for log(1 + exp(-b a^T w)), and
            `adversarial` for linear losses whose signs of a are chosen against the played weights.
        features: a_t, (T, d).
        targets: b_t, (T,).
    """

    kind: Kind
    features: np.ndarray
    targets: np.ndarray

    def values(self, margins: np.ndarray) -> np.ndarray:
        """Return the losses l_t at given margins a_t^T w, (..., T)."""
        if self.kind == "squared":
            return 0.5 * (margins - self.targets) ** 2
        if self.kind == "logistic":
            return np.logaddexp(0.0, -self.targets * margins)
        return margins

    def slopes(self, margins: np.ndarray) -> np.ndarray:
        """Return the derivatives of the losses with respect to the margins (..., T)."""
        if self.kind == "squared":
            return margins - self.targets
        if self.kind == "logistic":
            return -self.targets * np.exp(-np.logaddexp(0.0, self.targets * margins))
        return np.ones_like(margins)

    def at(self, weights: np.ndarray) -> np.ndarray:
        """Return the losses l_t(w_t), (T,), of weights (T, d), or of the same weights (d,) in every step."""
        return self.values((self.features * weights).sum(-1))

    def one(self, number: int) -> Losses:
        """Return the loss of step `number` only, as a sequence of length 1."""
        return Losses(self.kind, self.features[number : number + 1], self.targets[number : number + 1])

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """Return the gradient of the sum of the losses at weights (d,)."""
        return self.slopes(self.features @ weights) @ self.features

    def _sum(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the sum of the losses at weights (d,), and its gradient."""
        return float(self.at(weights).sum()), self.gradient(weights)

    def steepest(self, radius: float) -> float:
        """Return an upper bound of the gradient norms of all losses on the box of the given radius.

        For losses that are not squared, the bound holds everywhere.
        """
        lengths = np.linalg.norm(self.features, axis=1)
        if self.kind == "squared":
            return float((lengths * (np.abs(self.features).sum(1) * radius + np.abs(self.targets))).max())
        return float(lengths.max())

    def best(self, radius: float) -> np.ndarray:
        """Return the weights (d,) in the box of the given radius with the smallest sum of losses."""
        from scipy.optimize import lsq_linear, minimize

        if self.kind == "squared":
            return lsq_linear(self.features, self.targets, (-radius, radius), method="bvls").x
        if self.kind == "logistic":
            start, bounds = np.zeros(self.features.shape[1]), [(-radius, radius)] * self.features.shape[1]
            return minimize(self._sum, start, jac=True, bounds=bounds).x
        return -radius * np.sign(self.features.sum(0))


@dataclass(frozen=True)
class Game:
    """Sequence of losses on a box around 0.

    Args:
        losses: the losses.
        radius: half of the box's side, so that its diameter is 2 radius sqrt(d).
        start: w_1, (d,), inside the box.
    """

    losses: Losses
    radius: float
    start: np.ndarray

    @property
    def steps(self) -> int:
        """Number of steps, T."""
        return len(self.losses.targets)

    @property
    def diameter(self) -> float:
        """Maximum Euclidean distance between two points of the box."""
        return 2 * self.radius * float(np.sqrt(len(self.start)))


@dataclass(frozen=True)
class Play:
    """Record of a game that was played.

    Args:
        weights: w_1 ... w_T, (T, d).
        gradients: g_1 ... g_T, (T, d).
        losses: the losses of all steps. Adversarial losses are stored as linear losses, with the gradients
            that the adversary chose.
        radius: half of the box's side.
    """

    weights: np.ndarray
    gradients: np.ndarray
    losses: Losses
    radius: float

    @cached_property
    def best(self) -> np.ndarray:
        """Best fixed weights u in the box in hindsight, (d,)."""
        return self.losses.best(self.radius)

    @property
    def regret(self) -> float:
        """Regret against the best weights in hindsight."""
        return self.regret_against(self.best)

    def regret_against(self, weights: np.ndarray) -> float:
        """Return the regret against fixed weights u (d,), the sum over t of l_t(w_t) - l_t(u)."""
        return float((self.losses.at(self.weights) - self.losses.at(weights)).sum())

    @property
    def distance(self) -> float:
        """Maximum distance of the played weights from the best weights in hindsight, D."""
        return float(np.linalg.norm(self.weights - self.best, axis=1).max())

    @property
    def first_distance(self) -> float:
        """Distance of the first weights from the best weights in hindsight, D_1."""
        return float(np.linalg.norm(self.weights[0] - self.best))

    @property
    def squares(self) -> np.ndarray:
        """Sum of the squared gradients of each coordinate, (d,)."""
        return (self.gradients**2).sum(0)


def draw_features(random: Random, steps: int, size: int) -> np.ndarray:
    """Draw features (steps, size), not all of which are 0.

    They are dense, sparse, heavy-tailed, of low rank, or nearly constant.
    """
    features = random.normal(size=(steps, size))
    case = random.integers(5)
    if case == 1:
        features *= random.random((steps, size)) < 0.3
    elif case == 2:
        features *= 10 ** random.uniform(-2, 1, (steps, 1))
    elif case == 3:
        directions = random.normal(size=(max(1, size // 2), size))
        features = random.normal(size=(steps, len(directions))) @ directions
    elif case == 4:
        features = random.normal(size=size) + 0.1 * features
    if not features.any():
        features[0] = 1.0
    return features * 10 ** random.uniform(-1, 1)


def draw_low_rank_features(random: Random, steps: int, rows: int, columns: int, rank: int) -> np.ndarray:
    """Draw features (steps, rows * columns): flattened matrices of at most the given rank.

    The matrices of different steps are independent or nearly equal.
    """
    spread, common = (1.0, 0.0) if random.random() < 0.5 else (0.1, 1.0)
    left = common * random.normal(size=(rows, rank)) + spread * random.normal(size=(steps, rows, rank))
    right = common * random.normal(size=(rank, columns)) + spread * random.normal(size=(steps, rank, columns))
    return (left @ right).reshape(steps, rows * columns)


def draw_game(random: Random, features: np.ndarray | None = None, kinds: tuple[Kind, ...] = KINDS) -> Game:
    """Draw a game of 20 to 80 steps in 1 to 6 dimensions, or a game with given features (T, d)."""
    if features is None:
        features = draw_features(random, int(random.integers(20, 81)), int(random.integers(1, 7)))
    steps, size = features.shape
    kind = kinds[random.integers(len(kinds))]
    radius = float(10 ** random.uniform(-1, 1))
    targets = random.choice([-1.0, 1.0], steps)
    # The targets are outputs of random weights, some of which are outside the box.
    if kind == "squared":
        wanted = radius * random.normal(size=size) * random.uniform(0, 2)
        targets = features @ wanted + random.normal(size=steps) * random.uniform(0, 1)
    return Game(Losses(kind, features, targets), radius, random.uniform(-radius, radius, (size,)))


def play(
    game: Game,
    optimizer: str,
    hyper: Mapping[str, float],
    options: Mapping[str, Any] | None = None,
    schedule: np.ndarray | None = None,
    projection: Projection | None = None,
    shape: tuple[int, ...] | None = None,
    sign: float = 1.0,
) -> Play:
    """Play a game with one of the project's rules, one gradient after another.

    A projection is applied to the weights after each step, and the next step of the rule starts from the
    projected weights. This requires a rule whose step does not depend on its starting point. All rules that
    the claims use have this property, except rules that project their weights; they get no projection.

    Args:
        game: the losses, the box and the start.
        optimizer, hyper, options: name of the rule, its hyperparameters and options.
        schedule: factor of the learning rate at each step, (T,); None for a constant rate.
        projection: projection onto the domain; None if the rule projects itself.
        shape: shape of the weights in the rule; None for a vector.
        sign: -1 reverses the steps of the rule; then a projection is required.
    """
    shape = shape or game.start.shape
    online = curvebench.Online(optimizer, {"w": game.start.reshape(shape)}, hyper, options=options)
    weights, played = game.start, np.zeros((game.steps, len(game.start)))
    gradients = np.zeros_like(played)
    before = weights
    for number in range(game.steps):
        played[number] = weights
        if game.losses.kind == "adversarial":
            gradients[number] = np.abs(game.losses.features[number]) * np.where(weights >= 0, 1.0, -1.0)
        else:
            gradients[number] = game.losses.one(number).gradient(weights)
        given = {"w": gradients[number].reshape(shape)}
        after = online.step(given, 1.0 if schedule is None else schedule[number])["w"].ravel()
        moved = weights + sign * (after - before)
        weights = after if projection is None else projection(moved, gradients[: number + 1])
        before = after
    losses = game.losses
    if losses.kind == "adversarial":
        losses = Losses("linear", gradients, losses.targets)
    return Play(played, gradients, losses, game.radius)


def clipping(radius: float) -> Projection:
    """Return the projection onto the box, which is the same in the Euclidean and in every diagonal norm."""
    return lambda weights, gradients: np.clip(weights, -radius, radius)


def weighted_clipping(radius: float, preconditioner: Callable[[np.ndarray], np.ndarray]) -> Projection:
    """Return the projection onto the box in the norm of a preconditioner A_t (d, d).

    Args:
        radius: half of the box's side.
        preconditioner: function from the gradients so far to A_t.
    """
    from scipy.optimize import lsq_linear

    def projection(weights: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        if np.abs(weights).max() <= radius:
            return weights
        root = power(preconditioner(gradients), 0.5)
        return lsq_linear(root, root @ weights, (-radius, radius), method="bvls").x

    return projection
