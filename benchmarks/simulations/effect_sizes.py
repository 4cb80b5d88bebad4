"""Coverage of the probability of improvement and of effect sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from reports.statistics.effects import cliffs_delta, rank_biserial, standardized_mean
from reports.statistics.improvement import probability_of_improvement

from ._draws import SIZES
from .experiment import Experiment, Result
from .intervals import covered

GAPS = (0.0, 0.5, 1.0, 2.0)  # between methods, in standard deviations of a run
TRUE_VALUES = 200_000
SHARE = 0.1  # of the trials, where frames are made
WORKLOADS = 4


def runs(control: np.ndarray, treated: np.ndarray) -> pl.DataFrame:
    """The values of two methods of shape (workloads, seeds) as a frame."""
    workload, seed = (index.ravel() for index in np.indices(control.shape))
    return pl.concat(
        pl.DataFrame({"workload": workload, "seed": seed, "value": values.ravel()}).with_columns(
            method=pl.lit(method)
        )
        for method, values in (("control", control), ("treated", treated))
    )


def improvement(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of `probability_of_improvement`, paired and unpaired: losses are exponentials of normal values."""
    from scipy.special import ndtr

    trials = max(1, round(SHARE * trials))
    for paired in (True, False):
        for gap in (0.0, 1.0, 2.0):
            true = float(ndtr(gap / np.sqrt(2)))
            for size in SIZES:
                draws = np.exp(random.normal(size=(trials, 2, WORKLOADS, size)))
                frames = (runs(control, treated * np.exp(-gap)) for control, treated in draws)
                found = (
                    probability_of_improvement(frame, "treated", "control", "minimize", paired)
                    for frame in frames
                )
                setting = f"{'paired' if paired else 'unpaired'}, probability {true:.2f}; {size} seeds"
                yield covered(((one.low, one.high) for one in found), true, setting, trials)


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
        "How often its interval holds the true probability that one run beats another, over four workloads. "
        "On one, paired it is that of a share, unpaired that of Cliff's delta.",
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
