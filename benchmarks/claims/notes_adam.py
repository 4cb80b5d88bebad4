"""Claims of the adaptive-methods notes on Adam: convergence, and size and scale invariance of its updates.

Equations and sections without a document are those of 002, Stratos (2026), "Adaptive Learning Methods", a set
of notes (docs/sources.md). g is a gradient, v_t the second moment after t steps, u the best weight in
hindsight, and RMS the root mean square. AMSGrad has two orders of operations: it takes the maximum of second
moments before or after the bias correction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from curvebench.benchmarks.claims._measures import at_least, at_most, equals, vanishes
from curvebench.benchmarks.claims._moves import moves, path
from curvebench.benchmarks.claims._parts import Random, estimates, part, parts_for, printed_and_corrected
from curvebench.engine.schedules import multipliers
from curvebench.property_checks.checks import Measure, PropertyClaim

# --- AMSGrad ------------------------------------------------------------------------------------------------

ORDERS: Mapping[str, bool | str] = {"after": True, "before": "before_correction"}
STEPS = 3000


def _counterexample(random: Random, amsgrad: bool | str) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Play the counterexample of Reddi et al. (2019) on [-1, 1].

    The losses are C w in every third step and -w in all other steps, with C > 2, so that the best weight is
    u = -1. Adam has beta_1 = 0, beta_2 = 1 / (1 + C^2) and the learning rate eta / sqrt(t).

    Returns:
        C, eta, the weights w_1 ... w_(T+1), and the regret after each step.
    """
    height, rate = float(random.uniform(2.5, 6)), float(random.uniform(0.3, 0.9))
    hyper = {"learning_rate": rate, "beta1": 0.0, "beta2": 1 / (1 + height**2), "epsilon": 0.0}
    slopes = np.where(np.arange(STEPS) % 3 == 0, height, -1.0)
    schedule = multipliers({"name": "inverse_sqrt"}, STEPS)
    free = path("adam", np.zeros(1), list(slopes[:, None]), hyper, {"amsgrad": amsgrad}, schedule)[:, 0]
    weights = [1.0]
    for before, after in pairwise(free):
        weights.append(min(max(weights[-1] + after - before, -1.0), 1.0))
    return height, rate, np.array(weights), np.cumsum(slopes * (np.array(weights[:-1]) + 1))


def _adam_fails(random: Random) -> Iterator[Measure]:
    """Check that Adam's weight ends at 1, and that its regret grows by 2 (C - 2) in each cycle of 3 steps."""
    height, rate, path, regrets = _counterexample(random, False)
    # The learning rate is eta / sqrt(t), and beta_1 = 0.
    # Since v_t >= (1 - beta_2) g_t^2, a step is at most eta / sqrt((1 - beta_2) t).
    # By the choice of beta_2, 1 / sqrt(1 - beta_2) = sqrt(1 + C^2) / C.
    # Two of three steps therefore begin at a distance from 1 that is at most the length of a step.
    step = rate * float(np.sqrt(1 + height**2)) / height
    slack = 2 * step / float(np.sqrt(STEPS))
    yield equals(
        "regret / T over 2 (C - 2) / 3",
        float(regrets[-1]) / STEPS / (2 * (height - 2) / 3),
        1.0,
        slack / (2 * (height - 2) / 3),
    )
    half = STEPS // 2
    yield at_least("regret over that at half the time", regrets[-1] / regrets[half - 1], 1.9)
    yield equals("final weight", path[-1], 1.0, 2 * step / float(np.sqrt(STEPS)))


