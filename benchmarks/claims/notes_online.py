"""Claims of the adaptive-methods notes on online learning: regret, averages of iterates, mirror descent.

Equations, sections and appendices are those of 002, Stratos (2026), "Adaptive Learning Methods", a set of
notes (docs/sources.md). A check of a regret bound plays random games (`_online_games`) and compares the
regret with the bound in its docstring. D is the maximum distance of the weights from the best weights u, D_1
the distance of the first weights from u, L a Lipschitz constant, g_t the gradients and T the number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import curvebench
from curvebench.benchmarks.claims._matrices import power
from curvebench.benchmarks.claims._measures import at_most, equals, vanishes
from curvebench.benchmarks.claims._moves import moves, path
from curvebench.benchmarks.claims._online_games import (
    OBLIVIOUS,
    ROUNDING,
    Game,
    Kind,
    Losses,
    Play,
    clipping,
    draw_features,
    draw_game,
    draw_low_rank_features,
    play,
    weighted_clipping,
)
from curvebench.benchmarks.claims._parts import Random, bounds, part, parts_for, printed_and_corrected
from curvebench.engine.schedules import multipliers
from curvebench.property_checks.checks import Check, Measure, PropertyClaim

# Kinds of losses that have a Lipschitz constant on the whole space.
LIPSCHITZ: tuple[Kind, ...] = ("linear", "logistic")
REGRET, OWN = "regret over its bound", "regret over the run's own bound"


def _under(regret: float, bound: float, quantity: str = REGRET) -> Measure:
    return at_most(quantity, regret / bound if bound else regret, 1.0, ROUNDING)


# --- regret bounds ------------------------------------------------------------------------------------------


def _descent(random: Random, game: Game, learning_rate: float, schedule: np.ndarray | None = None) -> Play:
    """Play a game by gradient descent. In a random half of the games, weights are projected onto the box."""
    options, hyper = {"domain": "space"}, {"learning_rate": learning_rate}
    if random.random() < 0.5:
        options, hyper = {"domain": "box"}, {**hyper, "radius": game.radius}
    return play(game, "mirror_descent", hyper, options, schedule)


def _constant_rate(random: Random) -> Iterator[Measure]:
    """Check the regret bound of gradient descent with a constant rate (eq. 22).

    The bound is D_1^2 / (2 eta) + (eta / 2) sum |g_t|^2, at most D_1^2 / (2 eta) + (eta / 2) L^2 T.
    """
    game = draw_game(random)
    scale = game.diameter / (game.losses.steepest(game.radius) * np.sqrt(game.steps))
    rate = float(scale * 10 ** random.uniform(-1, 0.5))
    played = _descent(random, game, rate)
    started = played.first_distance**2 / (2 * rate)
    steepest = np.linalg.norm(played.gradients, axis=1).max()
    yield _under(played.regret, started + rate / 2 * played.squares.sum(), "regret over the first bound")
    yield _under(played.regret, started + rate / 2 * steepest**2 * game.steps, "regret over the second bound")


def _best_constant_rate(random: Random) -> Iterator[Measure]:
    """Check the regret bound D_1 L sqrt(T) of gradient descent with the best constant rate (eq. 23).

    The rate is eta = D_1 / (L sqrt(T)), where L bounds the gradients on the box.
    """
    game = draw_game(random, kinds=OBLIVIOUS)
    steepest = game.losses.steepest(game.radius)
    distance = float(np.linalg.norm(game.start - game.losses.best(game.radius)))
    hyper = {"learning_rate": distance / (steepest * np.sqrt(game.steps)), "radius": game.radius}
    played = play(game, "mirror_descent", hyper, {"domain": "box"})
    yield _under(played.regret, distance * steepest * np.sqrt(game.steps))


def _falling_rate(random: Random) -> Iterator[Measure]:
    """Check the regret bound of gradient descent with eta_t = 1 / sqrt(t) (eq. 24).

    The bound is (D^2 + 2 L^2) sqrt(T) / 2.
    """
    game = draw_game(random)
    played = _descent(random, game, 1.0, multipliers({"name": "inverse_sqrt"}, game.steps))
    steepest = np.linalg.norm(played.gradients, axis=1).max()
    yield _under(played.regret, (played.distance**2 + 2 * steepest**2) / 2 * np.sqrt(game.steps))


def _adagrad_norm(random: Random) -> Iterator[Measure]:
    """Check the regret bound 3/2 D sqrt(sum |g_t|^2) of norm AdaGrad (eqs. 33-34)."""
    game = draw_game(random)
    rate = game.diameter
    hyper = {"learning_rate": rate, "epsilon": 0.0}
    played = play(game, "adagrad_norm", hyper, projection=clipping(game.radius))
    total = float(np.sqrt(played.squares.sum()))
    yield _under(played.regret, 1.5 * rate * total)
    # A second bound is from eq. 19, with the distance D of this run in place of the largest distance.
    own = played.distance**2 / (2 * rate) + rate
    yield _under(played.regret, own * total, OWN)


def _adagrad_diagonal(random: Random, printed: bool) -> Iterator[Measure]:
    """Check the regret bound 3/2 delta sum_i sqrt(sum_t g_ti^2) of diagonal AdaGrad (eq. 39).

    The rate is delta, the width of the box. Secs. 3 and 3.3 print the update as w_t + eta A_t^(-1) g_t, with
    the wrong sign.
    """
    game = draw_game(random)
    width = 2 * game.radius
    hyper, sign = {"learning_rate": width, "epsilon": 0.0}, -1.0 if printed else 1.0
    played = play(game, "adagrad", hyper, projection=clipping(game.radius), sign=sign)
    roots = np.sqrt(played.squares)
    own = np.abs(played.weights - played.best).max(0)
    yield _under(played.regret, 1.5 * width * float(roots.sum()))
    yield _under(played.regret, float(((own**2 / (2 * width) + width) * roots).sum()), OWN)


def _first_step(random: Random, printed: bool) -> Iterator[Measure]:
    """Check that AdaGrad's first step is -eta sign(g); Sec. 3.3 prints -eta."""
    gradient = random.normal(size=int(random.integers(1, 7))) * 10 ** random.uniform(-3, 3)
    rate = float(10 ** random.uniform(-2, 2))
    (moved,) = moves("adagrad", gradient[None], {"learning_rate": rate, "epsilon": 0.0})
    stated = -rate * (np.ones_like(gradient) if printed else np.sign(gradient))
    yield vanishes("error of the step over the rate", float(np.abs(moved - stated).max()) / rate, 1e-12)


