"""What published sets add to a report: their figures are drawn here, from the tables that lie in the sets."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from documents.archive import read_archive
from documents.plan import ReportPlan
from documents.sets import FOLDER, SUMS
from harness.planning.config import Config


def archive_of(config: Config, asked: Collection[str]) -> tuple[ReportPlan, ...]:
    """What is shown of the published sets beside the results.

    Args:
        asked: the studies and claims that are asked for; empty for all.

    Raises:
        InputError: when a set is damaged.
    """
    narrowed = [_narrowed(plan, asked) for plan in read_archive(config.results / FOLDER.name)]
    return tuple(plan for plan in narrowed if plan.studies or plan.checks)


def _narrowed(plan: ReportPlan, asked: Collection[str]) -> ReportPlan:
    if not asked:
        return plan
    studies = [
        study
        for study in plan.studies
        if not {study.name, *(claim.id for claim in study.claims)}.isdisjoint(asked)
    ]
    claims = tuple(claim for claim in plan.checks.claims if claim.id in asked) if plan.checks else ()
    checks = plan.checks.model_copy(update={"claims": claims}) if plan.checks and claims else None
    return plan.model_copy(update={"studies": tuple(studies), "checks": checks, "parity": None})


def sums_of(config: Config, archive: Iterable[ReportPlan]) -> list[str]:
    """The checksums of the sets of an archive, which tell whether one of them is another."""
    return [(config.results / FOLDER.name / plan.published / SUMS).read_text() for plan in archive]
