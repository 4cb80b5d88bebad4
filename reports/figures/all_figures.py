"""All figures of a report and of a study, with their lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl

from curvebench.reports.boards.leaderboard import board_ranks
from curvebench.reports.claims.checked import check_measured, check_rows
from curvebench.reports.figures.across import draw_across
from curvebench.reports.figures.costs import draw_front, draw_targets
from curvebench.reports.figures.drawing import PDF, Drawn, list_figures
from curvebench.reports.figures.forest import draw_forests
from curvebench.reports.figures.series import draw_series
from curvebench.reports.figures.study_figures import cells, draw_curves, draw_sensitivities, source_figures_at
from curvebench.reports.plan import CLAIM_FIGURES
from curvebench.reports.statistics.ranks import mean_ranks
from curvebench.reports.tables import Tables, tables_of
from curvebench.spec.method import Method
from curvebench.spec.plan import ReportPlan, StudyPlan
from curvebench.spec.sources import by_name

MOST_DRAWN = 9  # optimizers of a study that its figures show


def draw_all(plan: ReportPlan, log: Callable[[str], None]) -> int:
    """Draw the figures of a plan and its archive, those of studies and of checks, into their folders.

    Args:
        log: is called with what is drawn next.

    Returns:
        The number of figures.

    Raises:
        InputError: when a table is missing or damaged, or has no measure of a claim.
    """
    count = 0
    for study in plan.studies:
        log(f"figures of {study.name}{f' in {plan.published}' if plan.published else ''}")
        count += len(draw_figures(study, tables_of(study), study.figures))
    if plan.checks:
        log("figures of property checks")
        check_measured(plan, check_rows(plan.checks))
        count += len(draw_series(plan.checks, plan.checks.figures))
    return count + sum(draw_all(published, log) for published in plan.archive)


def as_pdf(plan: ReportPlan, folder: Path) -> ReportPlan:
    """The plan whose figures are PDFs in folders of another one, by study, those of its sets by set."""

    def place(name: str) -> dict[str, Path]:
        return {"figures": folder / name / PDF}

    return plan.model_copy(
        update={
            "studies": tuple(study.model_copy(update=place(study.name)) for study in plan.studies),
            "checks": plan.checks and plan.checks.model_copy(update=place(CLAIM_FIGURES)),
            "archive": tuple(as_pdf(one, folder / one.published) for one in plan.archive),
        }
    )


def draw_figures(study: StudyPlan, tables: Tables, out: Path) -> list[Drawn]:
    """Draw a study's curves, times to target and claims into a folder; write their list for the site.

    Args:
        out: is made where it is missing.
    """
    part = drawn_part(study, tables)
    drawers = (draw_curves, draw_sensitivities, draw_across, draw_targets, draw_front)
    drawn = [figure for cell in cells(*part, out) for draw in drawers for figure in draw(cell)]
    drawn += draw_forests(study, tables, out)
    drawn = [with_source_figures(study, figure) for figure in drawn]
    list_figures(drawn, out)
    return drawn


def drawn_part(study: StudyPlan, tables: Tables) -> tuple[StudyPlan, Tables]:
    """The study with the optimizers that its figures show, and their tables: the best, and those that join.

    Best is the mean rank by the headline metric on the first backend.
    """
    if len(study.optimizers) <= MOST_DRAWN:
        return study, tables
    ranks = board_ranks([(study, tables)], study.backends[0])
    joined = [one.label for other in study.joining for one in other.optimizers]
    ranked = [Method.of(method).optimizer for method in mean_ranks(ranks)["method"]]
    best = [label for label in dict.fromkeys(ranked) if label not in joined]
    shown = {*joined, *best[: max(MOST_DRAWN - len(joined), 1)]}
    kept = pl.col("optimizer").is_in(shown)
    return (
        study.model_copy(update={"optimizers": tuple(one for one in study.optimizers if one.label in shown)}),
        replace(tables, runs=tables.runs.filter(kept), timings=tables.timings.filter(kept)),
    )


def with_source_figures(study: StudyPlan, figure: Drawn) -> Drawn:
    """The figure with a caption that names the figures of the source that it lies beside, if there are."""
    named = source_figures_at(study, figure.workload, figure.stem)
    return replace(figure, caption=f"As {by_name(', '.join(named))}. {figure.caption}") if named else figure
