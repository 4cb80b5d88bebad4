"""What conditions compare beside values of final runs: values at equal cost, costs, curves, tuning runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from curvebench.reports.measures import RUN_STEPS, cost_until, held_at, study_values
from curvebench.reports.plan import NEARLY_BEST
from curvebench.reports.statistics.paired import Direction
from curvebench.reports.statistics.ranks import tied
from curvebench.reports.tables import CELL, Tables
from curvebench.reports.wall_clock import final_jobs, step_seconds
from curvebench.results.outcomes import failed, missing
from curvebench.results.reading import read
from curvebench.results.tuning import comparable, worst
from curvebench.spec.claim import Condition
from curvebench.spec.errors import InputError
from curvebench.spec.plan import StudyPlan

LEAST_RATES = 3  # of a trend, and of rates won
LEAST_POINTS = 3  # of a line
AROUND = 10.0  # times the control's best learning rate, up and down: the range of `rates_won`


# --- at equal cost -------------------------------------------------------------------------------


def values_at_equal_cost(
    study: StudyPlan, tables: Tables, final: pl.DataFrame, condition: Condition
) -> pl.DataFrame:
    """The values of two methods where the cheaper of both runs of a seed ends, what bases cost charged.

    Read is the last evaluation within that budget; a method whose basis alone costs more stands at its start.
    A run that reached its stop keeps its value, one that failed within the budget counts as the worst.

    Args:
        tables: the study's.
        final: the final runs of both methods on one workload and backend, with `method`.
        condition: its `at_equal` is gradients or seconds.

    Returns:
        Columns method, seed, value, null where a step was not timed, and steps, how many the budget pays for,
        null where a step's cost is not known; seeds that both methods have.
    """
    both = affordable(study, tables, final, condition)
    recorded, affords = _recorded(tables, both, condition.metric), both.select("run", "affords")
    seen = recorded.join(affords, on="run").filter(pl.col("step") <= pl.col("affords"))
    value, direction = pl.col("value").fill_nan(None), study.direction_of(condition.metric)
    best = value.min() if direction == "minimize" else value.max()
    read = seen.group_by("run").agg(final=value.sort_by("step").last(), best=best)
    joined = both.join(read, on="run", how="left", maintain_order="left")
    dead = pl.col("failed") & (pl.col("outcome_step").fill_null(0) <= pl.col("affords"))
    found = pl.when(~dead).then("final") if condition.which == "final" else pl.col("best")
    evaluated = pl.col("failed") | pl.col("run").is_in(recorded["run"].unique().implode())
    known = pl.when(evaluated, pl.col("least").is_not_null()).then(found.fill_null(worst(direction)))
    value = held_at(known, direction, study.training.stop.get(condition.metric))
    return joined.select("method", "seed", value=value, steps=pl.when(pl.col("each") > 0).then("affords"))


def affordable(study: StudyPlan, tables: Tables, runs: pl.DataFrame, condition: Condition) -> pl.DataFrame:
    """The runs of seeds that both methods have, with the steps that the cheaper one's whole cost `affords`.

    Args:
        runs, condition: as `values_at_equal_cost` takes them.
    """
    both = runs.filter(~missing()).filter(pl.col("method").n_unique().over("seed") == 2)
    if condition.at_equal == "gradients":
        both = both.with_columns(start="basis_gradient_evaluations", each="step_evaluations")
    else:
        both = _timed(tables, both).with_columns(start="basis_seconds")
    steps: Any = study.training.budget.get("steps") or runs["steps"].max()
    start, each = pl.col("start").fill_null(0).cast(pl.Float64), pl.col("each").cast(pl.Float64)
    least = pl.when(each.is_not_null().all().over("seed")).then((start + steps * each).min().over("seed"))
    paid = ((pl.col("least") - start) / each * (1 + 1e-12)).floor().clip(lower_bound=0)
    return both.with_columns(least=least).with_columns(
        affords=pl.when(each > 0).then(paid).otherwise(0), failed=failed()
    )


def _timed(tables: Tables, runs: pl.DataFrame) -> pl.DataFrame:
    """Runs with the column `each`: the seconds of a step on their machine, null where it was not timed."""
    cell = [*CELL, "machine"]
    timed = step_seconds(tables.timings).select(*cell, each="median")
    return runs.join(timed, on=cell, how="left", maintain_order="left")


def _recorded(tables: Tables, runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Columns run, step and value of a metric, in order."""
    names = runs.select("run").lazy()

    def of_runs(curves: pl.LazyFrame) -> pl.LazyFrame:
        own = curves.filter(metric=metric).join(names, on="run", how="semi")
        return own.select("run", "step", "value").sort("run", "step")

    return read(tables.curves, "curves", of_runs)


