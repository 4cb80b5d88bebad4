"""Helpers for tests by simulation: distributions, numbers of seeds, and assertions on shares of simulated
studies.

Each test simulates studies from distributions whose truth is known, with a fixed seed, and counts outcomes.
docs/statistics.md has the shares of many more studies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from curvebench.reports.statistics.shares import share_interval

# Numbers of seeds.
SIZES = (5, 10, 20, 50)
# Level of the tests: the maximum share of false positives.
LEVEL = 0.05
# Minimum coverage of an interval of nominally 95 %.
COVERAGE = 0.93
# Confidence level of the interval of a share. Hundreds of shares are judged, so that each may miss its range
# with a probability of 0.1 %.
CHANCE = 0.999
# Maximum distance of a power from the documented one, which is an estimate too.
DOCUMENTED = 0.03

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def symmetric(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw differences of two equal normal methods."""
    return random.normal(size=shape)


def long_tails(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw differences of two equal lognormal methods."""
    return random.lognormal(size=shape) - random.lognormal(size=shape)


def skewed(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw differences with median 0 and a long upper tail."""
    return random.exponential(size=shape) - np.log(2)


DIFFERENCES: Mapping[str, Draw] = {"normal": symmetric, "long tails": long_tails, "skewed": skewed}


def assert_between(low: float, outcomes: Sequence[bool], high: float) -> None:
    """Assert that the probability behind the outcomes of studies may lie in a range."""
    interval = share_interval(sum(outcomes), len(outcomes), CHANCE)
    assert interval.high >= low, f"{interval.value:.3f} of {interval.count} studies is below {low:g}"
    assert interval.low <= high, f"{interval.value:.3f} of {interval.count} studies is above {high:g}"


def assert_rare(outcomes: Sequence[bool]) -> None:
    """Assert that false positives are at most as frequent as the level of the tests."""
    assert_between(0, outcomes, LEVEL)


def assert_documented(share: float, outcomes: Sequence[bool]) -> None:
    """Assert that the share is about the one in docs/statistics.md."""
    assert_between(share - DOCUMENTED, outcomes, share + DOCUMENTED)


def assert_covered(
    true: float, intervals: Iterable[tuple[float | None, float | None]], high: float = 1.0
) -> None:
    """Assert that intervals contain the true value often enough, and at most in a share `high`; no interval
    is a miss.
    """
    covered = [low is not None and up is not None and low <= true <= up for low, up in intervals]
    assert_between(COVERAGE, covered, high)
