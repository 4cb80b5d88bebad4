"""Any two methods of a report side by side: what the page of comparisons lets readers choose from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, permutations
from typing import Any

import numpy as np
import polars as pl

from curvebench.reports.claims import censoring
from curvebench.reports.claims.censoring import Interval, PairedEffect
from curvebench.reports.formatting import counts, interval, metric_name, number, p_value, percent, plain
from curvebench.reports.measures import StudyProblem, evaluations_to_target, median_by_method, problems_of
from curvebench.reports.statistics.paired import Direction, Effect, effect_for
from curvebench.reports.statistics.ranks import NEGLIGIBLE
from curvebench.reports.statistics.shares import Share, probability_of_improvement
from curvebench.reports.tables import Tables
from curvebench.results.intervals import MedianInterval
from curvebench.spec.plan import StudyPlan

MOST_PAIRS = 15_000  # of methods in the page's data, of about 100 bytes each: keeps the page below 2 MB


@dataclass(frozen=True)
class Pairing:
    """Two methods on the instances that both ran, seen from the first one.

    Args:
        effect: of the first beside the second, as far as it is known.
        least, most: the chance that the first is better, all pairs that are open being worse, or better.
    """

    effect: PairedEffect
    least: Share
    most: Share


@dataclass(frozen=True)
class Matchups:
    """One quantity on one workload and backend: each method's median, and how each pair compares.

    Args:
        whole: whether the quantity is counted, and shown without decimals.
        stop: the threshold at which runs stop; None without.
        unknown_words: what is said where nothing is known of two methods, as `EffectBounds` has it.
        values: of final runs, with columns method, seed, value, and least and most, between what it lies.
        methods: those with values.
    """

    study: str
    workload: str
    quantity: str
    direction: Direction
    whole: bool
    stop: float | None
    unknown_words: tuple[str, str]
    values: pl.DataFrame
    methods: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of ordered pairs of methods."""
        return len(self.methods) * (len(self.methods) - 1)

    @cached_property
    def effect(self) -> Effect:
        """Whether two values are held against each other as a ratio or as a difference."""
        return effect_for(self.values["value"].to_numpy(), self.direction)

    @cached_property
    def medians(self) -> dict[str, MedianInterval]:
        """By method."""
        found = median_by_method(self.values)
        return {name: found[name] for name in self.methods}

    @cached_property
    def meetings(self) -> dict[tuple[str, str], Pairing]:
        """By the two methods' names, in both orders; those that share no instance are missing."""
        least, most = (self.values.pivot("method", index="seed", values=end) for end in ("least", "most"))
        runs = {name: Interval(least[name].to_numpy(), most[name].to_numpy()) for name in self.methods}
        found = {}
        for (first, one), (second, other) in permutations(runs.items(), 2):
            both = ~np.isnan(one.low) & ~np.isnan(other.low)  # the seeds that both ran
            if both.any():
                left, right = one.at(both), other.at(both)
                about = (self.direction, self.effect)
                effect = censoring.paired_effect(left, right, *about, self.unknown_words, NEGLIGIBLE)
                gains = censoring.paired_gains(left, right, *about, NEGLIGIBLE)
                found[first, second] = Pairing(effect, *map(probability_of_improvement, gains))
        return found


def contests(studies: Sequence[tuple[StudyPlan, Tables]]) -> list[Matchups]:
    """What is compared: the headline metric, then targets, of each workload, on the study's first backend."""
    return [
        contest
        for own in studies
        for problem in problems_of(*own)
        for contest in _contests(problem)
        if len(contest.methods) > 1
    ]


