"""Quantities of conditions: how each is read from runs, and how the runs of two methods are paired.

A condition of a claim compares one quantity of two methods, the treated method and the control, such as the
final training loss or the number of steps to a target. A pair consists of two runs with the same seed, one of
each method. A run is censored if it ended before the quantity was known, for example because it stopped at a
threshold; `least` and `most` then bound the value. The stop is the threshold at which the runs of a study
stop; the floor is a value beyond which differences are rounding errors. "000" is the EGOP paper, "Faster
Adaptive Optimization via Expected Gradient Outer Product Reparameterization".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import numpy as np
import polars as pl

from curvebench.reports import measures
from curvebench.reports.claims.censoring import with_bounds
from curvebench.reports.statistics.paired import Direction
from curvebench.reports.statistics.ranks import tied
from curvebench.reports.tables import CELL, Tables
from curvebench.reports.wall_clock import final_jobs, step_ratios, step_seconds
from curvebench.results.outcomes import failed, missing
from curvebench.results.reading import read
from curvebench.results.tuning import comparable, worst
from curvebench.results.verdicts import COARSE
from curvebench.spec.conditions import costs
from curvebench.spec.conditions.condition import Condition
from curvebench.spec.conditions.learning_rates import BestLearningRate, GainOverRates
from curvebench.spec.conditions.log_linearity import LogLinearity
from curvebench.spec.conditions.share_of_gain import ShareOfGain
from curvebench.spec.conditions.value import Value, ValueAtEqualCost
from curvebench.spec.errors import InputError
from curvebench.spec.plan import StudyPlan

# Columns of a quantity: the value (clipped at the stop or the floor), its lower bound and its upper bound.
# The lower and the upper bound of a run's value differ only if the run is censored.
COLUMNS = ("value", "least", "most")
# Polars expression of the cost of a whole run, by the name of the quantity in study files.
COSTS = {"steps_to_stop": measures.RUN_STEPS, "gradients_to_stop": measures.CHARGED_GRADIENTS}
MIN_RATES = 3  # minimum number of learning rates for a trend, or for a share of learning rates won
MIN_POINTS = 3  # minimum number of evaluations for a fitted line
# A learning rate is near the control's best learning rate if the two rates differ at most by this factor.
# Trends and shares of learning rates won use only learning rates near the control's best rate.
NEAR_FACTOR = 10.0
Reach = Literal["saturated", "unreached"]
Floats = np.ndarray


@dataclass(frozen=True)
class Quantity:
    """Base class of the quantities that conditions compare, each of which is read from the runs of a study.

    A subclass must implement `of_runs`, which reads the quantity. A subclass whose values can be censored
    overrides `threshold`. A subclass whose compared numbers are not simply the values of two runs with the
    same seed overrides `pairs`.

    Args:
        condition: the condition that compares the quantity. `QUANTITIES` names the class of condition that
            belongs to each quantity.
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
        """Return the threshold that censors values on a workload, such as the threshold at which runs stop.

        None if no threshold censors values.
        """
        return None

    def reach(self, pairs: pl.DataFrame, workload: str) -> Reach | None:
        """Return the reason why costs until a threshold cannot decide a comparison.

        The reason is that most runs meet the threshold at once, or that no run meets it. The result is None
        if the costs may decide the comparison, or if the quantity is not a cost until a threshold.

        Args:
            pairs: pairs of runs on a workload, as `pairs` returns them.
            workload: label of the workload.
        """
        return None

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the quantity of runs on one workload and backend.

        Args:
            runs: rows of the table `runs` with the column `method`.

        Returns:
            Rows of `runs` with the quantity as column `value`, which is null if nothing is known of a run. If
            runs can be censored, the columns `least` and `most` are the bounds of the value.
        """
        raise NotImplementedError

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair the runs of the treated method with the runs of the control that have the same seeds.

        Args:
            sides: frames that `of_runs` returns, first for the treated method, then for the control. If the
                treated method is compared with a number, `sides` has only the frame of the treated method.

        Returns:
            One row per pair, sorted by seed. Columns: seed; the columns `COLUMNS` for the treated method; and
            the columns `COLUMNS` with the suffix " of the control" for the control.
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
    """Read the curves of one metric for some runs.

    Args:
        runs: rows of the table `runs` whose curves are read.

    Returns:
        Columns run, step and value, sorted by run and step.
    """
    names = runs.select("run").lazy()

    def of_runs(curves: pl.LazyFrame) -> pl.LazyFrame:
        selected = curves.filter(metric=metric).join(names, on="run", how="semi")
        return selected.select("run", "step", "value").sort("run", "step")

    return read(tables.curves, "curves", of_runs)


def timed(tables: Tables, runs: pl.DataFrame) -> pl.DataFrame:
    """Add to runs the column `each`: the seconds of a step in the timing jobs on the run's machine.

    The columns `low` and `high` are the ends of the interval of these seconds. All three columns are null if
    no timing job measured the method of the run on the machine of the run.
    """
    cell = [*CELL, "machine"]
    steps = step_seconds(tables.timings).select(*cell, "low", "high", each="median")
    return runs.join(steps, on=cell, how="left", maintain_order="left")


# --- values ---------------------------------------------------------------------------------------


class JudgedValue(Quantity):
    """Value of the condition's metric in each run: the value at the end, or the best value during the run.

    Values are clipped at the threshold at which runs stop. They are also clipped at the condition's floor,
    beyond which differences are rounding errors.
    """

    def threshold(self, workload: str) -> float | None:
        """Return the number at which values of the metric are cut off.

        It is the condition's floor. If the condition has no floor, it is the value of this metric at which
        runs of the study stop. If runs do not stop at a value of the metric either, it is None.
        """
        floor: float | None = self.condition.floor
        return self.study.training.stop.get(self.condition.metric) if floor is None else floor

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the final value or the best value of each run, as the condition requires."""
        metric, which = self.condition.metric, self.condition.which
        return self.bounded(measures.study_values(self.study, runs, metric, which))

    def bounded(self, values: pl.DataFrame) -> pl.DataFrame:
        """Clip the column `value` at the condition's floor, and add the bounds of the values.

        Args:
            values: runs with the column `value`.

        Returns:
            The runs with the columns `least` and `most`: the lower and the upper bound of the clipped value.
        """
        value = measures.clip_at(pl.col("value"), self.direction, self.condition.floor)
        return with_bounds(values.with_columns(value=value), self.direction, self.threshold(""))

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair runs as `Quantity.pairs` does, but count two values at the floor as known and equal.

        Differences of values beyond the floor are rounding errors, so that it does not matter how far two
        runs got beyond the floor. Two runs that stopped at a threshold, in contrast, count as censored,
        because they would have reached different values.
        """
        pairs, floor = super().pairs(sides), self.condition.floor
        if floor is None:
            return pairs
        both = (pl.col("value") == floor) & (pl.col("value of the control") == floor)
        return pairs.with_columns(pl.when(~both).then(pl.col("^(least|most).*$")).otherwise(floor))


class ValueAtCost(JudgedValue):
    """Value of the metric at equal cost: both runs of a pair are read at the total cost of the cheaper run.

    The cost is counted in gradient evaluations or in seconds, including the cost of estimating a basis (an
    orthogonal change of coordinates of the parameters). Values are read in `pairs` and not in `of_runs`,
    because the value of a run depends on the other run of its pair.
    """

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Return the runs unchanged, since `pairs` reads the values."""
        return runs

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair the values of both runs of each seed at equal cost.

        The budget of a pair is the total cost of its cheaper run. The value of each run is read at the last
        evaluation that the budget pays for. If the budget does not pay for a single step after the basis, the
        value is the value at the start. A run that reached the stop keeps its value. A run that failed within
        the budget has the worst possible value. If the cost of a step is unknown for one run of a pair, the
        pair has no values.

        All pairs share the same measured step times, so that more pairs do not reduce the error of these
        times. At equal seconds, the value is therefore read three times: at the measured ratio of the two
        step times, and at both ends of the interval of this ratio. The bounds of the value contain all three
        values.

        Args:
            sides: the runs of the treated method and of the control, as `of_runs` returns them.

        Returns:
            One row per pair with the columns that `Quantity.pairs` returns, and with the columns `affords`
            and `affords of the control`: the number of steps of the treated run, and of the control's run,
            that the budget pays for. The number is null if the cost of a step is unknown.
        """
        pairs = self._pairs_at(sides, "median")
        if self.condition.at_equal == "gradients" or pairs.is_empty():
            return pairs
        ends = [pairs, *(self._pairs_at(sides, end) for end in ("low", "high"))]
        return pairs.with_columns(
            extreme([frame[f"{bound}{side}"] for frame in ends]).alias(f"{bound}{side}")
            for bound, extreme in (("least", pl.min_horizontal), ("most", pl.max_horizontal))
            for side in ("", " of the control")
        )

    def _pairs_at(self, sides: Sequence[pl.DataFrame], end: str) -> pl.DataFrame:
        """Pair the values of both runs of each seed as `pairs` does, for one ratio of their step times.

        Args:
            end: which ratio is used: the measured ratio (`median`), or an end of its interval (`low` or
                `high`).
        """
        both, metric, direction = self.affordable(sides, end), self.condition.metric, self.direction
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

    def affordable(self, sides: Sequence[pl.DataFrame], end: str) -> pl.DataFrame:
        """Add to each run the number of steps that it can take at the total cost of the cheaper run.

        The cheaper run is the cheaper one of the two runs with the same seed, one of each method.

        Args:
            sides: runs of the treated method and of the control on one workload and backend, with `method`.
            end: which ratio of the step times is used: the measured ratio (`median`), or an end of its
                interval (`low` or `high`). It matters only at equal seconds.

        Returns:
            The runs of seeds on which both methods ran, with additional columns: `start` (cost before the
            first step, for the basis), `each` (cost of a step), `least` (the budget: total cost of the seed's
            cheaper run; null if a cost is unknown), `affords` (number of steps that the budget pays for) and
            `failed` (whether the run failed).
        """
        runs = pl.concat(sides)
        both = runs.filter(~missing()).filter(pl.col("method").n_unique().over("seed") == 2)
        if self.condition.at_equal == "gradients":
            both = both.with_columns(start="basis_gradient_evaluations", each="step_evaluations")
        else:
            both = timed(self.tables, both).with_columns(start="basis_seconds")
            if end != "median":
                cell, (treated, control) = [*CELL, "machine"], (side["method"][0] for side in sides)
                ratios = step_ratios(self.tables.timings, {treated: control}).select(*cell, ratio=end)
                both = both.join(ratios, on=cell, how="left", maintain_order="left")
                of_control = pl.col("each").filter(pl.col("ratio").is_null()).first().over("seed")
                both = both.with_columns(each=(pl.col("ratio") * of_control).fill_null(pl.col("each")))
        steps: Any = self.study.training.budget.get("steps") or runs["steps"].max()
        start, step = pl.col("start").fill_null(0).cast(pl.Float64), pl.col("each").cast(pl.Float64)
        cheaper = (start + steps * step).min().over("seed")
        budget = pl.when(step.is_not_null().all().over("seed")).then(cheaper)
        paid = ((pl.col("least") - start) / step * (1 + 1e-12)).floor().clip(lower_bound=0)
        affords = pl.when(step > 0).then(paid).otherwise(0)
        return both.with_columns(least=budget).with_columns(affords=affords, failed=failed())


class KeptGain(JudgedValue):
    """Share of the gain from a first reference method to a second one that a method keeps.

    The share is computed from logarithms. It is 0 if the method is as good as the first reference method, and
    1 if it is as good as the second.
    """

    def threshold(self, workload: str) -> float | None:
        """Return the number at which the quantity is censored.

        If the condition counts steps to the study's target, it is that target. Otherwise it is the floor of
        the condition, or without a floor the value at which runs of the study stop.
        """
        if self.condition.meets_targets:
            return self.study.training.targets_on(workload).get(self.condition.metric)
        return super().threshold(workload)

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the steps to the study's target, or the values of the metric, as the condition requires."""
        if self.condition.meets_targets:
            return measures.steps_to_target(runs, self.condition.metric)
        return super().of_runs(runs)

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Compute, for each seed, the share of the gain that the method keeps.

        The condition compares this share with a number, so that there is no second run in a pair.

        Args:
            sides: the frames that `of_runs` returns for the method, for the first reference method and for
                the second reference method.
        """
        return Quantity.pairs(self, [share_of_gain(*(side.drop_nulls("value") for side in sides))])


def share_of_gain(method: pl.DataFrame, start: pl.DataFrame, end: pl.DataFrame) -> pl.DataFrame:
    """Return, for each seed, the share of the gain from `start` to `end` that a method keeps.

    The share is (log start - log method) / (log start - log end), where less of each value is better. If it
    is not certain that `end` is better than `start` on a seed, nothing is known of the share: its value is 0,
    and its bounds are minus and plus infinity.

    Args:
        method: runs of the method, with columns seed, value, least and most (the bounds of the value).
        start, end: runs of the first and of the second reference method, with the same columns.

    Returns:
        Columns seed and `COLUMNS`.
    """
    joined = start.join(method, on="seed", suffix=" kept").join(end, on="seed", suffix=" whole").sort("seed")

    def log(column: str) -> Floats:
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(joined[column].to_numpy().astype(float), 0.0))

    def shares(*columns: str) -> Floats:
        """Return the shares for every choice of three of the `columns`, one for each of the three runs.

        Returns:
            A row for every choice, such as the lower bounds of all three runs; shape (len(columns)³, seeds).
        """
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


class CostToThreshold(Quantity):
    """Cost of a run until it met a threshold."""

    def reach(self, pairs: pl.DataFrame, workload: str) -> Reach | None:
        """Return the reason why the threshold cannot decide a comparison; None if there is no such reason.

        The threshold is "unreached" if no run meets it. It is "saturated" if both runs of most pairs meet it
        within two evaluations. In this case it is not known which of the two runs met the threshold sooner.
        """
        ends = pairs.select("most", "most of the control").to_numpy()
        if not len(ends) or np.isinf(ends).all():
            return "unreached" if len(ends) else None
        if self.condition.quantity == "gradients_to_stop":
            return None
        # The length in steps of a run of some epochs is that of the longest run. Tuning runs may be shorter.
        shares = dict(enumerate(map(float, self.study.tuning.shares)))
        share = pl.when(stage="tuning").then(pl.col("round").replace_strict(shares, default=1.0)).otherwise(1)
        runs = self.tables.runs.filter(workload=workload).select((pl.col("steps") / share).max())
        steps = self.study.training.budget.get("steps") or runs.item()
        at_once = ends.max(axis=1) <= COARSE * steps / self.study.training.evaluations
        return "saturated" if at_once.mean() > 0.5 else None


class StopCost(CostToThreshold):
    """Cost of a run, in steps or gradient evaluations, until it met the threshold at which runs stop."""

    def threshold(self, workload: str) -> float | None:
        """Return the threshold of the condition's metric at which the study's runs stop."""
        return self.study.training.stop.get(self.condition.metric)

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the cost of runs; the cost of a run that ended without meeting the threshold is censored."""
        return measures.cost_to_stop(self.study, runs, self.condition.metric, COSTS[self.condition.quantity])


