"""The verdict engine: how often equal methods are found apart, how often real effects are seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from reports.claims.censoring import Interval, censored_at, paired_effects
from reports.claims.verdicts import combined
from reports.statistics.decisions import ClaimRelation, Question, decide, holm
from results.verdicts import ALPHA, Verdict

from ._draws import SIZES
from .experiment import LEVEL, Experiment, Result
from .paired_tests import exchangeable, skewed

MARGIN = 0.05
SPREADS = (1, 5, 20)  # of gains from seed to seed, in margins
DIVERGED = 0.45  # of the control's runs: less than half, so that the median gain stays below 0
STOPPED = (0.3, 0.6, 0.9)  # of the control's runs, where runs stop at a threshold
RELATIONS: Mapping[ClaimRelation, float] = {"better": 0.0, "no_worse": -MARGIN, "same": -MARGIN}  # just false
SHARES = {1: 0.4, 10: 0.2}  # of the trials, by the number of comparisons that share a correction
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


@dataclass(frozen=True)
class Noise:
    """How gains differ from seed to seed.

    Args:
        name: in words.
        draw: values of median 0, or below it.
        spread: what they are multiplied by, in margins.
    """

    name: str
    draw: Draw
    spread: int

    def gains(self, random: np.random.Generator, median: float, shape: tuple[int, ...]) -> np.ndarray:
        """Gains about a median."""
        return median + MARGIN * self.spread * self.draw(random, shape)


def diverging(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Infinitely better where the control diverges, and worse on all other seeds: the median is below 0."""
    worse = -np.abs(random.normal(size=shape))
    return np.where(random.random(shape) < DIVERGED, np.inf, worse)


DRAWS: Mapping[str, Draw] = {
    "normal": lambda random, shape: exchangeable(random, "normal", shape),
    "long tails": lambda random, shape: exchangeable(random, "lognormal", shape),
    "skewed": lambda random, shape: -skewed(random, shape),
}
NOISES = tuple(
    Noise(f"{shape}, spread {spread}", draw, spread) for shape, draw in DRAWS.items() for spread in SPREADS
)
NARROW = tuple(noise for noise in NOISES if noise.spread == 1)
DIVERGENCE = Noise("control often diverges", diverging, 1)


def claims_of(question: Question, studies: np.ndarray, most: np.ndarray | None = None) -> list[list[Verdict]]:
    """The verdicts of studies: each of a family of claims with one comparison.

    Args:
        studies: gains, shape (studies, family, pairs).
        most: what each is at most, where `studies` has what it is at least; None where they are known.
    """
    found = []
    for study, greatest in zip(studies, studies if most is None else most, strict=True):
        ends = list(zip(study, greatest, strict=True))
        adjusted = holm([question.p_value(least, ceiling) for least, ceiling in ends])
        findings = [
            decide(question, least, p, ALPHA, ceiling)
            for (least, ceiling), p in zip(ends, adjusted, strict=True)
        ]
        found.append([combined([finding]) for finding in findings])
    return found


def stopped(random: np.random.Generator, gains: np.ndarray, share: float) -> Interval:
    """Between what gains are known to lie where that share of the control's runs stops at a threshold.

    Problems are unlike each other: where a run would have ended spreads by ten margins. Less is better.
    """
    control = 10 * MARGIN * random.normal(size=gains.shape)
    threshold = 10 * MARGIN * NormalDist().inv_cdf(share)
    ends = (np.maximum(values, threshold) for values in (control - gains, control))
    sides = [censored_at(values, "minimize", threshold) for values in ends]
    return paired_effects(sides[0], sides[1], "difference").negated


def simulated(
    random: np.random.Generator, trials: int, question: Question, median: float, noise: Noise, family: int
) -> Iterator[tuple[int, int, list[list[Verdict]]]]:
    """For each number of seeds: it, the number of studies, and their verdicts."""
    trials = max(1, round(SHARES[family] * trials))
    for size in SIZES:
        yield size, trials, claims_of(question, noise.gains(random, median, (trials, family, size)))


def any_of(verdicts: list[list[Verdict]], verdict: Verdict) -> float:
    """The share of studies in which any claim has that verdict."""
    return sum(verdict in study for study in verdicts) / len(verdicts)


def of_claims(verdicts: list[list[Verdict]], verdict: Verdict) -> float:
    """The share of claims that have that verdict."""
    counted = Counter(claim for study in verdicts for claim in study)
    return counted[verdict] / counted.total()


def claims(number: int) -> str:
    """So many claims, in words."""
    return "1 claim" if number == 1 else f"any of {number} claims"


def false_claims(test: str) -> Callable[[np.random.Generator, int], Iterable[Result]]:
    """The experiment on claims that are false by as little as can be, and said to be reproduced."""
    # At minus the margin `no_worse` is reproduced as often at any spread, and `same` less often at wide ones.
    cases: tuple[tuple[ClaimRelation, float, int, tuple[Noise, ...]], ...] = (
        ("better", 0.0, 1, (*NOISES, DIVERGENCE)),
        ("better", 0.0, 10, (*NOISES, DIVERGENCE)),
        ("no_worse", -MARGIN, 1, (*NARROW, DIVERGENCE)),
        ("same", -MARGIN, 1, (*NARROW, DIVERGENCE)),
    )

    def run(random: np.random.Generator, trials: int) -> Iterator[Result]:
        for relation, median, family, noises in cases:
            for noise in noises:
                question = Question(relation, MARGIN, test)
                for size, count, found in simulated(random, trials, question, median, noise, family):
                    setting = f"{relation}, {claims(family)}, {noise.name}; {size} seeds"
                    value = any_of(found, "reproduced")
                    yield Result("reproduced, though false", setting, value, count, None, LEVEL)

    return run