def _adagrad_euclidean(random: Random) -> Iterator[Measure]:
    """Check the regret bound 3/2 D sum_i sqrt(sum_t g_ti^2) of diagonal AdaGrad (Sec. 3.1.1).

    The rate is D, which is here the diameter of the box.
    """
    game = draw_game(random)
    hyper = {"learning_rate": game.diameter, "epsilon": 0.0}
    played = play(game, "adagrad", hyper, projection=clipping(game.radius))
    yield _under(played.regret, 1.5 * game.diameter * float(np.sqrt(played.squares).sum()))


def _full_preconditioner(gradients: np.ndarray) -> np.ndarray:
    """Return the preconditioner O_t^(1/2) of full AdaGrad, where O_t is the sum of g g^T over gradients g."""
    return power(gradients.T @ gradients, 0.5)


def _adagrad_full(random: Random) -> Iterator[Measure]:
    """Check the regret bound 3/2 D tr(O_T^(1/2)) of full AdaGrad with the rate D (eq. 43).

    The preconditioner of full AdaGrad is the root of O_t, the sum of g g^T up to step t.
    """
    game = draw_game(random)
    projection = weighted_clipping(game.radius, _full_preconditioner)
    played = play(game, "adagrad_full", {"learning_rate": game.diameter}, projection=projection)
    trace = float(np.trace(_full_preconditioner(played.gradients)))
    own = played.distance**2 / (2 * game.diameter) + game.diameter
    yield _under(played.regret, 1.5 * game.diameter * trace)
    yield _under(played.regret, own * trace, OWN)