class TargetSteps(CostToThreshold):
    """Steps until a run reached the condition's target, or the study's target if the condition has none."""

    def threshold(self, workload: str) -> float | None:
        """Return the target of the condition, or of the study on the workload if the condition has none."""
        target, targets = self.condition.target, self.study.training.targets_on(workload)
        return targets.get(self.condition.metric) if target is None else target

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the steps of each run to the target.

        The table `runs` has the steps to the study's target. If the condition has a target of its own, the
        steps are read from the curves.
        """
        metric, target = self.condition.metric, self.condition.target
        if target is None:
            return measures.steps_to_target(runs, metric)
        curves = recorded(self.tables, runs, metric)
        return measures.cost_to_value(runs, curves, target, self.direction, "steps")


class ConvergenceSeconds(Quantity):
    """Seconds until a run first reaches 99.5 % of the best value of the run (`seconds_to_nearly_best`)."""

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the seconds of runs, as `seconds_to_nearly_best` defines them."""
        metric, charged = self.condition.metric, self.condition.charges_bases
        return seconds_to_nearly_best(self.study, self.tables, runs, metric, charged)


class TrainedSeconds(Quantity):
    """Seconds of training of a run, measured by its job, if the job made no other run."""

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the seconds of runs from the table of jobs.

        The seconds include the steps, waiting for data and the estimation of the basis, but not compilation,
        evaluation and checkpoints. A failed run has infinite seconds. The seconds of a run that shared its
        job with other runs are null.
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
    """Return the seconds until each run first reaches 99.5 % of the best value of the run (000 App. B).

    If more of the metric is better, a run must reach 0.995 times its best value. If less of the metric is
    better, it must reach its best value divided by 0.995. The seconds are modelled as the number of steps
    times the median seconds of a step in the timing jobs. A failed run did not converge, so that its seconds
    are infinite. The bounds `least` and `most` are computed with the two ends of the interval of this median,
    since all runs of a method share the error of the median.

    Args:
        study: the study of the runs.
        tables: tables of the study.
        final: the final runs on one workload and backend, with `method`.
        metric: a metric that is nowhere negative.
        charged: whether the seconds for estimating the basis are included.

    Returns:
        The rows of `final` except missing runs, with the seconds as columns `COLUMNS`, which are null if no
        step of the method was timed on the run's machine.
    """
    value = pl.col("value").fill_nan(None)
    near = value >= costs.NEARLY_BEST * value.max().over("run")
    if study.direction_of(metric) == "minimize":
        near = value * costs.NEARLY_BEST <= value.min().over("run")
    steps = recorded(tables, final, metric).filter(near).group_by("run").agg(first=pl.col("step").min())
    joined = timed(tables, final.filter(~missing())).join(steps, on="run", how="left", maintain_order="left")
    basis = pl.col("basis_seconds").fill_null(0) if charged else 0.0
    paces = dict(zip(COLUMNS, ("each", "low", "high"), strict=True))
    took = {name: pl.col("first") * pl.col(pace) + basis for name, pace in paces.items()}
    return joined.with_columns(
        pl.when(failed()).then(float("inf")).otherwise(seconds).alias(name) for name, seconds in took.items()
    ).drop("first", *paces.values())