def _contests(problem: StudyProblem) -> Iterator[Matchups]:
    study, where = problem.study, (problem.study.name, problem.workload.name)
    stop = study.training.stop.get(study.metric)
    values = censoring.with_bounds(problem.values, study.direction, stop)
    name = metric_name(study.metric, study.which)
    methods = _methods(study, values)
    yield Matchups(*where, name, study.direction, False, stop, censoring.unknown_words(stop), values, methods)
    for metric, threshold in problem.targets.items():
        name = f"gradients to {metric_name(metric)} {plain(threshold)}"
        values = evaluations_to_target(problem.final, metric)
        words, methods = ("both missed", "the target"), _methods(study, values)
        yield Matchups(*where, name, "minimize", True, None, words, values, methods)


def _methods(study: StudyPlan, values: pl.DataFrame) -> tuple[str, ...]:
    """The study's methods that have values, in its order."""
    there = set(values["method"])
    return tuple(name for name in study.methods if name in there)


def comparison_page(studies: Sequence[tuple[StudyPlan, Tables]], shown: Sequence[str]) -> dict[str, Any]:
    """What the page of comparisons shows.

    Where a report is so large that the page would not stay below 2 MB, whole contests are left out, of the
    studies with fewest methods first.

    Args:
        shown: methods to begin with, the first two that there are.

    Returns:
        `data` for the script (texts only), `left_out` of it, `methods`, and `comparisons` for what their
        intervals cover.
    """
    found = contests(studies)
    if sum(contest.size for contest in found) > MOST_PAIRS:
        found = contests(sorted(studies, key=lambda each: -len(each[0].methods)))
    methods = list(dict.fromkeys(method for study, _ in studies for method in study.methods))
    fits = sum(pairs <= MOST_PAIRS for pairs in accumulate(contest.size for contest in found))
    comparisons = [meeting.effect for contest in found[:fits] for meeting in contest.meetings.values()]
    return {
        "methods": methods,
        "data": {
            "methods": methods,
            "shown": list(dict.fromkeys([*shown, *methods]))[:2],
            "contests": [_texts(contest, methods) for contest in found[:fits]],
        },
        "left_out": [
            f"{contest.quantity} of {contest.workload} ({contest.study})" for contest in found[fits:]
        ],
        "comparisons": comparisons,
        "bounded": any(not effect.exact for effect in comparisons),
    }


def _texts(contest: Matchups, methods: Sequence[str]) -> dict[str, Any]:
    """A contest in the texts that readers see; methods are numbers, to keep the page small.

    `pairs` holds, by the first method and then the second, what `cells` returns.
    """
    pairs: dict[int, dict[int, list[str]]] = {}
    for (first, second), meeting in contest.meetings.items():
        pairs.setdefault(methods.index(first), {})[methods.index(second)] = cells(meeting)
    return {
        "study": contest.study,
        "workload": contest.workload,
        "quantity": contest.quantity,
        "better": "less is better" if contest.direction == "minimize" else "more is better",
        "effect": contest.effect,
        "medians": {
            methods.index(method): median_texts(contest, value) for method, value in contest.medians.items()
        },
        "pairs": pairs,
    }


def median_texts(contest: Matchups, value: MedianInterval) -> list[str]:
    """A method's median, or that it stopped there, and its interval."""
    if contest.whole:
        middle, low, high = counts((value.median, value.low, value.high))
        return [middle, f"[{low}, {high}]"]
    stopped = contest.stop is not None and value.median == contest.stop
    middle = f"stopped at {plain(contest.stop)}" if stopped else number(value.median)
    return [middle, interval(value.low, value.high)]


def cells(meeting: Pairing) -> list[str]:
    """How two methods compare: the effect, its interval; wins of the first, the rest; chance, interval; p."""
    effect, least, most = meeting.effect, meeting.least, meeting.most
    rest = [(effect.losses, "worse"), (effect.ties, "equal"), (effect.open, "open")]
    chances = [percent(least.value), percent(most.value)]
    return [
        *effect.words,
        f"{effect.wins} of {effect.count}",
        ", ".join(f"{pairs} {word}" for pairs, word in rest if pairs or word == "worse"),
        " to ".join(dict.fromkeys(chances)),
        f"{percent(least.low)} to {percent(most.high)}",
        p_value(effect.p_value),
    ]
