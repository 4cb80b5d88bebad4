"""Any two methods of a report side by side: what the page of comparisons lets readers choose from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from reports.formatting import counts, interval, metric_name, number, p_value, percent, plain
from reports.measures import evaluations_to_target, study_values
from reports.plan import StudyPlan
from reports.statistics.improvement import Improvement, probability_of_improvement
from reports.statistics.medians import MedianInterval, medians
from reports.statistics.paired import Direction, Effect, PairedComparison, compare_pairs, effect_for
from reports.statistics.ranks import NEGLIGIBLE
from reports.stopped import (
    Between,
    PairedEffect,
    both_stopped,
    effect_within,
    effects_between,
    gains_between,
    with_bounds,
)
from reports.tables import Tables

MOST_PAIRS = 12_000  # of methods in the page's data, of about 100 bytes each: keeps the page below 2 MB
MOST_ROWS = 1_500  # of the table for readers without scripts, of about 400 bytes each


@dataclass(frozen=True)
class Meeting:
    """Two methods on the instances that both ran, seen from the first one.

    Args:
        effect: of the first beside the second, as far as it is known.
        least, most: the chance that the first is better, all pairs that are open being worse, or better.
    """

    effect: PairedEffect
    least: Improvement
    most: Improvement

    @property
    def comparison(self) -> PairedComparison:
        """The first with the second, as `PairedEffect` has it."""
        return self.effect.comparison


@dataclass(frozen=True)
class Contest:
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
    meetings: dict[tuple[str, str], Meeting]


def contests(studies: Sequence[tuple[StudyPlan, Tables]]) -> list[Contest]:
    """Every comparison of two methods: headline metric, then targets, of each workload and backend."""
    return [
        _contest(study, workload.name, backend, quantity)
        for study, tables in studies
        for workload in study.workloads
        for backend in study.backends
        for quantity in _quantities(study, workload.name, backend, tables.runs)
        if quantity.values["method"].n_unique() > 1
    ]


@dataclass(frozen=True)
class _Quantity:
    """What is compared of runs.

    Args:
        nothing: what is said where nothing is known of two methods, as `reports.stopped.EffectBounds` has it.
        values: the runs with columns value, and least and most, between what it lies.
    """

    name: str
    direction: Direction
    whole: bool
    stop: float | None
    nothing: tuple[str, str]
    values: pl.DataFrame


def _quantities(study: StudyPlan, workload: str, backend: str, runs: pl.DataFrame) -> Iterator[_Quantity]:
    final = runs.filter(
        (pl.col("stage") == "final") & (pl.col("workload") == workload) & (pl.col("backend") == backend)
    )
    stop, direction = study.stop.get(study.metric), study.direction
    values = with_bounds(study_values(study, final).drop_nulls("value"), direction, stop)
    name = f"{study.which} {metric_name(study.metric)}"
    yield _Quantity(name, direction, False, stop, both_stopped(stop), values)
    for metric, threshold in study.targets.items():
        reached = evaluations_to_target(final, metric)
        name = f"gradients to {metric_name(metric)} {plain(threshold)}"
        yield _Quantity(name, "minimize", True, None, ("both missed", "the target"), reached)


def _contest(study: StudyPlan, workload: str, backend: str, asked: _Quantity) -> Contest:
    values = asked.values
    if values.select("method", "seed").is_duplicated().any():
        raise ValueError(f"study {study.name}: a method has more than one final run of {workload} on a seed")
    effect = effect_for(values["value"].to_numpy(), asked.direction)
    found = {
        row.pop("method"): MedianInterval(**row) for row in medians(values, ["method"], "value").to_dicts()
    }
    order = [method for method in study.methods if method in found]
    kept = values.select("method", "seed", "value", "least", "most")
    runs = {name: kept.filter(pl.col("method") == name).drop("method") for name in order}
    meetings = {}
    for first, second in combinations(order, 2):
        both = runs[first].join(runs[second], on="seed", maintain_order="left", suffix=" of the second")
        if len(both):
            meetings[first, second], meetings[second, first] = _meetings(both, asked, effect)
    return Contest(
        study=study.name,
        workload=workload,
        backend=backend,
        quantity=asked.name,
        direction=asked.direction,
        effect=effect,
        whole=asked.whole,
        stop=asked.stop,
        medians={method: found[method] for method in order},
        meetings=meetings,
    )


def _meetings(both: pl.DataFrame, asked: _Quantity, effect: Effect) -> tuple[Meeting, Meeting]:
    """Compare two methods, and the other way round.

    Args:
        both: a row a pair: value, least and most of the first, and the same "of the second".
    """
    left, right = (
        Between(both[f"least{side}"].to_numpy(), both[f"most{side}"].to_numpy())
        for side in ("", " of the second")
    )
    first, second = both["value"].to_numpy(), both["value of the second"].to_numpy()
    forth = compare_pairs(first, second, asked.direction, effect)
    back = compare_pairs(second, first, asked.direction, effect)
    there, here = effects_between(left, right, effect), effects_between(right, left, effect)
    gains = gains_between(left, right, asked.direction, effect, NEGLIGIBLE)
    least, most = (_chance(ends) for ends in gains)
    return (
        Meeting(effect_within(forth, there, gains, asked.nothing), least, most),
        Meeting(effect_within(back, here, gains.turned, asked.nothing), _turned(most), _turned(least)),
    )


def _chance(gains: np.ndarray) -> Improvement:
    """The chance of a gain above 0; what the test calls a tie is no improvement either."""
    pairs = pl.DataFrame({"first": gains, "second": np.zeros(len(gains))}).with_row_index("seed")
    frame = pairs.unpivot(index="seed", variable_name="method").with_columns(workload=pl.lit(""))
    return probability_of_improvement(frame, "first", "second", "maximize")


def _turned(chance: Improvement) -> Improvement:
    """The chance of the other one."""
    return replace(chance, probability=1 - chance.probability, low=1 - chance.high, high=1 - chance.low)


def comparison_page(studies: Sequence[tuple[StudyPlan, Tables]], shown: Sequence[str]) -> dict[str, Any]:
    """What the page of comparisons shows.

    Where a report is so large that the page would not stay below 2 MB, whole contests are left out from the
    end, of the data that readers choose from and, at a lower limit, of the table for readers without scripts.

    Args:
        shown: methods to begin with, the first two that there are.

    Returns:
        `data` for the script (texts only), `left_out` of it, `rows` of the table without scripts and
        `rows_left_out` of that, `methods`, and `comparisons` for what their intervals cover.
    """
    found = contests(studies)
    methods = list(dict.fromkeys(method for study, _ in studies for method in study.methods))
    data, left_out = _fitting(found, MOST_PAIRS)
    table, rows_left_out = _fitting(found, 2 * MOST_ROWS)
    return {
        "methods": methods,
        "data": {
            "methods": methods,
            "shown": list(dict.fromkeys([*shown, *methods]))[:2],
            "contests": [_texts(contest, methods) for contest in data],
        },
        "left_out": [_title(contest) for contest in left_out],
        "rows": [
            {"contest": contest, "first": first, "second": second, "meeting": meeting}
            for contest in table
            for (first, second), meeting in contest.meetings.items()
            if methods.index(first) < methods.index(second)
        ],
        "rows_left_out": [_title(contest) for contest in rows_left_out],
        "comparisons": [meeting.comparison for contest in found for meeting in contest.meetings.values()],
        "bounded": any(not meeting.effect.exact for one in found for meeting in one.meetings.values()),
    }


def _fitting(found: Sequence[Contest], most: int) -> tuple[list[Contest], list[Contest]]:
    """The first contests that hold no more than `most` meetings, and the others."""
    held = 0
    for place, contest in enumerate(found):
        held += len(contest.meetings)
        if held > most:
            return list(found[:place]), list(found[place:])
    return list(found), []


def _title(contest: Contest) -> str:
    return f"{contest.quantity} of {contest.workload} ({contest.study}) on {contest.backend}"


def _texts(contest: Contest, methods: Sequence[str]) -> dict[str, Any]:
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


def median_texts(contest: Contest, value: MedianInterval) -> list[str]:
    """A method's median, or that it stopped there, and its interval."""
    if contest.whole:
        middle, low, high = counts((value.median, value.low, value.high))
        return [middle, f"[{low}, {high}]"]
    stopped = contest.stop is not None and value.median == contest.stop
    middle = f"stopped at {plain(contest.stop)}" if stopped else number(value.median)
    return [middle, interval(value.low, value.high)]


def cells(meeting: Meeting) -> list[str]:
    """How two methods compare: the effect, its interval; wins of the first, the rest; chance, interval; p."""
    effect, shown, least, most = meeting.effect, meeting.comparison, meeting.least, meeting.most
    rest = [(effect.losses, "worse"), (effect.ties, "equal"), (effect.open, "open")]
    chances = [percent(least.probability), percent(most.probability)]
    return [
        *effect.words,
        f"{shown.wins} of {shown.count}",
        ", ".join(f"{pairs} {word}" for pairs, word in rest if pairs or word == "worse"),
        " to ".join(dict.fromkeys(chances)),
        f"{percent(least.low)} to {percent(most.high)}",
        p_value(shown.p_value),
    ]
