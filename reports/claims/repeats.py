"""Repetitions of claims, for example with another precision: whether their comparisons keep their direction.

A study may repeat a claim that another study decides. The repetition has no verdict of its own. The gain of a
pair of runs is above 0 where the treated method is better than the control.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

import numpy as np

from curvebench.reports.claims.comparison import ClaimComparison, comparisons
from curvebench.reports.tables import Tables
from curvebench.results.intervals import median_interval
from curvebench.spec.plan import ReportPlan


def keeps_direction(gains: np.ndarray, repetition: np.ndarray, margin: float) -> bool:
    """Return whether a comparison has the same direction in the original and in the repetition.

    It has the same direction if the two median gains have the same sign, or if the absolute values of both
    are smaller than the margin.

    Args:
        gains: gains of the original comparison, shape (pairs,).
        repetition: gains of the repetition, shape (pairs,).
        margin: smallest gain that matters.
    """
    first, second = median_interval(gains).median, median_interval(repetition).median
    return bool(np.sign(first) == np.sign(second)) or max(abs(first), abs(second)) < margin


def repeated(
    deciding: Iterable[ClaimComparison], repeating: Iterable[ClaimComparison]
) -> Iterator[tuple[ClaimComparison, bool]]:
    """Match the comparisons of a claim with the comparisons of a claim that repeats it.

    Positive controls (comparisons that test a statement the source takes for granted) are left out. A
    comparison is also left out if the original or the repetition has no pair of runs.

    Args:
        deciding: comparisons of the claim that is repeated, on one backend.
        repeating: comparisons of the repeating claim. On each workload, the two claims have the same number
            of comparisons in the same order. The labels of the methods may differ in their bases.

    Yields:
        The comparison of the repeating claim, and whether it has the direction of the original comparison.
    """
    by = attrgetter("key.workload")
    originals, repetitions = (
        {workload: list(group) for workload, group in groupby(sorted(compared, key=by), key=by)}
        for compared in (deciding, repeating)
    )
    for workload in (name for name in originals if name in repetitions):
        for original, repetition in zip(originals[workload], repetitions[workload], strict=True):
            if len(original.gains) and len(repetition.gains) and not original.condition.positive_control:
                yield repetition, keeps_direction(original.gains, repetition.gains, original.margin)


def repeats_of(
    plan: ReportPlan, tables: Mapping[str, Tables], compared: Sequence[ClaimComparison]
) -> Iterator[tuple[ClaimComparison, bool]]:
    """Yield the comparisons of all claims that repeat another claim, as `repeated` does.

    Args:
        tables: tables of each study, by the name of the study.
        compared: comparisons of all claims that the studies decide.
    """
    for study in plan.studies:
        for claim in study.repeated:
            for backend in study.backends:
                key = claim.repeats, backend
                first = [item for item in compared if (item.key.claim, item.backend) == key]
                if first:
                    yield from repeated(first, comparisons(study, claim, tables[study.name], backend))
