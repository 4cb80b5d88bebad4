"""Measures of a study, computed from its tables: pure functions on Polars frames.

Figures, pages and boards show these frames. Functions that take `runs` expect the table `runs` with the
column `method`, as `curvebench.reports.tables` reads it.

A method is an optimizer in a basis (an orthogonal change of coordinates of the parameters). A group of runs,
identified by the columns `CELL`, has all runs of a study with one workload, method and backend. Tuning runs
try settings such as learning rates, in one or several rounds; final runs use the setting that tuning chose.
The headline metric is the metric by which a study compares methods. A failed run diverged, raised an error,
or exceeded memory or time. A missing run says nothing about its method: it was interrupted, or every method
fails on its workload (`curvebench.results.outcomes`). A cost is censored if a run ended before it met its
goal, so that only a lower bound is known. Gradient evaluations are "charged" if they include those for
estimating the basis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, log10

import numpy as np
import polars as pl

from curvebench.reports.statistics.medians import medians, quartile_bands
from curvebench.reports.statistics.paired import Direction
from curvebench.reports.statistics.ranks import tied
from curvebench.reports.statistics.selection import least_p_value
from curvebench.reports.statistics.shares import Share, share_interval
from curvebench.reports.tables import CELL, Tables
from curvebench.results.intervals import MedianInterval, median_interval
from curvebench.results.outcomes import failed, missing
from curvebench.results.reading import named
from curvebench.results.tuning import Judge, TuningOutcome, tuning_outcome, worst
from curvebench.results.verdicts import ALPHA
from curvebench.spec.method import Method
from curvebench.spec.plan import StudyPlan, WorkloadPlan

RUN_STEPS = pl.col("steps")
BASIS_GRADIENTS = pl.col("basis_gradient_evaluations").fill_null(0)
CHARGED_GRADIENTS = pl.col("gradient_evaluations") + BASIS_GRADIENTS
# For each unit of cost, the cost of one step of a run, and the cost before its first step (for the basis).
# The column `each` has the seconds of a step (`curvebench.reports.wall_clock.paces`).
STEP_COSTS = {
    "steps": (pl.lit(1), pl.lit(0)),
    "gradients": (pl.col("step_evaluations"), BASIS_GRADIENTS),
    "seconds": (pl.col("each"), pl.col("basis_seconds").fill_null(0)),
}
# A learning rate does nearly as well as the best rate if its loss is at most this factor times the best loss.
# An accuracy does nearly as well if it is at least the best accuracy divided by this factor.
NEARLY = 1.1


@dataclass(frozen=True)
class StudyProblem:
    """A workload of a study on one backend, with the tables of the study.

    Args:
        study: plan of the study.
        workload: one of the study's workloads.
        backend: one of the study's backends.
        tables: tables of the study, with all workloads and backends.
    """

    study: StudyPlan
    workload: WorkloadPlan
    backend: str
    tables: Tables

    @property
    def name(self) -> str:
        """Name of the problem in ranks and scores: STUDY/WORKLOAD, so that names of two studies differ.

        All workloads of a sweep have the name STUDY/SWEEP, since a sweep counts as one problem.
        """
        return f"{self.study.name}/{self.workload.problem}"

    def is_in(self, group: str) -> bool:
        """Return whether the workload is in a group of its study; every workload is in the group ""."""
        return not group or self.workload.name in self.study.groups.get(group, ())

    def of(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a table that belong to the problem."""
        return table.filter(workload=self.workload.name, backend=self.backend)

    @property
    def runs(self) -> pl.DataFrame:
        """All runs on the problem, including the tuning runs."""
        return self.of(self.tables.runs)

    @cached_property
    def final(self) -> pl.DataFrame:
        """Final runs on the problem: the runs with the setting that tuning chose."""
        return self.runs.filter(stage="final")

    @cached_property
    def values(self) -> pl.DataFrame:
        """Final runs with the headline metric as column `value`, without runs that lack this metric."""
        return study_values(self.study, self.final).drop_nulls("value")

    @property
    def targets(self) -> dict[str, float]:
        """Targets on the workload: the threshold that a run should reach, by metric."""
        return self.study.targets_on(self.workload)

    @property
    def target(self) -> tuple[str, float] | None:
        """Metric and threshold of the workload's first target; None if the workload has no target."""
        return next(iter(self.targets.items()), None)


