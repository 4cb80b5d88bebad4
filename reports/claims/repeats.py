"""Claims that are repeated in another setting: whether their comparisons keep their direction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvebench.reports.claims.comparison import ClaimComparison, comparisons
from curvebench.reports.formatting import counted
from curvebench.reports.plan import reading
from curvebench.reports.tables import Tables
from curvebench.results.intervals import median_interval
from curvebench.spec.plan import ReportPlan


@dataclass(frozen=True)
class Repeat:
    """What became of a claim's comparisons where they were made once more.

    Args:
        claim: the id of the claim that repeats.
        changed: how its runs differ, such as "in float64".
        study: whose runs they are.
        comparisons: how many have pairs in both studies; positive controls are none of them.
        reversed: those whose median effect has another direction, as words.
        seeds: the fewest pairs of a comparison made once more.
        effect: the effect with its interval, in words, where it is one comparison.
    """

    claim: str
    changed: str
    study: str
    comparisons: int
    reversed: tuple[str, ...]
    seeds: int
    effect: str = ""


def in_words(repeat: Mapping[str, Any]) -> str:
    """What became of a claim where it was repeated; `repeat` has what `Repeat` has."""
    kept = repeat["comparisons"] - len(repeat["reversed"])
    among, seeds = counted(repeat["comparisons"], "comparisons"), counted(repeat["seeds"], "seeds")
    effect = f": {repeat['effect']}" if repeat["effect"] else ""
    return f"{repeat['changed']}: same direction in {kept} of {among} ({seeds}){effect}"


def keeps_direction(gains: np.ndarray, again: np.ndarray, margin: float) -> bool:
    """Whether two medians of gains have one sign, or both are too small to matter."""
    first, second = median_interval(gains).median, median_interval(again).median
    return bool(np.sign(first) == np.sign(second)) or max(abs(first), abs(second)) < margin


def repeat_of(
    claim: str, changed: str, study: str, first: Iterable[ClaimComparison], again: Iterable[ClaimComparison]
) -> Repeat | None:
    """How a claim's comparisons came out when they were made once more; None where there is no pair.

    Args:
        claim, changed, study: as `Repeat` has them.
        first: the comparisons of the claim that is repeated, on one backend.
        again: the same ones, workload by workload in the same order, though basis labels may differ.
    """
    before, after = _by_workload(first), _by_workload(again)
    pairs = [
        (one, other)
        for workload in before
        if workload in after
        for one, other in zip(before[workload], after[workload], strict=True)
        if len(one.gains) and len(other.gains) and not one.condition.positive_control
    ]
    if not pairs:
        return None
    flipped = tuple(
        f"{one.key.treated} and {one.control}, {reading(one.condition)} {one.condition.metric} "
        f"on {one.key.workload}"
        for one, other in pairs
        if not keeps_direction(one.gains, other.gains, one.margin)
    )
    seeds = min(len(other.gains) for _, other in pairs)
    alone = pairs[0][1].bounds if len(pairs) == 1 else None
    effect = " ".join(alone.quoted) if alone else ""
    return Repeat(claim, changed, study, len(pairs), flipped, seeds, effect)


def _by_workload(compared: Iterable[ClaimComparison]) -> dict[str, list[ClaimComparison]]:
    found: dict[str, list[ClaimComparison]] = {}
    for one in compared:
        found.setdefault(one.key.workload, []).append(one)
    return found


def repeats_of(
    plan: ReportPlan, tables: Mapping[str, Tables], compared: Sequence[ClaimComparison]
) -> dict[tuple[str, str], tuple[Repeat, ...]]:
    """What became of claims that studies of a plan repeat, by the repeated claim and backend.

    Args:
        compared: all comparisons of the claims that are decided; those of repeated ones decide nothing.
    """
    found: dict[tuple[str, str], tuple[Repeat, ...]] = {}
    for study in plan.studies:
        for claim in study.repeated:
            for backend in study.backends:
                first = [one for one in compared if (one.key.claim, one.backend) == (claim.repeats, backend)]
                again = comparisons(study, claim, tables[study.name], backend) if first else ()
                repeat = repeat_of(claim.id, claim.changed, study.name, first, again)
                if repeat is not None:
                    found[claim.repeats, backend] = (*found.get((claim.repeats, backend), ()), repeat)
    return found
