"""Contents of a site: the best version of each study, from local runs and from published sets.

A version is either the local runs, which were computed on this machine, or a published set. A study or claim
may be in several versions. The site shows the best version of each study and claim. A study is leading in its
best version. A board is a ranking of methods that ran on the same problems. An answer is the recommendation
of a method for one workload.
"""

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
from curvebench.spec.sources import Paper, Source, papers

Agreement = Literal["agrees", "disagrees", "open"]
# Sign of each verdict that decides a claim: 1 for the claim, -1 against it.
# Two verdicts agree if their signs are equal.
SAYS = {"reproduced": 1, "partly reproduced": 1, "not reproduced": -1}


@dataclass(frozen=True)
class ShownStudy:
    """A study that has a page, with its tables, its figures, and the plan that it is part of.

    Args:
        study: the study, with the name that pages use.
        planned: the same study, with the name in its plan.
        tables: tables of the study.
        figures: list of the study's figures.
        plan: plan that contains the study.
    """

    study: StudyPlan
    planned: StudyPlan
    tables: Tables
    figures: Rows
    plan: ReportPlan


@dataclass(frozen=True)
class Version:
    """Local runs or a published set, with tables, verdicts and lists of figures that were read from disk.

    Args:
        plan: plan of the local runs or of the set.
        studies: all studies of the plan, in the order of the plan.
        check_figures: figures that the property checks draw.
        check_folder: folder for the figures of the property checks, relative to the site.
        claims: verdicts on the claims, with their figures.
        measures: rows of the property checks; None if the plan has no checks.
    """

    plan: ReportPlan
    studies: tuple[ShownStudy, ...]
    check_figures: Rows
    check_folder: str
    claims: Sequence[ClaimVerdict]
    measures: pl.DataFrame | None

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """All jobs of the plan's studies, parity checks and property checks (see `read_jobs`)."""
        return read_jobs(self.plan)

    @cached_property
    def failures(self) -> Rows:
        """Failures of the version's jobs."""
        faults = [fault for entry in self.studies for fault in faults_of(entry.study.name, entry.tables.runs)]
        return failures_of(self.jobs, faults)

    def best(self, narrowed: ReportPlan) -> tuple[list[ShownStudy], list[ClaimVerdict]]:
        """Return the studies and claims for which this version is the best version.

        Args:
            narrowed: the version's plan, reduced to the studies and claims for which no other version is
                better.
        """
        names = {study.name for study in narrowed.studies}
        deciding = {*names, *(study.name for study in narrowed.skipped)}
        checked = {claim.id for claim in narrowed.checks.claims} if narrowed.checks else set()
        claims = [claim for claim in self.claims if claim.study in deciding or claim.id in checked]
        return [entry for entry in self.studies if entry.study.name in names], claims


def read_version(plan: ReportPlan) -> Version:
    """Read the tables and figures of a plan, and the verdicts on its claims.

    A local study that joins another study (adds methods to it) has no page and no figures.

    Raises:
        InputError: when a table or a list of figures is missing or damaged.
    """
    studies = tuple(
        ShownStudy(study, study, tables_of(study), read_figures(study.figures) if is_drawn else [], plan)
        for study, is_drawn in ((study, bool(plan.published) or not study.joins) for study in plan.studies)
    )
    measures = check_rows(plan.checks) if plan.checks else None
    check_figures = read_figures(plan.checks.figures) if plan.checks else []
    figures = [*check_figures, *(figure for entry in studies for figure in entry.figures)]
    folder = f"{CLAIM_FIGURES}/{plan.published}" if plan.published else CLAIM_FIGURES
    check_measured(plan, measures)
    claims = with_figures(verdicts_of(plan), figures, folder)
    return Version(plan, studies, check_figures, folder, claims, measures)


def renamed_here(entry: ShownStudy) -> ShownStudy:
    """Rename a local study to "NAME (here)", because the page NAME shows a better, published version."""
    return replace(entry, study=entry.study.model_copy(update={"name": f"{entry.study.name} (here)"}))


def on_page(claim: ClaimVerdict, page_of: Mapping[str, str]) -> ClaimVerdict:
    """Return a claim with the name that pages use for its study.

    Args:
        page_of: name of a study on pages, by its name in its plan.
    """
    page = page_of.get(claim.study)
    return claim if page is None else replace(claim, study=page, folder=figure_folder(page))


