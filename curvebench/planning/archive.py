"""What published sets add to a report: their figures are drawn here, from the tables that lie in the sets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from curvebench.paths import PUBLISHED
from curvebench.spec.archive import HERE, narrowed, read_archive, with_joined
from curvebench.spec.plan import ReportPlan, StudyPlan
from curvebench.spec.sets import SUMS


def archive_of(names: Collection[str], own: Sequence[StudyPlan]) -> tuple[ReportPlan, ...]:
    """What is shown of the published sets beside the results.

    Args:
        names: the studies and claims that are asked for; empty for all.
        own: the studies that are run here.

    Raises:
        InputError: when a set is damaged, or a study that is run here cannot join the one that it names.
    """
    whole = with_joined(read_archive(PUBLISHED), own)
    found = (_narrowed(plan, names) for plan in whole)
    return tuple(plan for plan in found if plan.studies or plan.checks)


def _narrowed(plan: ReportPlan, names: Collection[str]) -> ReportPlan:
    """What of a set is named, by study or claim; all of it without names."""
    if not names:
        return plan
    studies = {
        study.name
        for study in plan.studies
        if not {study.name, *(claim.id for claim in study.claims)}.isdisjoint(names)
    }
    return narrowed(plan, studies, names).model_copy(update={"parity": None})


def sums_of(names: Iterable[str], studies: Iterable[StudyPlan]) -> list[str]:
    """The checksums of sets, and of those that join studies, which tell whether one of them is another."""
    joined = (place for study in studies for place in study.joined if place != HERE)
    places = dict.fromkeys((*names, *joined))
    return [(PUBLISHED / place / SUMS).read_text() for place in places]
