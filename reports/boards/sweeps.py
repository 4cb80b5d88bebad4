"""Sweeps: results of each method as a function of a setting of the workload, such as the batch size.

The workloads of a sweep differ in one setting only, the swept setting. A quantity of a sweep is, for example,
the number of steps to a target. Its slope is the slope of a line through the logarithms of the quantity as a
function of the logarithm of the setting. A method is an optimizer in a basis, which is an orthogonal change
of coordinates of the parameters. Final runs use the learning rate that tuning chose for the method on the
same workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from curvebench.reports.measures import (
    StudyProblem,
    complete_interval,
    problems_of,
    steps_to_target,
    study_tuning_outcome,
    tuning_runs,
)
from curvebench.reports.statistics.medians import quartile_bands
from curvebench.reports.tables import Tables
from curvebench.results.intervals import LEVEL, MedianInterval
from curvebench.results.tuning import shares_of_choices
from curvebench.spec.method import Method
from curvebench.spec.plan import StudyPlan
from curvebench.spec.values import is_number

DIGITS = 9  # number of decimals of slopes; further decimals are rounding errors of logarithms
# Names of the quantities of a sweep: steps and examples to the target, final value, and learning rate.
STEPS, EXAMPLES, VALUE, RATE = "steps", "examples", "value", "learning_rate"


@dataclass(frozen=True)
class StudySweep:
    """A sweep of a study on one backend, and the results of all methods.

    Args:
        study: plan of the study.
        name: name of the sweep.
        setting: name of the swept setting.
        values: values of the setting: numbers in increasing order, other values in the order of the study.
        places: position of each of `values` on an axis. A number is its own position; other values have the
            positions 1, 2, and so on.
        bands: quartiles over final runs, in columns quantity, method, place, lower_quartile, median,
            upper_quartile and count (number of seeds). The quantities `STEPS` and `EXAMPLES` count steps and
            training examples until the first target of the workload. They are infinite if a run missed the
            target, and absent if a workload of the sweep has no target. `VALUE` is the headline metric, and
            `RATE` is the chosen learning rate.
        slopes: by quantity and method, the exponent p for which the quantity is proportional to setting^p, as
            a median over seeds. None if the quantity is infinite, not positive or missing on some seed. Empty
            if the values of the setting are not positive numbers.
    """

    study: StudyPlan
    name: str
    setting: str
    values: tuple[Any, ...]
    places: tuple[float, ...]
    bands: pl.DataFrame
    slopes: dict[tuple[str, str], MedianInterval | None]

    @property
    def has_numbers(self) -> bool:
        """Whether the values of the setting are numbers, so that `places` has these numbers."""
        return all(map(is_number, self.values))

    @property
    def is_positive(self) -> bool:
        """Whether the values of the setting are positive numbers, so that their axis is logarithmic."""
        return self.has_numbers and min(self.places) > 0

    @property
    def labels(self) -> list[tuple[float, Any]]:
        """Labels of the axis: for each value of the setting, its position on the axis and the value."""
        return list(zip(self.places, self.values, strict=True))

    @property
    def quantities(self) -> list[str]:
        """Names of the quantities that `bands` has."""
        measured = set(self.bands["quantity"])
        return [name for name in (STEPS, EXAMPLES, VALUE, RATE) if name in measured]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each method and quantity, with keys method, quantity, medians and slope.

        The medians over seeds are in the order of `values`. A median is None if the method has no final run
        at the value. The slope is None if it is not known.
        """
        columns = self.bands.select("quantity", "method", "place", "median").rows()
        medians = {tuple(key): median for *key, median in columns}
        return [
            {
                "method": method,
                "quantity": quantity,
                "medians": [medians.get((quantity, method, place)) for place in self.places],
                "slope": self.slopes.get((quantity, method)),
            }
            for method in self.study.methods
            if method in set(self.bands["method"])
            for quantity in self.quantities
        ]


def sweeps_of(study: StudyPlan, tables: Tables) -> list[StudySweep]:
    """Return the sweeps of a study on its first backend, without workloads that have no final runs.

    A sweep whose workloads all lack final runs is left out.
    """
    by_name: dict[str, list[StudyProblem]] = {}
    for problem in problems_of(study, tables):
        if problem.workload.sweep and len(problem.values):
            by_name.setdefault(problem.workload.problem, []).append(problem)
    return [_sweep(problems) for problems in by_name.values()]