@dataclass(frozen=True)
class ClaimAgreement:
    """Verdicts on one claim from local runs and in a published set."""

    local: ClaimVerdict
    published: ClaimVerdict

    @property
    def agreement(self) -> Agreement:
        """Whether the two verdicts agree; "open" if at least one of them decides nothing."""
        product = SAYS.get(self.local.verdict, 0) * SAYS.get(self.published.verdict, 0)
        return "agrees" if product > 0 else "disagrees" if product else "open"


def checked_against(local: Iterable[ClaimVerdict], published: Iterable[ClaimVerdict]) -> list[ClaimAgreement]:
    """Return the claims that were decided both locally and in a published set.

    Disagreements come first, then claims for which a verdict decides nothing.

    Args:
        local: claims of the local runs.
        published: claims of all published sets.
    """
    published_of = {claim.id: claim for claim in published}
    agreements = [
        ClaimAgreement(claim, published_of[claim.id])
        for claim in local
        if claim.id in published_of and claim.verdict != "not run"
    ]
    order = ("disagrees", "open", "agrees")
    return sorted(agreements, key=lambda pair: order.index(pair.agreement))


@dataclass(frozen=True)
class SiteContents:
    """Contents of a site. Each property is computed once, when the first page needs it.

    Args:
        plan: plan of the site.
        versions: all versions; the version of the local runs comes last.
    """

    plan: ReportPlan
    versions: Sequence[Version]

    @property
    def own(self) -> Version:
        """Version that consists of the local runs."""
        return self.versions[-1]

    @cached_property
    def _best(self) -> list[tuple[list[ShownStudy], list[ClaimVerdict]]]:
        """For each version, the studies and claims for which this version is the best version."""
        narrowed = zip(self.versions, shown_plans(self.plan), strict=True)
        return [version.best(plan) for version, plan in narrowed]

    @cached_property
    def leading(self) -> list[ShownStudy]:
        """Best version of each study: the plan's studies in the order of the plan, then all other studies by
        name.
        """
        position_of = {study.name: position for position, study in enumerate(self.plan.studies)}
        return sorted(
            (entry for best, _ in self._best for entry in best),
            key=lambda entry: (position_of.get(entry.study.name, len(position_of)), entry.study.name),
        )

    @cached_property
    def studies(self) -> list[tuple[StudyPlan, Tables]]:
        """Plan and tables of each leading study, the best version of the study."""
        return [(entry.study, entry.tables) for entry in self.leading]

    @cached_property
    def with_pages(self) -> list[ShownStudy]:
        """Best version of each study, and local studies for which a published set is the better version."""
        leading = {id(entry) for entry in self.leading}
        local = (entry for entry in self.own.studies if id(entry) not in leading and not entry.study.joins)
        return [*self.leading, *map(renamed_here, local)]

    @cached_property
    def plan_of(self) -> dict[str, ReportPlan]:
        """Plan that contains a study, by the name of the study on pages."""
        return {entry.study.name: entry.plan for entry in self.with_pages}

    @cached_property
    def runs(self) -> dict[str, list[Rows]]:
        """Rows of the tables of runs, divided into pages, by the name of the study on pages."""
        return {entry.study.name: run_pages(entry.study, entry.tables.runs) for entry in self.with_pages}

    @cached_property
    def answers(self) -> list[Answer]:
        """Answers (recommendations of a method) for the workloads of the leading studies."""
        return answers(self.studies)

    def overview(self) -> dict[str, Any]:
        """Return the context of the overview: the heat map, and the answers.

        The first board decides the order of the map's columns. The answers on the map come first, in the
        order of the map's rows.
        """
        main, folded_away = folded(self.answers)
        heat = heat_map(main, next(iter(self.first_boards), None))
        on_map = {id(row.answer) for row in heat.leading.rows}
        ordered = sorted(main, key=lambda answer: id(answer) not in on_map)
        return {"heat": heat, "answers": ordered, "more_answers": folded_away}

    def answers_of(self, entry: ShownStudy) -> list[Answer]:
        """Return the answers for the workloads of a study.

        For a leading study, the answers are taken from the overview. For another study, they are computed in
        this call.
        """
        leading_answers = [answer for answer in self.answers if answer.study is entry.study]
        return leading_answers or answers([(entry.study, entry.tables)])

    # --- boards ----------------------------------------------------------------------------------

    @cached_property
    def _boards(self) -> tuple[list[Board], dict[Source, list[Board]]]:
        """Boards of the studies with the most results, and the other boards by the source of their study."""
        return by_source(leaderboards(self.studies))

    @property
    def first_boards(self) -> list[Board]:
        """Boards of the studies with the most results: one for each group of problems."""
        return self._boards[0]

    @property
    def other_boards(self) -> dict[Source, list[Board]]:
        """All other boards, by the document that their studies cite first."""
        return self._boards[1]

    @property
    def boards(self) -> list[Board]:
        """All boards; those of the studies with the most results come first."""
        first, by_source = self._boards
        return [*first, *(board for boards in by_source.values() for board in boards)]

    def boards_of(self, study: StudyPlan) -> list[Board]:
        """Return the boards that contain a study on its first backend, one for each group of problems."""
        boards = (board for board in self.boards if board.backend == study.backends[0])
        return [board for board in boards if any(column.study is study for column in board.columns)]

    # --- claims ----------------------------------------------------------------------------------

    @cached_property
    def own_claims(self) -> dict[str, ClaimVerdict]:
        """Claims that local runs decide, by id.

        The studies of the claims have the names that pages use.
        """
        local = (entry for entry in self.with_pages if entry.plan is self.own.plan)
        page_of = {entry.planned.name: entry.study.name for entry in local}
        return {claim.id: on_page(claim, page_of) for claim in self.own.claims}

    @cached_property
    def claims(self) -> dict[str, Any]:
        """Context of the page of claims, with each claim from the best version that decides it."""
        verdicts = [*(claim for _, claims in self._best for claim in claims), *unrun(self.plan)]
        ids = {claim.id for claim in verdicts}
        verdicts += [claim for name, claim in self.own_claims.items() if name not in ids]
        measures = (version.measures for version in self.versions if version.measures is not None)
        return claims_page(verdicts, {machine for rows in measures for machine in rows["machine"]})

    @cached_property
    def papers(self) -> dict[str, Paper]:
        """Papers with at least one sentence that the page of claims decides, by the number of the paper."""
        claims = {claim.id for claim in self.claims["claims"]}
        return {
            number: paper
            for number, paper in papers().items()
            if not claims.isdisjoint(sentence.claim for sentence in paper.sentences)
        }

    @cached_property
    def claim_of(self) -> dict[str, dict[str, ClaimVerdict]]:
        """Claims of each version by id; the key of a version is the name of its published set.

        The local runs have the key "".
        """
        return {item.plan.published: {claim.id: claim for claim in item.claims} for item in self.versions}

    @cached_property
    def checked(self) -> list[ClaimAgreement]:
        """Claims that were decided both by local runs and in a published set."""
        published = (claim for version in self.versions[:-1] for claim in version.claims)
        return checked_against(self.own.claims, published)

    @property
    def run_here(self) -> Mapping[str, ClaimVerdict]:
        """Local verdicts on claims that a published set decides too, by id."""
        return {pair.local.id: self.own_claims[pair.local.id] for pair in self.checked}

    # --- backends and machines -------------------------------------------------------------------

    @cached_property
    def compared(self) -> ParityPlan | None:
        """Plan of the comparison of backends, from the local runs or the last set with such a plan."""
        return next((plan.parity for plan in (self.plan, *reversed(self.plan.archive)) if plan.parity), None)

    @cached_property
    def parity(self) -> dict[str, Any] | None:
        """Context of the page of parity; None if no backends were compared."""
        return parity_page(self.compared, parity_rows(self.compared)) if self.compared else None

    @cached_property
    def warnings(self) -> list[str]:
        """Sentences that warn readers about the machines on which the leading studies ran."""
        return [f"{study.name}: {warning}" for study, tables in self.studies for warning in tables.warnings]

    @property
    def jobs(self) -> pl.DataFrame:
        """All jobs of all versions, and of the studies that have a page."""
        tables = (entry.tables.jobs for entry in self.with_pages)
        return pl.concat([*(version.jobs for version in self.versions), *tables])
