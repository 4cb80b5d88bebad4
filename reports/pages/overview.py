"""Which method to use for what: on every workload the first at the target and the one that ends best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

import polars as pl

from curvebench.reports import measures
from curvebench.reports.claims.censoring import PairedEffect, effect_by_seed
from curvebench.reports.statistics.paired import Direction
from curvebench.reports.statistics.ranks import NEGLIGIBLE, tied
from curvebench.reports.statistics.selection import best_set, least_p_value
from curvebench.reports.statistics.shares import Share
from curvebench.reports.tables import Tables
from curvebench.results.intervals import MedianInterval, median_interval
from curvebench.results.verdicts import ALPHA
from curvebench.spec.plan import StudyPlan, WorkloadPlan


@dataclass(frozen=True)
class BestMethods:
    """The methods that may be the best by one measure, the one with the best median first.

    Args:
        beaten: how many others are out of the question.
        least: the smallest corrected p-value that shared seeds permit.
    """

    methods: tuple[str, ...]
    beaten: int
    least: float

    @property
    def method(self) -> str:
        """The one with the best median."""
        return self.methods[0]

    @property
    def enough_seeds(self) -> bool:
        """Whether the seeds are enough to distinguish a method from the others."""
        return self.least <= ALPHA

    @property
    def others(self) -> tuple[str, ...]:
        """The others that may be the best."""
        return self.methods[1:]


@dataclass(frozen=True)
class Winner:
    """How the best method ends on a workload, and what the target took it, the sampling of its basis charged.

    Args:
        measure: what it is the best at: getting to the target, or the end after equal steps.
        value: the headline metric.
        effect: beside the baseline, seed by seed; None for the baseline itself.
        evaluations, seconds: to the target; None without a target, or where steps were not timed.
        basis: gradient evaluations before the first step; 0 without a basis.
        reached: runs that reached the target; None without one.
    """

    measure: Literal["target", "end"]
    best: BestMethods
    value: MedianInterval
    effect: PairedEffect | None
    evaluations: MedianInterval | None
    seconds: MedianInterval | None
    basis: int
    reached: Share | None


@dataclass(frozen=True)
class Answer:
    """What may be said of one workload.

    Args:
        backend: the study's first.
        baseline: the study's first method, with which losses are compared.
        target: the metric and threshold; None where the study has none.
        ends: the method that ends best after equal steps.
        use: the method to use: the first at the target, its sampling charged; without a target, or where half
            of the runs of every method miss it, the one that ends best.
        medians: by method, of that by which the method to use is chosen.
        shared: whether other studies have the workload too.
    """

    study: StudyPlan
    workload: WorkloadPlan
    backend: str
    baseline: str
    target: tuple[str, float] | None
    use: Winner
    ends: Winner
    medians: Mapping[str, float]
    shared: bool = False

    @property
    def seeds(self) -> int:
        """Of the method that ends best."""
        return self.ends.value.count

    @property
    def agree(self) -> bool:
        """Whether the method to use is the one that ends best."""
        return self.use.best.method == self.ends.best.method

    @property
    def winners(self) -> tuple[Winner, ...]:
        """The method to use and, if it is another, the one that ends best; none where seeds are too few."""
        if len(self.medians) > 1 and not self.use.best.enough_seeds:
            return ()
        return (self.use,) if self.agree else (self.use, self.ends)


def answers(studies: Sequence[tuple[StudyPlan, Tables]]) -> list[Answer]:
    """One answer a workload of a study, on the study's first backend; none where there are no final runs."""
    found: list[Answer] = []
    for study, tables in studies:
        for workload in study.workloads:
            final = measures.final_runs(tables.runs, workload.name, study.backends[0])
            values = measures.study_values(study, final).drop_nulls("value")
            if len(values):
                found.append(_answer(study, workload, final, values))
    names = Counter(answer.workload.name for answer in found)
    return [replace(answer, shared=names[answer.workload.name] > 1) for answer in found]


def _answer(study: StudyPlan, workload: WorkloadPlan, final: pl.DataFrame, values: pl.DataFrame) -> Answer:
    there = set(values["method"])
    baseline = next(method for method in study.methods if method in there)
    target = measures.target_of(study, workload)
    times = measures.evaluations_to_target(final, target[0]) if target else final.clear()

    def winner(measure: Literal["target", "end"], best: BestMethods) -> Winner:
        runs = final.filter(method=best.method)
        evaluations = times.filter(method=best.method)["value"] if len(times) else pl.Series(dtype=pl.Float64)
        return Winner(
            measure=measure,
            best=best,
            value=median_interval(values.filter(method=best.method)["value"].to_numpy()),
            effect=None if best.method == baseline else effect_by_seed(study, values, best.method, baseline),
            evaluations=measures.complete_interval(evaluations),
            seconds=measures.complete_interval(measures.seconds_to_target(runs, target[0])["value"])
            if target
            else None,
            basis=int(runs["basis_gradient_evaluations"].fill_null(0).max()),  # type: ignore[arg-type]
            reached=measures.reached_share(evaluations),
        )

    ends = winner("end", best_methods_of(values, study.direction, study.methods))
    use, judged = ends, values
    if len(times):
        sign = 1 if study.direction == "minimize" else -1
        at_end = measures.median_by_method(values)
        order = sorted(
            (name for name in study.methods if name in at_end), key=lambda name: sign * at_end[name].median
        )
        first = best_methods_of(times, "minimize", order)  # of two that are as soon, the one that ends best
        fewest = median_interval(times.filter(method=first.method)["value"].to_numpy())
        if isfinite(fewest.median):
            use, judged = winner("target", first), times
    found = {name: value.median for name, value in measures.median_by_method(judged).items()}
    return Answer(study, workload, study.backends[0], baseline, target, use, ends, found)


def best_methods_of(values: pl.DataFrame, direction: Direction, order: Sequence[str]) -> BestMethods:
    """The methods that may be the best; of medians that tie, the one that is named first leads.

    Args:
        values: columns method, seed, value.
        order: names of methods.
    """
    chosen = best_set(values, direction, ALPHA, NEGLIGIBLE)
    # of a ring in which each beats the next nobody is kept, and all may be the best
    kept = set(chosen.filter("kept")["method"]) or set(chosen["method"])
    finished = set(values.filter(pl.col("value").is_finite())["method"])  # others are not the best
    beaten, kept = len(chosen) - len(kept), kept & finished or kept
    found = {name: value.median for name, value in measures.median_by_method(values).items()}
    sign = 1 if direction == "minimize" else -1
    best = sorted((name for name in order if name in kept), key=lambda name: sign * found[name])
    lead = next(name for name in order if name in kept and tied(found[name], found[best[0]]))
    methods = (lead, *(name for name in best if name != lead))
    return BestMethods(methods, beaten, least_p_value(values))