# --- curves ---------------------------------------------------------------------------------------


class Straightness(Quantity):
    """Straightness of a convergence curve on a logarithmic axis: 1 if a run converges linearly.

    The straightness is the coefficient of determination (R²) of a line fitted to the logarithms of the
    metric's values as a function of the step. The line is fitted from the start to the first value that is at
    most the condition's `until`. The straightness is 0 if a run fails, if its last value is above `until`, or
    if a value before it reaches `until` is not finite. It is null if a run reaches `until` before its third
    evaluation.
    """

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the curve of each run, and fit a line to the logarithms of its values."""
        curves = recorded(self.tables, runs, self.condition.metric).partition_by("run", as_dict=True)
        present = runs.filter(~missing())
        values = [
            0.0 if has_failed or (run,) not in curves else _straightness(curves[run,], self.condition.until)
            for run, has_failed in present.select("run", failed()).iter_rows()
        ]
        return present.with_columns(pl.Series("value", values, dtype=pl.Float64))


def _straightness(curve: pl.DataFrame, until: float) -> float | None:
    """Return the straightness of a curve down to its first value of at most `until` (see `Straightness`).

    Args:
        curve: columns step and value of one run, sorted by step.
        until: value at which the fit ends.

    Returns:
        R² from 0 to 1; None if the fit has fewer than `MIN_POINTS` values. It is 0 if the last value of the
        curve is above `until`, or if a value of the fit is not finite.
    """
    from scipy.stats import linregress

    steps, values = curve["step"].to_numpy(), curve["value"].to_numpy()
    if not values[-1] <= until:
        return 0.0
    end = int(np.argmax(values <= until)) + 1
    # Only the last value of a curve can be 0. It is replaced by `until`, because 0 has no logarithm.
    steps, values = steps[:end], np.where(values[:end] == 0, until, values[:end])
    if not np.isfinite(values).all():
        return 0.0
    return float(linregress(steps, np.log(values)).rvalue) ** 2 if end >= MIN_POINTS else None


# --- learning rates -------------------------------------------------------------------------------


class BestRate(Quantity):
    """Learning rate at which a method has its best value; the smallest such rate if several are equally good.

    Only learning rates that both methods of a comparison tried are considered. Values beyond the condition's
    floor are clipped, so that all learning rates that reach the floor are equally good.
    """

    def of_runs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Read the values of the longest tuning runs, since runs of different length cannot be compared."""
        longest = comparable(runs, self.study.tuning)
        values = measures.study_values(self.study, longest, self.condition.metric, self.condition.which)
        return values.with_columns(measures.clip_at(pl.col("value"), self.direction, self.condition.floor))

    def pairs(self, sides: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Pair the two numbers that `of_seed` computes for each tuning seed as if they were values of runs.

        Args:
            sides: tuning runs of the treated method and of the control, with the columns seed, learning_rate
                and value.
        """
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
        """Return the two numbers to compare for one tuning seed: here the best learning rate of each method.

        Args:
            rates: learning rates that both methods tried, in increasing order, shape (count,).
            treated, control: values of both methods at these learning rates, shape (count,).

        Returns:
            The number of the treated method, and the number with which it is compared. Subclasses return None
            if the values of the seed do not define the numbers.
        """
        return _best_rate(rates, treated, self.direction), _best_rate(rates, control, self.direction)


class RateGain(BestRate):
    """Gain of the treated method over the control at learning rates near the control's best rate.

    The gain is a trend over the learning rates, or the share of learning rates that the treated method wins
    minus the share that the control wins (`GAINS`). It is compared with 0, which means no gain.
    """

    def of_seed(self, rates: Floats, treated: Floats, control: Floats) -> tuple[float, float] | None:
        """Return the gain on one tuning seed and the number 0, with which the gain is compared.

        The result is None if fewer than `MIN_RATES` learning rates are near the control's best rate, or if
        the gain is not defined.
        """
        near = _near(rates, treated, control, self.direction)
        if near.sum() < MIN_RATES:
            return None
        gain = GAINS[self.condition.quantity](rates[near], treated[near], control[near], self.direction)
        return None if np.isnan(gain) else (gain, 0.0)


def _best_rate(rates: Floats, values: Floats, direction: Direction) -> float:
    return float(rates[np.argmin(values) if direction == "minimize" else np.argmax(values)])


def _near(rates: Floats, treated: Floats, control: Floats, direction: Direction) -> Floats:
    """Return which learning rates are near the control's best rate, except where both methods diverged.

    If the control diverged at all learning rates, the result is false for all rates.

    Args:
        rates: learning rates, shape (count,).
        treated, control: values of both methods at these learning rates, shape (count,).
        direction: whether less or more of the value is better.

    Returns:
        A boolean for each learning rate, shape (count,).
    """
    if not np.isfinite(control).any():
        return np.zeros(len(rates), dtype=bool)
    near = np.abs(np.log(rates / _best_rate(rates, control, direction))) <= np.log(NEAR_FACTOR) * (1 + 1e-9)
    return near & (np.isfinite(treated) | np.isfinite(control))


def _trend(rates: Floats, treated: Floats, control: Floats, direction: Direction) -> float:
    """Return Kendall's tau-b between learning rates and the treated method's gains at these rates.

    A gain is log(control / treated) if less of the value is better, and treated - control if more is better.

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
    """Return the share of learning rates that the treated method wins minus the share that the control wins.

    A method wins a learning rate if its value at this rate is better. If two values tie (see `tied`), no
    method wins.
    """
    distinct = ~tied(treated, control)
    won = float(np.mean((treated < control) & distinct) - np.mean((treated > control) & distinct))
    return won * (1 if direction == "minimize" else -1)


# Functions that compute the gain (see `RateGain`), by the name of the quantity in study files.
GAINS = {"trend": _trend, "rates_won": _rates_won}


# --- by condition --------------------------------------------------------------------------------

# For each class of conditions, the class that reads the quantity of such a condition from runs.
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
