"""Which version of each study a site shows: the best of what was run here and of published sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import polars as pl

from curvebench.reports.claims.checked import check_measured, check_rows
from curvebench.reports.claims.page import with_figures
from curvebench.reports.claims.verdict_list import ClaimVerdict, verdicts_of
from curvebench.reports.failures import failures_of, faults_of, read_jobs
from curvebench.reports.figures.drawing import read_figures
from curvebench.reports.pages.study_pages import Rows
from curvebench.reports.plan import CLAIM_FIGURES, figure_folder
from curvebench.reports.tables import Tables, tables_of
from curvebench.spec.plan import ReportPlan, StudyPlan

Agreement = Literal["agrees", "disagrees", "open"]
SAYS = {"reproduced": 1, "partly reproduced": 1, "not reproduced": -1}  # the other verdicts leave it open


@dataclass(frozen=True)
class ShownStudy:
    """A study that has a page: its tables, its figures, and the plan that it is part of.

    Args:
        study: as pages name it.
        planned: as its plan has it.
    """

    study: StudyPlan
    planned: StudyPlan
    tables: Tables
    figures: Rows
    plan: ReportPlan


@dataclass(frozen=True)
class Version:
    """What was run here, or a published set, as it was read.

    Args:
        studies: all of its studies, in the order of its plan.
        check_figures: what its property checks draw.
        check_folder: the site's folder of that.
        claims: with their figures.
        measures: of its property checks; None where there are none.
    """

    plan: ReportPlan
    studies: tuple[ShownStudy, ...]
    check_figures: Rows
    check_folder: str
    claims: Sequence[ClaimVerdict]
    measures: pl.DataFrame | None

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """All jobs: of its studies without what joins them, of parity and of property checks."""
        return read_jobs(self.plan)

    @cached_property
    def failures(self) -> Rows:
        """What failed of its jobs."""
        faults = [fault for each in self.studies for fault in faults_of(each.study.name, each.tables.runs)]
        return failures_of(self.jobs, faults)

    def best(self, narrowed: ReportPlan) -> tuple[list[ShownStudy], list[ClaimVerdict]]:
        """Its studies and claims, as far as its plan has them when it is narrowed to the best versions."""
        names = {study.name for study in narrowed.studies}
        deciding = {*names, *(study.name for study in narrowed.skipped)}
        checked = {claim.id for claim in narrowed.checks.claims} if narrowed.checks else set()
        claims = [one for one in self.claims if one.study in deciding or one.id in checked]
        return [each for each in self.studies if each.study.name in names], claims


def read_version(plan: ReportPlan) -> Version:
    """Read the tables and figures of a plan, and the verdicts on its claims.

    Raises:
        InputError: when a table or a list of figures is missing or damaged.
    """
    studies = tuple(
        ShownStudy(study, study, tables_of(study), read_figures(study.figures), plan)
        for study in plan.studies
    )
    measures = check_rows(plan.checks) if plan.checks else None
    check_figures = read_figures(plan.checks.figures) if plan.checks else []
    drawn = [*check_figures, *(figure for each in studies for figure in each.figures)]
    folder = f"{CLAIM_FIGURES}/{plan.published}" if plan.published else CLAIM_FIGURES
    check_measured(plan, measures)
    claims = with_figures(verdicts_of(plan), drawn, folder)
    return Version(plan, studies, check_figures, folder, claims, measures)


def renamed_here(each: ShownStudy) -> ShownStudy:
    """A study that was run here, of which a published set has a better version, by a name that says so."""
    return replace(each, study=each.study.model_copy(update={"name": f"{each.study.name} (here)"}))


def on_page(claim: ClaimVerdict, page_of: Mapping[str, str]) -> ClaimVerdict:
    """A claim as the page shows it, of a study that pages may call otherwise.

    Args:
        page_of: what pages call studies, by their names.
    """
    page = page_of.get(claim.study)
    return claim if page is None else replace(claim, study=page, folder=figure_folder(page))


@dataclass(frozen=True)
class ClaimAgreement:
    """A claim's verdict here and in a published set."""

    here: ClaimVerdict
    published: ClaimVerdict

    @property
    def agreement(self) -> Agreement:
        """Whether both say the same; open where one of them leaves it open."""
        said = SAYS.get(self.here.verdict, 0) * SAYS.get(self.published.verdict, 0)
        return "agrees" if said > 0 else "disagrees" if said else "open"


def checked_against(here: Iterable[ClaimVerdict], published: Iterable[ClaimVerdict]) -> list[ClaimAgreement]:
    """The claims that were decided here and in a set: what disagrees first, then what is open.

    Args:
        here: the claims of what was run.
        published: those of all sets.
    """
    there = {claim.id: claim for claim in published}
    found = [
        ClaimAgreement(claim, there[claim.id])
        for claim in here
        if claim.id in there and claim.verdict != "not run"
    ]
    order = ("disagrees", "open", "agrees")
    return sorted(found, key=lambda one: order.index(one.agreement))