# --- costs ---------------------------------------------------------------------------------------


def seconds_to_nearly_best(
    study: StudyPlan, tables: Tables, final: pl.DataFrame, metric: str, charged: bool = True
) -> pl.DataFrame:
    """Seconds until a run first has 99.5 % of its own best value (000 App. B).

    Of a metric that is minimized that is the best value over 0.995. The seconds are modelled: steps times the
    timed step. A run that failed did not converge: infinite.

    Args:
        tables: the study's.
        final: the final runs on one workload and backend, with `method`.
        metric: one that is nowhere negative.
        charged: whether the seconds of the basis are included.

    Returns:
        The rows of `final` that are not missing with a column `value`, null where no step was timed.
    """
    value = pl.col("value").fill_nan(None)
    near = value >= NEARLY_BEST * value.max().over("run")
    if study.direction_of(metric) == "minimize":
        near = value * NEARLY_BEST <= value.min().over("run")
    steps = _recorded(tables, final, metric).filter(near).group_by("run").agg(first=pl.col("step").min())
    joined = _timed(tables, final.filter(~missing())).join(steps, on="run", how="left", maintain_order="left")
    seconds = pl.col("first") * pl.col("each")
    if charged:
        seconds += pl.col("basis_seconds").fill_null(0)
    took = pl.when(failed()).then(pl.lit(float("inf"))).otherwise(seconds)
    return joined.with_columns(value=took).drop("first", "each")


def run_seconds(study: StudyPlan, tables: Tables, final: pl.DataFrame) -> pl.DataFrame:
    """Seconds that runs trained for, as their own jobs took them; infinite where one failed.

    Those of steps, of waiting for data and of the basis; compiling, evaluation and checkpoints are not in it.

    Args:
        study: as planned.
        tables: the study's.
        final: the final runs on one workload and backend, with `method`.

    Returns:
        The rows of `final` that are not missing with a column `value`, null of runs that share a job.
    """
    known = final.filter(~missing())
    if not len(known):
        return known.with_columns(value=pl.lit(None, pl.Float64))
    jobs = final_jobs(study, tables).filter(runs=1)
    parts = ("step_seconds", "waiting_seconds", "basis_seconds")
    seconds = pl.sum_horizontal(pl.col(part).fill_null(0) for part in parts)
    own = jobs.select("spec_hash", "machine", value=seconds)
    joined = known.join(own, on=["spec_hash", "machine"], how="left", nulls_equal=True, maintain_order="left")
    failed_ = pl.when(failed()).then(pl.lit(float("inf"))).otherwise(pl.col("value"))
    return joined.with_columns(value=failed_)


# --- curves --------------------------------------------------------------------------------------


def steps_to_value(
    study: StudyPlan, tables: Tables, final: pl.DataFrame, metric: str, target: float
) -> pl.DataFrame:
    """The steps after which each run was first evaluated at a value of a metric or a better one.

    Args:
        tables: the study's.
        final: the final runs on one workload and backend.

    Returns:
        As `steps_to_target` does, by whose rules runs count that were never there.
    """
    value = pl.col("value").fill_nan(None)
    there = value <= target if study.direction_of(metric) == "minimize" else value >= target
    first = _recorded(tables, final, metric).filter(there).group_by("run").agg(first=pl.col("step").min())
    joined = final.join(first, on="run", how="left", maintain_order="left")
    return cost_until(joined, pl.col("first"), ~missing(), RUN_STEPS).drop("first")


def log_linearity(tables: Tables, final: pl.DataFrame, metric: str, down_to: float) -> pl.DataFrame:
    """How straight a metric falls to a value on a logarithmic axis over steps: 1 where it converges linearly.

    The coefficient of determination of a line through the logarithms of a run's evaluations from its start
    to the first that is at most `down_to`. A run that does not end there, or is not finite on the way, has 0;
    one that is there before its third evaluation tells nothing.

    Args:
        tables: the study's.
        final: the final runs on one workload and backend, with `method`.
        metric: one that is minimized.
        down_to: above 0.

    Returns:
        The rows of `final` that are not missing with a column `value`.
    """
    recorded = _recorded(tables, final, metric).partition_by("run", as_dict=True)
    curves = {run: (own["step"].to_numpy(), own["value"].to_numpy()) for (run,), own in recorded.items()}
    known = final.filter(~missing())
    values = [
        0.0 if lost or run not in curves else _straightness(*curves[run], down_to)
        for run, lost in known.select("run", failed()).iter_rows()
    ]
    return known.with_columns(pl.Series("value", values, dtype=pl.Float64))