def _amsgrad_converges(random: Random, amsgrad: bool | str) -> Iterator[Measure]:
    """Check that AMSGrad's regret stays below (2 C / eta + eta sqrt(1 + C^2)) sqrt(T), and that w ends at -1.

    The bound is eq. 18 with A_t = sqrt(v^max_t) <= C, D = 2 and v^max_t >= (1 - beta_2) g_t^2.
    """
    height, rate, path, regrets = _counterexample(random, amsgrad)
    bounds = (2 * height / rate + rate * float(np.sqrt(1 + height**2))) * np.sqrt(np.arange(1, STEPS + 1))
    yield at_most("regret over its bound", (regrets / bounds).max(), 1.0, 1e-9)
    # Two steps with gradient -1 move w away from -1 by at most `away`.
    away = 2 * rate * float(np.sqrt(1 + height**2)) / height**2 / float(np.sqrt(STEPS - 2))
    yield equals("final weight", path[-1], -1.0, away)


def _greatest_rise(random: Random, order: str) -> float:
    """Return the maximum factor by which the learning rate of an entry grows from one step to the next.

    The learning rate of an entry is its update divided by its gradient, since beta_1 = 0.
    """
    gradients = random.normal(size=(100, 50)) * 10 ** random.uniform(-1, 1, (100, 1))
    hyper = {"beta1": 0.0, "beta2": float(1 - 10 ** random.uniform(-3, -1)), "epsilon": 0.0}
    rates = moves("adam", gradients, hyper, {"amsgrad": ORDERS[order]}) / gradients
    return float((rates[1:] / rates[:-1]).max())


def _rate_never_rises(random: Random) -> Iterator[Measure]:
    # The tolerance is large because the updates are differences of iterates, which have rounding errors.
    yield at_most("greatest ratio of successive rates", _greatest_rise(random, "after"), 1.0, 1e-6)


def _rate_can_rise(random: Random) -> Iterator[Measure]:
    yield at_least("greatest ratio of successive rates", _greatest_rise(random, "before"), 1.01)


EARLY, LATE = 30, 500
LITTLE = 0.05


def _differences(gradients: np.ndarray, beta2: float) -> np.ndarray:
    """Return, for each step, how much the updates of the two orders of operations of AMSGrad differ, (T,).

    The difference is the RMS of the differences of the updates, divided by the RMS of the updates. AMSGrad
    takes the maximum of second moments before or after the bias correction.
    """
    hyper = {"beta1": 0.9, "beta2": beta2, "epsilon": 0.0}
    after, before = (
        moves("adam", gradients, hyper, {"amsgrad": ORDERS[order]}) for order in ("after", "before")
    )
    return np.sqrt(((after - before) ** 2).mean(1) / (after**2).mean(1))


def _order_matters_early(random: Random) -> Iterator[Measure]:
    """Check that the two orders of operations of AMSGrad give different updates in the first steps."""
    differences = _differences(random.normal(size=(EARLY, 500)), 0.99)
    yield at_least("greatest difference of the moves, relative", differences.max(), LITTLE)


def _order_on_noise(random: Random) -> Iterator[Measure]:
    """Compare the two orders of operations of AMSGrad after 500 steps on independent normal gradients.

    After 500 steps, 1 - beta_2^t is above 0.99.
    """
    differences = _differences(random.normal(size=(LATE + 100, 500)), 0.99)
    late = float(np.sqrt((differences[LATE:] ** 2).mean()))
    yield at_most("difference of the moves after 500 steps, relative", late, LITTLE)


def _order_on_growth(random: Random) -> Iterator[Measure]:
    """Compare the two orders of operations of AMSGrad after 500 steps on gradients that grow tenfold.

    The second moments of such gradients exceed the maxima of all early steps.
    """
    growth = 10 ** (np.arange(LATE + 100) / (LATE + 100))[:, None]
    differences = _differences(random.normal(size=(LATE + 100, 500)) * growth, 0.99)
    late = float(np.sqrt((differences[LATE:] ** 2).mean()))
    yield at_most("difference of the moves after 500 steps, relative", late, LITTLE)


