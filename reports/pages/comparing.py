"""Page of comparisons, on which readers choose any two methods of a report and see them side by side.

A pair consists of two runs with the same seed, one of each method. A run is censored if it stopped at a
threshold or ended before its target, so that only bounds of its value are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, permutations
from typing import Any

import numpy as np
import polars as pl

from curvebench.reports.claims import censoring
from curvebench.reports.claims.censoring import Bounds, PairedEffect
from curvebench.reports.formatting import counts, interval, metric_name, number, p_value, percent, plain
from curvebench.reports.measures import StudyProblem, evaluations_to_target, median_by_method, problems_of
from curvebench.reports.statistics.paired import Direction, Effect, effect_for
from curvebench.reports.statistics.ranks import NEGLIGIBLE
from curvebench.reports.statistics.shares import Share, probability_of_improvement
from curvebench.reports.tables import Tables
from curvebench.results.intervals import MedianInterval
from curvebench.spec.plan import StudyPlan

# Maximum number of pairs of methods on the page, so that it stays below 2 MB (a pair has about 100 bytes).
MOST_PAIRS = 15_000


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
        study, workload: names.
        quantity: name of the quantity in words.
        direction: whether less or more of the quantity is better.
        is_count: whether the quantity is a count, which is shown without decimals.
        stop: threshold of the quantity at which runs stop; None if there is no threshold.
        unknown_words: texts shown in place of the median and of the interval if nothing is known of the
            effect.
        values: final runs with columns method, seed, value, and the bounds least and most of the value.
        methods: the methods that have values.
    """

    study: str
    workload: str
    quantity: str
    direction: Direction
    is_count: bool
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
    """Return the matchups of all studies that have at least two methods.

    Each workload has one matchup for the headline metric (the metric by which the study compares methods) and
    one matchup for each target, on the study's first backend.
    """
    return [
        matchups
        for study in studies
        for problem in problems_of(*study)
        for matchups in _matchups(problem)
        if len(matchups.methods) > 1
    ]


def _matchups(problem: StudyProblem) -> Iterator[Matchups]:
    """Yield the matchups of one problem, for the headline metric and then for its targets."""
    study, names = problem.study, (problem.study.name, problem.workload.name)
    stop = study.training.stop.get(study.metric)
    values = censoring.with_bounds(problem.values, study.direction, stop)
    name = metric_name(study.metric, study.which)
    methods = _methods(study, values)
    yield Matchups(*names, name, study.direction, False, stop, censoring.unknown_words(stop), values, methods)
    for metric, threshold in problem.targets.items():
        name = f"gradients to {metric_name(metric)} {plain(threshold)}"
        values = evaluations_to_target(problem.final, metric)
        words, methods = ("both missed", "the target"), _methods(study, values)
        yield Matchups(*names, name, "minimize", True, None, words, values, methods)


def _methods(study: StudyPlan, values: pl.DataFrame) -> tuple[str, ...]:
    """Return the methods of a study that have values, in the study's order."""
    with_values = set(values["method"])
    return tuple(name for name in study.methods if name in with_values)


def comparison_page(studies: Sequence[tuple[StudyPlan, Tables]], preferred: Sequence[str]) -> dict[str, Any]:
    """Return the context of the page of comparisons.

    If the page would be larger than 2 MB, whole matchups are left out, beginning with the studies that have
    the fewest methods.

    Args:
        preferred: methods in the order of preference; the page first shows the first two of them.

    Returns:
        data: texts for the script of the page.
        left_out: names of the matchups that are left out.
        methods: methods that readers can choose.
        comparisons: all effects on the page.
        bounded: whether only bounds of some effects are known, because of censoring.
    """
    matchups = matchups_of(studies)
    if sum(matchup.size for matchup in matchups) > MOST_PAIRS:
        matchups = matchups_of(sorted(studies, key=lambda study_tables: -len(study_tables[0].methods)))
    methods = list(dict.fromkeys(method for study, _ in studies for method in study.methods))
    fits = sum(pairs <= MOST_PAIRS for pairs in accumulate(matchup.size for matchup in matchups))
    comparisons = [pairing.effect for matchup in matchups[:fits] for pairing in matchup.pairings.values()]
    return {
        "methods": methods,
        "data": {
            "methods": methods,
            "shown": list(dict.fromkeys([*preferred, *methods]))[:2],
            "contests": [_texts(matchup, methods) for matchup in matchups[:fits]],
        },
        "left_out": [f"{item.quantity} of {item.workload} ({item.study})" for item in matchups[fits:]],
        "comparisons": comparisons,
        "bounded": any(not effect.exact for effect in comparisons),
    }


def _texts(matchup: Matchups, methods: Sequence[str]) -> dict[str, Any]:
    """Return the texts that readers see of a matchup, for the script of the page.

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

    If the median is the threshold at which runs stop, the text says that the method's runs stopped there.
    """
    if matchup.is_count:
        middle, low, high = counts((value.median, value.low, value.high))
        return [middle, f"[{low}, {high}]"]
    stopped = matchup.stop is not None and value.median == matchup.stop
    middle = f"stopped at {plain(matchup.stop)}" if stopped else number(value.median)
    return [middle, interval(value.low, value.high)]


def cells(pairing: Pairing) -> list[str]:
    """Return the texts of a comparison of two methods, in the order of the page's columns.

    They are the effect and its interval, the number of pairs that the first method wins and the numbers of
    other outcomes, the probability that the first method is better and its interval, and the p-value.
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
