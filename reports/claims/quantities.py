"""Quantities of conditions: how each is read from runs, and how the runs of two methods are paired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import polars as pl

from curvebench.reports import measures
from curvebench.reports.claims.censoring import with_bounds
from curvebench.reports.statistics.paired import Direction
from curvebench.reports.statistics.ranks import tied
from curvebench.reports.tables import CELL, Tables
from curvebench.reports.wall_clock import final_jobs, step_seconds
from curvebench.results.outcomes import failed, missing
from curvebench.results.reading import read
from curvebench.results.tuning import comparable, worst
from curvebench.spec.conditions import costs
from curvebench.spec.conditions.condition import Condition
from curvebench.spec.conditions.learning_rates import BestLearningRate, GainOverRates
from curvebench.spec.conditions.log_linearity import LogLinearity
from curvebench.spec.conditions.share_of_gain import ShareOfGain
from curvebench.spec.conditions.value import Value, ValueAtEqualCost
from curvebench.spec.errors import InputError
from curvebench.spec.plan import StudyPlan

# Columns of a quantity: the value, clipped at the stop or the floor, and its lower and upper bound, which
# differ from the value only where a run is censored.
COLUMNS = ("value", "least", "most")
# Cost of a whole run, by the name of the quantity in study files.
COSTS = {"steps_to_stop": measures.RUN_STEPS, "gradients_to_stop": measures.CHARGED_GRADIENTS}
MIN_RATES = 3  # learning rates that a trend, or a share of rates won, needs at least
MIN_POINTS = 3  # evaluations that a fitted line needs at least
# Trends and rates won use the learning rates up to this factor above and below the control's best one.
NEAR_FACTOR = 10.0
Floats = np.ndarray


@dataclass(frozen=True)
class Quantity:
    """Quantity of a condition, read from the runs of a study; the base of all quantities.

    A subclass defines `of_runs`, which reads the quantity. Where values can be censored it overrides
    `threshold`; where runs are not simply paired by seed it overrides `pairs`.

    Args:
        condition: instance of the condition class that belongs to the quantity (curvebench.spec.conditions).
        study: the study that decides the claim.
        tables: tables of the study.
    """

    condition: Any
    study: StudyPlan
    tables: Tables

    @property
    def direction(self) -> Direction:
        """Whether less or more of the condition's metric is better."""
        return self.study.direction_of(self.condition.metric)

    def threshold(self, workload: str) -> float | None:
        """Return the threshold that censors values on a workload, such as the stop; None without any."""
        return None

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the quantity of runs on one workload and backend.

        Returns:
            Rows of `runs` with a column `value`, null where nothing is known of a run. If runs can be
            censored, columns `least` and `most` bound the value.
        """
        raise NotImplementedError

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair runs by their seeds.

        Args:
            sides: frames that `of_runs` returns for both methods, or for the one method that is compared with
                a number.

        Returns:
            Columns seed and `COLUMNS`, and `COLUMNS` of the control with the suffix " of the control".
        """
        bounded = [
            side if "least" in side.columns else side.with_columns(least="value", most="value")
            for side in sides
        ]
        if self.condition.number is not None:
            number = pl.lit(self.condition.number, pl.Float64)
            bounded.append(bounded[0].with_columns(number.alias(name) for name in COLUMNS))
        columns = pl.col("^(seed|value|least|most|affords)$")
        treated, control = (side.drop_nulls("value").select(columns) for side in bounded)
        return treated.join(control, on="seed", suffix=" of the control").sort("seed")