def _shampoo(random: Random) -> Iterator[Measure]:
    """Check the regret bound of Shampoo for gradients G of rank r (Sec. 5).

    The bound is D sqrt(2 r) tr(L_T^(1/4)) tr(R_T^(1/4)), where L_T and R_T are the sums of G G^T and G^T G.
    The rate is D / sqrt(2 r).
    """
    rows, columns = (int(size) for size in random.integers(1, 5, 2))
    rank = int(random.integers(1, min(rows, columns) + 1))
    features = draw_low_rank_features(random, int(random.integers(20, 61)), rows, columns, rank)
    # Adversarial losses are left out, because the signs that an adversary chooses would increase the rank.
    game = draw_game(random, features, OBLIVIOUS)

    def statistics(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        matrices = gradients.reshape(-1, rows, columns)
        left = np.einsum("tij,tkj->ik", matrices, matrices)
        return power(left, 0.25), power(np.einsum("tij,tik->jk", matrices, matrices), 0.25)

    projection = weighted_clipping(game.radius, lambda gradients: np.kron(*statistics(gradients)))
    rate = game.diameter / float(np.sqrt(2 * rank))
    hyper = {"learning_rate": rate, "epsilon": 0.0}
    played = play(game, "shampoo", hyper, projection=projection, shape=(rows, columns))
    left, right = statistics(played.gradients)
    traces = float(np.trace(left) * np.trace(right))
    yield _under(played.regret, game.diameter * float(np.sqrt(2 * rank)) * traces)
    # A second bound is from eq. 18, with the distance D of this run in place of the largest distance.
    own = played.distance**2 / (2 * rate) + rate * rank
    yield _under(played.regret, own * traces, OWN)


def _heavy_ball(random: Random, printed: bool) -> Iterator[Measure]:
    """Check the regret bound D_1 L sqrt(T) sqrt((1 + mu) / (1 - mu)) of momentum (eq. 155).

    The formula of the rate contains (1 + mu) T, which is printed as (1 + mu)^T.
    """
    game = draw_game(random, draw_features(random, int(random.integers(100, 301)), 2), LIPSCHITZ)
    momentum = float(random.choice([0.0, 0.5, 0.9, 0.95]))
    steepest = game.losses.steepest(game.radius)
    distance = float(np.linalg.norm(game.start - game.losses.best(game.radius)))
    steps = game.steps
    divisor = (1 + momentum) ** steps if printed else (1 + momentum) * steps
    rate = distance / steepest * float(np.sqrt((1 - momentum) ** 3 / divisor))
    played = play(game, "momentum", {"learning_rate": rate, "momentum": momentum})
    bound = distance * steepest * float(np.sqrt(steps * (1 + momentum) / (1 - momentum)))
    yield _under(played.regret, bound)


LEARNERS = {
    "gradient descent": "mirror_descent",
    "AdaGrad": "adagrad",
    "Adam": "adam",
    "heavy ball": "momentum",
}
ENVIRONMENTS = 5000


def _random_environment(random: Random, optimizer: str) -> Iterator[Measure]:
    """Check that the expected regret against random signs x_t is E|x_1 + ... + x_T| (App. B).

    That expectation is sqrt(2 T / pi) up to a relative error of 1 / (4 T).
    """
    steps = int(random.integers(50, 201))
    hyper = {"learning_rate": float(10 ** random.uniform(-2, 0))}
    options = {"domain": "box"} if optimizer == "mirror_descent" else None
    # Each column of the array of signs is a separate game.
    signs = random.choice([-1.0, 1.0], (steps, ENVIRONMENTS))
    weights, suffered = np.zeros(ENVIRONMENTS), np.zeros(ENVIRONMENTS)
    free = path(optimizer, weights, list(-signs), hyper, options)
    for sign, move in zip(signs, np.diff(free, axis=0), strict=True):
        suffered -= sign * weights
        weights = np.clip(weights + move, -1.0, 1.0)
    regrets = (suffered + np.abs(signs.sum(0))) / np.sqrt(2 * steps / np.pi)
    error = float(regrets.std() / np.sqrt(ENVIRONMENTS))
    yield equals("mean regret over sqrt(2 T / pi)", regrets.mean(), 1.0, 4 * error + 1 / (4 * steps))


NOTES_REGRET = PropertyClaim(
    id="notes.regret",
    sentence=(
        "The regret of gradient descent, heavy ball, the three forms of AdaGrad and Shampoo stays below the "
        "bound that is proved for each, and an environment of random signs costs every learner sqrt(2 T / "
        "pi) on average."
    ),
    source="002 eqs. 22-24, 34, 39, 43, Sec. 5, App. B, Lemma S.3",
    setting=(
        "Games of 20 to 80 steps in 1 to 6 dimensions (Shampoo: matrices up to 4 x 4, their gradients of "
        "rank r; heavy ball: 100 to 300 steps in 2 dimensions): linear, squared and logistic losses with "
        "dense, sparse, heavy-tailed, rank-deficient and one-directional features, and linear losses whose "
        "signs an adversary turns against the weights. The weights live in a box; u is the best point of the "
        "box. AdaGrad and Shampoo have no epsilon (pseudo-inverses) and are projected onto the box in the "
        "norm of their preconditioner; D in their learning rates is the diameter of the box, since that of "
        "the run is not known before; each is also held to the same bound with the D of the run, before D is "
        "put in for the rate. Gradient descent runs on all weights or projected onto the box, heavy ball on "
        "all weights. In eqs. 22 and 24 L is the longest gradient of the run, in eq. 23 and Lemma S.3 a "
        "bound on the box. Wrong as printed: Secs. 3 and 3.3 add eta A_t^(-1) g_t to the weights, and "
        "give w_1 - eta for the first step; Lemma S.3's proof has (1 + mu)^T in its learning rate, where "
        "minimizing its own bound gives (1 + mu) T. The random environment is played on [-1, 1], 5,000 games "
        "at once, by each learner; the printed set of -1 and 1 is not convex. Its "
        "tolerance is 4 standard errors of the sample and the 1 / (4 T) by which the limit is missed at T "
        "steps."
    ),
    checks=(
        *bounds(
            part("gradient descent at a constant rate", "002 eq. 22", _constant_rate, 10),
            part("gradient descent at the best constant rate", "002 eq. 23", _best_constant_rate, 10),
            part("gradient descent at the rate 1 / sqrt(t)", "002 eq. 24", _falling_rate, 10),
            part("AdaGrad with one norm", "002 eqs. 33-34", _adagrad_norm, 10),
            *printed_and_corrected(
                "diagonal AdaGrad, widths of coordinates",
                "002 eq. 39, Secs. 3 and 3.3",
                _adagrad_diagonal,
                10,
            ),
        ),
        *printed_and_corrected("AdaGrad's first step", "002 Sec. 3.3", _first_step, 10),
        *bounds(
            part("diagonal AdaGrad, Euclidean diameter", "002 Sec. 3.1.1", _adagrad_euclidean, 10),
            part("full AdaGrad", "002 eq. 43", _adagrad_full, 10),
            part("Shampoo", "002 Sec. 5", _shampoo, 10),
            *printed_and_corrected("heavy ball at the rate of the proof", "002 Lemma S.3", _heavy_ball, 10),
        ),
        *parts_for(
            "the random environment against {}", "002 App. B", _random_environment, 1, optimizer=LEARNERS
        ),
    ),
)

# --- from online to batch learning --------------------------------------------------------------------------


@dataclass(frozen=True)
class Learner:
    """Online learning method whose claims are checked.

    Args:
        name: name in the claims.
        optimizer, options: name of the rule and its options.
        hyper: hyperparameters other than the learning rate.
        kinds: kinds of losses for which the method is checked. In an unbounded domain, only squared losses
            are certain to have a minimum.
        together: whether the rule updates each named parameter independently, so that one run plays many
            games.
        inverse_sqrt: whether the learning rate decreases as 1 / sqrt(t).
        matrix: whether the weights are a matrix.
        relative: whether the learning rate must be small in relation to 1 / curvature of the losses.
    """

    name: str
    optimizer: str
    options: Mapping[str, Any] = field(default_factory=dict)
    hyper: Mapping[str, float] = field(default_factory=dict)
    kinds: tuple[Kind, ...] = ("squared",)
    together: bool = True
    inverse_sqrt: bool = False
    matrix: bool = False
    relative: bool = False


NO_EPSILON = {"epsilon": 0.0}
BATCH_LEARNERS = (
    Learner("gradient descent", "sgd", relative=True),
    Learner("gradient descent at a falling rate", "sgd", relative=True, inverse_sqrt=True),
    Learner("projected gradient descent", "mirror_descent", {"domain": "box"}, {"radius": 1.0}, OBLIVIOUS),
    Learner("exponentiated gradient", "exponentiated_gradient", kinds=OBLIVIOUS),
    Learner("heavy ball", "momentum", hyper={"momentum": 0.8}, relative=True),
    Learner("AdaGrad with one norm", "adagrad_norm", hyper=NO_EPSILON, together=False),
    Learner("diagonal AdaGrad", "adagrad", hyper=NO_EPSILON),
    Learner("full AdaGrad", "adagrad_full", together=False),
    Learner("Shampoo", "shampoo", hyper=NO_EPSILON, matrix=True),
)
# Maximum number of sequences of examples; all sequences of the chosen length are played.
SEQUENCES = 256
# Tolerance of means over all sequences, which are exact up to rounding errors.
EXACT = 1e-12


def _paths(
    learner: Learner, population: Losses, order: np.ndarray, start: np.ndarray, rate: float
) -> np.ndarray:
    """Return the weights (sequences, T, d) of a learner on sequences of examples.

    Args:
        learner: the online learning method.
        population: the losses of all examples.
        order: indices of the examples in each sequence.
        start: first weights, (d,).
        rate: learning rate.
    """
    sequences, steps = order.shape
    schedule = multipliers({"name": "inverse_sqrt" if learner.inverse_sqrt else "constant"}, steps)
    shape = (2, len(start) // 2) if learner.matrix else start.shape
    paths = np.zeros((sequences, steps, len(start)))
    numbers = range(sequences)
    for group in [numbers] if learner.together else [[number] for number in numbers]:
        hyper = {**learner.hyper, "learning_rate": rate}
        first = {str(number): start.reshape(shape) for number in group}
        online = curvebench.Online(learner.optimizer, first, hyper, options=learner.options)
        weights = {str(number): start for number in group}
        for step in range(steps):
            grads = {}
            for number in group:
                paths[number, step] = weights[str(number)].ravel()
                grads[str(number)] = population.one(order[number, step]).gradient(paths[number, step])
            weights = online.step(
                {name: grad.reshape(shape) for name, grad in grads.items()}, float(schedule[step])
            )
    return paths


def all_sequences(examples: int) -> np.ndarray:
    """Return all sequences of T examples, as indices (sequences, T).

    T is the largest length for which there are at most `SEQUENCES` sequences. Examples are equally likely, so
    that a mean over all sequences is an expectation.
    """
    steps = int(np.log(SEQUENCES + 0.5) / np.log(examples))
    return np.indices((examples,) * steps).reshape(steps, -1).T


def _online_to_batch(random: Random, learner: Learner) -> Iterator[Measure]:
    """Check that the mean of the iterates has a small gap if the learner has a small regret (eq. 82).

    For the mean w of T iterates, the expected gap J(w) - J(w*) is at most the expected regret against w*,
    divided by T. J is the expected loss, and w* are fixed weights.
    """
    size = int(random.integers(1, 4)) * 2
    features = random.normal(size=(int(random.integers(2, 7)), size)) * 10 ** random.uniform(-0.5, 0.5)
    population = draw_game(random, features, learner.kinds).losses
    on_simplex = learner.optimizer == "exponentiated_gradient"
    start = random.dirichlet(np.ones(size)) if on_simplex else random.uniform(-1, 1, size)
    rate = float(10 ** random.uniform(-1.5, -0.3))
    rate /= float((features**2).sum(1).max()) if learner.relative else 1.0
    order = all_sequences(len(features))
    paths = _paths(learner, population, order, start, rate)
    # J(w*) is subtracted on both sides, so that any w* may be used, also for an unbounded domain.
    optimum = population.best(1.0)

    def expected(weights: np.ndarray) -> np.ndarray:
        return population.values(weights @ population.features.T).mean(-1)

    # Loss of each iterate on each example, (sequences, T, examples).
    every = population.values(paths @ population.features.T)
    suffered = np.take_along_axis(every, order[..., None], -1)[..., 0].mean(1)
    along = expected(paths).mean(1)
    averaged = expected(paths.mean(1))
    at_optimum = population.at(optimum)
    regrets = suffered - at_optimum[order].mean(1)
    excess = averaged - at_optimum.mean() - regrets
    scale = float(np.abs(every).mean())
    quantity = "mean suboptimality less mean regret / T, over the mean loss"
    yield vanishes(quantity, float(excess.mean()) / scale, EXACT)
    quantity = "mean loss suffered less mean expected loss, over the mean loss"
    yield equals(quantity, float((suffered - along).mean()) / scale, 0.0, EXACT)
    quantity = "loss of the average less average loss, over the mean loss"
    yield vanishes(quantity, float((averaged - along).max()) / scale, EXACT)


NOTES_ONLINE_TO_BATCH = PropertyClaim(
    id="notes.online-to-batch",
    sentence=(
        "On independent examples the average of an online method's weights is on average no further above "
        "the least expected loss than its regret against the best weights, divided by the number of steps."
    ),
    source="002 App. A, eq. 82",
    setting=(
        "Populations of 2 to 6 equally likely examples in 2 to 6 dimensions and sequences of 3 to 8 of them, "
        "as long as there are at most 256: all of them are played, so that every expectation is a sum and "
        "nothing is sampled. Methods: gradient descent at a constant and at a "
        "falling rate, projected onto a box, exponentiated gradient, heavy ball, the three forms of AdaGrad, "
        "Shampoo. Squared losses; on box and simplex linear and logistic ones too. The two steps of the "
        "proof are measured as well: the loss suffered has the expected loss for its mean, and the average's "
        "loss is below the average loss, which holds for every sequence and not only on average. Tolerances "
        "are for rounding."
    ),
    checks=(
        *(
            Check(
                f"the average against the regret, {learner.name}",
                "002 App. A",
                partial(_online_to_batch, learner=learner),
                {"quick": 3, "paper": 27},
            )
            for learner in BATCH_LEARNERS
        ),
    ),
)

CLAIMS: tuple[PropertyClaim, ...] = (NOTES_REGRET, NOTES_ONLINE_TO_BATCH)
