"""Comparison of several methods on one model: settings, final values, costs, and the method that leads.

The study of such a comparison has one workload, the model. The study compares methods by its headline metric,
such as the final validation loss. The leader is the method with the best median over its final runs. Every
other method is compared with the leader seed by seed; such a comparison is called a lead. The target of a
method is the best median of the other methods. The cost to the target is the cost up to the first evaluation
at which the metric is at least as good as the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import inf, isfinite
from typing import Any, Literal

import polars as pl

from curvebench.reports.boards.submission import Edge, edge_of
from curvebench.reports.claims.censoring import ANY_GAIN, PairedEffect, effect_by_seed
from curvebench.reports.claims.quantities import recorded
from curvebench.reports.formatting import json_value
from curvebench.reports.measures import (
    RUN_STEPS,
    STEP_COSTS,
    StudyProblem,
    chosen_rates,
    complete_interval,
    cost_to_value,
    median_by_method,
    problems_of,
)
from curvebench.reports.rendering import text_of
from curvebench.reports.statistics.decisions import Finding, decide, seeds_needed
from curvebench.reports.tables import Tables
from curvebench.reports.wall_clock import peak_memory, timed_final
from curvebench.results.intervals import LEVEL, MedianInterval
from curvebench.results.outcomes import failed, finished, missing
from curvebench.results.tuning import settings_of
from curvebench.results.verdicts import ALPHA
from curvebench.spec.method import Method
from curvebench.spec.plan import StudyPlan

Outcome = Literal["leads", "undecided", "only one", "none"]


@dataclass(frozen=True)
class MethodResult:
    """Result of a method on the model, which is the only workload of the study.

    Args:
        settings: values of the hyperparameters that tuning chose, by name; empty without final runs.
        edge: "lowest" or "highest" if tuning chose this end of the range of learning rates that it tried, so
            that a better rate may lie beyond the range; None if the chosen rate is inside the range.
        value: median of the headline metric over seeds, with its interval. The median is infinite on the bad
            side if half of the runs failed. None without final runs.
        seeds: number of final runs, without missing runs such as interrupted ones.
        failed: number of final runs that failed (`curvebench.results.outcomes`).
        reason: if no final run succeeded, the reason: why the method cannot run on the backends of the study,
            or else the message of one of its failures. None if a final run succeeded, or if no message was
            recorded.
        target: best median of the other methods; None if no other method has a finite median.
        reached: number of final runs that reached the target.
        steps, gradients, seconds: cost to the target in each of these units, as a median over seeds.
            Gradients and seconds include the basis. A run that missed the target has an infinite cost. All
            three are None if there is no target. `seconds` is also None if steps were not timed.
        step_seconds: seconds of a step; None if steps were not timed.
        state_bytes: size of the state of the optimizer; None if no run recorded it.
        host_bytes: peak memory of the process on the host during steps, minus its memory before the run; None
            if it was not measured.
        device_bytes: peak memory of arrays on the device; None if it was not measured.
    """

    method: str
    settings: Mapping[str, float]
    edge: Edge | None
    value: MedianInterval | None
    seeds: int
    failed: int
    reason: str | None
    target: float | None
    reached: int
    steps: MedianInterval | None
    gradients: MedianInterval | None
    seconds: MedianInterval | None
    step_seconds: float | None
    state_bytes: int | None
    host_bytes: int | None
    device_bytes: int | None


@dataclass(frozen=True)
class Lead:
    """Comparison of the leader with another method, seed by seed.

    Args:
        method: label of the other method.
        effect: effect of the leader compared with the other method. With a probability of at least
            `ModelResults.joint_level`, the intervals of all leads contain the true medians.
        finding: by the sign test, "supported" if the leader is better, "refuted" if the leader is worse, and
            otherwise "inconclusive". The level of the test is `ALPHA` divided by the number of other methods
            (Bonferroni's correction).
        seeds_needed: about how many final seeds would decide an inconclusive comparison, if further seeds are
            like the present ones. None if the comparison is decided, or if no number of seeds would suffice.
        step_seconds_ratio: seconds of a step of the leader divided by seconds of a step of the other method;
            None if steps of one of the two methods were not timed.
    """

    method: str
    effect: PairedEffect
    finding: Finding
    seeds_needed: int | None
    step_seconds_ratio: float | None


@dataclass(frozen=True)
class ModelResults:
    """Comparison of all methods of a study on its workload.

    Args:
        study, workload, backend: names of the study, its workload and the backend of the runs.
        metric: name of the headline metric.
        which: "final" if the value of the metric at the end of a run counts, "best" if the best value counts.
        direction: whether less or more of the metric is better.
        methods: result of each method, best median first; methods without a finite median come last.
        leads: comparisons of the leader with each other method that shares seeds with the leader, in the
            order of `methods`.
        shares: by unit of cost, the leader's median cost to its target divided by the cost of a whole run of
            the runner-up, whose median is this target. Units in which a cost is unknown are missing.
    """

    study: str
    workload: str
    backend: str
    metric: str
    which: str
    direction: str
    methods: tuple[MethodResult, ...]
    leads: tuple[Lead, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)

    @property
    def leader(self) -> MethodResult | None:
        """The method with the best median; None if no method has a finite median."""
        first = self.methods[0]
        return first if first.value and isfinite(first.value.median) else None

    @property
    def undecided(self) -> tuple[Lead, ...]:
        """Comparisons of the leader with another method that do not show that the leader is better."""
        return tuple(lead for lead in self.leads if lead.finding != "supported")

    @property
    def outcome(self) -> Outcome:
        """The recommendation in one word.

        "leads" if the leader is better in all comparisons with other methods, "undecided" if one comparison
        does not show this, "only one" if there is no comparison, and "none" if there is no leader.
        """
        if self.leader is None:
            return "none"
        return "only one" if not self.leads else "undecided" if self.undecided else "leads"

    @property
    def seeds_needed(self) -> int | None:
        """About how many final seeds would decide all inconclusive comparisons with the leader.

        None if no comparison is inconclusive, or if no number of seeds would decide one of the inconclusive
        comparisons.
        """
        numbers = [lead.seeds_needed for lead in self.leads if lead.finding == "inconclusive"]
        return None if None in numbers else max(filter(None, numbers), default=None)

    @property
    def joint_level(self) -> float:
        """Minimum probability that all intervals of comparisons with the leader contain the true medians."""
        return max(0.0, 1 - sum(1 - lead.effect.level for lead in self.leads))


def comparison_of(study: StudyPlan, tables: Tables) -> ModelResults:
    """Compare all methods of a study that has one workload, on the first backend of the study.

    Args:
        tables: tables of the study (`curvebench.reports.tables.tables_of`).
    """
    (problem,) = problems_of(study, tables)
    final = timed_final(problem)
    medians = median_by_method(problem.values)
    sign = 1 if study.direction == "minimize" else -1
    rows = _results(problem, final, medians)
    results = tuple(sorted(rows, key=lambda row: sign * row.value.median if row.value else inf))
    comparison = ModelResults(
        study=study.name,
        workload=problem.workload.name,
        backend=problem.backend,
        metric=study.metric,
        which=study.which,
        direction=study.direction,
        methods=results,
    )
    if comparison.leader is None:
        return comparison
    leads, shares = _leads(problem, results), _shares(final, *results[:2])
    return replace(comparison, leads=tuple(leads), shares=dict(shares))


def _results(
    problem: StudyProblem, final: pl.DataFrame, medians: Mapping[str, MedianInterval]
) -> Iterator[MethodResult]:
    """Yield the result of each method, in the study's order.

    Args:
        problem: the study's only workload on one backend.
        final: final runs of the problem with the column `each`, the seconds of a step.
        medians: median of the headline metric over seeds, by method; methods without a value are missing.
    """
    study, metric = problem.study, problem.study.metric
    curves = recorded(problem.tables, final, metric)
    rates = {row["method"]: row for row in chosen_rates(problem.runs).iter_rows(named=True)}
    peaks = {row["method"]: row for row in peak_memory(problem.of(problem.tables.memory)).to_dicts()}
    for method in study.methods:
        runs = final.filter(~missing(), method=method)
        names = study.tuned_names(Method.of(method).optimizer)
        finite = {name: value.median for name, value in medians.items() if isfinite(value.median)}
        others = [value for name, value in finite.items() if name != method]
        target = (min if study.direction == "minimize" else max)(others, default=None)
        costs = {
            unit: cost_to_value(runs, curves, target, study.direction, unit)["most"]
            for unit in STEP_COSTS
            if target is not None
        }
        to_target = {unit: complete_interval(cost) for unit, cost in costs.items()}
        peak = peaks.get(method, {})
        settings, lost = list(settings_of(runs, names)), runs.filter(failed())
        unable = study.unable.get(Method.of(method).optimizer)
        reasons = [unable] if unable else problem.runs.filter(method=method)["reason"].drop_nulls()
        yield MethodResult(
            method=method,
            settings=dict(zip(names, settings[0], strict=True)) if settings else {},
            edge=edge_of(rates[method]) if method in rates else None,
            value=medians.get(method),
            seeds=len(runs),
            failed=len(lost),
            reason=next(iter(reasons), None) if len(lost) == len(runs) else None,
            target=target,
            reached=int(costs["steps"].is_finite().sum()) if costs else 0,
            steps=to_target.get("steps"),
            gradients=to_target.get("gradients"),
            seconds=to_target.get("seconds"),
            step_seconds=next(iter(runs["each"]), None),
            state_bytes=max(runs["state_bytes"].drop_nulls(), default=None),
            host_bytes=peak.get("host"),
            device_bytes=peak.get("device"),
        )


def _leads(problem: StudyProblem, results: tuple[MethodResult, ...]) -> Iterator[Lead]:
    """Yield the comparison of the leader with each other method.

    Args:
        results: result of each method, the leader first. Methods without a value are skipped, and so are
            methods that share no seed with the leader.
    """
    leader, *others = (row for row in results if row.value)
    for other in others:
        level = 1 - (1 - LEVEL) / len(others)
        effect = effect_by_seed(problem.study, problem.values, leader.method, other.method, level)
        if effect is None:
            continue
        low, high = effect.gains
        alpha = ALPHA / len(others)
        finding = decide(ANY_GAIN, low, ANY_GAIN.refuting_p_value(low, high), alpha, high)
        undecided = finding == "inconclusive"
        needed = seeds_needed(ANY_GAIN, low, 1, alpha, high) if undecided else None
        theirs = other.step_seconds
        ratio = leader.step_seconds and theirs and leader.step_seconds / theirs
        yield Lead(other.method, effect, finding, needed, ratio)


def _shares(final: pl.DataFrame, *results: MethodResult) -> Iterator[tuple[str, float]]:
    """Yield the leader's cost to its target divided by the cost of a whole run of the runner-up.

    Args:
        final: final runs of the problem with the column `each`, the seconds of a step.
        results: the leader and the runner-up; without a runner-up, nothing is yielded.

    Yields:
        Unit of cost, and the median cost of the leader divided by the median cost of the runner-up's runs.
        Units in which a cost is not known or infinite are skipped.
    """
    leader, runner_up = results[0], results[-1]
    runs = final.filter(finished(), method=runner_up.method)
    for unit, (each, start) in STEP_COSTS.items():
        cost, whole = getattr(leader, unit), runs.select(whole=RUN_STEPS * each + start)["whole"].median()
        if cost and whole and isfinite(cost.median):
            yield unit, cost.median / whole


# --- what is printed -----------------------------------------------------------------------------


def as_text(comparison: ModelResults) -> str:
    """Format a comparison as text for people: a table, and a sentence for quotation."""
    return text_of("model_comparison", comparison=comparison)


def as_json(comparison: ModelResults) -> dict[str, Any]:
    """Convert a comparison to JSON values; infinite numbers become null."""
    fields = ("study", "workload", "backend", "metric", "which", "direction", "outcome", "seeds_needed")
    effects = ("effect", "median", "low", "high", "level", "wins", "losses", "ties", "count", "p_value")
    leads = [
        {"method": lead.method, **{name: getattr(lead.effect, name) for name in effects}}
        | {name: getattr(lead, name) for name in ("finding", "seeds_needed", "step_seconds_ratio")}
        for lead in comparison.leads
    ]
    methods = [asdict(row) for row in comparison.methods]
    about = {name: getattr(comparison, name) for name in (*fields, "joint_level", "shares")}
    leader = comparison.leader and comparison.leader.method
    return dict(json_value({**about, "leader": leader, "methods": methods, "leads": leads}))