NOTES_AMSGRAD = PropertyClaim(
    id="notes.amsgrad",
    sentence=(
        "On a convex problem in one dimension Adam's regret grows linearly, AMSGrad's like sqrt(T); whether "
        "the maximum is taken after bias correction or before it matters in early steps only."
    ),
    source="002 Sec. 4.2, Fig. 1",
    setting=(
        "The notes cite the counterexample; it is Reddi et al. (2019): w in [-1, 1], losses C w at every "
        "third step and -w else, C from 2.5 to 6, beta_1 = 0, beta_2 = 1 / (1 + C^2), rate eta / sqrt(t) "
        "with eta from 0.3 to 0.9, 3,000 steps from w = 1, clipped to the interval after each step; Adam "
        "with bias correction, as in the notes. The order of maximum and correction is compared by the moves "
        "of 500 entries, beta_1 = 0.9, beta_2 = 0.99, in three settings: the first 30 steps; steps 500 to "
        "600, where 1 - beta_2^t is above 0.99, on independent normal gradients; and the same with gradients "
        "that grow tenfold. A difference above 5 % of the moves counts. On gradients that do not grow the "
        "corrected second moments of the first steps, means of few squares, are the largest of all and stay "
        "the maximum for good: the correction is 1 later on, the maximum is not."
    ),
    checks=(
        part("Adam's regret is linear", "002 Sec. 4.2", _adam_fails, 2),
        *parts_for(
            "AMSGrad converges, maximum {} correction", "002 Sec. 4.2", _amsgrad_converges, 2, amsgrad=ORDERS
        ),
        part("the rate never rises, maximum after correction", "002 Sec. 4.2", _rate_never_rises, 5),
        part("the rate can rise, maximum before correction", "002 Sec. 4.2", _rate_can_rise, 5),
        part("the order matters early", "002 Sec. 4.2", _order_matters_early, 3),
        part("and little later, growing gradients", "002 Sec. 4.2", _order_on_growth, 2),
        part("and little later, steady gradients", "002 Sec. 4.2", _order_on_noise, 2),
    ),
)


# --- the size of updates ------------------------------------------------------------------------------------

ENTRIES, AVERAGED = 1000, 100


def _root_mean_square(random: Random, beta1: float, beta2: float) -> tuple[float, float]:
    """Return the stationary RMS of Adam's updates for normal gradients, and the standard error of the RMS.

    The gradients have variance 42. The RMS and its standard error are divided by the limit of the RMS,
    sqrt((1 - beta_1) / (1 + beta_1)).
    """
    steps = int(5 / (1 - beta2)) + int(5 / (1 - beta1)) + AVERAGED
    gradients = random.normal(scale=np.sqrt(42), size=(steps, ENTRIES))
    moved = moves("adam", gradients, {"beta1": beta1, "beta2": beta2, "epsilon": 0.0})
    squares = np.square(moved[-AVERAGED:]).mean(0)
    size = float(np.sqrt(squares.mean()))
    error = float(squares.std()) / float(np.sqrt(ENTRIES)) / (2 * size)
    limit = float(np.sqrt((1 - beta1) / (1 + beta1)))
    return size / limit, error / limit


def _update_size(random: Random) -> Iterator[Measure]:
    """Check that the size of Adam's updates (eq. 50) is close to the limit of eq. 51.

    The relative error must be at most 1 - beta_2.
    """
    beta1 = float(random.choice([0.0, random.uniform(0, 0.95)]))
    beta2 = float(1 - 10 ** random.uniform(-2.7, -1))
    ratio, error = _root_mean_square(random, beta1, beta2)
    yield equals(
        "root mean square over sqrt((1 - beta_1) / (1 + beta_1))", ratio, 1.0, (1 - beta2) + 4 * error
    )


def _mild(random: Random) -> Iterator[Measure]:
    """Check that from beta_2 = 0.9 to 0.998 the size of updates changes by at most a tenth.

    By eq. 51, the size of updates depends on beta_1 only.
    """
    beta1 = float(random.uniform(0, 0.95))
    low, low_error = _root_mean_square(random, beta1, 0.9)
    high, high_error = _root_mean_square(random, beta1, 0.998)
    error = 4 * float(np.hypot(low_error, high_error))
    yield at_most("|size at beta_2 = 0.9 over that at 0.998 less 1|", abs(low / high - 1), 0.1, error)


