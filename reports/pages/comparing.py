"""Any two methods of a report side by side: what the page of comparisons lets readers choose from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, permutations
from typing import Any

import polars as pl

from documents.plan import StudyPlan, WorkloadPlan
from reports.claims.censoring import (
    Interval,
    PairedEffect,
    both_stopped,
    paired_effect,
    paired_gains,
    with_bounds,
)
from reports.formatting import counts, interval, metric_name, number, p_value, percent, plain
from reports.measures import evaluations_to_target, final_runs, median_by_method, study_values
from reports.statistics.paired import Direction, Effect, effect_for
from reports.statistics.ranks import NEGLIGIBLE
from reports.statistics.shares import Share, probability_of_improvement
from reports.tables import Tables
from results.intervals import MedianInterval

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
        meetings: by the two methods' names, in both orders; those that share no instance are missing.
    """

    study: str
    workload: str
    backend: str
    quantity: str
    direction: Direction
    effect: Effect
    whole: bool
    stop: float | None
    medians: dict[str, MedianInterval]
    meetings: dict[tuple[str, str], Pairing]


def contests(studies: Sequence[tuple[StudyPlan, Tables]]) -> list[Matchups]:
    """Every comparison of two methods: headline metric, then targets, of each workload and backend."""
    return [
        contest
        for study, tables in studies
        for workload in study.workloads
        for backend in study.backends
        for contest in _contests(study, workload, backend, tables.runs)
    ]


def _contests(
    study: StudyPlan, workload: WorkloadPlan, backend: str, runs: pl.DataFrame
) -> Iterator[Matchups]:
    final = final_runs(runs, workload.name, backend)
    if final.select("method", "seed").is_duplicated().any():
        raise ValueError(
            f"study {study.name}: a method has more than one final run of {workload.name} on a seed"
        )
    stop, where = study.stop.get(study.metric), (study.name, workload.name, backend)
    values = with_bounds(study_values(study, final).drop_nulls("value"), study.direction, stop)
    name = f"{study.which} {metric_name(study.metric)}"
    if values["method"].n_unique() > 1:
        words = both_stopped(stop)
        yield _matchups(study, (*where, name), values, study.direction, words, whole=False, stop=stop)
    for metric, threshold in study.targets_on(workload).items():
        name = f"gradients to {metric_name(metric)} {plain(threshold)}"
        values = evaluations_to_target(final, metric)
        if values["method"].n_unique() > 1:
            words = ("both missed", "the target")
            yield _matchups(study, (*where, name), values, "minimize", words, whole=True, stop=None)


def _matchups(
    study: StudyPlan,
    about: tuple[str, str, str, str],
    values: pl.DataFrame,
    direction: Direction,
    unknown_words: tuple[str, str],
    **shown: Any,
) -> Matchups:
    """Every pair of methods on one quantity.

    Args:
        about: study, workload, backend and quantity.
        values: the runs with columns value, and least and most, between what it lies.
        unknown_words: what is said where nothing is known of two methods, as `EffectBounds` has it.
        shown: whole and stop.
    """
    effect = effect_for(values["value"].to_numpy(), direction)
    found = median_by_method(values)
    runs = {name: values.filter(method=name) for name in study.methods if name in found}
    meetings = {}
    for first, second in permutations(runs, 2):
        pairs = runs[first].join(runs[second], on="seed", maintain_order="left", suffix=" of the second")
        if not len(pairs):
            continue
        left, right = (
            Interval(pairs[f"least{side}"].to_numpy(), pairs[f"most{side}"].to_numpy())
            for side in ("", " of the second")
        )
        found_effect = paired_effect(left, right, direction, effect, unknown_words, NEGLIGIBLE)
        chances = map(probability_of_improvement, paired_gains(left, right, direction, effect, NEGLIGIBLE))
        meetings[first, second] = Pairing(found_effect, *chances)
    medians = {name: found[name] for name in runs}
    return Matchups(*about, direction, effect, medians=medians, meetings=meetings, **shown)


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
    if sum(len(contest.meetings) for contest in found) > MOST_PAIRS:
        found = contests(sorted(studies, key=lambda each: -len(each[0].methods)))
    methods = list(dict.fromkeys(method for study, _ in studies for method in study.methods))
    held = list(accumulate(len(contest.meetings) for contest in found))
    fits = sum(pairs <= MOST_PAIRS for pairs in held)
    comparisons = [meeting.effect for contest in found for meeting in contest.meetings.values()]
    return {
        "methods": methods,
        "data": {
            "methods": methods,
            "shown": list(dict.fromkeys([*shown, *methods]))[:2],
            "contests": [_texts(contest, methods) for contest in found[:fits]],
        },
        "left_out": [
            f"{contest.quantity} of {contest.workload} ({contest.study}) on {contest.backend}"
            for contest in found[fits:]
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
        "backend": contest.backend,
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
