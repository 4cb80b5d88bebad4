"""Shampoo: its preconditioner and regret, the power 1/2, and cases in which the idealized iteration is exact.

Equations and sections are those of 002, Stratos (2026), "Adaptive Learning Methods", a set of notes
(docs/sources.md). G is an m x n gradient, and g the vector of its entries. L and R are the sums of G G^T and
G^T G over steps. The sum of g g^T, with its entries rearranged (`_matrices.rearrange`), has the leading
singular value sigma_1 and the leading singular vector v_1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvebench.benchmarks.claims._matrices import (
    loewner_ratio,
    orthonormal,
    power,
    rearrange,
    relative_error,
    spread_values,
    with_singular_values,
)
from curvebench.benchmarks.claims._measures import agrees, at_least, at_most, equals
from curvebench.benchmarks.claims._moves import moves
from curvebench.benchmarks.claims._online_games import (
    OBLIVIOUS,
    draw_game,
    draw_low_rank_features,
    play,
    weighted_clipping,
)
from curvebench.benchmarks.claims._parts import Random, bounds, part, printed_and_corrected
from curvebench.property_checks.checks import Measure, PropertyClaim

# Relative tolerance of steps and bounds that use fourth or square roots of statistics.
# The eigenvalues of the statistics span 6 orders of magnitude.
ROUNDING = 1e-8


# --- gradients and their statistics ---------------------------------------------------------------------


@dataclass(frozen=True)
class Gradients:
    """Sequence of gradients.

    Args:
        matrices: gradients, each (m, n).
        rank: r, the maximum rank of a gradient.
    """

    matrices: list[np.ndarray]
    rank: int

    def statistics(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the weighted sums of g g^T, (m n, m n), of G G^T, (m, m), and of G^T G, (n, n)."""
        stack = np.sqrt(weights)[:, None, None] * np.array(self.matrices)
        flat = stack.reshape(len(stack), -1)
        left = np.einsum("tik,tjk->ij", stack, stack)
        right = np.einsum("tki,tkj->ij", stack, stack)
        return flat.T @ flat, left, right


def _gradients(random: Random, longest: int = 8) -> Gradients:
    """Draw 1 to `longest` gradients of any rank, with singular values over up to 3 orders of magnitude.

    In some cases the last row of all gradients is 0.
    """
    m, n = (int(length) for length in random.integers(1, 5, 2))
    rank = int(random.integers(1, min(m, n) + 1))
    count = int(random.integers(1, longest + 1))
    matrices = [
        with_singular_values(random, m, n, spread_values(random, int(random.integers(1, rank + 1))))
        for _ in range(count)
    ]
    matrices[0] = with_singular_values(random, m, n, spread_values(random, rank))
    if m > 1 and random.integers(3) == 0:
        for matrix in matrices:
            matrix[-1] = 0.0
    return Gradients(matrices, max(int(np.linalg.matrix_rank(matrix)) for matrix in matrices))


def running_mean_weights(steps: int, beta2: float) -> np.ndarray:
    """Return the weight of each step's gradient in a bias-corrected running mean, (steps,)."""
    shares = (1 - beta2) * beta2 ** np.arange(steps - 1, -1, -1.0)
    return np.asarray(shares / shares.sum())


def _last_step(
    optimizer: str, matrices: list[np.ndarray], options: dict[str, Any], **hyper: float
) -> np.ndarray:
    """Return minus the last update of a rule, divided by its learning rate, (m, n)."""
    return -moves(optimizer, np.array(matrices), {"epsilon": 0.0, **hyper}, options)[-1]


def _draw_statistics(
    random: Random,
) -> tuple[Gradients, np.ndarray, dict[str, Any], dict[str, float]]:
    """Draw gradients, and a way in which Shampoo accumulates statistics: a sum or a running mean.

    Returns:
        The gradients, their weights in the sum or mean, and the options and hyperparameters of Shampoo.
    """
    gradients = _gradients(random)
    count = len(gradients.matrices)
    if random.integers(2):
        return gradients, np.ones(count), {"statistics": "sum"}, {}
    beta2 = float(random.uniform(0.5, 0.99))
    return gradients, running_mean_weights(count, beta2), {"statistics": "ema"}, {"beta2": beta2}


# --- checks of the claim notes.shampoo ------------------------------------------------------------------


