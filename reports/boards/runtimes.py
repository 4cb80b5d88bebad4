"""Times of a board's methods to targets, which are derived from their curves.

A board compares methods that ran on the same problems (workloads of studies). An instance is a problem with a
seed. For each instance, targets lie between the start value and the best value of any method. The time to a
target is the number of gradient evaluations until the target, including those for estimating the method's
basis; it is infinite if the target was missed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import polars as pl

from curvebench.reports import measures
from curvebench.reports.boards.leaderboard import Board, Column, Studies
from curvebench.reports.statistics import anytime
from curvebench.reports.statistics.anytime import PER_DECADE, Bands, Floats, Integers
from curvebench.reports.statistics.shares import Share
from curvebench.results.outcomes import missing
from curvebench.results.reading import read

POINTS = 160  # Number of points of a line, the share of targets reached against evaluations.
# Targets that tables show, by the index of the target.
# The value is the share of the distance from the start to the best value that remains at the target.
TABLED = {PER_DECADE * k - 1: 10.0**-k for k in (1, 2, 3)}


@dataclass(frozen=True)
class Expected:
    """Expected running time to a target in gradient evaluations, and the share of seeds that reached it."""

    evaluations: float
    reached: Share


@dataclass(frozen=True)
class Runtimes:
    """Times of each method to each target on each instance.

    If a method did not run on an instance, it has missed all targets there, and its run has length 0.

    Args:
        methods: methods, the best first: sorted by the area under the line that shows the share of targets
            reached against the logarithm of evaluations.
        problems: columns of the board.
        problem: index in `problems` of each instance's problem, shape (instances,).
        times: gradient evaluations to each target, shape (methods, instances, targets); infinite if the
            target was missed.
        lengths: gradient evaluations of whole runs, shape (methods, instances).
        budgets: steps of the longest run on each instance's problem, shape (instances,).
    """

    methods: tuple[str, ...]
    problems: tuple[Column, ...]
    problem: Integers
    times: Floats
    lengths: Floats
    budgets: Floats

    @cached_property
    def at(self) -> Floats:
        """Numbers of evaluations at which lines are drawn, evenly spaced on a logarithmic axis.

        The first is just before the first time at which a target is reached, the last is the length of the
        longest run.
        """
        return np.geomspace(max(self.times.min(), 1.0) / 1.3, self.lengths.max(), POINTS)

    @cached_property
    def bands(self) -> Bands:
        """Share of all targets, over all instances, that each method has reached, with its band.

        The share is known after each number of gradient evaluations in `at`. A sweep counts as one problem.
        """
        return anytime.ecdf_bands(self.times, self.counted, self.at)

    @cached_property
    def counted(self) -> Integers:
        """Problem of each instance, where all columns of a sweep are one problem; shape (instances,)."""
        names = [column.problem for column in self.problems]
        return np.array([names.index(names[index]) for index in self.problem])

    @property
    def seeds(self) -> int:
        """Number of seeds of the problem with the fewest seeds."""
        return int(np.unique(self.problem, return_counts=True)[1].min())

    @property
    def expected(self) -> list[tuple[float, list[tuple[str, list[Expected]]]]]:
        """Expected running times for the targets in `TABLED`.

        For each target, the list has the share of the distance that remains, and for each method its label
        and its expected running time on each problem.
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
    def met(self) -> list[Column]:
        """Columns of the problems that have targets."""
        return [self.problems[index] for index in np.unique(self.problem)]


def board_runtimes(board: Board, studies: Studies) -> Runtimes | None:
    """Return the times of a board's methods to targets.

    The targets of an instance lie between its start value and the best value that any method of the board
    reached (`target_values`). The values are those of the study's headline metric, clipped at the threshold
    at which runs stop or at the metric's floor. An instance on which no method improves on the start value
    has no targets and is left out. If all instances are left out, the result is None.

    Raises:
        InputError: when a table of curves is missing or damaged.
    """
    all_problems = (item for pair in studies for item in measures.problems_of(*pair, board.backend))
    problems = {(item.study.name, item.workload.name): item for item in all_problems}
    methods = [row.method for row in board.rows]
    times, lengths, problem, budgets = [], [], [], []
    for index, column in enumerate(board.columns):
        curves = _curves(problems[column.study.name, column.workload])
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
    return _in_order(Runtimes(tuple(methods), board.columns, *arrays))


def _curves(problem: measures.StudyProblem) -> pl.DataFrame:
    """Return the curves of a problem's final runs, sorted by seed and step.

    Returns:
        Columns method, seed, steps (of the whole run), length (gradient evaluations of the whole run), step,
        evaluations (at this step, including the basis) and value (with a sign such that less is better).
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


def _instance(curves: pl.DataFrame, methods: list[str]) -> tuple[Floats, Floats] | None:
    """Return the times to targets and the lengths of runs on one instance.

    Args:
        curves: curves of the runs with one seed, with the columns that `_curves` returns.
        methods: methods of the board.

    Returns:
        Times of shape (methods, targets) and lengths of shape (methods,); None if no method improves on the
        start value.
    """
    first = curves.group_by("method").agg(pl.col("value").first())
    start, values = (frame["value"].filter(frame["value"].is_finite()) for frame in (first, curves))
    if not len(start) or not cast(float, values.min()) < cast(float, start.max()):
        return None
    worst_start, best = start.to_numpy().max(keepdims=True), values.to_numpy().min(keepdims=True)
    targets = anytime.target_values(worst_start, best)[0]
    times, lengths = np.full((len(methods), len(targets)), np.inf), np.zeros(len(methods))
    for (method,), run in curves.group_by("method"):
        if method in methods:
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
    """Sort the methods by the area under their lines of shares, the largest area first.

    Methods with equal areas keep the order of the board.
    """
    shares = anytime.shares_of_runs(runtimes.times, runtimes.at)
    share = np.einsum("i,mip->mp", anytime.equal_weights(runtimes.problem), shares)
    order = np.argsort(-share.mean(axis=1), kind="stable")
    methods = tuple(runtimes.methods[index] for index in order)
    return replace(runtimes, methods=methods, times=runtimes.times[order], lengths=runtimes.lengths[order])
