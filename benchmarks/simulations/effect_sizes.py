"""Coverage of the probability of improvement and of effect sizes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from reports.statistics.effects import cliffs_delta, rank_biserial, standardized_mean
from reports.statistics.improvement import joined, superiority, superiority_interval
from reports.statistics.medians import LEVEL
from reports.statistics.shares import clopper_pearson

from ._draws import SIZES
from .experiment import Experiment, Result
from .intervals import covered

GAPS = (0.0, 0.5, 1.0, 2.0)  # between methods, in standard deviations of a run
TRUE_VALUES = 200_000
SHARE = 0.2  # of the trials
WORKLOADS = 4


def improvement_interval(treated: np.ndarray, control: np.ndarray, paired: bool) -> tuple[float, float]:
    """What `probability_of_improvement` gives for values of shape (workloads, seeds), more being better."""
    size = treated.shape[1]
    if paired:
        wins = (treated > control).sum(axis=1) + (treated == control).sum(axis=1) / 2
        return joined([(each / size, *clopper_pearson(each, size, LEVEL)) for each in wins.tolist()])[1:]
    estimate = float(np.mean([superiority(*both) for both in zip(treated, control, strict=True)]))
    return superiority_interval(estimate, [(size, size)] * len(treated))


def improvement(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of the probability of improvement, paired and unpaired, on one workload and on four."""
    from scipy.special import ndtr

    trials = max(1, round(SHARE * trials))
    for paired, workloads, gap in product((True, False), (1, WORKLOADS), (0.0, 1.0, 2.0)):
        true = float(ndtr(gap / np.sqrt(2)))
        for size in SIZES:
            draws = random.normal(size=(trials, 2, workloads, size))
            found = (improvement_interval(treated + gap, control, paired) for treated, control in draws)
            how = f"{'paired' if paired else 'unpaired'}, {workloads} workload(s)"
            yield covered(found, true, f"{how}, probability {true:.2f}; {size} seeds", trials)


def differences(random: np.random.Generator, name: str, gap: float, shape: tuple[int, int]) -> np.ndarray:
    """Paired differences with mean `gap` and standard deviation 1: normal, or Gumbel's and so skewed."""
    if name == "normal":
        return random.normal(gap, 1, size=shape)
    return gap + (random.gumbel(size=shape) - np.euler_gamma) * np.sqrt(6) / np.pi


def rank_biserials(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of `rank_biserial`; the true one is the mean over studies of that size."""
    from scipy.stats import rankdata

    trials = max(1, trials // 2)
    for name in ("normal", "skewed"):
        for gap in GAPS:
            for size in SIZES:
                many = differences(random, name, gap, (TRUE_VALUES // size, size))
                signed = np.sign(many) * rankdata(np.abs(many), axis=1)
                true = float(signed.sum(axis=1).mean() / (size * (size + 1) / 2))
                found = map(rank_biserial, differences(random, name, gap, (trials, size)))
                ends = ((one.low, one.high) for one in found)
                yield covered(ends, true, f"{name}, mean {gap:g} deviations; {size} seeds", trials)


def standardized_means(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of `standardized_mean`."""
    trials = max(1, trials // 2)
    for name in ("normal", "skewed"):
        for gap in GAPS:
            for size in SIZES:
                found = map(standardized_mean, differences(random, name, gap, (trials, size)))
                ends = ((one.low, one.high) for one in found)
                yield covered(ends, gap, f"{name}, mean {gap:g} deviations; {size} seeds", trials)


def cliffs_deltas(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of `cliffs_delta`: normal values, and exponential ones of which one method's are longer."""
    from scipy.special import ndtr

    trials = max(1, trials // 4)
    for name in ("normal", "skewed"):
        for gap in GAPS:
            scale = np.exp(gap)
            true = float(2 * ndtr(gap / np.sqrt(2)) - 1 if name == "normal" else (scale - 1) / (scale + 1))
            for size in SIZES:
                draw = random.normal if name == "normal" else random.exponential
                left, right = draw(size=(2, trials, size))
                left = left + gap if name == "normal" else scale * left
                found = (cliffs_delta(*both) for both in zip(left, right, strict=True))
                ends = ((one.low, one.high) for one in found)
                yield covered(ends, true, f"{name}, delta {true:.2f}; {size} seeds", trials)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "Probability of improvement",
        "reports.statistics.improvement.probability_of_improvement",
        "How often its interval holds the true probability that one run beats another, on average over one "
        "workload or four.",
        improvement,
    ),
    Experiment(
        "Rank-biserial correlation",
        "reports.statistics.effects.rank_biserial",
        "How often its interval holds the mean effect of studies of that size.",
        rank_biserials,
    ),
    Experiment(
        "Standardized mean difference",
        "reports.statistics.effects.standardized_mean",
        "How often its interval holds the true ratio of mean and standard deviation.",
        standardized_means,
    ),
    Experiment(
        "Cliff's delta",
        "reports.statistics.effects.cliffs_delta",
        "How often its interval holds the true delta.",
        cliffs_deltas,
    ),
)
