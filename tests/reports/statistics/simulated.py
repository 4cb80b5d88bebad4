"""What tests by simulation share: draws, numbers of seeds, and how a share of simulated studies is judged.

Each simulates studies from distributions whose truth is known, from a fixed source of chance, and counts.
docs/statistics.md has the shares of many more studies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from curvebench.reports.statistics.shares import share_interval

SIZES = (5, 10, 20, 50)  # seeds
LEVEL = 0.05  # of the tests, the most false positives that are asked for
COVERAGE = 0.93  # the least that is asked of an interval of nominally 95 %
CHANCE = 0.999  # hundreds of shares are judged: each may miss its band by what 0.1 % of chance explains
DOCUMENTED = 0.03  # how far a power may lie from the documented one, which was counted as well

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def symmetric(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Differences of two equal normal methods."""
    return random.normal(size=shape)


def long_tails(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Differences of two equal lognormal methods."""
    return random.lognormal(size=shape) - random.lognormal(size=shape)


def skewed(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Differences with median 0 and a long tail above."""
    return random.exponential(size=shape) - np.log(2)


DIFFERENCES: Mapping[str, Draw] = {"normal": symmetric, "long tails": long_tails, "skewed": skewed}


def assert_between(low: float, outcomes: Sequence[bool], high: float) -> None:
    """The chance behind the outcomes of studies may lie in a band."""
    found = share_interval(sum(outcomes), len(outcomes), CHANCE)
    assert found.high >= low, f"{found.value:.3f} of {found.count} studies is below {low:g}"
    assert found.low <= high, f"{found.value:.3f} of {found.count} studies is above {high:g}"


def assert_rare(outcomes: Sequence[bool]) -> None:
    """False positives: at most those of the tests' level."""
    assert_between(0, outcomes, LEVEL)


def assert_documented(share: float, outcomes: Sequence[bool]) -> None:
    """About the share that docs/statistics.md has."""
    assert_between(share - DOCUMENTED, outcomes, share + DOCUMENTED)


def assert_covered(
    true: float, intervals: Iterable[tuple[float | None, float | None]], high: float = 1.0
) -> None:
    """Intervals hold the true value often enough, none counting as a miss; at most in a share `high`."""
    held = [low is not None and up is not None and low <= true <= up for low, up in intervals]
    assert_between(COVERAGE, held, high)
