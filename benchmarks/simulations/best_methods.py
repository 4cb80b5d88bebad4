"""The methods that may be the best: how often the set lacks the best one, how often it is one method."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from reports.statistics.selection import best_set

from ._draws import SIZES
from .experiment import LEVEL, Experiment, Result
from .verdicts import DIVERGED

SHARE, POWER_SHARE = 0.2, 0.1  # of the trials: each is a study of several methods
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
    return best_set(frame, "minimize", LEVEL)["kept"].to_list()


def _symmetric(random: np.random.Generator, seeds: int, methods: int) -> np.ndarray:
    """Equal methods, normal."""
    return random.normal(0, 0.3, size=(seeds, methods))


def _skewed(random: np.random.Generator, seeds: int, methods: int) -> np.ndarray:
    """The first has a long tail of large losses, the others of small ones; half of the seeds are its wins."""
    from scipy.stats import gamma

    values = random.exponential(size=(seeds, methods)) - gamma(2).median() / 2
    values[:, 1:] *= -1
    return 0.3 * values


def _diverging(random: np.random.Generator, seeds: int, methods: int) -> np.ndarray:
    """The first diverges on 45 % of the seeds, and is better than all others on the rest."""
    values = _symmetric(random, seeds, methods)
    values[:, 0] = values.min(axis=1) - 0.1
    values[random.random(seeds) < DIVERGED, 0] = np.inf
    return values


LOGARITHMS = {  # of losses of shape (seeds, methods), less what a seed contributes
    "symmetric": _symmetric,
    "skewed": _skewed,
    "the first often diverges": _diverging,
}


def _losses(random: np.random.Generator, name: str, seeds: int, methods: int) -> np.ndarray:
    """Losses that share a problem instance by seed; shape (seeds, methods)."""
    return np.exp(random.normal(size=(seeds, 1)) + LOGARITHMS[name](random, seeds, methods))


def lost(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Studies whose set lacks a method that no other beats."""
    trials = max(1, round(SHARE * trials))
    for name in LOGARITHMS:
        for methods in METHODS:
            for size in SIZES:
                studies = [_losses(random, name, size, methods) for _ in range(trials)]
                share = sum(not _kept(losses)[0] for losses in studies) / trials
                setting = f"{methods} methods, {name}; {size} seeds"
                yield Result("false positives", setting, share, trials, None, LEVEL)


def alone(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Studies whose set is the best method alone, where its loss is half of the others'."""
    trials = max(1, round(POWER_SHARE * trials))
    for name in ("symmetric", "skewed"):
        for methods in METHODS:
            for size in SIZES:
                factors = np.where(np.arange(methods) == 0, 0.5, 1.0)
                studies = [factors * _losses(random, name, size, methods) for _ in range(trials)]
                share = sum(sum(_kept(losses)) == 1 for losses in studies) / trials
                yield Result("power", f"{methods} methods, {name}; {size} seeds", share, trials)


STATISTIC = "reports.statistics.selection.best_set"
EXPERIMENTS = (
    Experiment(
        "Best methods: the best one lost",
        STATISTIC,
        "Methods whose losses share a problem instance. No other beats the first: all are equal; or its "
        "losses have a long tail above and those of the others one below, and it wins half of the seeds; or "
        f"it diverges on {100 * DIVERGED:.0f} % of seeds and is better on the rest. Counted: studies in "
        "which the set of methods that may be the best lacks it; at most 5 % is asked.",
        lost,
    ),
    Experiment(
        "Best methods: power",
        STATISTIC,
        "The first method has half the loss of the others, beside what is said above. Counted: studies in "
        "which the set is that method alone.",
        alone,
    ),
)