def _sweep(problems: Sequence[StudyProblem]) -> StudySweep:
    """Return a sweep with its results.

    Args:
        problems: the workloads of the sweep on one backend, one for each value of the swept setting.
    """
    sweep = problems[0].workload.sweep
    assert sweep is not None
    values = {problem.workload.name: problem.workload.settings[sweep.setting] for problem in problems}
    if all(map(is_number, values.values())):
        problems = sorted(problems, key=lambda problem: values[problem.workload.name])
        places = tuple(float(values[problem.workload.name]) for problem in problems)
    else:
        places = tuple(range(1, len(problems) + 1))
    measured = [_measured(problem, place) for problem, place in zip(problems, places, strict=True)]
    names = [VALUE, RATE]
    if all(problem.target for problem in problems):
        names = [STEPS, EXAMPLES, *names]
    index = ["method", "seed", "place"]
    rows = pl.concat(measured).unpivot(names, index=index, variable_name="quantity", value_name="measured")
    result = StudySweep(
        study=problems[0].study,
        name=sweep.name,
        setting=sweep.setting,
        values=tuple(values[problem.workload.name] for problem in problems),
        places=places,
        bands=quartile_bands(rows, ["quantity", "method", "place"], "measured"),
        slopes={},
    )
    if not result.is_positive:
        return result
    slopes = _slopes(rows, len(places))
    for method in rows["method"].unique():
        slopes[RATE, method] = _rate_slope(problems, places, method, slopes[RATE, method])
    return replace(result, slopes=slopes)


def _measured(problem: StudyProblem, place: float) -> pl.DataFrame:
    """Return the quantities of each final run of a problem.

    Args:
        place: position, on the axis of the sweep, of the value that the swept setting has on the problem.

    Returns:
        Columns method, seed, place, and a column for each of the quantities `STEPS`, `EXAMPLES`, `VALUE` and
        `RATE`.
    """
    # Without a target, the name of its metric is empty. The number of steps to the target is then infinite.
    metric = problem.target[0] if problem.target else ""
    reached = steps_to_target(problem.values.rename({"value": "headline"}), metric)
    most, each = pl.col("most"), pl.col("examples") / pl.col("steps")
    return reached.select(
        "method",
        "seed",
        pl.lit(place, pl.Float64).alias("place"),
        most.alias(STEPS),
        pl.when(most.is_finite()).then(most * each).otherwise(most).alias(EXAMPLES),
        pl.col("headline").cast(pl.Float64).alias(VALUE),
        pl.col("learning_rate").alias(RATE),
    )


def _slopes(rows: pl.DataFrame, count: int) -> dict[tuple[str, str], MedianInterval | None]:
    """Return the slope of each quantity for each method: the median over seeds.

    For each seed, a line is fitted to the logarithm of the quantity as a function of the logarithm of the
    setting. If some seed has no slope, the result for the quantity and method is None.

    Args:
        rows: columns quantity, method, seed, place (value of the setting) and measured (value of the
            quantity).
        count: number of values of the setting. A seed has no slope if a run is missing at one of the values.

    Returns:
        The slope by pair of quantity and method.
    """
    x, y = pl.col("place").log(), pl.col("measured").log()
    slope = pl.when(pl.len() == count, y.is_finite().all()).then((pl.cov(x, y) / x.var()).round(DIGITS))
    by_seed = rows.group_by("quantity", "method", "seed", maintain_order=True).agg(slope.alias("slope"))
    return {
        (str(quantity), str(method)): complete_interval(group["slope"])
        for (quantity, method), group in by_seed.group_by("quantity", "method", maintain_order=True)
    }


def _rate_slope(
    problems: Sequence[StudyProblem],
    places: Sequence[float],
    method: str,
    estimate: MedianInterval | None,
) -> MedianInterval | None:
    """Return the slope of the chosen learning rate, with an interval over resamples of the tuning seeds.

    The final runs on all seeds have the same learning rate, so that they do not show how the chosen rate
    depends on chance. Therefore tuning is repeated in resamples of the tuning seeds, with the same resample
    for all values of the setting (`curvebench.results.tuning.shares_of_choices`). The interval consists of
    percentiles of the slopes in the resamples, and is extended to contain the estimate.

    Args:
        problems: the workloads of the sweep on one backend, one for each value of the setting.
        places: value of the setting for each of `problems`.
        method: label of the method.
        estimate: slope of the chosen learning rates; None if it is not known.

    Returns:
        The estimate with the interval. If some problem has no usable tuning runs, the estimate is returned
        unchanged.
    """
    optimizer, study = Method.of(method).optimizer, problems[0].study
    chosen_by = [tuning_runs(problem).filter(method=method) for problem in problems]
    known = [outcome for runs in chosen_by if (outcome := study_tuning_outcome(study, optimizer, runs))]
    if estimate is None or len(known) < len(problems):
        return estimate
    choices = shares_of_choices(known)
    rates = np.array([[rate for rate, *_ in settings] for settings in choices])
    slopes = np.polyfit(np.log(places), np.log(rates).T, 1)[0].round(DIGITS)
    order = np.argsort(slopes)
    cumulative = np.cumsum(np.array(list(choices.values()))[order])
    ends = np.searchsorted(cumulative, ((1 - LEVEL) / 2, (1 + LEVEL) / 2)).clip(max=len(order) - 1)
    low, high = slopes[order][ends]
    middle = estimate.median
    return MedianInterval(middle, min(low, middle), max(high, middle), LEVEL, min(o.seeds for o in known))
