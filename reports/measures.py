"""From the tables of a study to the frames that figures and pages show: pure functions on Polars frames."""

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
from curvebench.results.tuning import Judge, Tried, tried, worst
from curvebench.results.verdicts import ALPHA
from curvebench.spec.method import Method
from curvebench.spec.plan import StudyPlan, WorkloadPlan

RUN_STEPS = pl.col("steps")
BASIS_GRADIENTS = pl.col("basis_gradient_evaluations").fill_null(0)
CHARGED_GRADIENTS = pl.col("gradient_evaluations") + BASIS_GRADIENTS
NEARLY = 1.1  # times the best loss, or the best accuracy over it: a learning rate that does nearly as well


@dataclass(frozen=True)
class StudyProblem:
    """A workload of a study on one backend, with the study's tables."""

    study: StudyPlan
    workload: WorkloadPlan
    backend: str
    tables: Tables

    @property
    def name(self) -> str:
        """Names the problem among those of several studies."""
        return f"{self.study.name}/{self.workload.name}"

    def of(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows of a table that are about it."""
        return table.filter(workload=self.workload.name, backend=self.backend)

    @property
    def runs(self) -> pl.DataFrame:
        """All runs, those of tuning too."""
        return self.of(self.tables.runs)

    @cached_property
    def final(self) -> pl.DataFrame:
        """The final runs."""
        return self.runs.filter(stage="final")

    @cached_property
    def values(self) -> pl.DataFrame:
        """The final runs with the headline metric as `value`; without those that have none."""
        return study_values(self.study, self.final).drop_nulls("value")

    @property
    def targets(self) -> dict[str, float]:
        """Threshold by metric."""
        return self.study.targets_on(self.workload)

    @property
    def target(self) -> tuple[str, float] | None:
        """The metric and threshold of the first target; None without one."""
        return next(iter(self.targets.items()), None)


def problems_of(study: StudyPlan, tables: Tables, backend: str | None = None) -> list[StudyProblem]:
    """The workloads of a study, on its first backend if none is named."""
    where = backend or study.backends[0]
    return [StudyProblem(study, workload, where, tables) for workload in study.workloads]


def run_values(
    runs: pl.DataFrame, metric: str, which: str, direction: Direction, limit: float | None = None
) -> pl.DataFrame:
    """One value a run of one metric.

    The final value of a failed run (`curvebench.results.outcomes`) is the worst possible, NaN likewise; a
    missing run has none.

    Args:
        runs: the table `runs` with `method`.
        which: "final" or "best" of the run.
        limit: the threshold of the metric at which runs stop, or its floor. How far a run gets beyond it is
            chance or rounding, so no value counts as better.

    Returns:
        The rows of `runs` with a column `value`, null where a run has no such metric.
    """
    bad = pl.col("value").is_nan() | (failed() & pl.col("value").is_null())
    if which == "final":
        bad = bad | failed()
    column = pl.when(missing()).then(None).when(bad).then(worst(direction)).otherwise("value")
    recorded = runs.with_columns(named(metric, f"{which}_metrics").alias("value"))
    return recorded.with_columns(value=clip_at(column, direction, limit))


def clip_at(value: pl.Expr, direction: Direction, limit: float | None) -> pl.Expr:
    """Values of which none counts as better than a stop or a floor; as they are without one."""
    if limit is None:
        return value
    return value.clip(lower_bound=limit) if direction == "minimize" else value.clip(upper_bound=limit)


def study_values(
    study: StudyPlan, runs: pl.DataFrame, metric: str | None = None, which: str | None = None
) -> pl.DataFrame:
    """`run_values` as a study counts them: each metric held at its stop, the headline at its floor too.

    Args:
        metric, which: None: the headline metric. One that is named has no floor here: claims have their own.
    """
    name = metric or study.metric
    limit = headline_limit(study) if metric is None else study.training.stop.get(name)
    return run_values(runs, name, which or study.which, study.direction_of(name), limit)


def headline_limit(study: StudyPlan) -> float | None:
    """The value of a study's headline metric that none counts as better than: its stop or its floor."""
    known = study.training.stop.get(study.metric), study.compare.floor
    limits = [limit for limit in known if limit is not None]
    strictest = max if study.direction == "minimize" else min
    return strictest(limits, default=None)


def cost_to_stop(study: StudyPlan, runs: pl.DataFrame, metric: str, cost: pl.Expr) -> pl.DataFrame:
    """What each run cost until it met the threshold at which runs stop, as far as it is known.

    A run that ended without it would have cost more than it did, nobody knows how much; one that failed
    never meets it. Missing runs say nothing.

    Args:
        metric: one that the study's runs stop at.
        cost: of a run to its end: `RUN_STEPS` or `CHARGED_GRADIENTS`.

    Returns:
        The rows of `runs` with columns least and most, between what its cost lies, and value: the least.
    """
    final = study_values(study, runs, metric, "final").rename({"value": "at"})
    met = pl.when(pl.col("at") == study.training.stop[metric]).then(cost)
    return cost_until(final, met, pl.col("at").is_not_null(), cost).drop("at")


def steps_to_target(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The steps after which each run was first seen at its study's target, as far as it is known.

    Targets are looked at where runs are evaluated. Runs without the target are as `cost_to_stop` has them.

    Args:
        metric: one that the study has a target for.

    Returns:
        As `cost_to_stop` does.
    """
    met = named(metric, "targets", key="metric", value="steps")
    return cost_until(runs, met, ~missing(), RUN_STEPS)


def cost_until(runs: pl.DataFrame, met: pl.Expr, known: pl.Expr, cost: pl.Expr) -> pl.DataFrame:
    """Runs with value, least and most of a cost: `met`, null where a run ended without that, after `cost`."""
    least, most = _bounds_until(met, cost + 1)
    least, most = (pl.when(known).then(end) for end in (least, most))
    return runs.with_columns(value=least, least=least, most=most)


def _bounds_until(met: pl.Expr, ended: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Between what a cost until `met` lies: where that is null, from `ended` on; never if the run failed."""
    never, met = pl.lit(float("inf")), met.cast(pl.Float64)
    missed = pl.when(failed()).then(never).otherwise(ended.cast(pl.Float64))
    return pl.coalesce(met, missed), met.fill_null(never)


def median_by_method(values: pl.DataFrame, column: str = "value") -> dict[str, MedianInterval]:
    """The median of every method and its interval, in the order of the methods' names."""
    return {
        row.pop("method"): MedianInterval(**row) for row in medians(values, ["method"], column).to_dicts()
    }


def best_methods(study: StudyPlan, medians_by_method: Mapping[str, float]) -> set[str]:
    """The methods with the best finite median of the headline metric, and those that tie with it."""
    finite = {name: median for name, median in medians_by_method.items() if isfinite(median)}
    if not finite:
        return set()
    best = min(finite.values()) if study.direction == "minimize" else max(finite.values())
    return {name for name, median in finite.items() if tied(median, best)}


def enough_seeds(values: pl.DataFrame) -> bool:
    """Whether shared seeds are enough to distinguish a method from others; else none is called the best.

    Args:
        values: columns method, seed, value.
    """
    return least_p_value(values) <= ALPHA


def evaluations_to_target(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Gradient evaluations until a target was reached, the basis' cost included; infinite where it was not.

    Args:
        runs: with `step_evaluations`, as `curvebench.reports.tables` reads them.

    Returns:
        The rows of `runs` whose study has that target and that are not missing, with a column `value`, and
        with `least` and `most`, between what they lie: a run that ended without the target would have taken
        more than it did, one that failed never reaches it.
    """
    steps = named(metric, "targets", key="metric", value="steps")
    charged = steps * pl.col("step_evaluations") + BASIS_GRADIENTS
    least, most = _bounds_until(charged, CHARGED_GRADIENTS + 1)
    aimed = named(metric, "targets", key="metric", value="threshold").is_not_null()
    return runs.filter(~missing() & aimed).with_columns(value=most, least=least, most=most)


def seconds_to_target(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Seconds until a target was reached, those of the basis included; infinite where it was not.

    The seconds of the steps are modelled (steps times the timed step) unless they were measured.

    Returns:
        The rows of `runs` whose study has that target and that are not missing, with a column `value`, null
        where the target was reached and no step was timed.
    """
    steps, seconds, threshold = (
        named(metric, "targets", key="metric", value=field) for field in ("steps", "seconds", "threshold")
    )
    charged = seconds + pl.col("basis_seconds").fill_null(0)
    value = pl.when(steps.is_null()).then(float("inf")).otherwise(charged)
    return runs.filter(~missing() & threshold.is_not_null()).with_columns(value=value)


def complete_interval(values: pl.Series) -> MedianInterval | None:
    """The interval of the median; None where a value is missing, which would bias it, or there is none."""
    return median_interval(values.to_numpy()) if len(values) and not values.has_nulls() else None


def reached_share(costs: pl.Series) -> Share | None:
    """How many runs met a target, by what it cost them; None where no run aimed at it."""
    return share_interval(int(costs.is_finite().sum()), len(costs)) if len(costs) else None


def outcome_counts(runs: pl.DataFrame) -> pl.DataFrame:
    """Columns of `CELL`, failed, missing, count (all runs)."""
    return runs.group_by(CELL, maintain_order=True).agg(
        failed=failed().sum().cast(pl.Int64),
        missing=missing().sum().cast(pl.Int64),
        count=pl.len().cast(pl.Int64),
    )


def complete_curves(
    runs: pl.DataFrame, curves: pl.DataFrame, metric: str, direction: Direction
) -> pl.DataFrame:
    """One metric of every run at the same steps.

    The steps are those of the cell's longest runs. A run that stopped because it reached its goal keeps
    its last value; one that failed counts as the worst from that step on, so that a median is never taken
    over survivors only. Missing runs are left out.

    Returns:
        Columns of `CELL`, run, step, gradient_evaluations, charged_evaluations (with the basis), value.
    """
    kept = runs.filter(~missing()).select(*CELL, "run", "outcome", "outcome_step", basis=BASIS_GRADIENTS)
    recorded = curves.filter(pl.col("metric") == metric).join(kept, on="run", how="inner")
    longest = pl.col("step").max().over("run") == pl.col("step").max().over(CELL)
    steps = recorded.filter(longest).group_by(*CELL, "step").agg(pl.col("gradient_evaluations").max())
    grid = kept.join(steps, on=list(CELL), how="inner").sort("step")
    values = recorded.select("run", "step", "value").sort("step")
    joined = grid.join_asof(values, on="step", by="run", strategy="backward", check_sortedness=False)
    dead = failed() & ((pl.col("step") >= pl.col("outcome_step").fill_null(0)) | pl.col("value").is_null())
    return joined.select(
        *CELL,
        "run",
        "step",
        "gradient_evaluations",
        charged_evaluations=pl.col("gradient_evaluations") + pl.col("basis"),
        value=pl.when(dead | pl.col("value").is_nan()).then(worst(direction)).otherwise("value"),
    ).sort(*CELL, "run", "step")


def curve_bands(curves: pl.DataFrame) -> pl.DataFrame:
    """Median and quartiles over seeds at every step of `complete_curves`."""
    axes = curves.group_by(*CELL, "step").agg(
        pl.col("gradient_evaluations").max(), pl.col("charged_evaluations").median()
    )
    bands = quartile_bands(curves, [*CELL, "step"], "value")
    return bands.join(axes, on=[*CELL, "step"], how="left").sort(*CELL, "step")


def sensitivity(values: pl.DataFrame) -> pl.DataFrame:
    """The headline metric against the learning rate, over the tuning runs.

    Args:
        values: what `study_values` returns; other runs than those of tuning are left out.

    Returns:
        Columns of `CELL`, learning_rate, lower_quartile, median, upper_quartile, count, failed (share).
    """
    tuned = values.filter(stage="tuning").unique(
        [*CELL, "learning_rate", "seed"], keep="last", maintain_order=True
    )
    keys = [*CELL, "learning_rate"]
    shares = tuned.group_by(keys).agg(failed().mean().alias("failed"))
    return quartile_bands(tuned, keys, "value").join(shares, on=keys, how="left").sort(keys)


def chosen_rates(runs: pl.DataFrame) -> pl.DataFrame:
    """The learning rate of the final runs, and where it lies among the rates that were tried.

    Returns:
        Columns of `CELL`, learning_rate, least, greatest, tried (rates), tuning_seeds, at_edge (null where
        the method was not tuned itself).
    """
    final, rate = runs.filter(stage="final"), pl.col("learning_rate")
    tried = (
        runs.filter(stage="tuning")
        .group_by(CELL)
        .agg(
            least=rate.min(),
            greatest=rate.max(),
            tried=rate.n_unique().cast(pl.Int64),
            tuning_seeds=pl.col("seed").n_unique().cast(pl.Int64),
        )
    )
    chosen = final.group_by([*CELL, "learning_rate"], maintain_order=True).agg(count=pl.len().cast(pl.Int64))
    edge = (rate <= pl.col("least")) | (rate >= pl.col("greatest"))
    found = chosen.join(tried, on=list(CELL), how="left", maintain_order="left")
    return found.with_columns(at_edge=edge & (pl.col("tried") > 1))  # one rate alone was not looked for


def settings_tried(study: StudyPlan, optimizer: str, tuning: pl.DataFrame) -> Tried | None:
    """The settings that a method was tuned by; None where no run says anything.

    Args:
        tuning: the tuning runs of one method on one workload and backend.
    """
    judge = Judge(study.tuning, study.direction_of, study.training.stop)
    return tried(tuning, study.tuned_names(optimizer), judge)


def tuned_as(study: StudyPlan, method: str, backend: str, tuning: pl.DataFrame) -> tuple[str, str]:
    """The method and the backend whose runs chose a method's setting.

    Args:
        tuning: the tuning runs of one workload, on all backends.
    """
    optimizer = Method.of(method)[0]
    # What runs on one backend alone is tuned there, whatever the others take.
    own = tuning.filter(pl.col("optimizer") == optimizer)["backend"]
    where = backend if backend in own else study.tuned_on.get(backend, backend)
    return (optimizer if study.shares_rates else method), where


def tuning_runs(problem: StudyProblem, own: bool = False) -> pl.DataFrame:
    """The runs that chose the setting of each method of a study, on one workload and backend.

    Args:
        own: take each method's own tuning runs, even where those of another one chose for it.

    Returns:
        Rows of `runs`, where `method` is the one whose setting was chosen and `tuner` the one that ran;
        runs that served several methods appear once for each.
    """
    tuning = problem.tables.runs.filter(stage="tuning", workload=problem.workload.name)
    parts = [tuning.clear().with_columns(tuner=pl.col("method"))]
    for method in problem.study.methods:
        tuner, where = tuned_as(problem.study, method, problem.backend, tuning)
        ran = tuning.filter(method=method if own else tuner, backend=where)
        parts.append(ran.with_columns(tuner=pl.col("method"), method=pl.lit(method)))
    return pl.concat(parts)


def tuning_budgets(tuned: pl.DataFrame) -> pl.DataFrame:
    """What was spent on choosing each method's setting.

    Args:
        tuned: what `tuning_runs` returns.

    Returns:
        Columns method, tuner, runs, evaluations (gradient evaluations, those of the basis included).
    """
    return tuned.group_by("method", "tuner", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("runs"), CHARGED_GRADIENTS.sum().alias("evaluations")
    )


def nearly_best_decades(values: pl.DataFrame, direction: Direction) -> pl.DataFrame:
    """How many decades of learning rates do nearly as well as the best, for every method and seed.

    Of the rates that were tried they are those in an unbroken stretch around the seed's best one whose loss
    is at most `NEARLY` times the best, or whose accuracy is at least the best over `NEARLY`. The number is
    the logarithm of the last rate over the first: 0 where only the best one does, or no run finished.

    Args:
        values: tuning runs with `value`, as `study_values` gives them; null counts as the worst.

    Returns:
        Columns method, seed, value; without the seeds on which a share of the best means nothing (a negative
        loss, an accuracy that is not positive).
    """
    keys = ["method", "seed", "learning_rate"]
    values = values.with_columns(pl.col("value").fill_null(worst(direction)))
    tried = values.unique(keys, keep="last", maintain_order=True).sort("learning_rate", maintain_order=True)
    rows = []
    for (method, seed), group in tried.group_by(["method", "seed"], maintain_order=True):
        rates, scores = group["learning_rate"].to_numpy(), group["value"].to_numpy()
        best = scores.min() if direction == "minimize" else scores.max()
        if (best < 0 and isfinite(best)) or (direction == "maximize" and best == 0):
            continue
        near = scores <= NEARLY * best if direction == "minimize" else scores >= best / NEARLY
        at = int(np.argmin(scores) if direction == "minimize" else np.argmax(scores))
        edges = np.array([-1, *np.flatnonzero(~(near & isfinite(best))), len(near)])  # where none is near
        first, last = edges[edges < at].max() + 1, edges[edges > at].min() - 1
        rows.append({"method": method, "seed": seed, "value": log10(rates[last] / rates[first])})
    schema = {"method": pl.String(), "seed": pl.Int64(), "value": pl.Float64()}
    return pl.DataFrame(rows, schema=schema)