def _preconditioner(random: Random) -> Iterator[Measure]:
    gradients, weights, options, hyper = _draw_statistics(random)
    outer, left, right = gradients.statistics(weights)
    step = _last_step("shampoo", gradients.matrices, options, **hyper)
    expected = np.kron(power(left, 0.25), power(right, 0.25)) @ step.ravel()
    quantity = "(L^1/4 (x) R^1/4) vec(step) less vec(G), relative"
    yield agrees(quantity, expected, gradients.matrices[-1].ravel(), ROUNDING)
    ratio = loewner_ratio(power(outer, 0.5), np.kron(power(left, 0.25), power(right, 0.25)))
    quantity = "least c with O^1/2 <= c L^1/4 (x) R^1/4, over sqrt(r)"
    yield at_most(quantity, ratio / np.sqrt(gradients.rank), 1.0, ROUNDING)


def _power_iteration(random: Random) -> Iterator[Measure]:
    gradients = _gradients(random)
    m, n = gradients.matrices[0].shape
    beta2 = float(random.uniform(0.5, 0.99))
    weights = running_mean_weights(len(gradients.matrices), beta2)
    outer, *_ = gradients.statistics(weights)
    rearranged = rearrange(outer, m, n, m, n)
    left = (rearranged @ np.eye(n).ravel()).reshape(m, m)
    right = (rearranged.T @ np.eye(m).ravel()).reshape(n, n)
    step = _last_step("shampoo", gradients.matrices, {"statistics": "ema", "power": 0.5}, beta2=beta2)
    expected = np.kron(power(left, 0.5), power(right, 0.5)) @ step.ravel()
    quantity = "(l_1^1/2 (x) r_1^1/2) vec(step at power 1/2) less vec(G), relative"
    yield agrees(quantity, expected, gradients.matrices[-1].ravel(), ROUNDING)


def _separated(random: Random) -> list[np.ndarray]:
    """Draw gradients that have a large leading singular value.

    Each gradient starts with a single nonzero entry. In the first gradient, the entry is large. In each other
    gradient, the entry is 1, in another row and another column than the large entry. All gradients are then
    multiplied by the same orthogonal matrices.
    """
    m, n = (int(length) for length in random.integers(2, 5, 2))
    single = np.zeros((m, n))
    single[0, 0] = np.sqrt(2.0 * np.sqrt((m - 1) * (n - 1)))
    units = np.eye(m * n).reshape(m * n, m, n)
    others = [unit for unit in units if not unit[0].any() and not unit[:, 0].any()]
    left, right = orthonormal(random, m, m), orthonormal(random, n, n)
    return [left @ matrix @ right for matrix in (single, *others)]


