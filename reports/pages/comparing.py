"""Comparison of two methods that readers choose: the page for all studies, and the section of a study's page.

A pair consists of two runs with the same seed, one of each method. A run is censored if it stopped at a
threshold or ended before its target, so that only bounds of its value are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations, permutations
from typing import Any, Literal

import numpy as np
import polars as pl

from curvebench.reports.claims import censoring
from curvebench.reports.claims.censoring import Bounds, PairedEffect
from curvebench.reports.claims.quantities import recorded
from curvebench.reports.formatting import (
    counts,
    interval,
    metric_name,
    number,
    p_value,
    percent,
    plain,
    ratio,
    seconds,
    size,
)
from curvebench.reports.measures import (
    StudyProblem,
    cost_to_value,
    evaluations_to_target,
    median_by_method,
    problems_of,
)
from curvebench.reports.statistics.paired import Direction, Effect, effect_for
from curvebench.reports.statistics.ranks import NEGLIGIBLE
from curvebench.reports.statistics.shares import Share, probability_of_improvement
from curvebench.reports.tables import Tables
from curvebench.reports.wall_clock import peak_memory, timed_final
from curvebench.results.intervals import MedianInterval
from curvebench.spec.plan import StudyPlan

# Maximum number of pairs of methods on the page, which keeps the page below 2 MB.
# The texts of a pair of methods have about 100 bytes.
MOST_PAIRS = 15_000
MOST_COMPARED = 12  # maximum number of methods to choose from on the page of a study
MISSED = ("both missed", "the target")  # texts that are shown in place of an unknown effect on a cost


@dataclass(frozen=True)
class Pairing:
    """Comparison of a first method with a second method on the seeds that both ran.

    Args:
        effect: effect of the first method compared to the second.
        lower, upper: bounds of the share of pairs in which the first method is better. A pair is undecided if
            censoring leaves open which method is better. `lower` counts undecided pairs as losses of the
            first method, `upper` counts them as wins.
    """

    effect: PairedEffect
    lower: Share
    upper: Share


@dataclass(frozen=True)
class Matchups:
    """All comparisons of methods by one quantity, on one workload and backend.

    Args:
        study, workload: names of the study and of the workload.
        quantity: name of the quantity in words.
        direction: whether less or more of the quantity is better.
        unit: "gradients" if the quantity is a count of gradients, which is shown without decimals, "seconds"
            if the quantity is a duration, and otherwise empty.
        stop: threshold of the quantity at which runs stop; None if there is no threshold.
        unknown_words: texts shown in place of the median and of the interval if nothing is known of the
            effect.
        values: final runs with columns method, seed, value, least and most (lower and upper bound of the
            value).
        methods: the methods that have values.
    """

    study: str
    workload: str
    quantity: str
    direction: Direction
    unit: Literal["", "gradients", "seconds"]
    stop: float | None
    unknown_words: tuple[str, str]
    values: pl.DataFrame
    methods: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of ordered pairs of methods."""
        return len(self.methods) * (len(self.methods) - 1)

    @cached_property
    def effect(self) -> Effect:
        """Whether pairs are compared by ratio or by difference."""
        return effect_for(self.values["value"].to_numpy(), self.direction)

    @cached_property
    def medians(self) -> dict[str, MedianInterval]:
        """Median of each method, with its interval."""
        medians = median_by_method(self.values)
        return {name: medians[name] for name in self.methods}

    @cached_property
    def pairings(self) -> dict[tuple[str, str], Pairing]:
        """Comparison of each ordered pair of methods; pairs that share no seed are missing."""
        lower, upper = (self.values.pivot("method", index="seed", values=end) for end in ("least", "most"))
        runs = {name: Bounds(lower[name].to_numpy(), upper[name].to_numpy()) for name in self.methods}
        pairings = {}
        for (first, first_runs), (second, second_runs) in permutations(runs.items(), 2):
            # `shared` is a mask of the seeds that both methods ran.
            shared = ~np.isnan(first_runs.low) & ~np.isnan(second_runs.low)
            if shared.any():
                pair = first_runs.at(shared), second_runs.at(shared)
                kind = (self.direction, self.effect)
                effect = censoring.paired_effect(*pair, *kind, self.unknown_words, NEGLIGIBLE)
                pairings[first, second] = Pairing(effect, *map(probability_of_improvement, effect.gains))
        return pairings


def matchups_of(studies: Sequence[tuple[StudyPlan, Tables]]) -> list[Matchups]:
    """Return the matchups of all studies, except matchups with fewer than two methods.

    A matchup consists of all comparisons of methods by one quantity. Each workload has one matchup for the
    headline metric (the metric by which the study compares methods) and one matchup for each target, on the
    study's first backend.
    """
    return [
        matchups
        for study in studies
        for problem in problems_of(*study)
        for matchups in _matchups(problem, study[0].methods)
        if len(matchups.methods) > 1
    ]