def problems_of(study: StudyPlan, tables: Tables, backend: str | None = None) -> list[StudyProblem]:
    """Return the problems of a study on one backend, one per workload.

    Args:
        backend: the backend; None for the study's first backend.
    """
    chosen_backend = backend or study.backends[0]
    return [StudyProblem(study, workload, chosen_backend, tables) for workload in study.workloads]


def run_values(
    runs: pl.DataFrame, metric: str, which: str, direction: Direction, limit: float | None = None
) -> pl.DataFrame:
    """Return the value of one metric for each run, with the worst possible value for failed runs.

    The worst possible value is infinity if less is better, and minus infinity if more is better. It stands
    for the final value of every failed run (`curvebench.results.outcomes`), and for the best value of a
    failed run that recorded no best value. NaN is replaced by the worst possible value. The value of a
    missing run is null, because a missing run says nothing about its method.

    Args:
        runs: the table `runs` with `method`.
        which: "final" for the value at the end of a run, "best" for the best value during the run.
        direction: whether less or more of the metric is better.
        limit: value at which the metric is clipped: the threshold at which runs stop, or a floor, beyond
            which differences are rounding errors. How far a run gets beyond the limit is chance. None for no
            limit.

    Returns:
        The rows of `runs` with a column `value`, which is null if a run did not record the metric.
    """
    bad = pl.col("value").is_nan() | (failed() & pl.col("value").is_null())
    if which == "final":
        bad = bad | failed()
    column = pl.when(missing()).then(None).when(bad).then(worst(direction)).otherwise("value")
    recorded = runs.with_columns(named(metric, f"{which}_metrics").alias("value"))
    return recorded.with_columns(value=clip_at(column, direction, limit))


def clip_at(value: pl.Expr, direction: Direction, limit: float | None) -> pl.Expr:
    """Clip values at `limit`, so that no value counts as better than the limit; None keeps all values."""
    if limit is None:
        return value
    return value.clip(lower_bound=limit) if direction == "minimize" else value.clip(upper_bound=limit)


def study_values(
    study: StudyPlan, runs: pl.DataFrame, metric: str | None = None, which: str | None = None
) -> pl.DataFrame:
    """Return the value of one metric for each run (`run_values`), clipped at the limits of a study.

    A metric is clipped at the threshold at which runs stop. The headline metric is also clipped at its floor.

    Args:
        metric: metric to read; None for the headline metric. A metric that is named here, even the headline
            metric, is not clipped at the floor, because claims declare their own floors.
        which: "final" for the value at the end of a run, "best" for the best value during the run; None for
            the kind of value that the study compares.
    """
    name = metric or study.metric
    limit = headline_limit(study) if metric is None else study.training.stop.get(name)
    return run_values(runs, name, which or study.which, study.direction_of(name), limit)


def headline_limit(study: StudyPlan) -> float | None:
    """Return the value at which a study clips its headline metric; None if the study does not clip it.

    This is the threshold at which runs stop, or the floor of the metric. If a study has both, it is the value
    that a run reaches first.
    """
    candidates = study.training.stop.get(study.metric), study.compare.floor
    limits = [limit for limit in candidates if limit is not None]
    return (max if study.direction == "minimize" else min)(limits, default=None)


def cost_to_stop(study: StudyPlan, runs: pl.DataFrame, metric: str, cost: pl.Expr) -> pl.DataFrame:
    """Return the cost of each run until its metric met the threshold at which the runs of a study stop.

    The cost of a run that ended without meeting the threshold is censored: only a lower bound is known, which
    is the cost of the whole run plus 1. A failed run never meets the threshold, so that its cost is infinite.
    The cost of a missing run is null.

    Args:
        metric: a metric with a threshold at which the study's runs stop.
        cost: cost of a whole run: `RUN_STEPS` or `CHARGED_GRADIENTS`.

    Returns:
        The rows of `runs` with the lower bound of the cost as `least`, the upper bound as `most`, and the
        lower bound again as `value`.
    """
    final = study_values(study, runs, metric, "final").rename({"value": "at"})
    met = pl.when(pl.col("at") == study.training.stop[metric]).then(cost)
    return cost_until(final, met, pl.col("at").is_not_null(), cost + 1).drop("at")


