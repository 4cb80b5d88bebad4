"""Claims of the adaptive-methods notes on mirror descent: steps, projections and regret.

Equations and appendices are those of 002, Stratos (2026), "Adaptive Learning Methods", a set of notes
(docs/sources.md). w_t are the weights in step t, u any comparator, g_t the gradient, and KL the
Kullback-Leibler divergence.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from curvebench.benchmarks.claims._measures import at_most, vanishes
from curvebench.benchmarks.claims._moves import stepped
from curvebench.benchmarks.claims._online_games import (
    OBLIVIOUS,
    ROUNDING,
    Game,
    Play,
    draw_features,
    draw_game,
    play,
)
from curvebench.benchmarks.claims._parts import Random, bounds, part, printed_and_corrected
from curvebench.property_checks.checks import Measure, PropertyClaim

COMPARATORS = 20


def _distribution(random: Random, size: int, least: float) -> np.ndarray:
    """Draw a point of the simplex whose entries span up to six orders of magnitude.

    The smallest entry is about `least`.
    """
    weights = np.maximum(random.dirichlet(np.full(size, 10 ** random.uniform(-1, 1))), least)
    return weights / weights.sum()


# --- the step of exponentiated gradient ---------------------------------------------------------------------


def _solved(weights: np.ndarray, pulls: np.ndarray) -> np.ndarray:
    """Return the point w of the simplex that minimizes pulls^T w + KL(w, weights) (eq. 90).

    w is computed by BFGS, as a function of its logarithms.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    def objective(logits: np.ndarray) -> tuple[float, np.ndarray]:
        logarithms = log_softmax(logits)
        probabilities = np.exp(logarithms)
        terms = pulls + logarithms - np.log(weights)
        value = float(probabilities @ terms)
        return value, probabilities * (terms - value)

    found = minimize(objective, np.zeros(len(weights)), jac=True, method="BFGS", options={"gtol": 1e-11})
    return np.exp(log_softmax(found.x))


def _proximal(random: Random) -> Iterator[Measure]:
    """Compare the step of exponentiated gradient (eq. 91) with the numerical minimum of eq. 90."""
    size, rate = int(random.integers(2, 9)), float(10 ** random.uniform(-2, 0.5))
    weights, gradient = _distribution(random, size, 1e-4), random.normal(size=size)
    found = stepped("exponentiated_gradient", weights, [gradient], {"learning_rate": rate})
    distance = np.abs(found - _solved(weights, rate * gradient)).sum() / 2
    yield vanishes("total variation from the numerical solution", distance, 1e-7)


def _certified(random: Random) -> Iterator[Measure]:
    """Measure the duality gap of eq. 90 at the point to which the rule moves.

    The gap is an upper bound of the excess of eq. 90 over its minimum.
    """
    size, rate = int(random.integers(2, 21)), float(10 ** random.uniform(-3, 2))
    weights, gradient = _distribution(random, size, 1e-8), random.normal(size=size)
    found = stepped("exponentiated_gradient", weights, [gradient], {"learning_rate": rate})
    # The gradient of eq. 90 with respect to w, up to a constant.
    terms = rate * gradient + np.log(found) - np.log(weights)
    gap = float(found @ terms - terms.min()) / (1 + float(np.abs(terms).max()))
    yield vanishes("duality gap, relative", gap, 1e-12)


def _policy(random: Random, printed: bool) -> Iterator[Measure]:
    """Check that the new policy pi maximizes E[r] - KL(pi, pi_t) / eta for the reward r (App. D).

    The solution is proportional to pi_t e^(eta r); 002 prints pi_t e^r.
    """
    size, rate = int(random.integers(2, 9)), float(10 ** random.uniform(-1.5, 1))
    policy, rewards = _distribution(random, size, 1e-4), random.normal(size=size)
    found = stepped("exponentiated_gradient", policy, [-rewards], {"learning_rate": rate})
    stated = policy * np.exp(rewards if printed else rate * rewards)
    distance = float(np.abs(found - stated / stated.sum()).sum() / 2)
    yield vanishes("total variation from the stated policy", distance, 1e-12)


# --- projections onto the domain ----------------------------------------------------------------------------

DOMAINS = ("ball", "box", "simplex")


def _inside(random: Random, domain: str, size: int, radius: float) -> np.ndarray:
    """Draw a point of the given domain: space, ball, box or simplex."""
    if domain == "simplex":
        return random.dirichlet(np.ones(size))
    point = random.uniform(-radius, radius, size)
    return point / np.sqrt(size) if domain == "ball" else point


def _least(domain: str, slope: np.ndarray, radius: float) -> np.ndarray:
    """Return the point w of a domain that minimizes slope^T w."""
    if domain == "simplex":
        return np.eye(len(slope))[slope.argmin()]
    return -radius * (slope / (np.linalg.norm(slope) or 1.0) if domain == "ball" else np.sign(slope))


def _hyper(domain: str, rate: float, radius: float) -> dict[str, float]:
    return {"learning_rate": rate} | ({} if domain == "simplex" else {"radius": radius})


