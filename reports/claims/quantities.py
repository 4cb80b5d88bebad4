"""How the quantities of conditions are read from runs, and how the runs of two methods are paired."""

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

COLUMNS = ("value", "least", "most")  # what is compared, held at what bounds it, and between what it lies
COSTS = {
    "steps_to_stop": measures.RUN_STEPS,
    "gradients_to_stop": measures.CHARGED_GRADIENTS,
}  # of a run to its end
LEAST_RATES = 3  # of a trend, and of rates won
LEAST_POINTS = 3  # of a line
AROUND = 10.0  # times the control's best learning rate, up and down: the range of a trend and of rates won
Floats = np.ndarray


@dataclass(frozen=True)
class Quantity:
    """The quantity of a condition, read from the runs of a study.

    A quantity is a class that says how it is read (`of_runs`), and where needed what bounds it (`threshold`)
    and how the runs of two methods are paired (`pairs`).

    Args:
        condition: one of the class that has the quantity (curvebench.spec.conditions).
        tables: the study's.
    """

    condition: Any
    study: StudyPlan
    tables: Tables

    @property
    def direction(self) -> Direction:
        """Whether less of the condition's metric is better."""
        return self.study.direction_of(self.condition.metric)

    def threshold(self, workload: str) -> float | None:
        """Return what bounds what is known of a run, such as its stop; None where nothing does."""
        return None

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the quantity of runs on one workload and backend.

        Returns:
            Rows of `runs` with a column `value`, null where nothing is known of a run; with columns least and
            most too where it may be known to bounds only.
        """
        raise NotImplementedError

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair runs by their seeds.

        Args:
            sides: what `of_runs` returns of both methods, or of the method that is compared with a number.

        Returns:
            Columns seed and `COLUMNS`, and these with the suffix " of the control".
        """
        known = [
            side if "least" in side.columns else side.with_columns(least="value", most="value")
            for side in sides
        ]
        if self.condition.number is not None:  # no stop bounds it
            number = pl.lit(self.condition.number, pl.Float64)
            known.append(known[0].with_columns(number.alias(name) for name in COLUMNS))
        kept = pl.col("^(seed|value|least|most|affords)$")
        left, right = (side.drop_nulls("value").select(kept) for side in known)
        return left.join(right, on="seed", suffix=" of the control").sort("seed")


