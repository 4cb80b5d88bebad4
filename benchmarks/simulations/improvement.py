"""Coverage of the probability of improvement."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from reports.statistics.shares import joined, probability_of_improvement

from ._draws import SIZES
from .experiment import Experiment, Result
from .intervals import covered

SHARE = 0.2  # of the trials
WORKLOADS = 4


def improvement_interval(treated: np.ndarray, control: np.ndarray) -> tuple[float, float]:
    """The interval on average over workloads, of values of shape (workloads, seeds), more being better."""
    with np.errstate(invalid="ignore"):
        gains = np.where(treated == control, 0.0, treated - control)
    each = [probability_of_improvement(own) for own in gains]
    return joined([(one.value, one.low, one.high) for one in each])[1:]


def improvement(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of the probability of improvement, on one workload and on four."""
    from scipy.special import ndtr

    trials = max(1, round(SHARE * trials))
    for workloads, gap in product((1, WORKLOADS), (0.0, 1.0, 2.0)):
        true = float(ndtr(gap / np.sqrt(2)))
        for size in SIZES:
            draws = random.normal(size=(trials, 2, workloads, size))
            found = (improvement_interval(treated + gap, control) for treated, control in draws)
            setting = f"paired, {workloads} workload(s), probability {true:.2f}; {size} seeds"
            yield covered(found, true, setting, trials)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "Probability of improvement",
        "reports.statistics.shares.probability_of_improvement",
        "How often its interval holds the true probability that one run beats another, on average over one "
        "workload or four.",
        improvement,
    ),
)
