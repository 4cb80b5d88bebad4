"""Scores by performance profiles: coverage of the intervals of scores and ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from reports.statistics.profiles import profile_score, score_intervals

from ._draws import SIZES
from .experiment import COVERAGE, Experiment, Result

SHARE = 0.02  # of the trials: each is a bootstrap, and has five intervals
SUBMISSIONS, WORKLOADS, RESAMPLES = 5, 8, 300
CASES = (  # standard deviations of log times: between submissions, between studies; the share of misses
    ("differ by 0.5, studies by 0.1", 0.5, 0.1, 0.0),
    ("differ by 0.5, studies by 0.3", 0.5, 0.3, 0.0),
    ("differ by 0.5, studies by 0.3, up to 0.4 missed", 0.5, 0.3, 0.4),
    ("differ by 0.1, studies by 0.3", 0.1, 0.3, 0.0),
    ("equal, studies by 0.3", 0.0, 0.3, 0.0),
)


def table(values: np.ndarray) -> pl.DataFrame:
    """Runs from seconds of shape (submissions, workloads, studies), infinite where missed."""
    submission, workload, study = (index.ravel() for index in np.indices(values.shape))
    return pl.DataFrame(
        {
            "submission": submission.astype(str),
            "workload": workload.astype(str),
            "study": study,
            "seconds": values.ravel(),
        }
    )


def coverage(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of `score_intervals`: the truth is what infinitely many studies would give."""
    trials = max(1, round(SHARE * trials))
    shape = (SUBMISSIONS, WORKLOADS)
    for name, between, within, missed in CASES:
        for size in SIZES:
            scores = ranks = 0.0
            for _ in range(trials):
                logs = random.normal(scale=between, size=shape)
                chances = missed * random.random(shape)
                values = np.exp(logs[..., None] + random.normal(scale=within, size=(*shape, size)))
                values[random.random(values.shape) < chances[..., None]] = np.inf
                # The median of all studies, those that missed it being infinitely long.
                medians = np.exp(logs + within * _normal_quantile(0.5 / (1 - chances)))
                truth = profile_score(table(medians[..., None])).with_columns(
                    true_rank=pl.col("score").rank("average", descending=True)
                )
                found = score_intervals(table(values), paired=False, resamples=RESAMPLES).join(
                    truth, on="submission", suffix="_true"
                )
                near = 1e-9
                held = found.select(
                    pl.col("score_true").is_between(pl.col("low") - near, pl.col("high") + near).mean(),
                    pl.col("true_rank").is_between("rank_low", "rank_high").mean(),
                ).row(0)
                scores, ranks = scores + held[0], ranks + held[1]
            setting = f"submissions {name}; {size} studies"
            yield Result("coverage", f"score, {setting}", scores / trials, trials, *COVERAGE)
            yield Result("coverage", f"rank, {setting}", ranks / trials, trials, COVERAGE[0])


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
        "submissions. Where all are equal everywhere, each is the fastest by chance, and scores are too low.",
        coverage,
    ),
)
