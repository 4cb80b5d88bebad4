"""The methods that may be the best: how often the set lacks the best one, how often it is one method."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from reports.statistics.selection import best_set

from .experiment import LEVEL, Experiment, Result

SHARE = 0.1  # of the trials: each is a study of several methods
SIZES = (5, 10, 20)  # seeds
METHODS = (3, 6)


def _kept(losses: np.ndarray) -> list[bool]:
    """Whether each method stays in the set; `losses` has shape (seeds, methods)."""
    seeds, methods = losses.shape
    frame = pl.DataFrame(
        {
            "seed": np.repeat(np.arange(seeds), methods),
            "method": [str(method) for method in range(methods)] * seeds,
            "value": losses.ravel(),
        }
    )
    return best_set(frame, ["seed"], "method", "value", "minimize", LEVEL)["kept"].to_list()


def _losses(random: np.random.Generator, seeds: int, methods: int) -> np.ndarray:
    """Lognormal losses that share a problem instance by seed; shape (seeds, methods)."""
    return np.exp(random.normal(size=(seeds, 1)) + random.normal(0, 0.3, size=(seeds, methods)))


def lost(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Studies whose set lacks a method that is as good as all others."""
    trials = max(1, round(SHARE * trials))
    for methods in METHODS:
        for size in SIZES:
            studies = [_losses(random, size, methods) for _ in range(trials)]
            share = sum(not _kept(losses)[0] for losses in studies) / trials
            yield Result(
                "false positives", f"{methods} equal methods; {size} seeds", share, trials, None, LEVEL
            )


def alone(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Studies whose set is the best method alone, where its loss is half of the others'."""
    trials = max(1, round(SHARE * trials))
    for methods in METHODS:
        for size in SIZES:
            factors = np.where(np.arange(methods) == 0, 0.5, 1.0)
            studies = [factors * _losses(random, size, methods) for _ in range(trials)]
            share = sum(sum(_kept(losses)) == 1 for losses in studies) / trials
            yield Result("power", f"{methods} methods, one at half the loss; {size} seeds", share, trials)


STATISTIC = "reports.statistics.selection.best_set"
EXPERIMENTS = (
    Experiment(
        "Best methods: the best one lost",
        STATISTIC,
        "Methods of equal lognormal losses on shared problem instances. Counted: studies in which the set of "
        "methods that may be the best lacks the first of them; at most 5 % is asked.",
        lost,
    ),
    Experiment(
        "Best methods: power",
        STATISTIC,
        "One method has half the loss of the others, which are equal. Counted: studies in which the set is "
        "that method alone.",
        alone,
    ),
)
