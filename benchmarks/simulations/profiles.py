"""Scores by performance profiles: coverage of the intervals of scores and ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from reports.statistics.profiles import array_intervals, array_scores

from ._draws import SIZES
from .experiment import COVERAGE, Experiment, Result

SHARE = 0.2  # of the trials: each is a bootstrap, and has an interval a submission
SUBMISSIONS, WORKLOADS, RESAMPLES = 5, 8, 199


@dataclass(frozen=True)
class Case:
    """How times differ.

    Args:
        name: in words.
        between, within: standard deviations of log times: between submissions, between studies.
        missed: the share of studies that miss the target is up to this.
        distinct, copies: number of different submissions, and how many are equal to each.
    """

    name: str
    between: float
    within: float
    missed: float = 0.0
    distinct: int = SUBMISSIONS
    copies: int = 1


CASES = (
    Case("submissions differ by 0.5, studies by 0.3", 0.5, 0.3),
    Case("submissions differ by 0.5, studies by 0.3, up to 0.4 missed", 0.5, 0.3, 0.4),
    Case("submissions equal, studies by 0.3", 0.0, 0.3),
)
PAIRED_CASES = (
    Case("methods differ by 0.5, seeds by 0.3", 0.5, 0.3),
    Case("methods differ by 0.5, seeds by 0.3, up to 0.4 missed", 0.5, 0.3, 0.4),
    Case("three pairs of equals differ by 0.5, seeds by 0.3", 0.5, 0.3, distinct=3, copies=2),
    Case("three pairs of equals differ by 0.5, seeds by 0.1", 0.5, 0.1, distinct=3, copies=2),
    Case("methods equal, seeds by 0.3", 0.0, 0.3),
)


def coverage(
    cases: Sequence[Case], paired: bool, studies: str
) -> Callable[[np.random.Generator, int], Iterable[Result]]:
    """The experiment on `score_intervals`: the truth is what infinitely many studies would give."""

    def run(random: np.random.Generator, trials: int) -> Iterator[Result]:
        trials = max(1, round(SHARE * trials))
        for case in cases:
            for size in SIZES:
                held = np.array([_held(random, case, size, paired) for _ in range(trials)])
                scores, ranks = held.mean(axis=0).tolist()
                setting = f"{case.name}; {size} {studies}"
                yield Result("coverage", f"score, {setting}", scores, trials, *COVERAGE)
                yield Result("coverage", f"rank, {setting}", ranks, trials, COVERAGE[0])

    return run


def _held(random: np.random.Generator, case: Case, size: int, paired: bool) -> tuple[float, float]:
    """The shares of submissions whose score and whose rank their intervals hold, in one trial."""
    logs = np.repeat(random.normal(scale=case.between, size=(case.distinct, WORKLOADS)), case.copies, axis=0)
    chances = case.missed * random.random(logs.shape)
    noise = random.normal(scale=case.within, size=(*logs.shape, size))
    if paired:  # half of the variance belongs to the seed
        shared = random.normal(scale=case.within, size=(WORKLOADS, size))
        noise = np.sqrt(0.5) * (noise + shared)
    values = np.exp(logs[..., None] + noise)
    values[random.random(values.shape) < chances[..., None]] = np.inf
    # The median of all studies, those that missed it being infinitely long.
    medians = np.exp(logs + case.within * _normal_quantile(0.5 / (1 - chances)))
    true_scores, true_ranks = array_scores(medians)
    found = array_intervals(values, random, paired=paired, resamples=RESAMPLES)
    near = 1e-9
    scores = (found["low"] - near <= true_scores) & (true_scores <= found["high"] + near)
    ranks = (found["rank_low"] <= true_ranks) & (true_ranks <= found["rank_high"])
    return float(scores.mean()), float(ranks.mean())


def _normal_quantile(shares: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri

    quantiles: np.ndarray = ndtri(shares)
    return quantiles


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "Score by performance profiles",
        "reports.statistics.profiles.score_intervals",
        "Five submissions on eight workloads, whose log times differ by normal deviations: how often the "
        "intervals hold the score and rank that infinitely many studies would give, on average over "
        "submissions.",
        coverage(CASES, paired=False, studies="studies"),
    ),
    Experiment(
        "Score by performance profiles, paired by seed",
        "reports.statistics.profiles.score_intervals",
        "As the leaderboard has it: seeds are resampled for all methods together, and half of the variance "
        "between runs belongs to the seed. Five methods on eight workloads; or six, each equal to one other.",
        coverage(PAIRED_CASES, paired=True, studies="seeds"),
    ),
)