NOTES_UPDATE_SIZE = PropertyClaim(
    id="notes.update-size",
    sentence=(
        "On centred gradients the root mean square of Adam's updates tends to sqrt((1 - beta_1) / (1 + "
        "beta_1)) times the learning rate; beta_2 changes it little."
    ),
    source="002 Sec. 4.5, eqs. 50-51, Lemma S.16",
    setting=(
        "Independent normal gradients of variance 42, as in the notes' figure; 1,000 entries, 100 steps "
        "after the means have come to rest (5 / (1 - beta)); beta_1 from 0 to 0.95, beta_2 from 0.9 to "
        "0.998; no epsilon. The notes give no constant for O(1 - beta_2); 1 is taken, relative to the limit. "
        "The size may miss it by that and 4 standard errors of the entries' means; a change of a tenth "
        "is allowed from beta_2 = 0.9 to 0.998, below which the interval of 4 standard errors must lie. "
        "Lemma S.16 assumes E[1 / V^2] bounded for all beta_2 from 0 on, which normal gradients do not "
        "fulfil near 0; it is not needed above 0.9."
    ),
    checks=(
        part("the root mean square", "002 eqs. 50-51", _update_size, 10),
        *estimates(part("beta_2 is mild", "002 eq. 50", _mild, 1)),
    ),
)


# --- scale invariance ---------------------------------------------------------------------------------------

INVARIANT: Mapping[str, Mapping[str, float]] = {
    "adam": {"epsilon": 0.0},
    "rmsprop": {"epsilon": 0.0},
    "adagrad": {"epsilon": 0.0},
    "adam_atan2": {},
}


def _gradients(random: Random) -> np.ndarray:
    """Draw gradients (T, d), T from 5 to 60, d from 1 to 20.

    The sizes of entries span four orders of magnitude; some entries are 0.
    """
    shape = (int(random.integers(5, 61)), int(random.integers(1, 21)))
    gradients = random.normal(size=shape) * 10 ** random.uniform(-2, 2, shape[1])
    return gradients * (random.random(shape) < random.choice([1.0, 0.5]))


def _betas(random: Random) -> dict[str, float]:
    return {"beta1": float(random.uniform(0, 0.95)), "beta2": float(1 - 10 ** random.uniform(-3, -0.5))}


def _invariance(random: Random, printed: bool) -> Iterator[Measure]:
    """Check that multiplying each entry's gradients by a factor does not change a rule's updates (eq. 47).

    The factors are positive in the corrected statement, and arbitrary in the printed statement.
    """
    gradients, betas = _gradients(random), _betas(random)
    scales = 10 ** random.uniform(-6, 6, (gradients.shape[1],))
    if printed:
        scales *= random.choice([-1.0, 1.0], len(scales))
    for optimizer, hyper in INVARIANT.items():
        given = {**hyper, **({} if optimizer == "adagrad" else betas)}
        plain = moves(optimizer, gradients, given)
        scaled = moves(optimizer, gradients * scales, given)
        distance = float(np.abs(scaled - plain).max()) / max(float(np.abs(plain).max()), 1e-300)
        yield vanishes(f"greatest difference of {optimizer}'s moves, relative", distance, 1e-11)


def _epsilon_breaks(random: Random) -> Iterator[Measure]:
    """Check that Adam's updates shrink with the gradient where |g| is far below epsilon (Sec. 4.1.1)."""
    gradients, betas = random.normal(size=(20, 10)), _betas(random)
    hyper = {**betas, "epsilon": 1.0}
    large = moves("adam", 1e-3 * gradients, hyper)
    small = moves("adam", 1e-5 * gradients, hyper)
    ratio = float(np.abs(small).sum() / np.abs(large).sum())
    yield at_most("moves over moves on gradients 100 times as large", ratio, 0.05)


