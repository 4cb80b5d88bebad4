"""The verdict engine: how often equal methods are told apart, how often real effects are seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from reports.statistics.decisions import ClaimRelation, Question, decide, holm
from reports.verdicts import combined
from results.verdicts import ALPHA, Verdict

from ._draws import SIZES
from .experiment import LEVEL, Experiment, Result
from .paired_tests import exchangeable, skewed

MARGIN = 0.05
SPREAD = 0.05  # of gains, from seed to seed: the standard deviation of normal ones
SHARES = {1: 1.0, 10: 0.2}  # of the trials, by the number of comparisons that share a correction
Noise = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
NOISES: Mapping[str, Noise] = {
    "normal": lambda random, shape: exchangeable(random, "normal", shape),
    "long tails": lambda random, shape: exchangeable(random, "lognormal", shape),
    "skewed": lambda random, shape: -skewed(random, shape),
}


def claims_of(question: Question, studies: np.ndarray) -> list[list[Verdict]]:
    """The verdicts of studies: each of a family of claims with one comparison.

    Args:
        studies: gains, shape (studies, family, pairs).
    """
    told = []
    for study in studies:
        adjusted = holm([question.p_value(gains) for gains in study])
        findings = [decide(question, gains, p, ALPHA) for gains, p in zip(study, adjusted, strict=True)]
        told.append([combined([finding]) for finding in findings])
    return told


def simulated(
    random: np.random.Generator, trials: int, question: Question, median: float, noise: str, family: int
) -> Iterator[tuple[int, int, list[list[Verdict]]]]:
    """For each number of seeds: it, the number of studies, and their verdicts."""
    trials = max(1, round(SHARES[family] * trials))
    for size in SIZES:
        gains = median + SPREAD * NOISES[noise](random, (trials, family, size))
        yield size, trials, claims_of(question, gains)


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


def nulls(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Claims that are false by as little as can be, and said to be reproduced."""
    edges: dict[ClaimRelation, float] = {"better": 0.0, "no_worse": -MARGIN, "same": -MARGIN}
    for noise, test in (*((name, "wilcoxon") for name in NOISES), ("skewed", "sign")):
        for relation, median in edges.items():
            for family in SHARES if relation == "better" else (1,):
                question = Question(relation, MARGIN, test)
                for size, count, told in simulated(random, trials, question, median, noise, family):
                    setting = f"{relation} by {test}, {noise}, {claims(family)}; {size} seeds"
                    value = any_of(told, "reproduced")
                    yield Result("reproduced, though false", setting, value, count, None, LEVEL)


def at_the_margin(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Claims that are true by as little as can be, and said not to be reproduced."""
    question = Question("better", MARGIN)
    for noise in NOISES:
        for family in SHARES:
            for size, count, told in simulated(random, trials, question, MARGIN, noise, family):
                setting = f"{noise}, family of {family}; {size} seeds"
                value = of_claims(told, "not reproduced")
                yield Result("not reproduced, though true", setting, value, count, None, LEVEL)


def powers(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """What is said of claims that are clearly true, and of equal methods."""
    question = Question("better", MARGIN)
    shown: tuple[Verdict, ...] = ("reproduced", "not reproduced", "underpowered")
    for family in SHARES:
        for noise in ("normal", "long tails"):
            for gain in (0.0, 2 * MARGIN, 3 * MARGIN):
                found = list(simulated(random, trials, question, gain, noise, family))
                for verdict in shown:
                    for size, count, told in found:
                        setting = f"gain {gain:g}, {noise}, family of {family}; {size} seeds"
                        yield Result(verdict, setting, of_claims(told, verdict), count)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "Verdicts, false claims",
        "reports.verdicts",
        f"How often a claim is reproduced whose median gain lies just where it begins to be false: 0 of "
        f"`better`, minus the margin of {MARGIN:g} of `no_worse` and `same`. Gains spread by {SPREAD:g} from "
        "seed to seed; skewed ones are not those of methods with equal distributions.",
        nulls,
    ),
    Experiment(
        "Verdicts, true claims at the margin",
        "reports.verdicts",
        f"How often a claim is not reproduced whose median gain is the smallest that matters, {MARGIN:g}.",
        at_the_margin,
    ),
    Experiment(
        "Verdicts, power",
        "reports.verdicts",
        f"What is said of `better` with a margin of {MARGIN:g} where the median gain is 0, 2 or 3 times "
        "that, and gains spread as before. A family shares Holm's correction.",
        powers,
    ),
)
