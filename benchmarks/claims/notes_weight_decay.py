"""Claims of the adaptive-methods notes on weight decay: its steps, stationary weight sizes, sensitivity.

Equations and sections are those of 002, Stratos (2026), "Adaptive Learning Methods", a set of notes
(docs/sources.md). w are weights, eta is the learning rate, s the schedule's multiplier, lambda the weight
decay, and sigma the size of Adam's updates. Coupled decay shrinks w by eta lambda, decoupled decay by s
lambda.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import curvebench
from curvebench.backends.engine import engine
from curvebench.benchmarks.claims._measures import at_least, at_most, equals, vanishes
from curvebench.benchmarks.claims._moves import stepped
from curvebench.benchmarks.claims._parts import Random, part, printed_and_corrected
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.engine.schedules import multipliers
from curvebench.optimizers import rules
from curvebench.property_checks.checks import Check, Measure, PropertyClaim
from curvebench.seeding import WorkloadRandom, batch_order
from curvebench.workloads.digits import DIGITS_MLP

DECOUPLED: Mapping[str, Any] = {"decoupled_weight_decay": True}
# Hyperparameters with which Adam's update is the sign of the gradient.
SIGNS = {"beta1": 0.0, "beta2": 0.0, "epsilon": 0.0}
ENTRIES = 2000


# --- effect of weight decay on one step ---------------------------------------------------------------------


def _draw(random: Random) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Draw weights and a gradient (d,), a learning rate and a decay."""
    size = int(random.integers(1, 21))
    rate, decay = float(10 ** random.uniform(-4, 0)), float(10 ** random.uniform(-4, -0.1))
    return random.normal(size=size), random.normal(size=size), rate, decay


def _error(found: np.ndarray, stated: np.ndarray) -> float:
    return float(np.abs(found - stated).max() / np.abs(stated).max())


def _coupled(random: Random, printed: bool) -> Iterator[Measure]:
    """Check that coupled decay adds -eta lambda w to Adam's step.

    The end of Sec. 4.4 prints that decay multiplies w by 1 + eta lambda.
    """
    weights, gradient, rate, decay = _draw(random)
    factor = float(random.uniform(0, 1))
    free = stepped("adam", weights, [gradient], {"learning_rate": rate}, schedule=[factor])
    found = stepped(
        "adamw", weights, [gradient], {"learning_rate": rate, "weight_decay": decay}, schedule=[factor]
    )
    stated = free + (1 if printed else -1) * factor * rate * decay * weights
    yield vanishes("error of the step, relative", _error(found, stated), 1e-13)


def _decoupled(random: Random) -> Iterator[Measure]:
    """Check that decoupled decay adds -s lambda w to Adam's step, whatever the learning rate."""
    weights, gradient, rate, decay = _draw(random)
    factor = float(random.uniform(0, 1))
    free = stepped("adam", weights, [gradient], {"learning_rate": rate}, schedule=[factor])
    hyper = {"learning_rate": rate, "weight_decay": decay}
    found = stepped("adamw", weights, [gradient], hyper, DECOUPLED, [factor])
    yield vanishes("error of the step, relative", _error(found, free - factor * decay * weights), 1e-13)


def _penalty(random: Random, printed: bool) -> Iterator[Measure]:
    """Check that SGD on l + lambda |w|^2 / 2, for a loss l, multiplies w by 1 - eta lambda.

    002 prints l - lambda |w|^2 / 2.
    """
    weights, gradient, rate, decay = _draw(random)
    sign = -1 if printed else 1
    found = stepped("sgd", weights, [gradient + sign * decay * weights], {"learning_rate": rate})
    stated = (1 - rate * decay) * weights - rate * gradient
    yield vanishes("error of the step, relative", _error(found, stated), 1e-13)


def _not_a_penalty(random: Random) -> Iterator[Measure]:
    """Check that in Adam an l2 penalty differs from coupled decay.

    The difference must be more than a tenth of the effect of the decay.
    """
    size = int(random.integers(2, 21))
    weights, rate, decay = random.normal(size=size), 0.01, 0.1
    gradients = [random.normal(size=size) * 10 ** np.linspace(-2, 2, size) for _ in range(5)]
    hyper = {"learning_rate": rate}
    free = stepped("adam", weights, gradients, hyper)
    decayed = stepped("adamw", weights, gradients, {**hyper, "weight_decay": decay})
    penalized = stepped("adam", weights, [one + decay * weights for one in gradients], hyper)
    moved = np.abs(decayed - free)
    share = float((np.abs(penalized - decayed) / moved).max())
    yield at_least("greatest difference over what decay moves", share, 0.1)


# --- stationary sizes of weights ----------------------------------------------------------------------------


