"""Adafactor and AdamNMF: factored second moments under the I-divergence, and the size of clipped steps.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).

W is a weight matrix, G its gradient, V the second moment of its entries, RMS the root mean square, and
IDiv(C, A B) the I-divergence of a product A B from a target C. "Notes" are 002.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

import curvebench
from curvebench.benchmarks.claims._matrices import OPS
from curvebench.benchmarks.claims._measures import at_least, at_most, equals, vanishes
from curvebench.benchmarks.claims._moves import path
from curvebench.benchmarks.claims._parts import Random, part
from curvebench.engine.memory import state_entries
from curvebench.optimizers import adam_nmf, rules
from curvebench.property_checks.checks import CORRECTED, PRINTED, Measure, PropertyClaim
from curvebench.steps.layout import layout
from curvebench.workloads.workload import Role

# Number that stands for zero in a gradient.
# The square of this number is lost to rounding in every sum, but a step G / sqrt(V) still reveals V.
NOTHING = 1e-75
ROUNDING = 1e-12
# Minimum relative difference of two quantities that 002 calls unequal without saying by how much.
BEYOND_ROUNDING = 1e-9
ROUNDS = 10


# --- gradients and second moments ---------------------------------------------------------------------------


def _gradient(random: Random, rows: int, columns: int) -> np.ndarray:
    """Draw a gradient with normal entries, with entries that span 6 orders of magnitude, or of rank one.

    In some cases, random entries or one row are replaced by NOTHING, which stands for zero.
    """
    gradient = random.standard_normal((rows, columns))
    kind = random.integers(5)
    if kind == 1:
        gradient *= 10.0 ** random.uniform(-3, 3, gradient.shape)
    elif kind == 2:
        gradient = np.outer(random.standard_normal(rows), random.standard_normal(columns))
    elif kind == 3:
        gradient[random.random(gradient.shape) < 0.5] = NOTHING
        gradient[0, 0] = 1.0
    elif kind == 4 and rows > 1:
        gradient[random.integers(1, rows)] = NOTHING
    return gradient


def _shape(random: Random) -> tuple[int, int]:
    return int(random.integers(1, 8)), int(random.integers(1, 8))


def _second_moments(
    optimizer: str,
    gradients: list[dict[str, np.ndarray]],
    hyper: Mapping[str, float],
    options: Mapping[str, Any],
) -> list[dict[str, np.ndarray]]:
    """Reconstruct the second moments V from the updates G / sqrt(V) of a rule.

    Returns:
        For each step, V by parameter name.
    """
    start = {name: np.zeros_like(value) for name, value in gradients[0].items()}
    online = curvebench.Online(
        optimizer, start, {"learning_rate": 1.0, "epsilon": 0.0, **hyper}, options=options
    )
    found, before = [], online.params
    for gradient in gradients:
        after = online.step(gradient)
        found.append({name: np.square(g / (before[name] - after[name])) for name, g in gradient.items()})
        before = after
    return found


def _adafactor_moments(
    gradients: list[dict[str, np.ndarray]], hyper: Mapping[str, float], schedule: bool
) -> list[dict[str, np.ndarray]]:
    """Return the second moments of Adafactor without clipping and parameter scaling (002 eq. 52)."""
    options = {"clipping": False, "parameter_scaling": False, "beta2_schedule": schedule}
    return _second_moments("adafactor", gradients, hyper, options)


def _averaging(random: Random) -> tuple[dict[str, float], bool]:
    """Draw hyperparameters of a constant or a scheduled beta_2.

    Returns:
        The hyperparameters, and whether beta_2 is scheduled.
    """
    if random.integers(2):
        return {"beta2_exponent": float(random.uniform(0.3, 1.5))}, True
    return {"beta2": float(random.uniform(0.1, 0.999))}, False


def _divergence(target: np.ndarray, product: np.ndarray) -> float:
    """Return the I-divergence of `product` from `target` (002 eq. 119)."""
    from scipy.special import kl_div

    return float(kl_div(target, product).sum())


# --- checks of the claim notes.adafactor --------------------------------------------------------------


def state_numbers(optimizer: str, shape: tuple[int, int], options: Mapping[str, Any]) -> int:
    """Return the number of floats in the state of a rule for a weight matrix."""
    return state_entries(rules()[optimizer].choose(options), layout({"w": shape}, {"w": Role("weight")}))


def _state(random: Random) -> Iterator[Measure]:
    m, n, rank = (int(length) for length in random.integers(1, (300, 300, 9)))
    adafactor = state_numbers("adafactor", (m, n), {})
    nmf = state_numbers("adam_nmf", (m, n), {"rank": rank})
    adam = state_numbers("adam", (m, n), {})
    yield equals("Adafactor's state over m + n", adafactor / (m + n), 1.0)
    yield equals("AdamNMF's state over (m + n) r", nmf / ((m + n) * rank), 1.0)
    yield at_least("Adam's state over m n", adam / (m * n), 1.0)


def least_rank_one_divergence(target: np.ndarray, random: Random) -> float:
    """Return the minimum of IDiv(C, a b^T) over positive a and b, by L-BFGS from a random start."""
    from scipy.optimize import minimize

    rows = len(target)

    def objective(logarithms: np.ndarray) -> tuple[float, np.ndarray]:
        total = logarithms[:rows, None] + logarithms[rows:]
        product = np.exp(total)
        rest = product - target
        slopes = np.concatenate([rest.sum(1), rest.sum(0)])
        return float((product - target * total).sum()) / scale, slopes / scale

    scale = target.sum()
    start = random.standard_normal(sum(target.shape)) + np.log(target.mean()) / 2
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    return _divergence(target, np.exp(found[:rows, None] + found[rows:]))


def _optimum(random: Random) -> Iterator[Measure]:
    size = np.abs(_gradient(random, *_shape(random)))
    hyper, schedule = _averaging(random)
    steps = int(random.integers(1, 6))
    gradients = [{"w": random.choice([-1.0, 1.0], size.shape) * size} for _ in range(steps)]
    target, moment = size**2, _adafactor_moments(gradients, hyper, schedule)[-1]["w"]
    total = target.sum()
    rows = np.abs(moment.sum(1) - target.sum(1)).max() / total
    columns = np.abs(moment.sum(0) - target.sum(0)).max() / total
    # The divergence is convex in log a and log b.
    # The measured derivatives of the divergence are therefore 0 only at its minimum.
    yield vanishes(
        "derivative of the I-divergence by log a and log b, over the sum of G^2", max(rows, columns), ROUNDING
    )
    excess = _divergence(target, moment) - least_rank_one_divergence(target, random)
    yield vanishes(
        "I-divergence above the best that L-BFGS finds, over the sum of G^2", excess / total, ROUNDING
    )
    if min(size.shape) > 1:
        cross = np.abs(moment[1:, 1:] * moment[0, 0] / (moment[1:, :1] * moment[:1, 1:]) - 1).max()
        yield vanishes("V's distance from rank one, relative", cross, 1e-9)


def _bias(random: Random) -> Iterator[Measure]:
    m, n = (int(length) for length in random.integers(2, 6, 2))
    population = [random.standard_normal((m, n)) * np.exp(random.standard_normal((m, n))) for _ in range(3)]
    hyper = {"beta2": float(random.uniform(0.5, 0.99))}
    pairs = list(itertools.product(population, repeat=2))
    steps = [{f"w{number}": pair[time] for number, pair in enumerate(pairs)} for time in range(2)]
    moments = _adafactor_moments(steps, hyper, schedule=False)[-1]
    expected = np.mean(list(moments.values()), axis=0)
    true = np.mean(np.square(population), axis=0)
    optimum = _adafactor_moments([{"w": np.sqrt(true)}], hyper, schedule=False)[0]["w"]
    margins = np.abs(expected.sum(1) - true.sum(1)).max() / true.sum()
    yield equals("E[V_2]'s row sums less those of E[G^2], over its sum", margins, 0.0, ROUNDING)
    distance = np.linalg.norm(expected - optimum) / np.linalg.norm(optimum)
    yield at_least("E[V_2] less the optimum for E[G^2], relative", distance, BEYOND_ROUNDING)


def _rounds(random: Random, alternating: bool) -> Iterator[Measure]:
    gradient = _gradient(random, *_shape(random))
    target = np.where(gradient == NOTHING, 0.0, gradient**2)
    rank = int(random.integers(1, 6))
    m, n = gradient.shape
    start = float(10.0 ** random.uniform(-3, 1))
    first = adam_nmf.MultiplicativeFactors(
        random.uniform(0, start, (m, rank)), random.uniform(0, start, (rank, n))
    )
    scaled = adam_nmf.multiplicative_round(OPS, target, first, alternating=True)
    for factors, where in ((first, "any start"), (scaled, "a start of C's scale")):
        divergences = [_divergence(target, factors.left @ factors.right)]
        for _ in range(ROUNDS):
            factors = adam_nmf.multiplicative_round(OPS, target, factors, alternating)
            divergences.append(_divergence(target, factors.left @ factors.right))
        quantity = f"greatest rise of the I-divergence in a round from {where}, over the sum of C"
        yield vanishes(quantity, np.diff(divergences).max() / target.sum(), ROUNDING)

    hyper = {} if alternating else {"initialization_range": start}
    options = {"rank": rank, "steps": "alternating" if alternating else "simultaneous"}
    moments = _second_moments("adam_nmf", [{"w": gradient}] * ROUNDS, hyper, options)
    divergences = [_divergence(target, moment["w"]) for moment in moments]
    quantity = "greatest rise of the I-divergence in a step of the rule, over the sum of G^2"
    yield vanishes(quantity, np.diff(divergences).max() / target.sum(), ROUNDING)


NEVER_RAISES = "a round of multiplicative steps never raises the I-divergence"

ADAFACTOR = PropertyClaim(
    id="notes.adafactor",
    sentence=(
        "Adafactor keeps m + n numbers and AdamNMF (m + n) r; for a fixed G^2 Adafactor's factors are the "
        "rank-one optimum under the I-divergence, while its moving average is biased; multiplicative steps "
        "never raise the I-divergence."
    ),
    source="002 Sec. 4.7, eq. 52, footnote 9, App. L, eqs. 119-124",
    setting=(
        "Matrices of 1 to 7 rows and columns with normal entries, entries over 6 orders of magnitude, rank "
        "one, empty entries or empty rows; the second moment is read from the rule's own steps. The "
        "optimum: G^2 is fixed and signs change over 1 to 5 steps, beta_2 is constant or scheduled. The "
        "bias: the expectation over all 9 sequences of two gradients out of three. Multiplicative steps: 10 "
        "rounds at rank 1 to 5 from starts in (0, epsilon), epsilon from 0.001 to 10; L.2 prints "
        "simultaneous steps for A and B, which is run as printed; as corrected B is updated with the new A."
    ),
    checks=(
        part(
            "the state is m + n numbers for Adafactor and (m + n) r for AdamNMF",
            "002 Sec. 4.7, L.2",
            _state,
            20,
        ),
        part(
            "for one fixed G^2 the factors are the optimum under the I-divergence",
            "002 Sec. 4.7, App. L",
            _optimum,
            40,
        ),
        part("the factors of a moving average are biased", "002 footnote 9", _bias, 20),
        part(NEVER_RAISES, "002 L.2", _rounds, 40, PRINTED, alternating=False),
        part(NEVER_RAISES, "002 eqs. 123-124", _rounds, 40, CORRECTED, alternating=True),
    ),
)


# --- checks of the claim notes.adafactor-clip ---------------------------------------------------------


def _root_mean_square(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array))))


def _relative_changes(
    start: np.ndarray,
    gradients: list[np.ndarray],
    schedules: np.ndarray,
    hyper: Mapping[str, float],
    options: Mapping[str, Any],
) -> list[float]:
    """Return the relative change RMS(W_{t+1} - W_t) / (eta_t RMS(W_t)) of each step.

    The rule is Adafactor. The lower limit of its parameter scale is set to 0.
    """
    rate = 0.05
    values = {"learning_rate": rate, "parameter_scale_floor": 0.0, **hyper}
    weights = path("adafactor", start, gradients, values, options, schedules)
    return [
        _root_mean_square(after - before) / (rate * schedule * _root_mean_square(before))
        for (before, after), schedule in zip(pairwise(weights), schedules, strict=True)
    ]


def _tensor_shape(random: Random) -> tuple[int, ...]:
    return tuple(int(length) for length in random.integers(1, 6, random.integers(0, 5)))


def _clipped(random: Random) -> Iterator[Measure]:
    shape, steps = _tensor_shape(random), 20
    start = random.standard_normal(shape) * 10.0 ** random.uniform(-3, 3)
    # Gradients have heavy tails and some entries 0; their scales differ by up to 8 orders of magnitude.
    gradients = [
        random.standard_t(1.5, shape) * 10.0 ** random.uniform(-4, 4) * (random.random(shape) < 0.8)
        for _ in range(steps)
    ]
    options = {name: bool(random.integers(2)) for name in ("factored", "first_moment")}
    hyper = {"beta2_exponent": float(random.uniform(0.1, 2))}
    ratios = _relative_changes(start, gradients, random.uniform(0.1, 1, steps), hyper, options)
    yield at_most("RMS of the change over eta RMS(W), greatest of 20 steps", max(ratios), 1.0, ROUNDING)


def _reached(random: Random) -> Iterator[Measure]:
    shape = _tensor_shape(random)
    start, gradient = random.standard_normal((2, *shape))
    # In the first step, beta_2 is 0: without factoring, each entry moves by the sign of its gradient.
    (ratio,) = _relative_changes(start, [gradient], np.ones(1), {}, {"factored": False})
    yield equals("RMS of the first change over eta RMS(W), V not factored", ratio, 1.0, ROUNDING)


def _unclipped(random: Random) -> Iterator[Measure]:
    shape, growth = _shape(random), float(random.uniform(10, 1000))
    start = random.standard_normal(shape)
    sizes = [1.0] * 10 + [growth]
    gradients = [size * random.choice([-1.0, 1.0], shape) for size in sizes]
    schedules = np.ones(len(sizes))
    with_clip = _relative_changes(start, gradients, schedules, {}, {})
    without = _relative_changes(start, gradients, schedules, {}, {"clipping": False})
    yield at_most("RMS of the change over eta RMS(W) after a jump, clipped", with_clip[-1], 1.0, ROUNDING)
    yield at_least("the same, not clipped", without[-1], 1.1)


def _no_correction(random: Random) -> Iterator[Measure]:
    size = np.abs(_gradient(random, *_shape(random)))
    hyper = {"beta2_exponent": float(random.uniform(0.1, 2))}
    gradients = [{"w": random.choice([-1.0, 1.0], size.shape) * size} for _ in range(10)]
    moments = [moment["w"] for moment in _adafactor_moments(gradients, hyper, schedule=True)]
    errors = [np.abs(moment / moments[0] - 1).max() for moment in moments]
    yield vanishes("V_t less V_1 for a fixed G^2, relative, greatest of 10 steps", max(errors), 1e-11)


CLIP = PropertyClaim(
    id="notes.adafactor-clip",
    sentence=(
        "With the update clipped to root mean square 1 and the learning rate scaled by RMS(W), the root "
        "mean square of a weight change never exceeds eta RMS(W); beta_2 = 1 - t^-c needs no bias "
        "correction."
    ),
    source="002 Sec. 4.7.1",
    setting=(
        "Parameters of 0 to 4 axes of 1 to 5, 20 steps of gradients with heavy tails, empty entries and "
        "scales that jump by up to 8 orders of magnitude; c from 0.1 to 2, the second moment factored or "
        "not, with and without a first moment, schedules from 0.1 to 1. The notes have no floor under "
        "RMS(W): it is set to 0 here (the rule's default is 0.001, so that W = 0 moves)."
    ),
    checks=(
        part(
            "the change's root mean square is at most eta RMS(W)",
            "002 Sec. 4.7.1, changes 3 and 4",
            _clipped,
            60,
        ),
        part("the bound is reached", "002 Sec. 4.7.1", _reached, 20),
        part("it is the clipping that gives the bound", "002 Sec. 4.7.1, change 3", _unclipped, 20),
        part("beta_2 = 1 - t^-c leaves no bias to correct", "002 Sec. 4.7.1, change 5", _no_correction, 20),
    ),
)

CLAIMS = (ADAFACTOR, CLIP)
