"""Paired tests: false positives, power and Holm's correction."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from reports.statistics.decisions import holm
from reports.statistics.paired import TESTS, compare_pairs
from results.least_p import least_pairs

from ._draws import SIZES
from .experiment import COVERAGE, LEVEL, Experiment, Result

SHARE = 0.2  # of the trials, where ten tests make one
FAMILY = 10


def exchangeable(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Differences of two values with one distribution: symmetric, with long tails where that is skewed."""
    if name == "normal":
        return random.normal(size=shape)
    return random.lognormal(size=shape) - random.lognormal(size=shape)


def skewed(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Differences with median 0 whose larger ones are below it, where tests look for an effect."""
    return np.log(2) - random.exponential(size=shape)


def false_positives(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of the signed-rank and the sign test."""
    draws: dict[str, Callable[[tuple[int, ...]], np.ndarray]] = {
        "equal normal methods": lambda shape: exchangeable(random, "normal", shape),
        "equal lognormal methods": lambda shape: exchangeable(random, "lognormal", shape),
        "differences skewed, median 0": lambda shape: skewed(random, shape),
    }
    for test, p_value in TESTS.items():
        for name, draw in draws.items():
            for size in SIZES:
                rejected = sum(p_value(values) <= LEVEL for values in draw((trials, size)))
                setting = f"{test}, {name}; {size} seeds"
                yield Result("false positives", setting, rejected / trials, trials, None, LEVEL)


def power(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of the two tests on normal differences."""
    for test, p_value in TESTS.items():
        for effect in (0.5, 1.0):
            for size in SIZES:
                found = random.normal(-effect, 1, size=(trials, size))
                rejected = sum(p_value(values) <= LEVEL for values in found)
                yield Result(
                    "power", f"{test}, {effect:g} deviations; {size} seeds", rejected / trials, trials
                )


def families(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Studies of ten signed-rank tests in which any true null is rejected after Holm's correction."""
    trials = max(1, round(SHARE * trials))
    for true in (FAMILY, FAMILY // 2):
        for shared in (0.0, 0.8):
            for size in SIZES:
                if size < least_pairs(LEVEL, FAMILY):
                    continue  # no test can reject
                own, common = (
                    random.normal(size=(trials, FAMILY, size)),
                    random.normal(size=(trials, 1, size)),
                )
                values = np.sqrt(1 - shared) * own + np.sqrt(shared) * common
                values[:, true:] -= 1.5
                wrong = sum(
                    min(holm([TESTS["wilcoxon"](each) for each in study])[:true]) <= LEVEL for study in values
                )
                setting = f"{true} of {FAMILY} nulls true, correlation {shared:g}; {size} seeds"
                yield Result("false positives", setting, wrong / trials, trials, None, LEVEL)


def ratios(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Coverage of the median ratio of paired lognormal losses, and false positives of its test."""
    trials = max(1, trials // 2)
    for size in SIZES:
        instance = random.normal(size=(trials, 1, size))  # shared by both methods, so pairing pays
        losses = np.exp(instance + 0.5 * random.normal(size=(trials, 2, size)))
        found = [compare_pairs(treated, control, "minimize") for treated, control in losses]
        hits = sum(one.low <= 1 <= one.high for one in found)
        yield Result("coverage", f"median ratio; {size} seeds", hits / trials, trials, *COVERAGE)
        wrong = sum(one.p_value <= LEVEL for one in found)
        yield Result("false positives", f"its p-value; {size} seeds", wrong / trials, trials, None, LEVEL)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "Paired comparison",
        "reports.statistics.paired.compare_pairs",
        "Two equal methods whose losses are lognormal and share what a problem instance contributes.",
        ratios,
    ),
    Experiment(
        "Signed-rank and sign test, false positives",
        "reports.statistics.paired.TESTS",
        f"How often nothing is called an effect at {LEVEL:g}. Methods with equal distributions have "
        "symmetric differences, whatever their shape. Where differences are skewed about their median the "
        "signed-rank test sees that too, and only the sign test is one of the median.",
        false_positives,
    ),
    Experiment(
        "Signed-rank and sign test, power",
        "reports.statistics.paired.TESTS",
        "How often a mean difference of so many standard deviations is found; differences are normal.",
        power,
    ),
    Experiment(
        "Holm's correction",
        "reports.statistics.decisions.holm",
        f"How often any true null of a family of {FAMILY} signed-rank tests is rejected. With 5 seeds none "
        "can be.",
        families,
    ),
)
