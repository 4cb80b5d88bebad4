"""Comparisons of methods seed by seed, as the conditions of claims ask for them, and what their gains say."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import inf, log

import numpy as np
import polars as pl

from curvebench.reports.claims.censoring import (
    EffectBounds,
    Interval,
    bounds_of,
    exponential,
    paired_effects,
    unknown_words,
    with_bounds,
)
from curvebench.reports.claims.outcome_measures import (
    gains_over_rates,
    log_linearity,
    run_seconds,
    seconds_to_nearly_best,
    steps_to_value,
    values_at_equal_cost,
)
from curvebench.reports.claims.wording import control_in_words
from curvebench.reports.measures import (
    CHARGED_GRADIENTS,
    RUN_STEPS,
    cost_to_stop,
    held_at,
    settings_tried,
    steps_to_target,
    study_values,
    tuned_as,
)
from curvebench.reports.statistics.decisions import Question, tells_nothing
from curvebench.reports.statistics.paired import Effect
from curvebench.reports.statistics.ranks import NEGLIGIBLE
from curvebench.reports.tables import Tables
from curvebench.results.tuning import Setting, Tried, by_setting, shares_of_choices
from curvebench.spec.claim import (
    TO_NEARLY_BEST,
    TO_STOP,
    TO_THRESHOLD,
    Claim,
    ComparisonKey,
    Condition,
    effect_of,
)
from curvebench.spec.errors import InputError
from curvebench.spec.method import Method
from curvebench.spec.plan import StudyPlan, WorkloadPlan

COST_TO_STOP = {"steps_to_stop": RUN_STEPS, "gradients_to_stop": CHARGED_GRADIENTS}
COLUMNS = ("value", "least", "most")  # columns of what is compared: held at a stop, and between what it lies


@dataclass(frozen=True)
class Alternative:
    """A comparison at other settings than the chosen ones.

    Args:
        settings: of each side.
        share: of the draws of tuning seeds, those that choose these settings.
        tied: whether each of them ties with the chosen one.
        interval: between what each gain lies; None where the settings were not run.
    """

    settings: tuple[Setting, ...]
    share: float
    tied: bool
    interval: Interval | None


@dataclass(frozen=True)
class ClaimComparison:
    """A method and what a condition holds it against, seed by seed, on one backend.

    Args:
        sign: 1 where more of the metric is better, else -1.
        gains: shape (pairs,), above 0 where the treated method is better: of a ratio its logarithm; of a
            trend Kendall's tau. Runs that stopped count with their threshold.
        interval: between what each gain lies, where runs that stopped censor it.
        stop: the threshold at which runs stop, or the target; None without, or where it plays no part.
        treated_at_start, control_at_start: pairs in which that side, read at equal cost, took no step.
        alternatives: the comparison at all other settings that tuning may have chosen.
        tried: what tuning says of each side; empty where it says nothing of one.
    """

    key: ComparisonKey
    study: str
    backend: str
    condition: Condition
    effect: Effect
    sign: float
    gains: np.ndarray
    interval: Interval
    stop: float | None = None
    treated_at_start: int = 0
    control_at_start: int = 0
    alternatives: tuple[Alternative, ...] = ()
    tried: tuple[Tried, ...] = ()

    @property
    def control(self) -> str:
        """What it is held against as readers see it: a method, one on another workload, or a number."""
        return control_in_words(self.key, self.condition.number)

    def of_pairs(self, places: np.ndarray) -> ClaimComparison:
        """The comparison of the pairs at these places, at all settings.

        Args:
            places: shape (pairs,), of the pairs that there are; one may stand there more than once.
        """
        alternatives = (
            replace(other, interval=other.interval and other.interval.at(places))
            for other in self.alternatives
        )
        gains, interval = self.gains[places], self.interval.at(places)
        return replace(self, gains=gains, interval=interval, alternatives=tuple(alternatives))

    @property
    def margin(self) -> float:
        """The smallest gain that matters, above 0."""
        given = self.condition.smallest_effect
        share = NEGLIGIBLE if given is None else given
        return -log(1 - share) if self.effect == "ratio" else share

    @property
    def question(self) -> Question:
        """What is asked of the gains."""
        return Question(self.condition.relation, self.margin)

    @property
    def p_value(self) -> float:
        """For what is claimed, not corrected; 1 without pairs."""
        return self.question.p_value(*self.interval) if len(self.gains) else 1.0

    @property
    def refuting_p_value(self) -> float:
        """Against what is claimed, not corrected; 1 without pairs."""
        return self.question.refuting_p_value(*self.interval) if len(self.gains) else 1.0

    def as_effect(self, gain: float) -> float:
        """A gain as the effect that readers see: treated / control, or treated - control."""
        return self._unlogged(self.sign * gain)

    def _unlogged(self, effect: float) -> float:
        return effect if self.effect == "difference" else exponential(effect)

    @property
    def bounds(self) -> EffectBounds:
        """The median effect that readers see, with its interval and as far as it is known; needs a pair."""
        effects = self.interval if self.sign > 0 else self.interval.negated
        words = unknown_words(self.stop, self.condition.quantity)
        return bounds_of(effects, self.effect, self._unlogged, words)

    @property
    def beyond_seeds(self) -> bool:
        """Whether no number of seeds like these would decide, because runs that stopped are censored."""
        return len(self.gains) > 0 and tells_nothing(self.question, *self.interval)

    @property
    def allowed(self) -> tuple[float, float]:
        """Between what effects the claim holds, as readers see them; infinite without a bound."""
        least = self.margin if self.condition.relation == "better" else -self.margin
        most = self.margin if self.condition.relation == "same" else inf
        low, high = sorted((self.as_effect(least), self.as_effect(most)))
        return low, high


TriedOf = Callable[[str, str, str, str], Tried | None]


def tried_in(study: StudyPlan, tables: Tables) -> TriedOf:
    """`f(workload, method, backend, optimizer)`, what the tuning runs of a study say; found once."""
    tuning = tables.runs.filter(stage="tuning")

    @cache
    def tried_of(workload: str, method: str, backend: str, optimizer: str) -> Tried | None:
        own = tuning.filter(workload=workload, method=method, backend=backend)
        return settings_tried(study, optimizer, own)

    return tried_of


def comparisons(
    study: StudyPlan, claim: Claim, tables: Tables, backend: str, tried_of: TriedOf | None = None
) -> Iterator[ClaimComparison]:
    """Every comparison that a claim asks for, on one backend; without pairs where runs are missing.

    Args:
        tried_of: as `tried_in` gives it; without it there are no alternatives.
    """
    of_tuning, own = pl.col("stage") == "tuning", tables.runs.filter(backend=backend)
    for number, condition in enumerate(claim.conditions):
        judged = own.filter(~of_tuning, pl.col("method").is_in(condition.named))
        for workload in _workloads(study, claim, condition):
            values = {
                name: _values(study, tables, judged.filter(workload=name), condition)
                for name in dict.fromkeys((workload.name, condition.than_on or workload.name))
            }
            for key in condition.keys(claim.id, number, workload.name):
                if not condition.of_tuning:
                    yield _compared(study, tables, backend, condition, key, values, tried_of)
                    continue
                tried = own.filter(of_tuning, workload=workload.name)
                gains = gains_over_rates(study, tried, condition, key.treated, str(key.control))
                effect: Effect = "ratio" if condition.quantity == "best_learning_rate" else "difference"
                interval = Interval(gains, gains)
                yield ClaimComparison(key, study.name, backend, condition, effect, 1.0, gains, interval)


@dataclass(frozen=True)
class _Side:
    """The runs that judge a method on a workload, by their settings, and what tuning says of these."""

    at: Mapping[Setting, pl.DataFrame]
    tuned_as: tuple[str, str, str]  # workload, method and backend whose tuning chooses for it
    tried: Tried | None  # None where no tuning run says anything
    final: pl.DataFrame  # those at the chosen setting


def _compared(
    study: StudyPlan,
    tables: Tables,
    backend: str,
    condition: Condition,
    key: ComparisonKey,
    values: Mapping[str, pl.DataFrame],
    tried_of: TriedOf | None,
) -> ClaimComparison:
    """A comparison at the chosen settings, with the alternatives; `values` of all runs by workload."""
    sides = []
    for workload, method in condition.sides(key):
        runs, optimizer = values[workload].filter(method=method), Method.of(method).optimizer
        at_setting = by_setting(runs, study.tuned_names(optimizer))
        tuning = tables.runs.filter(stage="tuning", workload=workload)
        tuner, where = tuned_as(study, method, backend, tuning)
        found = tried_of(workload, tuner, where, optimizer) if tried_of else None
        sides.append(_Side(at_setting, (workload, tuner, where), found, runs.filter(stage="final")))

    def at(own: Sequence[pl.DataFrame]) -> ClaimComparison:
        if condition.at_a_cost:
            equal = values_at_equal_cost(study, tables, pl.concat(own), condition)
            own = [equal.filter(method=method) for _, method in condition.sides(key)]
        return _of_finals(study, own, backend, condition, key)

    chosen = at([side.final for side in sides])
    tried = [side.tried for side in sides if side.tried is not None]
    if len(tried) < len(sides) or not len(chosen.gains):
        return chosen

    def interval(settings: tuple[Setting, ...]) -> Interval | None:
        runs = [side.at.get(setting) for side, setting in zip(sides, settings, strict=True)]
        known = [each for each in runs if each is not None]
        found = at(known).interval if len(known) == len(runs) else None
        # there is none of a run whose curve was not published
        return found if found is not None and len(found.low) else None

    others = alternatives([(side.tuned_as, each) for side, each in zip(sides, tried, strict=True)], interval)
    return replace(chosen, alternatives=others, tried=tuple(tried))


def alternatives(
    sides: Sequence[tuple[Hashable, Tried]], interval: Callable[[tuple[Setting, ...]], Interval | None]
) -> tuple[Alternative, ...]:
    """The comparison at all settings but the chosen ones that tie with them or that draws of seeds choose.

    Args:
        sides: what is tuned, and what that says; sides that share the tuning have the same setting.
        interval: between what each gain lies at settings of the sides, None where they were not run.
    """
    drawn = shares_of_choices([tried for _, tried in sides])
    choosers = {tuned: tried.tied for tuned, tried in sides}
    tied = {
        tuple(dict(zip(choosers, each, strict=True))[tuned] for tuned, _ in sides)
        for each in product(*choosers.values())
    }
    chosen = tuple(tried.chosen for _, tried in sides)
    return tuple(
        Alternative(settings, drawn.get(settings, 0.0), settings in tied, interval(settings))
        for settings in sorted(tied.union(drawn) - {chosen})
    )


def _workloads(study: StudyPlan, claim: Claim, condition: Condition) -> list[WorkloadPlan]:
    """The workloads of a study that a condition is about.

    Raises:
        InputError: when one that it names is missing, and the claim does not repeat another one.
    """
    about = [workload for workload in study.workloads if condition.is_about(workload)]
    lacking = condition.than_on not in (None, *(workload.name for workload in study.workloads))
    if (lacking or not about) and not claim.repeats:  # which may be on some of its workloads
        absent = condition.than_on if lacking else condition.workload
        where = f"on {absent}" if absent else "on any workload"
        raise InputError(
            f"study {study.name}: claim {claim.id}: a condition asks for {condition.metric} {where}, "
            "which the plan does not have; give the plan with all workloads of the study"
        )
    return about


def _values(study: StudyPlan, tables: Tables, runs: pl.DataFrame, condition: Condition) -> pl.DataFrame:
    """What a condition compares of runs on one workload and backend; at another cost than steps, the runs."""
    if condition.of_tuning or condition.at_a_cost:
        return runs
    if condition.counted in COST_TO_STOP:
        return cost_to_stop(study, runs, condition.metric, COST_TO_STOP[condition.counted])
    if condition.target is not None:
        return steps_to_value(study, tables, runs, condition.metric, condition.target)
    if condition.counted == "steps_to_target":
        return steps_to_target(runs, condition.metric)
    if condition.quantity in TO_NEARLY_BEST:
        charged = condition.quantity == "seconds_to_nearly_best"
        return seconds_to_nearly_best(study, tables, runs, condition.metric, charged)
    if condition.quantity == "run_seconds":
        return run_seconds(study, tables, runs)
    if condition.quantity == "log_linearity":
        return log_linearity(tables, runs, condition.metric, condition.down_to or 0.0)
    return study_values(study, runs, condition.metric, condition.which)


def _of_finals(
    study: StudyPlan,
    values: Sequence[pl.DataFrame],
    backend: str,
    condition: Condition,
    key: ComparisonKey,
) -> ClaimComparison:
    """What final runs say of a comparison.

    Args:
        values: of each side, with columns seed and value.
    """
    of_metric = study.direction_of(condition.metric)
    direction = condition.direction or of_metric
    effect = effect_of(condition.effect, direction)
    stop = threshold_of(study, condition, key.workload)
    where = (
        f"study {study.name}: claim {key.claim}: {condition.metric} of {key.treated} and "
        f"{key.control or condition.number} on {key.workload}"
    )
    sides, steps = [], ("steps",) if condition.at_a_cost else ()
    for each in values:
        side = each.drop_nulls("value")
        if condition.floor is not None:
            side = side.with_columns(held_at(pl.col("value"), of_metric, condition.floor))
        if condition.counted not in TO_THRESHOLD:
            side = with_bounds(side, of_metric, stop)
        if side["seed"].is_duplicated().any():
            raise InputError(f"{where}: a seed has more than one final run; merge tables of one plan only")
        sides.append(side.select("seed", *COLUMNS, *steps))
    if condition.of_gain:
        sides = [_share_of_gain(*sides)]
    if key.control is None:  # no stop bounds a number
        number = pl.lit(condition.number, pl.Float64)
        sides.append(sides[0].with_columns(value=number, least=number, most=number))
    pairs = sides[0].join(sides[1], on="seed", suffix=" of the control").sort("seed")
    if condition.floor is not None and not condition.of_gain:
        pairs = _tied_at(pairs, condition.floor)
    (seen, *left), (other, *right) = (
        [pairs[f"{column}{side}"].to_numpy().astype(float) for column in COLUMNS]
        for side in ("", " of the control")
    )
    if effect == "ratio" and min(seen.min(initial=inf), other.min(initial=inf)) < 0:
        raise InputError(f"{where}: a ratio of negative values says nothing; give effect: difference")
    sign = 1.0 if direction == "maximize" else -1.0
    held = paired_effects(Interval(seen, seen), Interval(other, other), effect)
    effects = paired_effects(Interval(*left), Interval(*right), effect)
    interval = effects if sign > 0 else effects.negated
    start = [int((pairs[name] == 0).sum()) if steps else 0 for name in ("steps", "steps of the control")]
    return ClaimComparison(
        *(key, study.name, backend, condition, effect, sign, sign * held.low, interval, stop),
        treated_at_start=start[0],
        control_at_start=start[1],
    )


def _tied_at(pairs: pl.DataFrame, floor: float) -> pl.DataFrame:
    """Pairs of which two values at the floor that rounding leaves are known, and equal.

    No precision tells such values apart, where a run that stopped would have got further.
    """
    both = (pl.col("value") == floor) & (pl.col("value of the control") == floor)
    bounds = [f"{end}{side}" for end in ("least", "most") for side in ("", " of the control")]
    return pairs.with_columns(
        pl.when(both).then(floor).otherwise(pl.col(name)).alias(name) for name in bounds
    )


def _share_of_gain(method: pl.DataFrame, start: pl.DataFrame, end: pl.DataFrame) -> pl.DataFrame:
    """What share of the logarithmic gain from start to end a method keeps, by seed, and between what it lies.

    Of a seed where there is no gain to keep, nothing is known.
    """
    of_start = (
        start.join(method, on="seed", suffix=" kept").join(end, on="seed", suffix=" whole").sort("seed")
    )

    def log(column: str) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(of_start[column].to_numpy().astype(float), 0.0))

    def share(least: str, most: str) -> np.ndarray:
        """With the start's value from one column, and those that it is held against from the other."""
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = [
                (log(first) - log(f"{kept} kept")) / (log(first) - log(f"{whole} whole"))
                for first in (least, most)
                for kept in (least, most)
                for whole in (least, most)
            ]
        return np.array(shares)

    gained = log("least") > log("most whole")
    known, bounds = share("value", "value")[0], share("least", "most")
    low, high = np.nan_to_num(bounds, nan=-inf).min(axis=0), np.nan_to_num(bounds, nan=inf).max(axis=0)
    return pl.DataFrame(
        {
            "seed": of_start["seed"],
            "value": np.where(gained, known, 0.0),
            "least": np.where(gained, low, -inf),
            "most": np.where(gained, high, inf),
        }
    )


def threshold_of(study: StudyPlan, condition: Condition, workload: str) -> float | None:
    """What bounds what is known of a run: the stop or the target; None without, or where it plays no part."""
    if condition.counted == "steps_to_target":
        own = condition.target
        return study.training.targets_on(workload).get(condition.metric) if own is None else own
    if condition.floor is not None:
        return condition.floor
    of_values = condition.quantity in ("value", *TO_STOP, "share_of_gain")
    return study.training.stop.get(condition.metric) if of_values else None