def false_where_runs_stop(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Claims that are false by as little as can be where runs stop, and said to be reproduced."""
    trials = max(1, round(SHARES[1] * trials))
    for relation, median in RELATIONS.items():
        question = Question(relation, MARGIN)
        for share in STOPPED:
            for noise in NARROW:
                for size in SIZES:
                    gains = noise.gains(random, median, (trials, 1, size))
                    found = claims_of(question, *stopped(random, gains, share))
                    setting = f"{relation}, {100 * share:.0f} % stop, {noise.name}; {size} seeds"
                    value = any_of(found, "reproduced")
                    yield Result("reproduced, though false", setting, value, trials, None, LEVEL)


def below_the_margin(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Claims whose gain is real and too small to matter, and said to be reproduced: nothing is asked."""
    question = Question("better", MARGIN)
    for share in (0.5, 0.9):
        for family in SHARES:
            for noise in NOISES:
                for size, count, found in simulated(random, trials, question, share * MARGIN, noise, family):
                    setting = f"gain {share:g} margins, family of {family}, {noise.name}; {size} seeds"
                    yield Result("reproduced", setting, of_claims(found, "reproduced"), count)


def at_the_margin(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Claims that are true by as little as can be, and said not to be reproduced."""
    question = Question("better", MARGIN)
    for noise in NARROW:
        for family in SHARES:
            for size, count, found in simulated(random, trials, question, MARGIN, noise, family):
                setting = f"{noise.name}, {claims(family)}; {size} seeds"
                value = any_of(found, "not reproduced")
                asked = LEVEL if family == 1 else None
                yield Result("not reproduced, though true", setting, value, count, None, asked)


def powers(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """How often clear gains are reproduced, and equal methods are not."""
    question = Question("better", MARGIN)
    cases: tuple[tuple[Verdict, int, int, tuple[int, ...]], ...] = (
        *(("reproduced", gain, family, SPREADS[:2]) for gain in (2, 3) for family in SHARES),
        ("not reproduced", 0, 1, SPREADS),
    )
    for verdict, gain, family, spreads in cases:
        for noise in NOISES:
            if noise.spread not in spreads:
                continue
            for size, count, found in simulated(random, trials, question, gain * MARGIN, noise, family):
                setting = f"gain {gain} margins, family of {family}, {noise.name}; {size} seeds"
                yield Result(verdict, setting, of_claims(found, verdict), count)


FALSE = (
    f"How often a claim is reproduced that is just false: `better` with a margin of {MARGIN:g} and a median "
    "gain of 0, `no_worse` and `same` with one of minus the margin. Gains spread from seed to seed by so "
    "many margins (the standard deviation of normal ones); skewed ones have a long tail above. Or the "
    f"control diverges on {100 * DIVERGED:.0f} % of seeds and the treated method is worse on the rest, so "
    "that its median gain is below that."
)
EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "Verdicts, false claims",
        "reports.claims.verdicts",
        f"{FALSE} By the sign test, which a study takes unless it says otherwise.",
        false_claims("sign"),
    ),
    Experiment(
        "Verdicts, false claims by the signed-rank test",
        "reports.claims.verdicts",
        "The same with `test: wilcoxon`, which assumes differences that are symmetric about their median.",
        false_claims("wilcoxon"),
    ),
    Experiment(
        "Verdicts, false claims where runs stop",
        "reports.claims.verdicts",
        "The same by the sign test where runs stop at a threshold that so many of the control's reach: the "
        "gain of a pair is then known to a bound, and not at all where both stopped. False is what is so of "
        "runs that had gone on.",
        false_where_runs_stop,
    ),
    Experiment(
        "Verdicts, gains below the margin",
        "reports.claims.verdicts",
        f"How often `better` with a margin of {MARGIN:g} is reproduced where the gain is real and smaller. "
        "The 5 % of false claims are about no effect at all: the test tells a gain from none, and the margin "
        "is only asked of the estimated median. A family shares Holm's correction.",
        below_the_margin,
    ),
    Experiment(
        "Verdicts, true claims at the margin",
        "reports.claims.verdicts",
        f"How often a claim is not reproduced whose median gain is the smallest that matters, {MARGIN:g}. "
        "The median's interval decides that, whatever the spread; nothing widens it for a family, and of ten "
        "claims nothing is asked.",
        at_the_margin,
    ),
    Experiment(
        "Verdicts, power",
        "reports.claims.verdicts",
        f"How often `better` with a margin of {MARGIN:g} is reproduced where the median gain is 2 or 3 "
        "margins, and not reproduced where it is 0. The rest is underpowered, and a family shares Holm's "
        "correction.",
        powers,
    ),
)