def steps_to_target(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Return the number of steps until each run reached its study's target of a metric.

    The number is the step of the first evaluation at which the metric had reached the target, because the
    metric is compared with the target only at evaluations. The number is censored for a run that ended
    without reaching the target: only a lower bound is known, which is the number of steps of the run plus 1.
    The number is infinite for a failed run, which never reaches the target, and null for a missing run.

    Args:
        metric: a metric for which the study has a target.

    Returns:
        The rows of `runs` with the lower bound of the steps as `least`, the upper bound as `most`, and the
        lower bound again as `value`.
    """
    met = named(metric, "targets", key="metric", value="steps")
    return cost_until(runs, met, ~missing(), RUN_STEPS + 1)


def cost_to_value(
    runs: pl.DataFrame, curves: pl.DataFrame, target: float, direction: Direction, unit: str
) -> pl.DataFrame:
    """Return the cost of each run until its metric first reached a target value.

    The cost counts up to the first evaluation at which the metric is at least as good as the target. The cost
    of a run that ended without reaching the target is censored: only a lower bound is known, which is the
    cost of the whole run plus the cost of one step. A failed run never reaches the target, so that its cost
    is infinite. The cost is null for a missing run, and for a run whose cost of a step is not known.

    Args:
        curves: all evaluations of the metric, with columns run, step and value.
        target: value that the metric should reach.
        direction: whether less or more of the metric is better.
        unit: unit of the cost, a key of `STEP_COSTS`.

    Returns:
        The rows of `runs` with the lower bound of the cost as `least`, the upper bound as `most`, and the
        lower bound again as `value`.
    """
    value, (each, start) = pl.col("value").fill_nan(None), STEP_COSTS[unit]
    reached = value <= target if direction == "minimize" else value >= target
    first = curves.filter(reached).group_by("run").agg(first=pl.col("step").min())
    joined = runs.join(first, on="run", how="left", maintain_order="left")
    met, ended = (steps * each + start for steps in (pl.col("first"), RUN_STEPS + 1))
    return cost_until(joined, met, ~missing() & each.is_not_null(), ended).drop("first")


def cost_until(runs: pl.DataFrame, met: pl.Expr, is_known: pl.Expr, ended: pl.Expr) -> pl.DataFrame:
    """Add to each run the lower and the upper bound of its cost until a goal.

    The bounds differ only if the cost is censored (`_bounds_until`).

    Args:
        met: cost at which a run met its goal; null if the run ended without meeting its goal.
        is_known: whether the cost of a run is known at least by bounds; if not, both bounds are null.
        ended: lower bound of the cost of a run that ended without meeting its goal.

    Returns:
        The rows of `runs` with the lower bound of the cost as `least`, the upper bound as `most`, and the
        lower bound again as `value`.
    """
    lower, upper = (pl.when(is_known).then(end) for end in _bounds_until(met, ended))
    return runs.with_columns(value=lower, least=lower, most=upper)


def _bounds_until(met: pl.Expr, ended: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Return expressions for the lower and the upper bound of the cost of a run until its goal.

    Both bounds are `met` for a run that met its goal, and infinite for a failed run. Any other run has the
    lower bound `ended` and an infinite upper bound.

    Args:
        met: cost at which a run met its goal; null if the run ended without meeting its goal.
        ended: lower bound of the cost of a run that ended without meeting its goal and did not fail.
    """
    never, met = pl.lit(float("inf")), met.cast(pl.Float64)
    lower_bound = pl.when(failed()).then(never).otherwise(ended.cast(pl.Float64))
    return pl.coalesce(met, lower_bound), met.fill_null(never)


def median_by_method(values: pl.DataFrame, column: str = "value") -> dict[str, MedianInterval]:
    """Return, for each method, the median of a column over seeds with its interval.

    Args:
        values: columns method and `column`, one row per run; rows whose value is null are left out.

    Returns:
        The median and its interval by method, in the order in which methods first appear.
    """
    rows = medians(values, ["method"], column).to_dicts()
    return {row.pop("method"): MedianInterval(**row) for row in rows}


def best_methods(study: StudyPlan, medians_by_method: Mapping[str, float]) -> set[str]:
    """Return the method with the best finite median of the headline metric, and the methods tied with it.

    The result is empty if no median is finite. The function `tied` defines which medians tie.

    Args:
        medians_by_method: median of the headline metric over seeds, by method.
    """
    finite = {name: median for name, median in medians_by_method.items() if isfinite(median)}
    if not finite:
        return set()
    best = min(finite.values()) if study.direction == "minimize" else max(finite.values())
    return {name for name, median in finite.items() if tied(median, best)}


def can_reject(values: pl.DataFrame) -> bool:
    """Return whether a test of level `ALPHA` could find one method better than another with these seeds.

    With too few seeds, even a method that wins on every seed is not significantly better. Pages then call no
    method the best.

    Args:
        values: columns method, seed, value. Only seeds that several methods ran count.
    """
    return least_p_value(values) <= ALPHA


def evaluations_to_target(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Return the number of gradient evaluations until each run reached its target, including the basis.

    Args:
        runs: the table `runs` with `step_evaluations`, as `curvebench.reports.tables` reads it.
        metric: metric of the target; without a target of this metric, the result has no rows.

    Returns:
        The rows of `runs` without missing runs. The column `value` is the number of gradient evaluations,
        infinite if the target was not reached. The columns `least` and `most` are bounds of this number. The
        bounds differ for a run that ended without reaching the target and did not fail: the lower bound is
        the number of gradient evaluations of the run plus 1, and the upper bound is infinite.
    """
    steps = named(metric, "targets", key="metric", value="steps")
    charged = steps * pl.col("step_evaluations") + BASIS_GRADIENTS
    lower, upper = _bounds_until(charged, CHARGED_GRADIENTS + 1)
    aimed = named(metric, "targets", key="metric", value="threshold").is_not_null()
    return runs.filter(~missing() & aimed).with_columns(value=upper, least=lower, most=upper)


def seconds_to_target(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Return the seconds until each run reached its target, including the seconds for the basis.

    The seconds come from the column `targets`. If a run did not measure its steps, its seconds are modelled
    as the number of steps times the seconds of a step in the timing jobs.

    Args:
        metric: metric of the target; without a target of this metric, the result has no rows.

    Returns:
        The rows of `runs` without missing runs, with the seconds as column `value`. The value is infinite if
        the target was not reached. It is null if the target was reached, but no step was timed.
    """
    steps, seconds, threshold = (
        named(metric, "targets", key="metric", value=field) for field in ("steps", "seconds", "threshold")
    )
    charged = seconds + pl.col("basis_seconds").fill_null(0)
    value = pl.when(steps.is_null()).then(float("inf")).otherwise(charged)
    return runs.filter(~missing() & threshold.is_not_null()).with_columns(value=value)


def complete_interval(values: pl.Series) -> MedianInterval | None:
    """Return the median of all values with its interval; None if there are no values or one of them is null.

    If nulls were left out, the median would be biased.
    """
    return median_interval(values.to_numpy()) if len(values) and not values.has_nulls() else None


def reached_share(costs: pl.Series) -> Share | None:
    """Return the share of runs that reached a target, with its interval; None if there are no runs.

    Args:
        costs: cost of each run until the target; infinite if the run did not reach the target.
    """
    return share_interval(int(costs.is_finite().sum()), len(costs)) if len(costs) else None


def outcome_counts(runs: pl.DataFrame) -> pl.DataFrame:
    """Count the runs of each cell (workload, backend and method).

    Returns:
        Columns of `CELL`, failed (number of failed runs), missing (number of missing runs) and count (number
        of all runs).
    """
    return runs.group_by(CELL, maintain_order=True).agg(
        failed=failed().sum().cast(pl.Int64),
        missing=missing().sum().cast(pl.Int64),
        count=pl.len().cast(pl.Int64),
    )


def complete_curves(
    runs: pl.DataFrame, curves: pl.DataFrame, metric: str, direction: Direction
) -> pl.DataFrame:
    """Return the curve of one metric for every run, with the same steps for all runs of a group.

    A group has one workload, backend and method. The steps are the steps at which the longest runs of the
    group were evaluated. A run that stopped because it reached its goal keeps its last value. A failed run
    has the worst possible value from its failure on, so that a median is never taken over survivors only.
    Missing runs are left out.

    Args:
        runs: the table `runs` with `method`.
        curves: curves of these runs, with columns run, step, gradient_evaluations, metric and value.
        metric: metric whose curves are returned.
        direction: whether less or more of the metric is better.

    Returns:
        Columns of `CELL`, run, step, gradient_evaluations, charged_evaluations (including the gradient
        evaluations for the basis) and value.
    """
    present = runs.filter(~missing()).select(*CELL, "run", "outcome", "outcome_step", basis=BASIS_GRADIENTS)
    recorded = curves.filter(pl.col("metric") == metric).join(present, on="run", how="inner")
    longest = pl.col("step").max().over("run") == pl.col("step").max().over(CELL)
    steps = recorded.filter(longest).group_by(*CELL, "step").agg(pl.col("gradient_evaluations").max())
    grid = present.join(steps, on=list(CELL), how="inner").sort("step")
    values = recorded.select("run", "step", "value").sort("step")
    joined = grid.join_asof(values, on="step", by="run", strategy="backward", check_sortedness=False)
    lost = failed() & ((pl.col("step") >= pl.col("outcome_step").fill_null(0)) | pl.col("value").is_null())
    charged = pl.col("gradient_evaluations") + pl.col("basis")
    value = pl.when(lost | pl.col("value").is_nan()).then(worst(direction)).otherwise("value")
    columns = (*CELL, "run", "step", "gradient_evaluations")
    return joined.select(*columns, charged_evaluations=charged, value=value).sort(*CELL, "run", "step")


def curve_bands(curves: pl.DataFrame) -> pl.DataFrame:
    """Return the median and the quartiles of the curves of each group over its runs, at every step.

    Args:
        curves: curves with the same steps for all runs of a group, as `complete_curves` returns them.

    Returns:
        Columns of `CELL`, step, lower_quartile, median, upper_quartile, count (number of runs),
        gradient_evaluations (largest number up to the step) and charged_evaluations (median number up to the
        step, including the basis).
    """
    evaluations = pl.col("gradient_evaluations").max(), pl.col("charged_evaluations").median()
    axes = curves.group_by(*CELL, "step").agg(evaluations)
    bands = quartile_bands(curves, [*CELL, "step"], "value")
    return bands.join(axes, on=[*CELL, "step"], how="left").sort(*CELL, "step")


def sensitivity(values: pl.DataFrame) -> pl.DataFrame:
    """Return quartiles of a metric over the tuning runs with each learning rate.

    A cell (workload, backend and method) has a row for each learning rate. If several tuning rounds tried a
    learning rate on a seed, only the run of the last round counts, because successive halving makes the runs
    of later rounds longer.

    Args:
        values: runs with the metric as column `value`, as `study_values` returns them. Runs that are not
            tuning runs are ignored.

    Returns:
        Columns of `CELL`, learning_rate, lower_quartile, median, upper_quartile, count (number of runs) and
        failed (share of the runs that failed).
    """
    in_order = values.filter(stage="tuning").sort("round", maintain_order=True)
    tuned = in_order.unique([*CELL, "learning_rate", "seed"], keep="last", maintain_order=True)
    keys = [*CELL, "learning_rate"]
    shares = tuned.group_by(keys).agg(failed().mean().alias("failed"))
    return quartile_bands(tuned, keys, "value").join(shares, on=keys, how="left").sort(keys)


def chosen_rates(runs: pl.DataFrame) -> pl.DataFrame:
    """Return, for each cell, the learning rate of the final runs and the range of rates that tuning tried.

    Returns:
        Columns of `CELL`, learning_rate, count (number of final runs), least and greatest (smallest and
        largest rate tried), tried (number of rates tried), tuning_seeds (number of seeds), and at_edge
        (whether the chosen rate is an end of the range; null if the method has no tuning runs of its own).
    """
    final, rate = runs.filter(stage="final"), pl.col("learning_rate")
    of_cell = runs.filter(stage="tuning").group_by(CELL)
    tuned = of_cell.agg(
        least=rate.min(),
        greatest=rate.max(),
        tried=rate.n_unique().cast(pl.Int64),
        tuning_seeds=pl.col("seed").n_unique().cast(pl.Int64),
    )
    chosen = final.group_by([*CELL, "learning_rate"], maintain_order=True).agg(count=pl.len().cast(pl.Int64))
    edge = (rate <= pl.col("least")) | (rate >= pl.col("greatest"))
    rates = chosen.join(tuned, on=list(CELL), how="left", maintain_order="left")
    # If tuning tried only one learning rate, there is no range, and the rate does not count as an end.
    return rates.with_columns(at_edge=edge & (pl.col("tried") > 1))


def study_tuning_outcome(study: StudyPlan, optimizer: str, tuning: pl.DataFrame) -> TuningOutcome | None:
    """Return the tuning outcome of a method: the costs of its settings, by which one setting is chosen.

    The result is None if the method has no usable tuning runs.

    Args:
        optimizer: label of the method's optimizer, which decides which options are tuned.
        tuning: tuning runs of one method on one workload and backend.
    """
    judge = Judge(study.tuning, study.direction_of, study.training.stop)
    return tuning_outcome(tuning, study.tuned_names(optimizer), judge)


def tuning_source(study: StudyPlan, method: str, backend: str, tuning: pl.DataFrame) -> tuple[str, str]:
    """Return the method and the backend whose tuning runs chose the setting of a method.

    In most studies, a method is tuned by its own runs. In a study whose bases share learning rates, the runs
    of the same optimizer in the identity basis choose the setting.

    Args:
        method: label of the method whose setting was chosen.
        backend: backend on which the method ran.
        tuning: tuning runs on one workload, on all backends.
    """
    optimizer = Method.of(method)[0]
    # A study may tune its optimizers on one backend for all backends.
    # An optimizer that the tuning backend lacks is tuned on the backend on which it runs.
    tuned_backends = tuning.filter(pl.col("optimizer") == optimizer)["backend"]
    source = backend if backend in tuned_backends else study.tuned_on.get(backend, backend)
    return (optimizer if study.shares_rates else method), source


def tuning_runs(problem: StudyProblem, by_itself: bool = False) -> pl.DataFrame:
    """Return the tuning runs that chose the setting of each method on a problem.

    Args:
        by_itself: whether to return the tuning runs of each method itself, even if the runs of another method
            chose its setting.

    Returns:
        Rows of the table `runs`. The column `method` is the method whose setting was chosen, and the column
        `tuner` is the method that ran. A run that chose the setting of several methods has a row for each of
        these methods.
    """
    tuning = problem.tables.runs.filter(stage="tuning", workload=problem.workload.name)
    parts = [tuning.clear().with_columns(tuner=pl.col("method"))]
    for method in problem.study.methods:
        tuner, where = tuning_source(problem.study, method, problem.backend, tuning)
        ran = tuning.filter(method=method if by_itself else tuner, backend=where)
        parts.append(ran.with_columns(tuner=pl.col("method"), method=pl.lit(method)))
    return pl.concat(parts)


def tuning_budgets(tuned: pl.DataFrame) -> pl.DataFrame:
    """Return, for each method, how many runs chose its setting and how many gradients they evaluated.

    Args:
        tuned: the runs that chose each method's setting, as `tuning_runs` returns them.

    Returns:
        Columns method, tuner (the method whose runs chose the setting), runs (number of these runs) and
        evaluations (gradient evaluations of these runs, including the evaluations for the basis).
    """
    return tuned.group_by("method", "tuner", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("runs"), CHARGED_GRADIENTS.sum().alias("evaluations")
    )


def lr_robustness_decades(values: pl.DataFrame, direction: Direction) -> pl.DataFrame:
    """Return how many decades of learning rates do nearly as well as the best rate, by method and seed.

    A rate does nearly as well as the best rate of a seed if its loss is at most `NEARLY` times the best loss,
    or its accuracy is at least the best accuracy divided by `NEARLY`. Of the rates tried, consider the
    unbroken range around the best rate in which every rate does nearly as well. The result is log10(highest
    rate / lowest rate) of this range. It is 0 if only the best rate does well, or if no run finished.

    Args:
        values: tuning runs with `value`, as `study_values` returns them; null counts as the worst value.
        direction: whether less or more of the metric is better.

    Returns:
        Columns method, seed, value (decades). A seed is left out if its best loss is negative, or if its best
        accuracy is not positive, because ratios to such a value have no meaning.
    """
    keys = ["method", "seed", "learning_rate"]
    values = values.with_columns(pl.col("value").fill_null(worst(direction)))
    grid = values.unique(keys, keep="last", maintain_order=True).sort("learning_rate", maintain_order=True)
    rows = []
    for (method, seed), group in grid.group_by(["method", "seed"], maintain_order=True):
        rates, scores = group["learning_rate"].to_numpy(), group["value"].to_numpy()
        best = scores.min() if direction == "minimize" else scores.max()
        if (best < 0 and isfinite(best)) or (direction == "maximize" and best == 0):
            continue
        near = scores <= NEARLY * best if direction == "minimize" else scores >= best / NEARLY
        best_position = int(np.argmin(scores) if direction == "minimize" else np.argmax(scores))
        # Positions of the rates that do clearly worse, and the positions before the first and after the last.
        edges = np.array([-1, *np.flatnonzero(~(near & isfinite(best))), len(near)])
        first, last = edges[edges < best_position].max() + 1, edges[edges > best_position].min() - 1
        rows.append({"method": method, "seed": seed, "value": log10(rates[last] / rates[first])})
    schema = {"method": pl.String(), "seed": pl.Int64(), "value": pl.Float64()}
    return pl.DataFrame(rows, schema=schema)
