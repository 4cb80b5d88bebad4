"""Coverage of the hierarchical bootstrap, and of the t interval that it falls back to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from reports.statistics.bootstrap import Statistic, bootstrap_interval

from ._draws import SHAPES, SIZES
from .experiment import Experiment, Result
from .intervals import covered

RESAMPLES = 299
SHARE = 0.2  # of the trials: each draws hundreds of resamples
BETWEEN = 1.0  # the standard deviation of workloads, in those of seeds
MEAN = Statistic(pl.col("value").mean())


def framed(values: np.ndarray) -> pl.DataFrame:
    """Values of shape (workloads, seeds) as a frame."""
    workload, seed = np.indices(values.shape)
    return pl.DataFrame({"workload": workload.ravel(), "seed": seed.ravel(), "value": values.ravel()})


def ends(random: np.random.Generator, draws: np.ndarray, workloads: bool) -> Iterator[tuple[float, float]]:
    """The BCa intervals of the mean, of studies of shape (studies, workloads, seeds)."""
    for values in draws:
        found = bootstrap_interval(framed(values), MEAN, random, "bca", 0.95, RESAMPLES, workloads)
        yield found.low, found.high


def given_workloads(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """With seeds drawn inside four workloads."""
    trials = max(1, round(SHARE * trials))
    for name, shape in SHAPES.items():
        for size in SIZES:
            draws = shape.draw(random, (trials, 4, size))
            found = ends(random, draws, workloads=False)
            yield covered(found, shape.mean, f"mean, {name}; {size} seeds", trials)


def further_workloads(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """With workloads drawn too, whose own means are normal."""
    trials = max(1, round(SHARE * trials))
    for number in (4, 8, 20):
        for size in (5, 20):
            noise = random.normal(size=(trials, number, size))
            draws = noise + BETWEEN * random.normal(size=(trials, number, 1))
            found = ends(random, draws, workloads=True)
            yield covered(found, 0.0, f"{number} workloads; {size} seeds", trials)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "Bootstrap inside workloads",
        "reports.statistics.bootstrap.bootstrap_interval",
        "How often the interval of a mean over four workloads holds the true one, seeds drawn "
        f"{RESAMPLES} times inside each. With 5 and 10 seeds it is the t interval.",
        given_workloads,
    ),
    Experiment(
        "Bootstrap of workloads and seeds",
        "reports.statistics.bootstrap.bootstrap_interval",
        "The same with workloads drawn too, which differ as much as seeds do. Below 20 workloads or seeds "
        "it is the t interval over workloads.",
        further_workloads,
    ),
)
