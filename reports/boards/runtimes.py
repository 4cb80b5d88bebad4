"""How soon the methods of a board get how far: times to targets that their curves set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import polars as pl

from curvebench.reports import measures
from curvebench.reports.boards.leaderboard import Board, Column, Studies
from curvebench.reports.statistics import anytime
from curvebench.reports.statistics.anytime import EACH, Bands, Floats, Integers
from curvebench.reports.statistics.shares import Share
from curvebench.results.outcomes import missing
from curvebench.results.reading import read

POINTS = 160  # of a line over evaluations
TABLED = {EACH * k - 1: 10.0**-k for k in (1, 2, 3)}  # places of the targets of tables, and what they leave


@dataclass(frozen=True)
class Expected:
    """The expected running time to a target in gradient evaluations, and the seeds that reached it."""

    evaluations: float
    reached: Share


@dataclass(frozen=True)
class Runtimes:
    """Gradient evaluations, those of the basis included, until each target on each instance, by method.

    An instance is a problem and a seed. A run that is not there, though others of its instance are, has
    reached nothing at no cost.

    Args:
        methods: the best first, by the area under their line over the logarithm of evaluations.
        problem: the place in `problems` of each instance, shape (instances,).
        times: shape (methods, instances, targets), infinite where a target was missed.
        lengths: evaluations of whole runs, shape (methods, instances).
        budgets: steps of the longest run of each instance's problem, shape (instances,).
    """

    methods: tuple[str, ...]
    problems: tuple[Column, ...]
    problem: Integers
    times: Floats
    lengths: Floats
    budgets: Floats

    @cached_property
    def at(self) -> Floats:
        """Where lines are drawn: evaluations by their logarithm, from the first target to the last run."""
        return np.geomspace(max(self.times.min(), 1.0) / 1.3, self.lengths.max(), POINTS)

    @cached_property
    def bands(self) -> Bands:
        """The share of (problem, target, seed) that each method has reached `at` each number."""
        return anytime.ecdf_bands(self.times, self.problem, self.at)

    @property
    def seeds(self) -> int:
        """The least number of a problem."""
        return int(np.unique(self.problem, return_counts=True)[1].min())

    @property
    def expected(self) -> list[tuple[float, list[tuple[str, list[Expected]]]]]:
        """By what is left at a target of `TABLED`, and by method, what it takes on each of the problems."""
        owns = [self.problem == place for place in np.unique(self.problem)]
        methods = list(zip(self.methods, self.times, self.lengths, strict=True))
        return [
            (
                left,
                [
                    (name, [_expected(times[own, at], spent[own]) for own in owns])
                    for name, times, spent in methods
                ],
            )
            for at, left in TABLED.items()
        ]

    @property
    def met(self) -> list[Column]:
        """The problems that have targets."""
        return [self.problems[place] for place in np.unique(self.problem)]


def board_runtimes(board: Board, studies: Studies) -> Runtimes | None:
    """The times of a board's methods; None where no method gets anywhere.

    The targets of an instance lie between its start and the least value that any method of the board has
    reached (`target_values`), by the study's headline metric, of which no value counts as better than the
    threshold at which runs stop, or than its floor. An instance that nobody improves on has none, and is
    left out.

    Raises:
        InputError: when a table of curves is missing or damaged.
    """
    every = (one for own in studies for one in measures.problems_of(*own, board.backend))
    problems = {(one.study.name, one.workload.name): one for one in every}
    methods = [row.method for row in board.rows]
    times, lengths, problem, budgets = [], [], [], []
    for place, column in enumerate(board.columns):
        curves = _curves(problems[column.study.name, column.workload])
        for _, instance in curves.group_by("seed", maintain_order=True):
            found = _instance(instance, methods)
            if found is not None:
                times.append(found[0])
                lengths.append(found[1])
                problem.append(place)
                budgets.append(float(cast(int, curves["steps"].max())))
    if not times:
        return None
    shown = Runtimes(
        tuple(methods),
        board.columns,
        np.array(problem),
        np.stack(times, axis=1),
        np.stack(lengths, axis=1),
        np.array(budgets),
    )
    return _in_order(shown)


def _curves(problem: measures.StudyProblem) -> pl.DataFrame:
    """Columns method, seed, steps, length, evaluations, value (less is better), in order of seed and step."""
    study, about = problem.study, ("method", "seed", "steps", "length")
    runs = problem.final.filter(~missing()).with_columns(length=measures.CHARGED_GRADIENTS)
    kept = runs.select("run", *about, basis=measures.BASIS_GRADIENTS).lazy()
    evaluations = pl.col("gradient_evaluations") + pl.col("basis")
    value = measures.clip_at(pl.col("value").fill_nan(None), study.direction, measures.headline_limit(study))
    less = value * (1 if study.direction == "minimize" else -1)

    def in_order(curves: pl.LazyFrame) -> pl.LazyFrame:
        own = curves.filter(metric=study.metric).join(kept, on="run")
        return own.select(*about, "step", evaluations=evaluations, value=less).sort("seed", "method", "step")

    return read(problem.tables.curves, "curves", in_order)


def _instance(curves: pl.DataFrame, methods: list[str]) -> tuple[Floats, Floats] | None:
    """Times (methods, targets) and lengths (methods,) of one problem and seed; None without a target."""
    first = curves.group_by("method").agg(pl.col("value").first())
    start, least = (frame["value"].filter(frame["value"].is_finite()) for frame in (first, curves))
    if not len(start) or not cast(float, least.min()) < cast(float, start.max()):
        return None
    targets = anytime.target_values(start.to_numpy().max(keepdims=True), least.to_numpy().min(keepdims=True))[
        0
    ]
    times, lengths = np.full((len(methods), len(targets)), np.inf), np.zeros(len(methods))
    for (method,), run in curves.group_by("method"):
        if method in methods:
            place = methods.index(str(method))
            evaluations, value = (run[name].cast(pl.Float64).to_numpy() for name in ("evaluations", "value"))
            times[place] = np.maximum(anytime.first_times(evaluations, value, targets), 1.0)  # above 0
            lengths[place] = max(run["length"][0], run["evaluations"][-1])
    return times, lengths


def _expected(times: Floats, lengths: Floats) -> Expected:
    """Of one method, problem and target; of each seed the time and the length of its run."""
    reached = Share(int(np.isfinite(times).sum()), len(times))
    return Expected(float(anytime.expected_running_time(times, lengths)), reached)


def _in_order(found: Runtimes) -> Runtimes:
    """With the methods by the area under their lines; of equals the first of the board stays first."""
    order = np.argsort(-found.bands.share.mean(axis=1), kind="stable")
    methods = tuple(found.methods[place] for place in order)
    return replace(found, methods=methods, times=found.times[order], lengths=found.lengths[order])