def _matchups(problem: StudyProblem, methods: Sequence[str]) -> Iterator[Matchups]:
    """Yield the matchups of one problem, for the headline metric and then for its targets.

    Args:
        methods: methods to compare, if they have values.
    """
    study, names = problem.study, (problem.study.name, problem.workload.name)
    stop = study.training.stop.get(study.metric)
    values = censoring.with_bounds(problem.values, study.direction, stop)
    name = metric_name(study.metric, study.which)
    words, shown = censoring.unknown_words(stop), _methods(methods, values)
    yield Matchups(*names, name, study.direction, "", stop, words, values, shown)
    for metric, threshold in problem.targets.items():
        name = f"gradients to {metric_name(metric)} {plain(threshold)}"
        values = evaluations_to_target(problem.final, metric)
        shown = _methods(methods, values)
        yield Matchups(*names, name, "minimize", "gradients", None, MISSED, values, shown)


def _methods(methods: Iterable[str], values: pl.DataFrame) -> tuple[str, ...]:
    """Return the methods that have values, in the same order."""
    with_values = set(values["method"])
    return tuple(name for name in methods if name in with_values)


def _cost_matchups(problem: StudyProblem, methods: Sequence[str]) -> Iterator[Matchups]:
    """Yield the matchups of one problem by further costs.

    If the problem has targets, the costs are the seconds to each target. Without targets, two methods are
    compared by the gradients and by the seconds that each method needs to reach the worse of the two methods'
    medians of the headline metric.

    Args:
        methods: methods to compare, if they have values.
    """
    study, final = problem.study, timed_final(problem)
    goals: list[tuple[str, float, Sequence[str]]]
    goals = [(metric, threshold, methods) for metric, threshold in problem.targets.items()]
    if not goals:
        medians = {name: value.median for name, value in median_by_method(problem.values).items()}
        finite = [name for name in methods if np.isfinite(medians.get(name, np.nan))]
        worse = max if study.direction == "minimize" else min
        goals = [
            (study.metric, worse(map(medians.__getitem__, pair)), pair) for pair in combinations(finite, 2)
        ]
    curves = {metric: recorded(problem.tables, final, metric) for metric, *_ in goals}
    for metric, threshold, named in goals:
        runs = final.filter(pl.col("method").is_in(named))
        target = curves[metric], threshold, study.direction_of(metric)
        for unit in ("gradients", "seconds") if named is not methods else ("seconds",):
            values = cost_to_value(runs, *target, unit).drop_nulls("value").with_columns(value="most")
            goal = plain(threshold) if named is methods else number(threshold)
            name = f"{unit} to {metric_name(metric)} {goal}"
            about = problem.study.name, problem.workload.name, name, "minimize", unit, None, MISSED
            yield Matchups(*about, values, _methods(named, values))  # type: ignore[arg-type]