def _projected(random: Random) -> Iterator[Measure]:
    """Check that an unconstrained step and a projection (eqs. 2-3) solve eq. 1.

    The duality gap at the result must be 0.
    """
    domain = DOMAINS[random.integers(len(DOMAINS))]
    size, radius = int(random.integers(2, 9)), float(10 ** random.uniform(-1, 1))
    rate = float(10 ** random.uniform(-2, 2))
    weights, gradient = _inside(random, domain, size, radius), random.normal(size=size)
    found = stepped("mirror_descent", weights, [gradient], _hyper(domain, rate, radius), {"domain": domain})
    # The gradient of eta g^T w + |w - w_t|^2 / 2.
    slope = rate * gradient + found - weights
    gap = float(slope @ (found - _least(domain, slope, radius)))
    scale = 1 + radius**2 + float(np.linalg.norm(rate * gradient)) * (1 + radius)
    yield vanishes("duality gap, relative", gap / scale, 1e-12)


# --- regret bounds ------------------------------------------------------------------------------------------


def _simplex_game(random: Random) -> Game:
    size = int(random.integers(2, 9))
    features = draw_features(random, int(random.integers(20, 81)), size)
    game = draw_game(random, features, OBLIVIOUS)
    return Game(game.losses, game.radius, _distribution(random, size, 1e-6))


def _worst_ratio(played: Play, comparators: np.ndarray, bounds: np.ndarray) -> Measure:
    """Return the measure that the regret against any comparator is at most the bound for this comparator.

    The value of the measure is the maximum of regret divided by bound, over comparators (number, d).
    """
    regrets = np.array([played.regret_against(one) for one in comparators])
    return at_most("regret over its bound, greatest of all u", (regrets / bounds).max(), 1.0, ROUNDING)


def _entropy_regret(random: Random) -> Iterator[Measure]:
    """Check that exponentiated gradient's regret is at most KL(u, w_1) / eta + (eta / 2) sum |g_t|_inf^2.

    The bound is eq. 8 with the entropy, which is 1-strongly convex in the l1 norm.
    """
    game = _simplex_game(random)
    size = len(game.start)
    rate = float(10 ** random.uniform(-1.5, 0.5)) / game.losses.steepest(1.0)
    played = play(game, "exponentiated_gradient", {"learning_rate": rate})
    mixed = random.dirichlet(np.full(size, 0.5), COMPARATORS)
    comparators = np.concatenate([np.eye(size), mixed, played.weights[-1:]])
    logarithms = np.log(np.where(comparators > 0, comparators, 1.0))
    divergences = (comparators * (logarithms - np.log(game.start))).sum(1)
    norms = np.abs(played.gradients).max(1)
    yield _worst_ratio(played, comparators, divergences / rate + rate / 2 * float((norms**2).sum()))


def _euclidean_regret(random: Random) -> Iterator[Measure]:
    """Check the regret bound of projected gradient descent (eq. 20).

    The bound is |w_1 - u|^2 / (2 eta) + (eta / 2) sum |g_t|^2.
    """
    domain = DOMAINS[random.integers(len(DOMAINS))]
    drawn = _simplex_game(random)
    size, radius = len(drawn.start), drawn.radius
    game = Game(drawn.losses, radius, _inside(random, domain, size, radius))
    rate = float(10 ** random.uniform(-1.5, 0.5)) / game.losses.steepest(radius)
    played = play(game, "mirror_descent", _hyper(domain, rate, radius), {"domain": domain})
    inside = [_inside(random, domain, size, radius) for _ in range(COMPARATORS)]
    downhill = _least(domain, played.gradients.sum(0), radius)
    comparators = np.stack([*inside, downhill, played.weights[-1]])
    squares = ((comparators - game.start) ** 2).sum(1)
    bounds = squares / (2 * rate) + rate / 2 * float(played.squares.sum())
    yield _worst_ratio(played, comparators, bounds)


NOTES_MIRROR = PropertyClaim(
    id="notes.mirror",
    sentence=(
        "Exponentiated gradient is the mirror step of the entropy on the simplex, a gradient step with a "
        "projection is that of the Euclidean distance, and the regret of both stays below the general bound."
    ),
    source="002 Sec. 1, App. D, eqs. 1-3, 8, 20, 90-91",
    setting=(
        "Steps from random points of simplex, ball and box in 2 to 20 dimensions, with weights down to 1e-8 "
        "and learning rates over five orders of magnitude. Eq. 91 is compared with a numerical solution of "
        "eq. 90 (BFGS in the logarithms, which finds it to about 1e-8), and by the duality gap, which bounds "
        "the distance from the minimum. Games of 20 to 80 steps with linear, squared and logistic losses; "
        "the bound is held to every corner and to random points for u. The policy at the end of App. D is "
        "printed with weights e^r and is e^(eta r); the proof's sign of tau is inconsistent and its result "
        "right."
    ),
    checks=(
        part("eq. 91 solves the proximal step", "002 eqs. 90-91", _proximal, 20),
        part("eq. 91 leaves no duality gap", "002 eqs. 90-91", _certified, 60),
        part("gradient step and projection", "002 eqs. 1-3", _projected, 90),
        *bounds(
            part("regret on the simplex", "002 eq. 8, App. D", _entropy_regret, 20),
            part("regret with projections", "002 eq. 20", _euclidean_regret, 20),
        ),
        *printed_and_corrected("the policy with the best expected reward", "002 App. D", _policy, 60),
    ),
)

CLAIMS: tuple[PropertyClaim, ...] = (NOTES_MIRROR,)