def recorded(tables: Tables, runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Read the curves of runs: columns run, step and value of one metric, sorted by run and step."""
    names = runs.select("run").lazy()

    def of_runs(curves: pl.LazyFrame) -> pl.LazyFrame:
        selected = curves.filter(metric=metric).join(names, on="run", how="semi")
        return selected.select("run", "step", "value").sort("run", "step")

    return read(tables.curves, "curves", of_runs)


def timed(tables: Tables, runs: pl.DataFrame) -> pl.DataFrame:
    """Add the column `each` to runs: seconds per step on the run's machine, null if not timed."""
    cell = [*CELL, "machine"]
    steps = step_seconds(tables.timings).select(*cell, each="median")
    return runs.join(steps, on=cell, how="left", maintain_order="left")


# --- values ---------------------------------------------------------------------------------------


class JudgedValue(Quantity):
    """Value of the metric, clipped at the stop and at the condition's floor."""

    def threshold(self, workload: str) -> float | None:
        """Return the condition's floor if it has one, otherwise the stop."""
        floor: float | None = self.condition.floor
        return self.study.training.stop.get(self.condition.metric) if floor is None else floor

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the final or best value of runs, as the condition says."""
        metric, which = self.condition.metric, self.condition.which
        return self.bounded(measures.study_values(self.study, runs, metric, which))

    def bounded(self, values: pl.DataFrame) -> pl.DataFrame:
        """Clip values at the floor, and add their bounds `least` and `most`."""
        value = measures.clip_at(pl.col("value"), self.direction, self.condition.floor)
        return with_bounds(values.with_columns(value=value), self.direction, self.threshold(""))

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair runs by their seeds; two values at the floor count as known and equal.

        The floor is the size of rounding errors, so that no precision distinguishes values beyond it. At a
        stop, in contrast, a run would have gone further.
        """
        pairs, floor = super().pairs(sides), self.condition.floor
        if floor is None:
            return pairs
        both = (pl.col("value") == floor) & (pl.col("value of the control") == floor)
        return pairs.with_columns(pl.when(~both).then(pl.col("^(least|most).*$")).otherwise(floor))


class ValueAtCost(JudgedValue):
    """Value of the metric at equal cost: where the cheaper run of a seed ends.

    The value depends on both runs of a seed, so that it is read when they are paired.
    """

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Return the runs unchanged, since values are read by `pairs`."""
        return runs

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair the values that both runs of a seed have when the cost of the cheaper one is spent.

        The value is read at the last evaluation within this budget. A method whose basis alone costs more has
        its value at the start. A run that reached its stop keeps its value; a run that failed within the
        budget counts as the worst. Nothing is known of a run whose steps were not timed.

        Args:
            sides: the runs of both methods.

        Returns:
            As `Quantity.pairs`, with columns `affords`: the steps that the budget pays for, null where their
            cost is not known.
        """
        both, metric, direction = self.affordable(pl.concat(sides)), self.condition.metric, self.direction
        curves, affords = recorded(self.tables, both, metric), both.select("run", "affords")
        within = curves.join(affords, on="run").filter(pl.col("step") <= pl.col("affords"))
        value = pl.col("value").fill_nan(None)
        best = value.min() if direction == "minimize" else value.max()
        last_and_best = within.group_by("run").agg(final=value.sort_by("step").last(), best=best)
        joined = both.join(last_and_best, on="run", how="left", maintain_order="left")
        dead = pl.col("failed") & (pl.col("outcome_step").fill_null(0) <= pl.col("affords"))
        chosen = pl.when(~dead).then("final") if self.condition.which == "final" else pl.col("best")
        evaluated = pl.col("failed") | pl.col("run").is_in(curves["run"].unique().implode())
        judged = pl.when(evaluated, pl.col("least").is_not_null()).then(chosen.fill_null(worst(direction)))
        value = measures.clip_at(judged, direction, self.study.training.stop.get(metric))
        steps = pl.when(pl.col("each") > 0).then("affords")
        equal = self.bounded(joined.select("run", "seed", value=value, affords=steps))
        return super().pairs([equal.join(side, on="run", how="semi") for side in sides])

    def affordable(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Keep the seeds on which both methods ran, and add the steps that the cheaper run's cost pays for.

        Args:
            runs: runs of both methods on one workload and backend, with `method`.

        Returns:
            Rows with columns affords (steps), failed, and the cost of the start and of `each` step.
        """
        both = runs.filter(~missing()).filter(pl.col("method").n_unique().over("seed") == 2)
        if self.condition.at_equal == "gradients":
            both = both.with_columns(start="basis_gradient_evaluations", each="step_evaluations")
        else:
            both = timed(self.tables, both).with_columns(start="basis_seconds")
        steps: Any = self.study.training.budget.get("steps") or runs["steps"].max()
        start, step = pl.col("start").fill_null(0).cast(pl.Float64), pl.col("each").cast(pl.Float64)
        cheaper = (start + steps * step).min().over("seed")
        budget = pl.when(step.is_not_null().all().over("seed")).then(cheaper)
        paid = ((pl.col("least") - start) / step * (1 + 1e-12)).floor().clip(lower_bound=0)
        affords = pl.when(step > 0).then(paid).otherwise(0)
        return both.with_columns(least=budget).with_columns(affords=affords, failed=failed())


class KeptGain(JudgedValue):
    """Share of the logarithmic gain between two reference methods that a method keeps."""

    def threshold(self, workload: str) -> float | None:
        """Return the target if the gain is in steps to it, otherwise the threshold of values."""
        if self.condition.meets_targets:
            return self.study.training.targets_on(workload).get(self.condition.metric)
        return super().threshold(workload)

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the quantity in which the gain is measured: values, or steps to the study's target."""
        if self.condition.meets_targets:
            return measures.steps_to_target(runs, self.condition.metric)
        return super().of_runs(runs)

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair by seed the share of the gain from the second to the third side that the first side keeps."""
        return Quantity.pairs(self, [share_of_gain(*(side.drop_nulls("value") for side in sides))])


def share_of_gain(method: pl.DataFrame, start: pl.DataFrame, end: pl.DataFrame) -> pl.DataFrame:
    """Return, by seed, the share of the logarithmic gain from `start` to `end` that a method keeps.

    Seeds without a gain from start to end have the value 0 and infinite bounds: nothing is known of them.

    Args:
        method, start, end: frames with columns seed, value, least and most (the bounds of the value).
    """
    joined = start.join(method, on="seed", suffix=" kept").join(end, on="seed", suffix=" whole").sort("seed")

    def log(column: str) -> Floats:
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(joined[column].to_numpy().astype(float), 0.0))

    def shares(*columns: str) -> Floats:
        """Return the shares with the values of each side from each of the columns."""
        at_start, at_method, at_end = (
            np.array([log(f"{column}{side}") for column in columns]) for side in ("", " kept", " whole")
        )
        at_start = at_start[:, None, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (at_start - at_method[:, None]) / (at_start - at_end)
        return share.reshape(-1, len(joined))

    gained = log("least") > log("most whole")
    values, bounds = shares("value")[0], shares("least", "most")
    low, high = np.nan_to_num(bounds, nan=-inf).min(axis=0), np.nan_to_num(bounds, nan=inf).max(axis=0)
    unknown = (0.0, -inf, inf)
    ends = [np.where(gained, *pair) for pair in zip((values, low, high), unknown, strict=True)]
    return pl.DataFrame({"seed": joined["seed"], **dict(zip(COLUMNS, ends, strict=True))})


# --- costs ----------------------------------------------------------------------------------------


class StopCost(Quantity):
    """Cost of a run until it met the threshold at which runs stop."""

    def threshold(self, workload: str) -> float | None:
        """Return the stop."""
        return self.study.training.stop.get(self.condition.metric)

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the cost of runs; it is censored where a run ended without meeting the threshold."""
        return measures.cost_to_stop(self.study, runs, self.condition.metric, COSTS[self.condition.quantity])


class TargetSteps(Quantity):
    """Steps to the condition's own target if it has one, otherwise to the study's target."""

    def threshold(self, workload: str) -> float | None:
        """Return the target."""
        target, targets = self.condition.target, self.study.training.targets_on(workload)
        return targets.get(self.condition.metric) if target is None else target

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the steps of runs; the condition's own target is looked for in their curves."""
        metric, target = self.condition.metric, self.condition.target
        if target is None:
            return measures.steps_to_target(runs, metric)
        value = pl.col("value").fill_nan(None)
        reached = value <= target if self.direction == "minimize" else value >= target
        evaluated = recorded(self.tables, runs, metric).filter(reached)
        first = evaluated.group_by("run").agg(first=pl.col("step").min())
        joined = runs.join(first, on="run", how="left", maintain_order="left")
        return measures.cost_until(joined, pl.col("first"), ~missing(), measures.RUN_STEPS).drop("first")


class ConvergenceSeconds(Quantity):
    """Seconds until a run first has nearly its best value."""

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the seconds of runs, as `seconds_to_nearly_best` defines them."""
        metric, charged = self.condition.metric, self.condition.charges_bases
        return seconds_to_nearly_best(self.study, self.tables, runs, metric, charged)


class TrainedSeconds(Quantity):
    """Seconds of training of a run that had a job of its own."""

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the seconds of runs from their jobs; infinite for a failed run, null for runs that share a
        job.

        They consist of steps, waiting for data and the estimation of the basis. Compilation, evaluation and
        checkpoints are not included.
        """
        present = runs.filter(~missing())
        jobs = final_jobs(self.study, self.tables).filter(runs=1)
        parts = ("step_seconds", "waiting_seconds", "basis_seconds")
        took = pl.sum_horizontal(pl.col(part).fill_null(0) for part in parts)
        job_seconds, key = jobs.select("spec_hash", "machine", value=took), ["spec_hash", "machine"]
        joined = present.join(job_seconds, on=key, how="left", nulls_equal=True, maintain_order="left")
        return joined.with_columns(value=pl.when(failed()).then(float("inf")).otherwise("value"))


def seconds_to_nearly_best(
    study: StudyPlan, tables: Tables, final: pl.DataFrame, metric: str, charged: bool = True
) -> pl.DataFrame:
    """Read the seconds until a run first has 99.5 % of its own best value (000 App. B).

    For a metric that is minimized, this is the best value divided by 0.995. The seconds are modelled: steps
    times the timed step. A failed run did not converge, so that its seconds are infinite.

    Args:
        study: the study of the runs.
        tables: tables of the study.
        final: the final runs on one workload and backend, with `method`.
        metric: a metric that is nowhere negative.
        charged: whether the seconds of the basis are included.

    Returns:
        The rows of `final` that are not missing with a column `value`, null where no step was timed.
    """
    value = pl.col("value").fill_nan(None)
    near = value >= costs.NEARLY_BEST * value.max().over("run")
    if study.direction_of(metric) == "minimize":
        near = value * costs.NEARLY_BEST <= value.min().over("run")
    steps = recorded(tables, final, metric).filter(near).group_by("run").agg(first=pl.col("step").min())
    joined = timed(tables, final.filter(~missing())).join(steps, on="run", how="left", maintain_order="left")
    seconds = pl.col("first") * pl.col("each")
    if charged:
        seconds += pl.col("basis_seconds").fill_null(0)
    took = pl.when(failed()).then(float("inf")).otherwise(seconds)
    return joined.with_columns(value=took).drop("first", "each")


# --- curves ---------------------------------------------------------------------------------------


class Straightness(Quantity):
    """Straightness of a convergence curve on a logarithmic axis: 1 where a run converges linearly.

    It is the coefficient of determination (R²) of a line through the logarithms of a run's evaluations over
    steps, from the start to the first evaluation that is at most `until`. A run that never gets there, or
    whose values are not finite on the way, has 0. Nothing is known of a run that gets there before its third
    evaluation.
    """

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the curves of runs and fit a line to each."""
        curves = recorded(self.tables, runs, self.condition.metric).partition_by("run", as_dict=True)
        present = runs.filter(~missing())
        values = [
            0.0 if has_failed or (run,) not in curves else _straightness(curves[run,], self.condition.until)
            for run, has_failed in present.select("run", failed()).iter_rows()
        ]
        return present.with_columns(pl.Series("value", values, dtype=pl.Float64))


def _straightness(curve: pl.DataFrame, until: float) -> float | None:
    """Return R² of a line through log(values) over steps, down to the first value up to `until`."""
    from scipy.stats import linregress

    steps, values = curve["step"].to_numpy(), curve["value"].to_numpy()
    if not values[-1] <= until:
        return 0.0
    end = int(np.argmax(values <= until)) + 1
    # A value of exactly 0 has no logarithm; only the last one can be 0, and it counts as `until`.
    steps, values = steps[:end], np.where(values[:end] == 0, until, values[:end])
    if not np.isfinite(values).all():
        return 0.0
    return float(linregress(steps, np.log(values)).rvalue) ** 2 if end >= MIN_POINTS else None


# --- learning rates -------------------------------------------------------------------------------


class BestRate(Quantity):
    """Learning rate at which a method has its best value; the smallest one if several are equally good.

    Both methods are judged on the learning rates that both of them tried. Values beyond the condition's floor
    are clipped, so that the learning rates that reach it tie.
    """

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the judged values of the longest tuning runs."""
        longest = comparable(runs, self.study.tuning)
        values = measures.study_values(self.study, longest, self.condition.metric, self.condition.which)
        return values.with_columns(measures.clip_at(pl.col("value"), self.direction, self.condition.floor))

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair the numbers that `of_seed` returns for each tuning seed of both methods."""
        keys, value = ["seed", "learning_rate"], pl.col("value").median()
        treated, control = (side.drop_nulls("value").group_by(keys).agg(value) for side in sides)
        rates = treated.join(control, on=keys, suffix="_control").sort(keys)
        rows = [
            (seed, *values)
            for (seed,), group in rates.group_by(["seed"], maintain_order=True)
            if (values := self.of_seed(*(group[name].to_numpy() for name in rates.columns[1:]))) is not None
        ]
        schema = {"seed": pl.Int64, "treated": pl.Float64, "control": pl.Float64}
        by_seed = pl.DataFrame(rows, schema=schema, orient="row")
        return super().pairs([by_seed.select("seed", value=name) for name in ("treated", "control")])

    def of_seed(self, rates: Floats, treated: Floats, control: Floats) -> tuple[float, float] | None:
        """Return the compared number of both methods for one tuning seed; None where the seed has none.

        Args:
            rates: learning rates in increasing order, shape (count,).
            treated, control: values of both methods at these rates, shape (count,).
        """
        return _best_rate(rates, treated, self.direction), _best_rate(rates, control, self.direction)


class RateGain(BestRate):
    """Gain over the learning rates near the control's best one, compared with 0 (no gain)."""

    def of_seed(self, rates: Floats, treated: Floats, control: Floats) -> tuple[float, float] | None:
        """Return the gain, and 0; None where too few learning rates are near, or where the gain is not
        defined.
        """
        near = _near(rates, treated, control, self.direction)
        if near.sum() < MIN_RATES:
            return None
        gain = GAINS[self.condition.quantity](rates[near], treated[near], control[near], self.direction)
        return None if np.isnan(gain) else (gain, 0.0)


def _best_rate(rates: Floats, values: Floats, direction: Direction) -> float:
    return float(rates[np.argmin(values) if direction == "minimize" else np.argmax(values)])


def _near(rates: Floats, treated: Floats, control: Floats, direction: Direction) -> Floats:
    """Return which learning rates are near the control's best one and did not make both methods diverge.

    No learning rate is, if the control diverged at all of them.
    """
    if not np.isfinite(control).any():
        return np.zeros(len(rates), dtype=bool)
    near = np.abs(np.log(rates / _best_rate(rates, control, direction))) <= np.log(NEAR_FACTOR) * (1 + 1e-9)
    return near & (np.isfinite(treated) | np.isfinite(control))


def _trend(rates: Floats, treated: Floats, control: Floats, direction: Direction) -> float:
    """Return Kendall's tau-b between learning rates and gains.

    Raises:
        InputError: when gains are ratios of negative values.
    """
    from scipy.stats import kendalltau

    if direction == "maximize":
        gains = treated - control
    elif min(treated.min(), control.min()) < 0:
        raise InputError("a trend of ratios of negative values says nothing; take another metric")
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.where(treated == control, 0.0, np.log(control) - np.log(treated))
    return float(kendalltau(rates, gains).statistic) if len(set(gains)) > 1 else 0.0


def _rates_won(_: Floats, treated: Floats, control: Floats, direction: Direction) -> float:
    """Return the share of learning rates at which the treated method is better, minus the share where it is
    worse.

    Values that nearly tie count for neither.
    """
    distinct = ~tied(treated, control)
    won = float(np.mean((treated < control) & distinct) - np.mean((treated > control) & distinct))
    return won * (1 if direction == "minimize" else -1)


GAINS = {"trend": _trend, "rates_won": _rates_won}  # functions of learning rates and values, by quantity


# --- by condition --------------------------------------------------------------------------------

# The class that reads the quantity of a condition, by the class of the condition.
QUANTITIES: dict[type[Condition], type[Quantity]] = {
    Value: JudgedValue,
    ValueAtEqualCost: ValueAtCost,
    costs.CostToStop: StopCost,
    costs.StepsToTarget: TargetSteps,
    costs.SecondsToNearlyBest: ConvergenceSeconds,
    costs.RunSeconds: TrainedSeconds,
    LogLinearity: Straightness,
    BestLearningRate: BestRate,
    GainOverRates: RateGain,
    ShareOfGain: KeptGain,
}