def _decomposed(matrices: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the rearranged sum of g g^T, (m^2, n^2), and its singular value decomposition (3 factors)."""
    m, n = matrices[0].shape
    outer, *_ = Gradients(matrices, 0).statistics(np.ones(len(matrices)))
    rearranged = rearrange(outer, m, n, m, n)
    return rearranged, *np.linalg.svd(rearranged, full_matrices=False)


def _with_a_gap(
    random: Random, matrices: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the rearranged sum of g g^T and its decomposition (`_decomposed`), with a unique leading vector.

    The leading singular vector v_1 is not unique if the singular values sigma_1 and sigma_2 are equal. In
    this case, the result is for new random gradients.
    """
    found = _decomposed(matrices)
    while len(found[2]) > 1 and found[2][1] > (1 - 1e-6) * found[2][0]:
        found = _decomposed(_gradients(random).matrices)
    return found


def _cosine(random: Random, printed: bool) -> Iterator[Measure]:
    rearranged, u, values, vh = _with_a_gap(random, _gradients(random).matrices)
    start = np.eye(int(np.sqrt(vh.shape[1]))).ravel()
    iterate = rearranged @ start
    measured = abs(iterate @ u[:, 0]) / np.linalg.norm(iterate)
    along = np.abs(vh @ start) * values
    formula = along[0] / (along[0] if printed else np.linalg.norm(along))
    yield equals("cos(l_1, u_1) less its formula", measured - formula, 0.0, 1e-10)


def _identity_start(random: Random, printed: bool) -> Iterator[Measure]:
    matrices = _separated(random) if random.integers(2) else _gradients(random).matrices
    *_, vh = _with_a_gap(random, matrices)
    traces = np.abs(vh @ np.eye(int(np.sqrt(vh.shape[1]))).ravel())
    if printed:
        others = float(traces[1:].max(initial=0.0))
        quantity = "greatest |v_i^T vec(I)|, i > 1, over v_1^T vec(I)"
        yield at_most(quantity, others / traces[0], 1.0, 1e-10)
    else:
        yield at_least("v_1^T vec(I)", traces[0], 1.0, 1e-10)


def _rank_one_rearrangement(random: Random, weights: np.ndarray, m: int, n: int) -> Gradients:
    """Draw m n gradients whose weighted sum of g g^T is a single Kronecker product A (x) B."""
    ranks = [int(random.integers(1, size + 1)) for size in (m, n)]
    # The roots of A and B are drawn, so that the eigenvalues of A (x) B span at most 6 orders of magnitude.
    left, right = (
        with_singular_values(random, size, size, np.sqrt(spread_values(random, rank)))
        for size, rank in zip((m, n), ranks, strict=True)
    )
    # For the vectors z of any orthonormal basis of R^(m n), the sum of z z^T is I.
    basis = orthonormal(random, m * n, m * n).reshape(m * n, m, n)
    matrices = [left @ z @ right / np.sqrt(weight) for z, weight in zip(basis, weights, strict=True)]
    return Gradients(matrices, min(m, n))


def _exact_decomposition(random: Random) -> Iterator[Measure]:
    m, n = (int(length) for length in random.integers(1, 5, 2))
    beta2 = float(random.uniform(0.7, 0.99))
    weights = running_mean_weights(m * n, beta2)
    gradients = _rank_one_rearrangement(random, weights, m, n)
    outer, left, right = gradients.statistics(weights)
    decomposed = np.kron(left, right) / np.trace(left)
    yield agrees("eq. 64 less E[g g^T], relative, rank one", decomposed, outer, 1e-12)
    step = _last_step("idealized_shampoo", gradients.matrices, {}, beta2=beta2)
    expected = power(outer, -0.5) @ gradients.matrices[-1].ravel()
    yield agrees("idealized Shampoo's step less E[g g^T]^-1/2 g, relative", step.ravel(), expected, ROUNDING)


def _inexact_decomposition(random: Random) -> Iterator[Measure]:
    m, n = (int(length) for length in random.integers(2, 5, 2))
    gradients = Gradients(list(random.standard_normal((3, m, n))), min(m, n))
    outer, left, right = gradients.statistics(np.full(3, 1 / 3))
    error = relative_error(np.kron(left, right) / np.trace(left), outer)
    yield at_least("eq. 64 less E[g g^T], relative, three normal gradients", error, ROUNDING)


def _preconditioner_of(gradients: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return Shampoo's preconditioner L^(1/4) (x) R^(1/4) after flattened gradients (t, m n)."""
    played = Gradients(list(gradients.reshape(-1, *shape)), 0)
    _, left, right = played.statistics(np.ones(len(gradients)))
    return np.kron(power(left, 0.25), power(right, 0.25))


def _regret(random: Random) -> Iterator[Measure]:
    m, n = (int(length) for length in random.integers(1, 5, 2))
    rank = int(random.integers(1, min(m, n) + 1))
    features = draw_low_rank_features(random, int(random.integers(20, 61)), m, n, rank)
    game = draw_game(random, features, OBLIVIOUS)

    rate = float(game.radius * 10.0 ** random.uniform(-2, 1))
    free = play(game, "shampoo", {"learning_rate": rate, "epsilon": 0.0}, shape=(m, n))
    trace = float(np.trace(_preconditioner_of(free.gradients, (m, n))))
    bound = (free.distance**2 / (2 * rate) + rate * rank) * trace
    quantity = "regret over D^2 tr A_T / (2 eta) + eta r tr A_T, any eta, D of the run"
    yield at_most(quantity, free.regret / bound, 1.0, ROUNDING)

    rate = game.diameter / float(np.sqrt(2 * rank))
    projection = weighted_clipping(game.radius, lambda seen: _preconditioner_of(seen, (m, n)))
    hyper = {"learning_rate": rate, "epsilon": 0.0}
    boxed = play(game, "shampoo", hyper, projection=projection, shape=(m, n))
    trace = float(np.trace(_preconditioner_of(boxed.gradients, (m, n))))
    bound = game.diameter * float(np.sqrt(2 * rank)) * trace
    quantity = "regret over D sqrt(2 r) tr L^1/4 tr R^1/4, D of the box"
    yield at_most(quantity, boxed.regret / bound, 1.0, ROUNDING)


def _singular(random: Random) -> Iterator[Measure]:
    m, n = (int(length) for length in random.integers(2, 6, 2))
    count = int(random.integers(1, 4))
    matrices = list(random.standard_normal((count, m, n)))
    # A dead unit and a dead input give statistics with rows of zeros.
    for matrix in matrices:
        matrix[random.integers(1, m) if count == 1 else -1] = 0.0
        matrix[:, -1] = 0.0
    _, left, right = Gradients(matrices, 0).statistics(np.ones(count))
    with np.errstate(all="ignore"):
        roots = []
        for side in (left, right):
            values, vectors = np.linalg.eigh(side)
            roots.append((vectors * values**-0.25) @ vectors.T)
        plain = roots[0] @ matrices[-1] @ roots[1]
    yield equals("share of finite entries by plain inverse roots", np.isfinite(plain).mean(), 0.0)

    step = _last_step("shampoo", matrices, {})
    expected = power(left, -0.25) @ matrices[-1] @ power(right, -0.25)
    yield agrees("pseudo-inverse's step, relative error", step, expected, ROUNDING)
    epsilon = float(10.0 ** random.uniform(-8, -4))
    damped = _last_step("shampoo", matrices, {}, epsilon=epsilon)
    # The bound follows from (1 + epsilon / lambda)^(-1/4) >= 1 - epsilon / (4 lambda) for eigenvalues lambda.
    least = [np.linalg.eigvalsh(side) for side in (left, right)]
    bound = sum(epsilon / (4 * values[values > 1e-12 * values[-1]][0]) for values in least)
    quantity = "distance of the step with epsilon from it, over its bound"
    yield at_most(quantity, relative_error(damped, step) / bound, 1.0, ROUNDING / bound)


COSINE = "one step of power iteration comes near to the leading singular vector by this cosine"
IDENTITY = "the identity is a good start of the power iteration"

SHAMPOO = PropertyClaim(
    id="notes.shampoo",
    sentence=(
        "Shampoo's preconditioner L^1/4 (x) R^1/4 bounds AdaGrad's full one, O^1/2, up to sqrt(r), for sums "
        "and for means; so its regret is at most D sqrt(2 r) tr L^1/4 tr R^1/4. The power 1/2 is one step "
        "of power iteration for the best Kronecker approximation, which is exact where the rearranged "
        "matrix has rank one."
    ),
    source="002 Sec. 5, 5.1, 6.2, eqs. 53-56 and 61-64, Lemma 6.1",
    setting=(
        "Sequences of 1 to 8 gradients of 1 to 4 rows and columns, of rank 1 to full, singular values over "
        "up to 3 orders of magnitude, some with empty rows; sums, or running means with beta_2 from 0.5 to "
        "0.99. Singular statistics are inverted on their range. Regret: 20 to 60 linear, squared or "
        "logistic losses with gradients of rank r, against the best point of a box; without projection, as "
        "in the notes, D is the diameter of the run and eta any, since eta = D / sqrt(2 r) needs a D that "
        "is known before and may move the run further than it; with that eta D is the diameter of the box, "
        "which the run is projected onto in the norm of A_t. The cosine of l_1 and u_1 is printed with one "
        "term under the root and is then 1; as corrected the sum over all i is there. That the identity has "
        "a larger product with v_1 than with every other v_i is run as printed, on such sequences and on "
        "gradients with a leading entry apart from all others, rotated; as corrected v_1, which is positive "
        "semi-definite, has a trace of at least its norm; all of these where sigma_1 > sigma_2, as the "
        "notes assume."
    ),
    checks=(
        *bounds(
            part(
                "O^1/2 <= sqrt(r) L^1/4 (x) R^1/4, the preconditioner of the rule's step",
                "002 eqs. 54-56",
                _preconditioner,
                60,
            ),
            part(
                "the regret is at most D sqrt(2 r) tr L^1/4 tr R^1/4", "002 Sec. 5, after eq. 55", _regret, 15
            ),
        ),
        part(
            "the power 1/2 is one step of power iteration from the identity",
            "002 Sec. 6.2, eq. 63",
            _power_iteration,
            40,
        ),
        *printed_and_corrected(COSINE, "002 Sec. 6.2", _cosine, 40),
        *printed_and_corrected(IDENTITY, "002 Sec. 6.2", _identity_start, 40),
        part(
            "where the rearranged matrix has rank one the decomposition and the idealized step are exact",
            "002 Lemma 6.1, eq. 64",
            _exact_decomposition,
            40,
        ),
        part("elsewhere the decomposition is not exact", "002 Sec. 6.2.1", _inexact_decomposition, 20),
        part(
            "singular statistics need a pseudo-inverse or epsilon", "002 Sec. 1.3, footnote 2", _singular, 30
        ),
    ),
)

CLAIMS = (SHAMPOO,)
