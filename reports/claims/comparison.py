"""Comparisons of methods seed by seed, as the conditions of claims ask for them, and what their gains say."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from math import inf, log

import numpy as np
import polars as pl

from curvebench.reports.claims import censoring
from curvebench.reports.claims.censoring import Interval, paired_effects
from curvebench.reports.claims.quantities import COLUMNS, QUANTITIES, Quantity
from curvebench.reports.claims.wording import control_in_words
from curvebench.reports.measures import settings_tried, tuned_as
from curvebench.reports.statistics.decisions import Question, tells_nothing
from curvebench.reports.statistics.paired import Effect
from curvebench.reports.statistics.ranks import NEGLIGIBLE
from curvebench.reports.tables import Tables
from curvebench.results.tuning import Setting, Tried, by_setting, shares_of_choices
from curvebench.spec.claim import Claim
from curvebench.spec.conditions.condition import ComparisonKey, Condition
from curvebench.spec.errors import InputError
from curvebench.spec.method import Method
from curvebench.spec.plan import StudyPlan, WorkloadPlan


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
        return effect if self.effect == "difference" else censoring.exponential(effect)

    @property
    def bounds(self) -> censoring.EffectBounds:
        """The median effect that readers see, with its interval and as far as it is known; needs a pair."""
        effects = self.interval if self.sign > 0 else self.interval.negated
        words = censoring.unknown_words(self.stop, self.condition.undecided)
        return censoring.bounds_of(effects, self.effect, self._unlogged, words)

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
RunsOn = Mapping[str, pl.DataFrame]  # by workload


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
    for number, condition in enumerate(claim.conditions):
        quantity = QUANTITIES[type(condition)](condition, study, tables)
        of_stage = (pl.col("stage") == "tuning") == condition.of_tuning
        judged = tables.runs.filter(of_stage, pl.col("method").is_in(condition.named), backend=backend)
        for workload in _workloads(study, claim, condition):
            values = {
                name: quantity.of_runs(judged.filter(workload=name))
                for name in dict.fromkeys((workload.name, condition.control_workload or workload.name))
            }
            for key in condition.keys(claim.id, number, workload.name):
                yield _compared(quantity, backend, key, values, tried_of)


def _compared(
    quantity: Quantity, backend: str, key: ComparisonKey, values: RunsOn, tried_of: TriedOf | None
) -> ClaimComparison:
    """A comparison at the chosen settings, with the alternatives; `values` of all runs by workload."""
    study, at = quantity.study, partial(_paired, quantity, backend, key)
    sides = [(side, values[side[0]].filter(method=side[1])) for side in quantity.condition.sides(key)]
    if quantity.condition.of_tuning:  # all settings are judged together
        return at([runs for _, runs in sides])
    chosen = at([runs.filter(stage="final") for _, runs in sides])
    tuned: list[tuple[Hashable, Tried]] = []  # whose tuning chooses for each side, and what that says
    at_settings = []
    for (workload, method), runs in sides:
        optimizer = Method.of(method).optimizer
        at_settings.append(by_setting(runs, study.tuned_names(optimizer)))
        tuning = quantity.tables.runs.filter(stage="tuning", workload=workload)
        tuner, where = tuned_as(study, method, backend, tuning)
        if tried_of and (found := tried_of(workload, tuner, where, optimizer)):
            tuned.append(((workload, tuner, where), found))
    if len(tuned) < len(sides) or not len(chosen.gains):
        return chosen

    def interval(settings: tuple[Setting, ...]) -> Interval | None:
        runs = [own.get(setting) for own, setting in zip(at_settings, settings, strict=True)]
        known = [each for each in runs if each is not None]
        found = at(known).interval if len(known) == len(runs) else None
        # there is none of a run whose curve was not published
        return found if found is not None and len(found.low) else None

    return replace(
        chosen, alternatives=alternatives(tuned, interval), tried=tuple(tried for _, tried in tuned)
    )


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
    about = [workload for workload in study.workloads if condition.is_about(workload.name, workload.metrics)]
    lacking = condition.control_workload not in (None, *(workload.name for workload in study.workloads))
    if (lacking or not about) and not claim.repeats:  # which may be on some of its workloads
        absent = condition.control_workload if lacking else condition.workload
        where = f"on {absent}" if absent else "on any workload"
        raise InputError(
            f"study {study.name}: claim {claim.id}: a condition asks for {condition.metric} {where}, "
            "which the plan does not have; give the plan with all workloads of the study"
        )
    return about


def _paired(
    quantity: Quantity, backend: str, key: ComparisonKey, sides: Sequence[pl.DataFrame]
) -> ClaimComparison:
    """Compare the runs of both sides by their quantity, as it was read of them."""
    condition, study = quantity.condition, quantity.study
    direction = condition.direction or quantity.direction
    effect = condition.effect_on(direction)
    where = (
        f"study {study.name}: claim {key.claim}: {condition.metric} of {key.treated} and "
        f"{key.control or condition.number} on {key.workload}"
    )
    pairs = quantity.pairs(sides)
    if pairs["seed"].is_duplicated().any():
        raise InputError(f"{where}: a seed has more than one final run; merge tables of one plan only")
    (seen, *left), (other, *right) = (
        [pairs[f"{column}{side}"].to_numpy().astype(float) for column in COLUMNS]
        for side in ("", " of the control")
    )
    if effect == "ratio" and min(seen.min(initial=inf), other.min(initial=inf)) < 0:
        raise InputError(f"{where}: a ratio of negative values says nothing; give effect: difference")
    sign = 1.0 if direction == "maximize" else -1.0
    held = paired_effects(Interval(seen, seen), Interval(other, other), effect)
    effects = paired_effects(Interval(*left), Interval(*right), effect)
    interval, gains = effects if sign > 0 else effects.negated, sign * held.low
    bought = [pairs[name] for name in ("affords", "affords of the control") if name in pairs.columns]
    treated, control = [int((steps == 0).sum()) for steps in bought] or (0, 0)  # pairs at their start
    stop = quantity.threshold(key.workload)
    return ClaimComparison(
        key, study.name, backend, condition, effect, sign, gains, interval, stop, treated, control
    )