def _straightness(steps: np.ndarray, values: np.ndarray, down_to: float) -> float | None:
    """The share of the variance of log(values) down to a value that a line over steps explains."""
    from scipy.stats import linregress

    if not values[-1] <= down_to:
        return 0.0
    end = int(np.argmax(values <= down_to)) + 1
    steps, values = steps[:end], np.where(values[:end] == 0, down_to, values[:end])  # 0 has no logarithm
    if not np.isfinite(values).all():
        return 0.0
    return float(linregress(steps, np.log(values)).rvalue) ** 2 if end >= LEAST_POINTS else None


# --- over learning rates -------------------------------------------------------------------------


def gains_over_rates(
    study: StudyPlan, tuning: pl.DataFrame, condition: Condition, treated: str, control: str
) -> np.ndarray:
    """What a condition on learning rates says of each tuning seed, above 0 for the treated method.

    Both methods are judged on the learning rates that both tried; values beyond the condition's floor count
    as at it, so that rates which reach it tie.

    Args:
        tuning: the tuning runs on one workload and backend, with `method`; the longest of them count.
        condition: its quantity: `best_learning_rate` gives the logarithm of the ratio of the best rates, of
            equal ones the smallest; `trend` Kendall's tau-b of the learning rate and the gain at it;
            `rates_won` the share of learning rates at which the treated method is better, less the share at
            which it is worse; both of those within a factor of ten of the control's best.

    Returns:
        Shape (seeds,).
    """
    direction = study.direction_of(condition.metric)
    tuning = comparable(tuning, study.tuning)
    values = study_values(study, tuning, condition.metric, condition.which).drop_nulls("value")
    values = values.with_columns(held_at(pl.col("value"), direction, condition.floor))
    sides = [
        values.filter(method=name).group_by("seed", "learning_rate").agg(pl.col("value").median())
        for name in (treated, control)
    ]
    keys = ["seed", "learning_rate"]
    pairs = sides[0].join(sides[1], on=keys, suffix="_control").sort(keys)
    gains = []
    for (_,), own in pairs.group_by(["seed"], maintain_order=True):
        rates, left, right = (own[name].to_numpy() for name in ("learning_rate", "value", "value_control"))
        if condition.quantity == "best_learning_rate":
            best = [_best_rate(rates, values, direction) for values in (left, right)]
            gains.append(float(np.log(best[0]) - np.log(best[1])))
            continue
        near = _near(rates, left, right, direction)
        if near.sum() >= LEAST_RATES:
            over_rates = _trend if condition.quantity == "trend" else _rates_won
            gains.append(over_rates(rates[near], left[near], right[near], direction))
    return np.array([gain for gain in gains if not np.isnan(gain)])


def _best_rate(rates: np.ndarray, values: np.ndarray, direction: Direction) -> float:
    return float(rates[np.argmin(values) if direction == "minimize" else np.argmax(values)])


def _near(rates: np.ndarray, left: np.ndarray, right: np.ndarray, direction: Direction) -> np.ndarray:
    """Which rates are near the right's best, and did not let both diverge; none where it always diverged."""
    if not np.isfinite(right).any():
        return np.zeros(len(rates), dtype=bool)
    near = np.abs(np.log(rates / _best_rate(rates, right, direction))) <= np.log(AROUND) * (1 + 1e-9)
    return near & (np.isfinite(left) | np.isfinite(right))


def _rates_won(_: np.ndarray, left: np.ndarray, right: np.ndarray, direction: Direction) -> float:
    """The share of rates at which the left is better, less that where it is worse; near ties are ties."""
    apart = ~tied(left, right)
    won = float(np.mean((left < right) & apart) - np.mean((left > right) & apart))
    return won * (1 if direction == "minimize" else -1)


def _trend(rates: np.ndarray, left: np.ndarray, right: np.ndarray, direction: Direction) -> float:
    """Kendall's tau-b of rates and gains."""
    from scipy.stats import kendalltau

    if direction == "maximize":
        gains = left - right
    elif min(left.min(), right.min()) < 0:
        raise InputError("a trend of ratios of negative values says nothing; take another metric")
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.where(left == right, 0.0, np.log(right) - np.log(left))
    return float(kendalltau(rates, gains).statistic) if len(set(gains)) > 1 else 0.0