def recorded(tables: Tables, runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Read the curves of runs: columns run, step and value of a metric, in order."""
    names = runs.select("run").lazy()

    def of_runs(curves: pl.LazyFrame) -> pl.LazyFrame:
        own = curves.filter(metric=metric).join(names, on="run", how="semi")
        return own.select("run", "step", "value").sort("run", "step")

    return read(tables.curves, "curves", of_runs)


def timed(tables: Tables, runs: pl.DataFrame) -> pl.DataFrame:
    """Add the column `each` to runs: the seconds of a step on their machine, null where it was not timed."""
    cell = [*CELL, "machine"]
    steps = step_seconds(tables.timings).select(*cell, each="median")
    return runs.join(steps, on=cell, how="left", maintain_order="left")


# --- values ---------------------------------------------------------------------------------------


class JudgedValue(Quantity):
    """The value of the metric, held at its stop and at the condition's floor."""

    def threshold(self, workload: str) -> float | None:
        """Return the floor, otherwise the stop."""
        floor: float | None = self.condition.floor
        return self.study.training.stop.get(self.condition.metric) if floor is None else floor

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the judged value of runs."""
        return self.bounded(
            measures.study_values(self.study, runs, self.condition.metric, self.condition.which)
        )

    def bounded(self, values: pl.DataFrame) -> pl.DataFrame:
        """Hold values at the floor, and add between what they lie."""
        value = measures.held_at(pl.col("value"), self.direction, self.condition.floor)
        return with_bounds(values.with_columns(value=value), self.direction, self.threshold(""))

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair runs by their seeds; two values at the floor that rounding leaves are known, and equal.

        No precision tells such values apart, where a run that stopped would have got further.
        """
        pairs, floor = super().pairs(sides), self.condition.floor
        if floor is None:
            return pairs
        both = (pl.col("value") == floor) & (pl.col("value of the control") == floor)
        return pairs.with_columns(pl.when(~both).then(pl.col("^(least|most).*$")).otherwise(floor))


class ValueAtCost(JudgedValue):
    """The value of the metric where the cheaper run of a seed ends, read of both methods together."""

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Return the runs as they are."""
        return runs

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair the values where the cheaper of both runs of a seed ends, and the steps that this `affords`.

        Read is the last evaluation within that budget; a method whose basis alone costs more stands at its
        start. A run that reached its stop keeps its value, one that failed within the budget counts as the
        worst. Nothing is known where a step was not timed; the steps are null where their cost is not known.

        Args:
            sides: the runs of both methods.
        """
        both, metric, direction = self.affordable(pl.concat(sides)), self.condition.metric, self.direction
        curves, affords = recorded(self.tables, both, metric), both.select("run", "affords")
        seen = curves.join(affords, on="run").filter(pl.col("step") <= pl.col("affords"))
        value = pl.col("value").fill_nan(None)
        best = value.min() if direction == "minimize" else value.max()
        read = seen.group_by("run").agg(final=value.sort_by("step").last(), best=best)
        joined = both.join(read, on="run", how="left", maintain_order="left")
        dead = pl.col("failed") & (pl.col("outcome_step").fill_null(0) <= pl.col("affords"))
        found = pl.when(~dead).then("final") if self.condition.which == "final" else pl.col("best")
        evaluated = pl.col("failed") | pl.col("run").is_in(curves["run"].unique().implode())
        known = pl.when(evaluated, pl.col("least").is_not_null()).then(found.fill_null(worst(direction)))
        value = measures.held_at(known, direction, self.study.training.stop.get(metric))
        steps = pl.when(pl.col("each") > 0).then("affords")
        equal = self.bounded(joined.select("run", "seed", value=value, affords=steps))
        return super().pairs([equal.join(side, on="run", how="semi") for side in sides])

    def affordable(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Return the runs of seeds of both methods, with the steps that the cheaper run's cost `affords`.

        Args:
            runs: of both methods on one workload and backend, with `method`.
        """
        both = runs.filter(~missing()).filter(pl.col("method").n_unique().over("seed") == 2)
        if self.condition.at_equal == "gradients":
            both = both.with_columns(start="basis_gradient_evaluations", each="step_evaluations")
        else:
            both = timed(self.tables, both).with_columns(start="basis_seconds")
        steps: Any = self.study.training.budget.get("steps") or runs["steps"].max()
        start, each = pl.col("start").fill_null(0).cast(pl.Float64), pl.col("each").cast(pl.Float64)
        least = pl.when(each.is_not_null().all().over("seed")).then((start + steps * each).min().over("seed"))
        paid = ((pl.col("least") - start) / each * (1 + 1e-12)).floor().clip(lower_bound=0)
        affords = pl.when(each > 0).then(paid).otherwise(0)
        return both.with_columns(least=least).with_columns(affords=affords, failed=failed())


class KeptGain(JudgedValue):
    """The share of the logarithmic gain from one method to another that a method keeps."""

    def threshold(self, workload: str) -> float | None:
        """Return the target where steps are gained, otherwise what bounds values."""
        if self.condition.meets_targets:
            return self.study.training.targets_on(workload).get(self.condition.metric)
        return super().threshold(workload)

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read what is gained in: values, or steps to the study's target."""
        if self.condition.meets_targets:
            return measures.steps_to_target(runs, self.condition.metric)
        return super().of_runs(runs)

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair the share of the gain from the second to the third side that the first keeps."""
        return Quantity.pairs(self, [share_of_gain(*(side.drop_nulls("value") for side in sides))])


def share_of_gain(method: pl.DataFrame, start: pl.DataFrame, end: pl.DataFrame) -> pl.DataFrame:
    """Return the share of the logarithmic gain from start to end that a method keeps, by seed.

    Of a seed where there is no gain to keep, nothing is known.

    Args:
        method, start, end: columns seed, value, least and most, the last two between what the value lies.
    """
    of_start = (
        start.join(method, on="seed", suffix=" kept").join(end, on="seed", suffix=" whole").sort("seed")
    )

    def log(column: str) -> Floats:
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(of_start[column].to_numpy().astype(float), 0.0))

    def shares(*columns: str) -> Floats:
        """Return the shares with the values of each side from each of the columns."""
        first, kept, whole = (
            np.array([log(f"{column}{side}") for column in columns]) for side in ("", " kept", " whole")
        )
        first = first[:, None, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            found = (first - kept[:, None]) / (first - whole)
        return found.reshape(-1, len(of_start))

    gained = log("least") > log("most whole")
    known, bounds = shares("value")[0], shares("least", "most")
    low, high = np.nan_to_num(bounds, nan=-inf).min(axis=0), np.nan_to_num(bounds, nan=inf).max(axis=0)
    return pl.DataFrame(
        {
            "seed": of_start["seed"],
            "value": np.where(gained, known, 0.0),
            "least": np.where(gained, low, -inf),
            "most": np.where(gained, high, inf),
        }
    )


# --- costs ----------------------------------------------------------------------------------------


class StopCost(Quantity):
    """A cost of runs until they met the threshold at which they stop."""

    def threshold(self, workload: str) -> float | None:
        """Return the stop."""
        return self.study.training.stop.get(self.condition.metric)

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the cost of runs, as far as it is known."""
        return measures.cost_to_stop(self.study, runs, self.condition.metric, COSTS[self.condition.quantity])


class TargetSteps(Quantity):
    """The steps to the condition's own target, otherwise to the study's."""

    def threshold(self, workload: str) -> float | None:
        """Return the target."""
        own, targets = self.condition.target, self.study.training.targets_on(workload)
        return targets.get(self.condition.metric) if own is None else own

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the steps of runs, as far as they are known; to the condition's own target from curves."""
        metric, target = self.condition.metric, self.condition.target
        if target is None:
            return measures.steps_to_target(runs, metric)
        value = pl.col("value").fill_nan(None)
        there = value <= target if self.direction == "minimize" else value >= target
        evaluated = recorded(self.tables, runs, metric).filter(there)
        first = evaluated.group_by("run").agg(first=pl.col("step").min())
        joined = runs.join(first, on="run", how="left", maintain_order="left")
        return measures.cost_until(joined, pl.col("first"), ~missing(), measures.RUN_STEPS).drop("first")


class ConvergenceSeconds(Quantity):
    """The seconds until a run first has nearly its best value."""

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the seconds of runs."""
        metric, charged = self.condition.metric, self.condition.charges_bases
        return seconds_to_nearly_best(self.study, self.tables, runs, metric, charged)


class TrainedSeconds(Quantity):
    """The seconds that runs trained for."""

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the seconds of runs, as their own jobs took them; infinite where one failed.

        Those of steps, of waiting for data and of the basis; compiling, evaluation and checkpoints are not in
        it. Null of runs that share a job.
        """
        known = runs.filter(~missing())
        jobs = final_jobs(self.study, self.tables).filter(runs=1)
        parts = ("step_seconds", "waiting_seconds", "basis_seconds")
        took = pl.sum_horizontal(pl.col(part).fill_null(0) for part in parts)
        own, key = jobs.select("spec_hash", "machine", value=took), ["spec_hash", "machine"]
        joined = known.join(own, on=key, how="left", nulls_equal=True, maintain_order="left")
        return joined.with_columns(value=pl.when(failed()).then(float("inf")).otherwise("value"))


def seconds_to_nearly_best(
    study: StudyPlan, tables: Tables, final: pl.DataFrame, metric: str, charged: bool = True
) -> pl.DataFrame:
    """Read the seconds until a run first has 99.5 % of its own best value (000 App. B).

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
    """How straight a metric falls to a value on a logarithmic axis over steps: 1 where it converges linearly.

    It is the coefficient of determination of a line through the logarithms of a run's evaluations from its
    start to the first that is at most `until`. A run that does not end there, or is not finite on the way,
    has 0; a run that is there before its third evaluation tells nothing.
    """

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the curves of runs."""
        every = recorded(self.tables, runs, self.condition.metric).partition_by("run", as_dict=True)
        curves = {run: (own["step"].to_numpy(), own["value"].to_numpy()) for (run,), own in every.items()}
        known = runs.filter(~missing())
        values = [
            0.0 if lost or run not in curves else _straightness(*curves[run], self.condition.until)
            for run, lost in known.select("run", failed()).iter_rows()
        ]
        return known.with_columns(pl.Series("value", values, dtype=pl.Float64))


def _straightness(steps: np.ndarray, values: np.ndarray, until: float) -> float | None:
    """Return the share of the variance of log(values) down to a value that a line over steps explains."""
    from scipy.stats import linregress

    if not values[-1] <= until:
        return 0.0
    end = int(np.argmax(values <= until)) + 1
    steps, values = steps[:end], np.where(values[:end] == 0, until, values[:end])  # 0 has no logarithm
    if not np.isfinite(values).all():
        return 0.0
    return float(linregress(steps, np.log(values)).rvalue) ** 2 if end >= LEAST_POINTS else None


# --- learning rates -------------------------------------------------------------------------------


class BestRate(Quantity):
    """The learning rate at which a method has its best value; of equal values the smallest.

    Both methods are judged on the learning rates that both tried; values beyond the condition's floor count
    as at it, so that rates which reach it tie.
    """

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the judged values of the longest tuning runs."""
        longest = comparable(runs, self.study.tuning)
        values = measures.study_values(self.study, longest, self.condition.metric, self.condition.which)
        return values.with_columns(measures.held_at(pl.col("value"), self.direction, self.condition.floor))

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair what `of_seed` says of each tuning seed of both methods."""
        keys = ["seed", "learning_rate"]
        treated, control = (
            side.drop_nulls("value").group_by(keys).agg(pl.col("value").median()) for side in sides
        )
        rates = treated.join(control, on=keys, suffix="_control").sort(keys)
        found = [
            (seed, *values)
            for (seed,), own in rates.group_by(["seed"], maintain_order=True)
            if (values := self.of_seed(*(own[name].to_numpy() for name in rates.columns[1:]))) is not None
        ]
        schema = {"seed": pl.Int64, "treated": pl.Float64, "control": pl.Float64}
        by_seed = pl.DataFrame(found, schema=schema, orient="row")
        return super().pairs([by_seed.select("seed", value=name) for name in ("treated", "control")])

    def of_seed(self, rates: Floats, left: Floats, right: Floats) -> tuple[float, float] | None:
        """Return what is compared of both methods; None where a seed says nothing.

        Args:
            rates: learning rates, in order, shape (count,).
            left, right: the values of both methods at them, shape (count,).
        """
        return _best_rate(rates, left, self.direction), _best_rate(rates, right, self.direction)


class RateGain(BestRate):
    """A gain over the learning rates within a factor of ten of the control's best, compared with none."""

    def of_seed(self, rates: Floats, left: Floats, right: Floats) -> tuple[float, float] | None:
        """Return the gain, and 0; None where too few rates are near, or where it is not defined."""
        near = _near(rates, left, right, self.direction)
        if near.sum() < LEAST_RATES:
            return None
        gain = GAINS[self.condition.quantity](rates[near], left[near], right[near], self.direction)
        return None if np.isnan(gain) else (gain, 0.0)


def _best_rate(rates: Floats, values: Floats, direction: Direction) -> float:
    return float(rates[np.argmin(values) if direction == "minimize" else np.argmax(values)])


def _near(rates: Floats, left: Floats, right: Floats, direction: Direction) -> Floats:
    """Return which rates are near the right's best, and did not let both diverge.

    None is where the right always diverged.
    """
    if not np.isfinite(right).any():
        return np.zeros(len(rates), dtype=bool)
    near = np.abs(np.log(rates / _best_rate(rates, right, direction))) <= np.log(AROUND) * (1 + 1e-9)
    return near & (np.isfinite(left) | np.isfinite(right))


def _trend(rates: Floats, left: Floats, right: Floats, direction: Direction) -> float:
    """Return Kendall's tau-b of rates and gains.

    Raises:
        InputError: when gains are ratios of negative values.
    """
    from scipy.stats import kendalltau

    if direction == "maximize":
        gains = left - right
    elif min(left.min(), right.min()) < 0:
        raise InputError("a trend of ratios of negative values says nothing; take another metric")
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.where(left == right, 0.0, np.log(right) - np.log(left))
    return float(kendalltau(rates, gains).statistic) if len(set(gains)) > 1 else 0.0


def _rates_won(_: Floats, left: Floats, right: Floats, direction: Direction) -> float:
    """Return the share of rates at which the left is better, less that where it is worse; near ties tie."""
    apart = ~tied(left, right)
    won = float(np.mean((left < right) & apart) - np.mean((left > right) & apart))
    return won * (1 if direction == "minimize" else -1)


GAINS = {"trend": _trend, "rates_won": _rates_won}  # over rates, by quantity


# --- by condition --------------------------------------------------------------------------------

# how the quantity of a condition is read, by the class of the condition
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
