"""Times of methods to many targets, computed from the curves of final runs.

A problem is a workload of a study on one backend. An instance is a problem with a
seed. The targets of an instance lie between the start value and the best value of any method. The time to a
target is the number of gradient evaluations until a run reached the target, including the evaluations for
estimating the method's basis. The time is infinite if the run missed the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import polars as pl

from curvebench.reports import measures
from curvebench.reports.measures import StudyProblem
from curvebench.reports.statistics import anytime
from curvebench.reports.statistics.anytime import PER_DECADE, Bands, Floats, Integers
from curvebench.reports.statistics.shares import Share
from curvebench.results.outcomes import missing
from curvebench.results.reading import read

POINTS = 160  # Number of points of a line that shows the share of targets reached against evaluations.
# Targets that tables show, by the index of the target.
# A target is given by a share: how much of the distance from the start value to the best value remains.
TABLED = {PER_DECADE * k - 1: 10.0**-k for k in (1, 2, 3)}


@dataclass(frozen=True)
class Expected:
    """Expected running time of a method to a target, and the share of seeds that reached the target.

    Args:
        evaluations: expected running time in gradient evaluations (`expected_running_time`); infinite if no
            seed reached the target.
        reached: share of seeds that reached the target.
    """

    evaluations: float
    reached: Share


@dataclass(frozen=True)
class Runtimes:
    """Times of each method to each target on each instance.

    If a method did not run on an instance, it has missed all targets of the instance, and the length of its
    run is 0.

    Args:
        methods: labels of the methods, the best method first: sorted by the area under the line that shows
            the share of targets reached against the logarithm of evaluations.
        problems: the problems.
        problem: index in `problems` of each instance's problem, shape (instances,).
        times: gradient evaluations to each target, shape (methods, instances, targets); infinite if the
            target was missed.
        lengths: gradient evaluations of whole runs, shape (methods, instances).
        budgets: for each instance, the number of steps of the longest run on its problem, shape (instances,).
    """

    methods: tuple[str, ...]
    problems: tuple[StudyProblem, ...]
    problem: Integers
    times: Floats
    lengths: Floats
    budgets: Floats

    @cached_property
    def at(self) -> Floats:
        """Numbers of evaluations at which lines are drawn, evenly spaced on a logarithmic axis.

        The first number is just below the smallest time to a target, the last number is the length of the
        longest run. Shape (`POINTS`,).
        """
        return np.geomspace(max(self.times.min(), 1.0) / 1.3, self.lengths.max(), POINTS)

    @cached_property
    def bands(self) -> Bands:
        """Share of the targets of all instances that each method reached within the evaluations `at`.

        Each share has a band (`ecdf_bands`). Problems have equal weights, and a sweep counts as one problem.
        """
        return anytime.ecdf_bands(self.times, self.counted, self.at)

    @cached_property
    def counted(self) -> Integers:
        """Index of the problem to which each instance belongs, shape (instances,).

        All columns of a sweep count as the same problem, and have the same index.
        """
        names = [problem.name for problem in self.problems]
        return np.array([names.index(names[index]) for index in self.problem])

    @property
    def seeds(self) -> int:
        """Smallest number of instances of a problem with targets; a problem has one instance per seed."""
        return int(np.unique(self.problem, return_counts=True)[1].min())

    @property
    def expected(self) -> list[tuple[float, list[tuple[str, list[Expected]]]]]:
        """Expected running times of all methods for the targets in `TABLED`.

        For each target, the list has a pair. Its first item is the share of the distance from the start value
        to the best value that remains at the target. Its second item has, for each method, the label of the
        method and its expected running time on each problem in `met`.
        """
        masks = [self.problem == index for index in np.unique(self.problem)]
        methods = list(zip(self.methods, self.times, self.lengths, strict=True))
        return [
            (
                remaining,
                [
                    (name, [_expected(times[mask, at], spent[mask]) for mask in masks])
                    for name, times, spent in methods
                ],
            )
            for at, remaining in TABLED.items()
        ]

    @property
    def met(self) -> list[StudyProblem]:
        """Problems that have targets."""
        return [self.problems[index] for index in np.unique(self.problem)]


def runtimes_of(problems: Sequence[StudyProblem], methods: Sequence[str]) -> Runtimes | None:
    """Return the times of methods to targets on problems; None if no instance has targets.

    The targets of an instance lie between its start value and the best value that any of the methods reached
    (`target_values`). The values are values of the study's headline metric, clipped at the threshold at which
    runs stop or at the metric's floor. An instance on which no method improves on the start value has no
    targets and is left out.

    Raises:
        InputError: when a table of curves is missing or damaged.
    """
    times, lengths, problem, budgets = [], [], [], []
    for index, one in enumerate(problems):
        curves = _curves(one).filter(pl.col("method").is_in(methods))
        for _, instance in curves.group_by("seed", maintain_order=True):
            measured = _instance(instance, methods)
            if measured is not None:
                times.append(measured[0])
                lengths.append(measured[1])
                problem.append(index)
                budgets.append(float(cast(int, curves["steps"].max())))
    if not times:
        return None
    arrays = np.array(problem), np.stack(times, axis=1), np.stack(lengths, axis=1), np.array(budgets)
    return _in_order(Runtimes(tuple(methods), tuple(problems), *arrays))


def _curves(problem: measures.StudyProblem) -> pl.DataFrame:
    """Return the curves of a problem's final runs, sorted by seed and step.

    Returns:
        One row per evaluation of the headline metric. Columns: method, seed, steps (number of steps of the
        whole run), length (gradient evaluations of the whole run), step, evaluations (gradient evaluations up
        to this step, including the basis) and value (value of the headline metric at this step, multiplied by
        -1 if more is better).
    """
    study, names = problem.study, ("method", "seed", "steps", "length")
    runs = problem.final.filter(~missing()).with_columns(length=measures.CHARGED_GRADIENTS)
    run_facts = runs.select("run", *names, basis=measures.BASIS_GRADIENTS).lazy()
    evaluations = pl.col("gradient_evaluations") + pl.col("basis")
    value = measures.clip_at(pl.col("value").fill_nan(None), study.direction, measures.headline_limit(study))
    to_minimize = value * (1 if study.direction == "minimize" else -1)

    def in_order(curves: pl.LazyFrame) -> pl.LazyFrame:
        rows = curves.filter(metric=study.metric).join(run_facts, on="run")
        rows = rows.select(*names, "step", evaluations=evaluations, value=to_minimize)
        return rows.sort("seed", "method", "step")

    return read(problem.tables.curves, "curves", in_order)


def _instance(curves: pl.DataFrame, methods: Sequence[str]) -> tuple[Floats, Floats] | None:
    """Return the times to targets and the lengths of runs on one instance.

    Args:
        curves: curves of the runs with one seed, with the columns that `_curves` returns.
        methods: labels of the methods.

    Returns:
        Times to targets in gradient evaluations, shape (methods, targets), and lengths of whole runs, shape
        (methods,). None if no method improves on the start value.
    """
    first = curves.group_by("method").agg(pl.col("value").first())
    start, values = (frame["value"].filter(frame["value"].is_finite()) for frame in (first, curves))
    if not len(start) or not cast(float, values.min()) < cast(float, start.max()):
        return None
    worst_start, best = start.to_numpy().max(keepdims=True), values.to_numpy().min(keepdims=True)
    targets = anytime.target_values(worst_start, best)[0]
    times, lengths = np.full((len(methods), len(targets)), np.inf), np.zeros(len(methods))
    for (method,), run in curves.group_by("method"):
        index = methods.index(str(method))
        evaluations, value = (run[name].cast(pl.Float64).to_numpy() for name in ("evaluations", "value"))
        # A target reached at the start counts as one evaluation, because times must be positive.
        times[index] = np.maximum(anytime.first_times(evaluations, value, targets), 1.0)
        lengths[index] = max(run["length"][0], run["evaluations"][-1])
    return times, lengths


def _expected(times: Floats, lengths: Floats) -> Expected:
    """Return the expected running time of one method to one target of a problem.

    Args:
        times: time to the target for each seed, shape (seeds,).
        lengths: gradient evaluations of the whole run for each seed, shape (seeds,).
    """
    reached = Share(int(np.isfinite(times).sum()), len(times))
    return Expected(float(anytime.expected_running_time(times, lengths)), reached)


def _in_order(runtimes: Runtimes) -> Runtimes:
    """Sort the methods by the area under their lines, the largest area first.

    The line of a method shows the share of targets that it reached against the logarithm of evaluations.
    Methods with equal areas keep the order of the board.
    """
    shares = anytime.shares_of_runs(runtimes.times, runtimes.at)
    share = np.einsum("i,mip->mp", anytime.equal_weights(runtimes.problem), shares)
    order = np.argsort(-share.mean(axis=1), kind="stable")
    methods = tuple(runtimes.methods[index] for index in order)
    return replace(runtimes, methods=methods, times=runtimes.times[order], lengths=runtimes.lengths[order])