def _memory_texts(problem: StudyProblem, methods: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield, for each kind of memory, texts that compare all pairs of methods, in the form that `_texts`
    returns.

    The texts contain no intervals, because memory is measured only once.
    """
    columns = ["method", "host", "device"]
    sizes = problem.final.group_by("method").agg(pl.col("state_bytes").max())
    sizes = sizes.join(peak_memory(problem.of(problem.tables.memory)).select(columns), "method", "left")
    names = {"state_bytes": "state of the optimizer", "host": "peak memory of the host"}
    for column, name in (names | {"device": "peak memory of arrays on the device"}).items():
        of_method = dict(sizes.select("method", column).drop_nulls().iter_rows())
        known = {methods.index(name): of_method[name] for name in methods if name in of_method}
        pairs: dict[int, dict[int, list[str]]] = {}
        for (first, ours), (second, theirs) in permutations(known.items(), 2):
            shown = ratio(ours / theirs) if theirs else "—"
            pairs.setdefault(first, {})[second] = [shown, "one measurement", *[""] * 5]
        yield {
            "study": "",
            "workload": problem.workload.name,
            "quantity": name,
            "better": "less is better",
            "effect": "ratio",
            "medians": {index: [size(value)] for index, value in known.items()},
            "pairs": pairs,
        }


def head_to_head(study: StudyPlan, tables: Tables, preferred: Sequence[str]) -> dict[str, Any]:
    """Return the section of a study's page in which readers choose two of the study's methods.

    Args:
        preferred: methods in the order of preference; the page first shows the first two of them. If the
            study has more than `MOST_COMPARED` methods, only the first `MOST_COMPARED` methods in this order
            can be chosen.

    Returns:
        The values that `comparison_page` returns, without `left_out`, and `to_targets`: whether costs are
        costs to the study's targets.
    """
    methods = list(dict.fromkeys([*preferred, *study.methods]))[:MOST_COMPARED]
    matchups, contests = list[Matchups](), list[dict[str, Any]]()
    for problem in problems_of(study, tables):
        found = (*_matchups(problem, methods), *_cost_matchups(problem, methods))
        matchups += (own := [matchup for matchup in found if len(matchup.methods) > 1])
        contests += [_texts(matchup, methods) | {"study": ""} for matchup in own]
        contests += _memory_texts(problem, methods) if own else ()
    to_targets = any(study.targets_on(workload) for workload in study.workloads)
    return _context(methods, methods[:2], matchups, contests) | {"to_targets": to_targets}


def comparison_page(studies: Sequence[tuple[StudyPlan, Tables]], preferred: Sequence[str]) -> dict[str, Any]:
    """Return the context of the page of comparisons.

    If the page would be larger than 2 MB, whole matchups are left out, beginning with the studies that have
    the fewest methods.

    Args:
        preferred: methods in the order of preference; the page first shows the first two of them.

    Returns:
        data: methods that readers can choose, the two methods shown first, and the texts of all matchups.
        left_out: names of the matchups that are left out.
        comparisons: all effects on the page.
        bounded: whether only bounds of some effects are known, because of censoring.
    """
    matchups = matchups_of(studies)
    if sum(matchup.size for matchup in matchups) > MOST_PAIRS:
        matchups = matchups_of(sorted(studies, key=lambda study_tables: -len(study_tables[0].methods)))
    methods = list(dict.fromkeys(method for study, _ in studies for method in study.methods))
    fits = sum(pairs <= MOST_PAIRS for pairs in accumulate(matchup.size for matchup in matchups))
    left_out = [f"{item.quantity} of {item.workload} ({item.study})" for item in matchups[fits:]]
    shown, contests = list(dict.fromkeys([*preferred, *methods]))[:2], matchups[:fits]
    texts = [_texts(matchup, methods) for matchup in contests]
    return _context(methods, shown, contests, texts) | {"left_out": left_out}


def _context(
    methods: Sequence[str], shown: Sequence[str], matchups: Sequence[Matchups], texts: Sequence[Any]
) -> dict[str, Any]:
    """Return the context of the template `pair.jinja`, as `comparison_page` describes it.

    Args:
        texts: texts of each matchup, as `_texts` returns them.
    """
    comparisons = [pairing.effect for matchup in matchups for pairing in matchup.pairings.values()]
    return {
        "data": {"methods": methods, "shown": shown, "contests": texts},
        "comparisons": comparisons,
        "bounded": any(not effect.exact for effect in comparisons),
    }


def _texts(matchup: Matchups, methods: Sequence[str]) -> dict[str, Any]:
    """Return the texts that readers see of a matchup, for the script of the page.

    A matchup consists of all comparisons of methods by one quantity.

    To keep the page small, methods are given by their index in `methods`. The value of `pairs` maps the first
    method, and then the second method, to the texts of their comparison (`cells`).
    """
    pairs: dict[int, dict[int, list[str]]] = {}
    for (first, second), pairing in matchup.pairings.items():
        pairs.setdefault(methods.index(first), {})[methods.index(second)] = cells(pairing)
    return {
        "study": matchup.study,
        "workload": matchup.workload,
        "quantity": matchup.quantity,
        "better": "less is better" if matchup.direction == "minimize" else "more is better",
        "effect": matchup.effect,
        "medians": {methods.index(name): median_texts(matchup, end) for name, end in matchup.medians.items()},
        "pairs": pairs,
    }


def median_texts(matchup: Matchups, value: MedianInterval) -> list[str]:
    """Return the texts of a method's median and of its interval.

    If the median is the threshold at which runs stop, the text says that the method's runs stopped at this
    threshold.
    """
    if matchup.unit:
        ends = value.median, value.low, value.high
        middle, low, high = counts(ends) if matchup.unit == "gradients" else map(seconds, ends)
        return [middle, f"[{low}, {high}]"]
    stopped = matchup.stop is not None and value.median == matchup.stop
    middle = f"stopped at {plain(matchup.stop)}" if stopped else number(value.median)
    return [middle, interval(value.low, value.high)]


def cells(pairing: Pairing) -> list[str]:
    """Return the texts of a comparison of two methods, in the order of the page's columns.

    The texts are: the effect; the interval of the effect; the number of pairs that the first method wins; the
    numbers of other outcomes; the probability that the first method is better; the interval of this
    probability; the p-value.
    """
    effect, lower, upper = pairing.effect, pairing.lower, pairing.upper
    other_outcomes = [(effect.losses, "worse"), (effect.ties, "equal"), (effect.open, "open")]
    chances = [percent(lower.value), percent(upper.value)]
    return [
        *effect.words,
        f"{effect.wins} of {effect.count}",
        ", ".join(f"{pairs} {word}" for pairs, word in other_outcomes if pairs or word == "worse"),
        " to ".join(dict.fromkeys(chances)),
        f"{percent(lower.low)} to {percent(upper.high)}",
        p_value(effect.p_value),
    ]
