"""What the pages of a site share: the versions of studies, the boards, and the claims that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from curvebench.reports.boards.leaderboard import Board, by_source, leaderboards
from curvebench.reports.claims.page import claims_page
from curvebench.reports.claims.verdict_list import ClaimVerdict, unrun
from curvebench.reports.pages.overview import Answer, answers
from curvebench.reports.pages.parity import parity_page, parity_rows
from curvebench.reports.pages.study_pages import Rows, machine_warnings, run_pages
from curvebench.reports.pages.versions import (
    ClaimAgreement,
    ShownStudy,
    Version,
    checked_against,
    on_page,
    renamed_here,
)
from curvebench.reports.tables import Tables
from curvebench.results.archive import shown_plans
from curvebench.spec.plan import ParityPlan, ReportPlan, StudyPlan
from curvebench.spec.sources import Source


@dataclass(frozen=True)
class SiteContents:
    """The contents of a site, each computed once, when the first page asks for it.

    Args:
        plan: of the site.
        versions: of the published sets, and last of what was run here.
    """

    plan: ReportPlan
    versions: Sequence[Version]

    @property
    def own(self) -> Version:
        """What was run here."""
        return self.versions[-1]

    @cached_property
    def _best(self) -> list[tuple[list[ShownStudy], list[ClaimVerdict]]]:
        """The studies and claims of each version that no other version has better."""
        narrowed = zip(self.versions, shown_plans(self.plan), strict=True)
        return [version.best(plan) for version, plan in narrowed]

    @cached_property
    def leading(self) -> list[ShownStudy]:
        """The best version of each study: first those of the plan, in its order, then others by name."""
        place_of = {study.name: place for place, study in enumerate(self.plan.studies)}
        return sorted(
            (each for best, _ in self._best for each in best),
            key=lambda each: (place_of.get(each.study.name, len(place_of)), each.study.name),
        )

    @cached_property
    def studies(self) -> list[tuple[StudyPlan, Tables]]:
        """The plan and the tables of each leading study."""
        return [(each.study, each.tables) for each in self.leading]

    @cached_property
    def with_pages(self) -> list[ShownStudy]:
        """The leading studies, and those that were run here although a published set has a better version."""
        leading = {id(each) for each in self.leading}
        others = (each for each in self.own.studies if id(each) not in leading and not each.study.joins)
        return [*self.leading, *map(renamed_here, others)]

    @cached_property
    def plan_of(self) -> dict[str, ReportPlan]:
        """The plan that a study is part of, by the name of the study on pages."""
        return {each.study.name: each.plan for each in self.with_pages}

    @cached_property
    def runs(self) -> dict[str, list[Rows]]:
        """The pages of each study's runs, by its name."""
        return {each.study.name: run_pages(each.study, each.tables.runs) for each in self.with_pages}

    @cached_property
    def answers(self) -> list[Answer]:
        """The answers of the leading studies."""
        return answers(self.studies)

    def answers_of(self, each: ShownStudy) -> list[Answer]:
        """A study's answers: of those that lead the overview, or its own where another version is there."""
        own = [answer for answer in self.answers if answer.study is each.study]
        return own or answers([(each.study, each.tables)])

    # --- boards ----------------------------------------------------------------------------------

    @cached_property
    def _boards(self) -> tuple[Board | None, dict[Source, list[Board]]]:
        return by_source(leaderboards(self.studies))

    @property
    def first_board(self) -> Board | None:
        """The board with most results."""
        return self._boards[0]

    @property
    def other_boards(self) -> dict[Source, list[Board]]:
        """The other boards by source."""
        return self._boards[1]

    @property
    def boards(self) -> list[Board]:
        """All boards, the first board first."""
        first = [] if self.first_board is None else [self.first_board]
        return [*first, *(board for boards in self.other_boards.values() for board in boards)]

    def board_of(self, study: StudyPlan) -> Board | None:
        """The board that a study's first backend is on."""
        for board in self.boards:
            if board.backend == study.backends[0] and any(one.study is study for one in board.columns):
                return board
        return None

    # --- claims ----------------------------------------------------------------------------------

    @cached_property
    def own_claims(self) -> dict[str, ClaimVerdict]:
        """The claims that were decided here, as pages show them, by id."""
        page_of = {
            each.planned.name: each.study.name for each in self.with_pages if each.plan is self.own.plan
        }
        return {claim.id: on_page(claim, page_of) for claim in self.own.claims}

    @cached_property
    def claims(self) -> dict[str, Any]:
        """The context of the page of claims: each claim where it is decided best."""
        shown = [*(claim for _, claims in self._best for claim in claims), *unrun(self.plan)]
        ids = {claim.id for claim in shown}
        shown += [claim for name, claim in self.own_claims.items() if name not in ids]
        measures = (version.measures for version in self.versions if version.measures is not None)
        return claims_page(shown, {machine for rows in measures for machine in rows["machine"]})

    @cached_property
    def claim_of(self) -> dict[str, dict[str, ClaimVerdict]]:
        """The claims by id, by the name of the published set; of what was run here by an empty name."""
        return {one.plan.published: {claim.id: claim for claim in one.claims} for one in self.versions}

    @cached_property
    def checked(self) -> list[ClaimAgreement]:
        """The claims that were decided both here and in a published set."""
        published = (claim for version in self.versions[:-1] for claim in version.claims)
        return checked_against(self.own.claims, published)

    @property
    def run_here(self) -> Mapping[str, ClaimVerdict]:
        """The verdicts here on claims that a published set decides too, by id."""
        return {one.here.id: self.own_claims[one.here.id] for one in self.checked}

    # --- backends and machines -------------------------------------------------------------------

    @cached_property
    def compared(self) -> ParityPlan | None:
        """The comparison of backends: what was run here, else of the last published set that has one."""
        return next((one.parity for one in (self.plan, *reversed(self.plan.archive)) if one.parity), None)

    @cached_property
    def parity(self) -> dict[str, Any] | None:
        """The context of the page of parity; None where no backends were compared."""
        return parity_page(self.compared, parity_rows(self.compared)) if self.compared else None

    @cached_property
    def warnings(self) -> list[str]:
        """What readers must know of the machines that made the leading studies."""
        return machine_warnings(self.studies)

    @property
    def jobs(self) -> pl.DataFrame:
        """All jobs of all versions, and of the studies that have a page."""
        tables = (each.tables.jobs for each in self.with_pages)
        return pl.concat([*(version.jobs for version in self.versions), *tables])
