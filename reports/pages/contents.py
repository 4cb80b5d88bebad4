"""The contents of a site: the best version of each study, of what was run here and of published sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import polars as pl

from curvebench.reports.boards.leaderboard import Board, by_source, leaderboards
from curvebench.reports.claims.checked import check_measured, check_rows
from curvebench.reports.claims.page import claims_page, with_figures
from curvebench.reports.claims.verdict_list import ClaimVerdict, unrun, verdicts_of
from curvebench.reports.failures import failures_of, faults_of, read_jobs
from curvebench.reports.figures.drawing import read_figures
from curvebench.reports.pages.overview import Answer, answers, folded, heat_map
from curvebench.reports.pages.parity import parity_page, parity_rows
from curvebench.reports.pages.study_pages import Rows, run_pages
from curvebench.reports.plan import CLAIM_FIGURES, figure_folder
from curvebench.reports.tables import Tables, tables_of
from curvebench.results.archive import shown_plans
from curvebench.spec.plan import ParityPlan, ReportPlan, StudyPlan
from curvebench.spec.sources import Source

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

    A study that was run here and joins another has no figures of its own, and no page that would show them.

    Raises:
        InputError: when a table or a list of figures is missing or damaged.
    """
    studies = tuple(
        ShownStudy(study, study, tables_of(study), read_figures(study.figures) if is_drawn else [], plan)
        for study, is_drawn in ((study, bool(plan.published) or not study.joins) for study in plan.studies)
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

    def overview(self) -> dict[str, Any]:
        """The map, whose columns are as the first board ranks them, and answers, those on the map first."""
        kept, more = folded(self.answers)
        heat = heat_map(kept, self._boards[0])
        on_map = {id(row.answer) for row in heat.leading.rows}
        shown = sorted(kept, key=lambda answer: id(answer) not in on_map)
        return {"heat": heat, "answers": shown, "more_answers": more}

    def answers_of(self, each: ShownStudy) -> list[Answer]:
        """A study's answers: of those that lead the overview, or its own where another version is there."""
        own = [answer for answer in self.answers if answer.study is each.study]
        return own or answers([(each.study, each.tables)])

    # --- boards ----------------------------------------------------------------------------------

    @cached_property
    def _boards(self) -> tuple[Board | None, dict[Source, list[Board]]]:
        return by_source(leaderboards(self.studies))

    @property
    def other_boards(self) -> dict[Source, list[Board]]:
        """The other boards than the first one by source."""
        return self._boards[1]

    @property
    def boards(self) -> list[Board]:
        """All boards, first the one with most results."""
        first, others = self._boards
        return [*([first] if first else []), *(board for boards in others.values() for board in boards)]

    def board_of(self, study: StudyPlan) -> Board | None:
        """The board that a study's first backend is on."""
        leading = (board for board in self.boards if board.backend == study.backends[0])
        return next((board for board in leading if any(one.study is study for one in board.columns)), None)

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
        return [f"{study.name}: {said}" for study, tables in self.studies for said in tables.warnings]

    @property
    def jobs(self) -> pl.DataFrame:
        """All jobs of all versions, and of the studies that have a page."""
        tables = (each.tables.jobs for each in self.with_pages)
        return pl.concat([*(version.jobs for version in self.versions), *tables])
