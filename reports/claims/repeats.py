"""Claims that are repeated in another setting: whether their comparisons keep their direction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

import numpy as np

from curvebench.reports.claims.comparison import ClaimComparison, comparisons
from curvebench.reports.tables import Tables
from curvebench.results.intervals import median_interval
from curvebench.spec.plan import ReportPlan


def keeps_direction(gains: np.ndarray, again: np.ndarray, margin: float) -> bool:
    """Return whether two medians of gains have one sign, or both are too small to matter."""
    first, second = median_interval(gains).median, median_interval(again).median
    return bool(np.sign(first) == np.sign(second)) or max(abs(first), abs(second)) < margin


def repeated(
    first: Iterable[ClaimComparison], again: Iterable[ClaimComparison]
) -> Iterator[tuple[ClaimComparison, bool]]:
    """Pair the comparisons of a claim with those of a claim that repeats it, where both have pairs of runs.

    Args:
        first: the comparisons of the claim that is repeated, on one backend.
        again: the same ones, workload by workload in the same order, though basis labels may differ.

    Yields:
        The comparison that repeats, and whether it keeps the direction. Positive controls are left out.
    """
    of = attrgetter("key.workload")
    before, after = (
        {workload: list(own) for workload, own in groupby(sorted(each, key=of), key=of)}
        for each in (first, again)
    )
    for workload in before:
        for one, other in zip(before[workload], after.get(workload, ()), strict=workload in after):
            if len(one.gains) and len(other.gains) and not one.condition.positive_control:
                yield other, keeps_direction(one.gains, other.gains, one.margin)


def repeats_of(
    plan: ReportPlan, tables: Mapping[str, Tables], compared: Sequence[ClaimComparison]
) -> Iterator[tuple[ClaimComparison, bool]]:
    """Yield the comparisons of the claims that studies of a plan repeat, as `repeated` gives them.

    Args:
        compared: all comparisons of the claims that are decided; those of repeated ones decide nothing.
    """
    for study in plan.studies:
        for claim in study.repeated:
            for backend in study.backends:
                first = [one for one in compared if (one.key.claim, one.backend) == (claim.repeats, backend)]
                if first:
                    yield from repeated(first, comparisons(study, claim, tables[study.name], backend))