def _epsilon_harmless(random: Random) -> Iterator[Measure]:
    """Check that multiplying gradients far above epsilon by c changes an update little.

    The bound on the relative change of the update is epsilon max(1, 1 / c) / min |g|.
    """
    gradients = random.choice([-1.0, 1.0], (30, 10)) * 10 ** random.uniform(0, 2, (30, 10))
    epsilon, scale = float(10 ** random.uniform(-8, -3)), float(10 ** random.uniform(-2, 2))
    hyper = {**_betas(random), "epsilon": epsilon}
    plain, scaled = moves("adam", gradients, hyper), moves("adam", scale * gradients, hyper)
    change = float(np.abs(scaled / plain - 1).max())
    bound = epsilon * max(1, 1 / scale) / float(np.abs(gradients).min())
    yield at_most("greatest change of a move over its bound", change / bound, 1.0, 1e-9 + 1e-9 / bound)


def _spike(random: Random) -> Iterator[Measure]:
    """Check the step at a large gradient after many small gradients.

    Adam moves far, but Adam-atan2 moves by at most eta pi / 2.
    """
    steps = int(random.integers(100, 301))
    gradients = 1e-3 * random.normal(size=(steps, 10))
    gradients[-1] = random.choice([-1.0, 1.0], 10) * 10 ** random.uniform(0, 3)
    betas = {"beta1": float(random.uniform(0, 0.5)), "beta2": 0.999}
    clipped = float(np.abs(moves("adam_atan2", gradients, betas)).max())
    free = float(np.abs(moves("adam", gradients, {**betas, "epsilon": 0.0})[-1]).min())
    yield at_most("greatest move of Adam-atan2 over pi / 2", clipped / (np.pi / 2), 1.0)
    yield at_least("least move of Adam at the spike over pi / 2", free / (np.pi / 2), 1.0)


def _bounded(random: Random) -> Iterator[Measure]:
    """Check that Adam-atan2's updates are at most eta pi / 2 for any gradients.

    Furthermore, entries whose gradients are 0 must not move.
    """
    gradients, betas = _gradients(random), _betas(random)
    gradients[:, 0] = 0.0
    moved = moves("adam_atan2", gradients, betas)
    yield at_most("greatest move over pi / 2", float(np.abs(moved).max()) / (np.pi / 2), 1.0)
    yield equals("move of an entry without gradient", np.abs(moved[:, 0]).max(), 0.0)


NOTES_SCALE_INVARIANCE = PropertyClaim(
    id="notes.scale-invariance",
    sentence=(
        "Positive factors on the entries of all gradients change nothing in Adam, RMSProp, AdaGrad and "
        "Adam-atan2; an epsilon that is not small changes that in Adam, and atan2 bounds every move by pi / "
        "2 learning rates."
    ),
    source="002 Sec. 4.1, eq. 47",
    setting=(
        "Paths of 5 to 60 steps in 1 to 20 entries, of sizes over four orders of magnitude, some gradients "
        "0; factors from 1e-6 to 1e6, one an entry. Eq. 47 is printed for an arbitrary c; negative ones turn "
        "the update's sign, so that it is taken as printed, with random signs, and as corrected. Epsilon is "
        "broken at 1 with gradients of 1e-3 and 1e-5, harmless below the least gradient, with the bound that "
        "follows from sqrt(v) >= min |g|. A spike after 100 to 300 small gradients shows the bound of atan2 "
        "beside Adam."
    ),
    checks=(
        *printed_and_corrected("moves do not depend on the gradients' scale", "002 eq. 47", _invariance, 20),
        part("a large epsilon breaks that", "002 Sec. 4.1.1", _epsilon_breaks, 20),
        part("a small one hardly", "002 Sec. 4.1.1", _epsilon_harmless, 20),
        part("atan2 bounds every move", "002 Sec. 4.1.2", _bounded, 20),
        part("and clips a spike", "002 Sec. 4.1.2", _spike, 5),
    ),
)

CLAIMS: tuple[PropertyClaim, ...] = (NOTES_AMSGRAD, NOTES_UPDATE_SIZE, NOTES_SCALE_INVARIANCE)