def _sizes(
    random: Random, settings: Sequence[tuple[float, float]], options: Mapping[str, Any] | None = None
) -> list[np.ndarray]:
    """Return the stationary weights (ENTRIES,) of each setting, for gradients with random signs.

    Weights count as stationary when the relative difference of their variance from its limit is below 1e-6.

    Args:
        random: generator of the instance.
        settings: pairs of eta and the share of w by which a step shrinks w.
        options: options of AdamW; None for coupled decay.
    """
    least = min(share for _, share in settings)
    steps = int(np.ceil(np.log(1e-6) / (2 * np.log1p(-least))))
    players = [
        curvebench.Online(
            "adamw",
            {"w": np.zeros(ENTRIES)},
            {**SIGNS, "learning_rate": rate, "weight_decay": share if options else share / rate},
            options=options,
        )
        for rate, share in settings
    ]
    for _ in range(steps):
        gradient = random.normal(size=ENTRIES)
        for player in players:
            player.step({"w": gradient})
    return [player.params["w"] for player in players]


def _size(weights: np.ndarray) -> tuple[float, float]:
    """Return the root mean square of weights, and 4 times its relative standard error."""
    squares = weights**2
    mean = float(squares.mean())
    return float(np.sqrt(mean)), 4 * float(squares.std()) / float(np.sqrt(len(squares))) / (2 * mean)


def _decoupled_size(random: Random) -> Iterator[Measure]:
    """Check the stationary size of weights with decoupled decay (the exact form of eq. 48).

    The size is eta sigma / sqrt(lambda (2 - lambda)).
    """
    rate, decay = float(10 ** random.uniform(-3, 0)), float(10 ** random.uniform(-2, -0.1))
    size, error = _size(_sizes(random, [(rate, decay)], DECOUPLED)[0])
    stated = rate / float(np.sqrt(decay * (2 - decay)))
    yield equals("size over the exact one of eq. 48", size / stated, 1.0, error)


def _approximate_size(random: Random) -> Iterator[Measure]:
    """Check the approximate stationary size of weights with decoupled decay (eq. 48).

    For lambda <= 0.01, the size is about eta sigma / sqrt(2 lambda).
    """
    rate, decay = float(10 ** random.uniform(-3, 0)), float(10 ** random.uniform(-2.3, -2))
    size, error = _size(_sizes(random, [(rate, decay)], DECOUPLED)[0])
    stated = rate / float(np.sqrt(2 * decay))
    yield equals("size over the approximate one of eq. 48", size / stated, 1.0, error + decay / 2)


def _coupled_size(random: Random) -> Iterator[Measure]:
    """Check the approximate stationary size of weights with coupled decay (eq. 49).

    For eta lambda <= 0.03, the size is about sqrt(eta / (2 lambda)) sigma.
    """
    rate, share = float(10 ** random.uniform(-3, 0)), float(10 ** random.uniform(-2.3, -1.5))
    size, error = _size(_sizes(random, [(rate, share)])[0])
    stated = float(np.sqrt(rate / (2 * share / rate)))
    yield equals("size over that of eq. 49", size / stated, 1.0, error + share / 2)


def _scaling(random: Random) -> Iterator[Measure]:
    """Check that the stationary size of weights is the same for eta and lambda as for c eta and c^2 lambda.

    The statement is exact up to the factor sqrt((2 - lambda) / (2 - c^2 lambda)).
    """
    rate, decay = float(10 ** random.uniform(-3, 0)), float(10 ** random.uniform(-2.3, -2))
    factor = float(2 ** (random.choice([-1, 1]) * random.uniform(0.5, 1)))
    plain, scaled = _sizes(random, [(rate, decay), (factor * rate, factor**2 * decay)], DECOUPLED)
    (one, error), (other, other_error) = _size(plain), _size(scaled)
    tolerance = float(np.hypot(error, other_error)) + max(1.0, factor**2) * decay / 2
    yield equals("size over that before scaling", other / one, 1.0, tolerance)


# --- sensitivity to the learning rate -----------------------------------------------------------------------

REDUCED = (
    "the sensitivity is that of a small network on the 1,797 digits that can be installed, for 40 epochs"
)
# Number of steps in 40 epochs with minibatches of 300.
DIGITS_STEPS = 160
TUNING_SEEDS, FINAL_SEEDS = 3, 10
# Number of independent draws, each with its own weight decay and its own seeds.
DRAWS = 10
COARSE = 10.0 ** np.arange(-3, 0.01, 0.5)
AROUND = 10.0 ** np.arange(-1.5, 1.51, 0.5)


