"""Comparisons of two methods seed by seed, as the conditions of claims require them.

The two arms of a comparison are the treated method and the control. A pair consists of two runs with the same
seed, one of each arm. A setting is a choice of tuned options, such as the learning rate. Final runs use the
chosen setting, which is the best one on the tuning seeds. With other tuning seeds, tuning may have chosen
another setting. Comparisons at such settings, called alternatives, show whether a result depends on the
choice. A run is censored if it stopped at a threshold, so that only a bound of its value is known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from math import inf, log
from typing import Any

import numpy as np
import polars as pl

from curvebench.reports.claims import censoring
from curvebench.reports.claims.censoring import Bounds, paired_effects
from curvebench.reports.claims.quantities import COLUMNS, QUANTITIES, Quantity, Reach
from curvebench.reports.claims.wording import control_in_words
from curvebench.reports.measures import study_tuning_outcome, tuning_source
from curvebench.reports.statistics.decisions import Question, tells_nothing
from curvebench.reports.statistics.paired import Effect
from curvebench.reports.statistics.ranks import NEGLIGIBLE
from curvebench.reports.tables import Tables
from curvebench.results.tuning import Setting, TuningOutcome, by_setting, shares_of_choices
from curvebench.spec.claim import Claim
from curvebench.spec.conditions.condition import ComparisonKey, Condition
from curvebench.spec.errors import InputError
from curvebench.spec.method import Method
from curvebench.spec.plan import StudyPlan, WorkloadPlan

# Workload, method and backend of the tuning runs that chose a setting
TuningSource = tuple[str, str, str]


@dataclass(frozen=True)
class Alternative:
    """The same comparison at settings that tuning may have chosen instead of the chosen settings.

    Args:
        settings: setting of the treated method, and setting of the control.
        share: fraction of the bootstrap resamples of the tuning seeds in which tuning chooses `settings`.
        tied: whether in tuning each of `settings` was as good as the chosen setting, up to negligible
            differences.
        gain_bounds: bounds of the gain of each pair; None if no runs with `settings` were made.
    """

    settings: tuple[Setting, ...]
    share: float
    tied: bool
    gain_bounds: Bounds | None


@dataclass(frozen=True)
class ClaimComparison:
    """A treated method compared with the control of a condition, seed by seed, on one backend.

    The effect of a pair is treated - control, or log(treated / control) if pairs are compared by ratio. The
    gain of a pair is its effect times `sign`, so that a gain above 0 means that the treated method is better.
    (In a condition on a trend over learning rates, the effect is Kendall's tau, which is compared with 0.)

    Args:
        key: claim, index of the condition, workloads, and labels of the two methods.
        study: name of the study.
        backend: backend of the runs.
        condition: the condition that requires the comparison.
        effect: whether pairs are compared by ratio or by difference.
        sign: 1 if more of the metric is better, otherwise -1.
        gains: gain of each pair, shape (pairs,), computed as if a run that stopped at a threshold had reached
            exactly the threshold.
        gain_bounds: lower and upper bounds of the gains; they differ only for pairs with a censored run.
        stop: threshold that may censor runs: the threshold at which runs stop, their floor or their target.
            None if no threshold can censor the quantity.
        treated_at_start, control_at_start: number of pairs in which the treated method, or the control, could
            take no step, because the cost at which both methods are compared does not pay for a step.
        alternatives: the same comparison at all other settings that tuning may have chosen.
        reach: reason why no number of runs would decide the comparison, if costs are counted until a
            threshold: most runs meet the threshold at once, or no run meets it (`Quantity.reach`). None if
            there is no such reason.
        tuning_outcomes: result of tuning for the treated method and for the control; empty if one of them has
            no usable tuning runs.
        tuning_sources: for each of `tuning_outcomes`, the workload, method and backend of the tuning runs.
        at_edge: limits of the searches for the settings of the arms, items of the column `at_edge` of the
            table `findings` (`curvebench.reports.claims.verdicts`).
    """

    key: ComparisonKey
    study: str
    backend: str
    condition: Condition
    effect: Effect
    sign: float
    gains: np.ndarray
    gain_bounds: Bounds
    stop: float | None = None
    treated_at_start: int = 0
    control_at_start: int = 0
    reach: Reach | None = None
    alternatives: tuple[Alternative, ...] = ()
    tuning_outcomes: tuple[TuningOutcome, ...] = ()
    tuning_sources: tuple[TuningSource, ...] = ()
    at_edge: tuple[Mapping[str, Any], ...] = ()

    @property
    def control(self) -> str:
        """Label of the control for readers: a method, a method on another workload, or a number."""
        return control_in_words(self.key, self.condition.number)

    def at_pairs(self, indices: np.ndarray) -> ClaimComparison:
        """Return the comparison and its alternatives with only the pairs at `indices`.

        Args:
            indices: indices of pairs; an index may occur more than once, as in a bootstrap resample.
        """
        alternatives = (
            replace(alternative, gain_bounds=alternative.gain_bounds and alternative.gain_bounds.at(indices))
            for alternative in self.alternatives
        )
        gains, bounds = self.gains[indices], self.gain_bounds.at(indices)
        return replace(self, gains=gains, gain_bounds=bounds, alternatives=tuple(alternatives))

    @property
    def margin(self) -> float:
        """Smallest gain that matters to the claim: the smallest effect in its condition, as a gain above 0.

        If the condition states no smallest effect, the relative difference `NEGLIGIBLE` is converted.
        """
        stated = self.condition.smallest_effect
        share = NEGLIGIBLE if stated is None else stated
        return -log(1 - share) if self.effect == "ratio" else share

    @property
    def question(self) -> Question:
        """Relation that the claim asserts of the gains, such as "better", with the margin of its test."""
        return Question(self.condition.relation, self.margin)

    @property
    def p_value(self) -> float:
        """Uncorrected p-value for the relation that the claim asserts; 1 without pairs."""
        return self.question.p_value(*self.gain_bounds) if len(self.gains) else 1.0

    @property
    def refuting_p_value(self) -> float:
        """Uncorrected p-value against the relation that the claim asserts; 1 without pairs."""
        return self.question.refuting_p_value(*self.gain_bounds) if len(self.gains) else 1.0

    def as_effect(self, gain: float) -> float:
        """Convert a gain to the number that readers see: treated / control, or treated - control."""
        return self._unlogged(self.sign * gain)

    def _unlogged(self, effect: float) -> float:
        return effect if self.effect == "difference" else censoring.exponential(effect)

    @property
    def bounds(self) -> censoring.EffectBounds:
        """Bounds of the median effect and of its confidence interval, for readers.

        Effects are treated / control or treated - control, without a logarithm. The bounds differ only if
        pairs are censored. The comparison must have at least one pair.
        """
        effects = self.gain_bounds if self.sign > 0 else self.gain_bounds.negated
        words = censoring.unknown_words(self.stop, self.condition.undecided)
        return censoring.bounds_of(effects, self.effect, self._unlogged, words)

    @property
    def beyond_seeds(self) -> bool:
        """Whether the comparison would stay inconclusive with any number of seeds.

        The reason is a threshold that most runs meet at once or no run meets (`reach`), or a large number of
        censored pairs.
        """
        return bool(self.reach) or (len(self.gains) > 0 and tells_nothing(self.question, *self.gain_bounds))

    @property
    def unanimous(self) -> bool:
        """Whether each pair by itself satisfies the relation of the claim, or each pair violates it."""
        return len(set(map(self.question.satisfied_by, self.gains))) <= 1

    @property
    def smallest_accepted(self) -> float:
        """Smallest median gain that the claim accepts.

        If the claim says that the treated method is better, this is the margin. Otherwise, it is minus the
        margin.
        """
        return self.margin if self.condition.relation == "better" else -self.margin

    @property
    def accepted_range(self) -> tuple[float, float]:
        """Smallest and largest median effect that the claim accepts: treated / control, or treated - control.

        If there is no largest effect, the second number is infinity. If there is no smallest effect, the
        first number is 0 for a ratio and minus infinity for a difference.
        """
        largest = self.margin if self.condition.relation == "same" else inf
        low, high = sorted(self.as_effect(gain) for gain in (self.smallest_accepted, largest))
        return low, high


OutcomeLookup = Callable[[str, str, str, str], TuningOutcome | None]
RunsOn = Mapping[str, pl.DataFrame]  # runs by the label of their workload


def outcome_lookup(study: StudyPlan, tables: Tables) -> OutcomeLookup:
    """Return a function that looks up the tuning outcome of a method of a study.

    The function takes the labels of a workload, a method, a backend and the method's optimizer. It returns
    None if no tuning run of the method is usable. Outcomes are cached, because several comparisons use the
    outcome of the same method.
    """
    tuning = tables.runs.filter(stage="tuning")

    @cache
    def outcome_of(workload: str, method: str, backend: str, optimizer: str) -> TuningOutcome | None:
        method_runs = tuning.filter(workload=workload, method=method, backend=backend)
        return study_tuning_outcome(study, optimizer, method_runs)

    return outcome_of


def comparisons(
    study: StudyPlan, claim: Claim, tables: Tables, backend: str, outcome_of: OutcomeLookup | None = None
) -> Iterator[ClaimComparison]:
    """Yield every comparison that a claim requires on one backend, in the order of its conditions.

    If runs are missing, their comparison is yielded nevertheless, with fewer pairs or without pairs.

    Args:
        outcome_of: function that `outcome_lookup` returns. With None, comparisons have no alternatives.

    Raises:
        InputError: when a condition names a workload that the plan lacks, or runs cannot be paired.
    """
    for number, condition in enumerate(claim.conditions):
        quantity = QUANTITIES[type(condition)](condition, study, tables)
        of_stage = (pl.col("stage") == "tuning") == condition.of_tuning
        method_runs = tables.runs.filter(of_stage, pl.col("method").is_in(condition.named), backend=backend)
        for workload in _workloads(study, claim, condition):
            values = {
                name: quantity.of_runs(method_runs.filter(workload=name))
                for name in dict.fromkeys((workload.name, condition.control_workload or workload.name))
            }
            for key in condition.keys(claim.id, number, workload.name):
                yield _compared(quantity, backend, key, values, outcome_of)


def _compared(
    quantity: Quantity, backend: str, key: ComparisonKey, values: RunsOn, outcome_of: OutcomeLookup | None
) -> ClaimComparison:
    """Compare two methods at the chosen settings, and at the settings that tuning may have chosen instead.

    Args:
        quantity: the quantity that the condition compares, with the study and its tables.
        key: the two methods and their workloads.
        values: for each workload, the runs of the condition's methods with the columns that
            `quantity.of_runs` adds.
        outcome_of: function that `outcome_lookup` returns. With None, the comparison has no alternatives.
    """
    study, compare = quantity.study, partial(_pair, quantity, backend, key)
    arms = [(arm, values[arm[0]].filter(method=arm[1])) for arm in quantity.condition.arms(key)]
    # A condition on tuning compares methods over all settings that tuning tried, not at a chosen setting.
    if quantity.condition.of_tuning:
        return compare([runs for _, runs in arms])
    chosen = compare([runs.filter(stage="final") for _, runs in arms])
    # The list `tuned` has the source of each arm's setting and the tuning outcome.
    # The source of a setting is the workload, method and backend of the tuning runs that choose the setting.
    # Two arms with the same source have the same setting.
    tuned: list[tuple[TuningSource, TuningOutcome]] = []
    at_settings = []
    for (workload, method), runs in arms:
        optimizer = Method.of(method).optimizer
        at_settings.append(by_setting(runs, study.tuned_names(optimizer)))
        tuning = quantity.tables.runs.filter(stage="tuning", workload=workload)
        tuner, where = tuning_source(study, method, backend, tuning)
        if outcome_of and (outcome := outcome_of(workload, tuner, where, optimizer)):
            tuned.append(((workload, tuner, where), outcome))
    if len(tuned) < len(arms) or not len(chosen.gains):
        return chosen

    def bounds_at(settings: tuple[Setting, ...]) -> Bounds | None:
        runs = [frames[key] for frames, key in zip(at_settings, settings, strict=True) if key in frames]
        bounds = compare(runs).gain_bounds if len(runs) == len(settings) else None
        # Runs whose curve was not published have no value, so that their pairs have no gain.
        return bounds if bounds is not None and len(bounds.low) else None

    sources, outcomes = zip(*tuned, strict=True)
    others = alternatives(tuned, bounds_at)
    return replace(chosen, alternatives=others, tuning_outcomes=outcomes, tuning_sources=sources)


def alternatives(
    arms: Sequence[tuple[Hashable, TuningOutcome]], bounds_at: Callable[[tuple[Setting, ...]], Bounds | None]
) -> tuple[Alternative, ...]:
    """Compare two arms at all settings that tuning may have chosen instead of the chosen settings.

    Tuning may have chosen a combination of settings, one per arm, if each setting is the chosen setting or
    ties with it, or if tuning chooses the combination in some bootstrap resample of the tuning seeds.

    Args:
        arms: for each arm, the source of its setting (workload, method and backend of the tuning runs that
            choose it) and its tuning outcome. Arms with the same source always have the same setting.
        bounds_at: function that takes the setting of each arm and returns bounds of the gain of each pair. It
            returns None if no runs with these settings were made.

    Returns:
        An alternative for every combination except the combination of the chosen settings, sorted by setting.
    """
    shares = shares_of_choices([outcome for _, outcome in arms])
    tied_by_source = {source: outcome.tied for source, outcome in arms}
    tied = {
        tuple(dict(zip(tied_by_source, combination, strict=True))[source] for source, _ in arms)
        for combination in product(*tied_by_source.values())
    }
    chosen = tuple(outcome.chosen for _, outcome in arms)
    return tuple(
        Alternative(settings, shares.get(settings, 0.0), settings in tied, bounds_at(settings))
        for settings in sorted(tied.union(shares) - {chosen})
    )


def _workloads(study: StudyPlan, claim: Claim, condition: Condition) -> list[WorkloadPlan]:
    """Return the workloads of a study to which a condition applies.

    Raises:
        InputError: when the plan lacks a workload that the condition names. There is no error for a claim
            that repeats another claim, because it may have fewer workloads than the other claim.
    """
    workloads = [item for item in study.workloads if condition.is_about(item.name, item.metrics)]
    lacking = condition.control_workload not in (None, *(workload.name for workload in study.workloads))
    if (lacking or not workloads) and not claim.repeats:
        absent = condition.control_workload if lacking else condition.workload
        where = f"on {absent}" if absent else "on any workload"
        raise InputError(
            f"study {study.name}: claim {claim.id}: a condition asks for {condition.metric} {where}, "
            "which the plan does not have; give the plan with all workloads of the study"
        )
    return workloads


def _pair(quantity: Quantity, backend: str, key: ComparisonKey, sides: list[pl.DataFrame]) -> ClaimComparison:
    """Pair the runs of both arms by seed, and return the comparison of the two methods.

    Args:
        quantity: the quantity that the condition compares, with the study and its tables.
        key: the two methods and their workloads.
        sides: runs of the treated method and of the control, with the columns that `quantity.of_runs` adds.

    Raises:
        InputError: when a seed has several final runs in one arm, or a ratio of negative values is required.
    """
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
    (treated, *treated_ends), (control, *control_ends) = (
        [pairs[f"{column}{side}"].to_numpy().astype(float) for column in COLUMNS]
        for side in ("", " of the control")
    )
    if effect == "ratio" and min(treated.min(initial=inf), control.min(initial=inf)) < 0:
        raise InputError(f"{where}: a ratio of negative values says nothing; give effect: difference")
    sign = 1.0 if direction == "maximize" else -1.0
    clipped = paired_effects(Bounds(treated, treated), Bounds(control, control), effect)
    effects = paired_effects(Bounds(*treated_ends), Bounds(*control_ends), effect)
    bounds, gains = effects if sign > 0 else effects.negated, sign * clipped.low
    budgets = [pairs[name] for name in ("affords", "affords of the control") if name in pairs.columns]
    at_start = [int((steps == 0).sum()) for steps in budgets] or [0, 0]
    stop, reach = quantity.threshold(key.workload), quantity.reach(pairs, key.workload)
    common = key, study.name, backend, condition, effect, sign, gains, bounds, stop
    return ClaimComparison(*common, at_start[0], at_start[1], reach)