def _digits(
    seeds: Sequence[int], rates: np.ndarray, decays: np.ndarray, options: Mapping[str, Any]
) -> np.ndarray:
    """Return final training losses of the digits network under AdamW, (seeds, rates).

    The losses are clipped at the initial losses.
    """
    settings = DIGITS_MLP.complete({})
    randoms = [WorkloadRandom("digits_mlp", seed) for seed in seeds]
    problems = [DIGITS_MLP.problem(settings, one) for one in randoms]
    examples = len(problems[0].splits["train"]["labels"])
    orders = [batch_order(one, examples, settings["batch_size"], DIGITS_STEPS) for one in randoms]
    rule = rules()["adamw"].choose(options)
    given = rule.complete({"learning_rate": 1.0})
    bundle = Bundle(
        workload=DIGITS_MLP,
        rule=rule,
        problems=problems,
        orders=np.stack(orders, 1),
        hyperparameters={name: np.full(len(rates), value) for name, value in given.items()}
        | {"learning_rate": rates, "weight_decay": decays},
        schedule=multipliers({"name": "cosine", "warmup": 0.1}, DIGITS_STEPS),
        evaluations=1,
        settings=settings,
    )
    first, last = execute(bundle, engine("jax", "float32")).metrics["train_loss"]
    return np.where(np.isfinite(last), np.minimum(last, first), first)


def _sensitivities(losses: np.ndarray) -> np.ndarray:
    """Return the sensitivity to the learning rate for each seed: mean log10(loss / loss at the best rate)."""
    decades = np.log10(losses)
    return (decades - decades.min(1, keepdims=True)).mean(1)


def _sensitivity(random: Random) -> Iterator[Measure]:
    """Check that decoupled decay makes the final loss depend less on the learning rate (Sec. 4.4).

    The criterion is a paired t interval over the seeds for each draw. The simultaneous coverage of the
    intervals of all draws is 95 %.
    """
    from scipy.stats import t

    seeds = [int(seed) for seed in random.choice(10**6, TUNING_SEEDS + FINAL_SEEDS, replace=False)]
    tuned = _digits(seeds[:TUNING_SEEDS], COARSE, np.zeros(len(COARSE)), {})
    best = float(COARSE[np.median(tuned, 0).argmin()])
    decay = float(10 ** random.uniform(-3, -2))
    rates, same = best * AROUND, np.ones(len(AROUND))
    coupled = _sensitivities(_digits(seeds[TUNING_SEEDS:], rates, decay / best * same, {}))
    decoupled = _sensitivities(_digits(seeds[TUNING_SEEDS:], rates, decay * same, DECOUPLED))
    difference = decoupled - coupled
    half = t.ppf(1 - 0.05 / (2 * DRAWS), FINAL_SEEDS - 1) * difference.std(ddof=1) / np.sqrt(FINAL_SEEDS)
    yield at_most("decoupled less coupled, decades, against their interval", difference.mean(), 0.0, half)


NOTES_WEIGHT_DECAY = PropertyClaim(
    id="notes.weight-decay",
    sentence=(
        "Decoupled weight decay takes the share lambda of the weights in a step and coupled decay eta "
        "lambda; they leave weights of the size eta / sqrt(lambda (2 - lambda)) and sqrt(eta / (2 lambda)); "
        "decoupled decay makes training less sensitive to the learning rate."
    ),
    source="002 Sec. 4.4, eqs. 48-49",
    setting=(
        "Sizes: AdamW with beta_1 = beta_2 = 0 and no epsilon on normal gradients, whose update is a random "
        "sign, independent and of variance 1; 2,000 entries, from 0 until less than 1e-6 of the variance is "
        "missing; 4 standard errors, and where the notes drop lambda beside 2, lambda / 2 more. Sensitivity: "
        "the digits network, 160 steps, warm-up and cosine schedule; the rate eta* is the best of plain "
        "Adam's on 3 tuning seeds; both decays are equal there (lambda from 0.001 to 0.01 a step, coupled "
        "lambda / eta*), so that they differ in what other rates do to them; 7 rates from eta* / 30 to 30 "
        "eta*. Sensitivity is the mean over rates of the decades by which the final training loss, at most "
        "the initial one, is above that of the best rate. 10 draws of lambda and of seeds, each with a "
        "paired t interval over 10 seeds, of 95 % for all draws together: decoupled decay is less "
        "sensitive where all lie below 0, not less where one lies above, and it cannot be told where 0 is "
        "inside. Wrong as printed: l2 penalty and coupled decay both have a sign that makes weights grow."
    ),
    checks=(
        *printed_and_corrected("a step with coupled decay", "002 Sec. 4.4, Fig. 1", _coupled, 30),
        part("a step with decoupled decay", "002 Sec. 4.4, Fig. 1", _decoupled, 30),
        *printed_and_corrected("in SGD decay is an l2 penalty", "002 Sec. 4.4", _penalty, 30),
        part("in Adam it is not", "002 Sec. 4.4", _not_a_penalty, 30),
        part("the size with decoupled decay", "002 eq. 48", _decoupled_size, 4),
        part("its approximation", "002 eq. 48", _approximate_size, 2),
        part("the size with coupled decay", "002 eq. 49", _coupled_size, 4),
        part("scaling both", "002 Sec. 4.4.1", _scaling, 2),
        Check(
            "sensitivity to the learning rate", "002 Sec. 4.4", _sensitivity, {"paper": DRAWS}, sampled=True
        ),
    ),
    at_most_partly=REDUCED,
)

CLAIMS: tuple[PropertyClaim, ...] = (NOTES_WEIGHT_DECAY,)
