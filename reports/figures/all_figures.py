"""Drawing of all figures of a report or a study, and writing of the lists of figures for the site.

A study joins another study if it adds methods to the other study. The headline metric is the metric by which
a study compares methods.
"""

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
from curvebench.reports.figures.sweeps import draw_sweeps
from curvebench.reports.plan import CLAIM_FIGURES
from curvebench.reports.statistics.ranks import mean_ranks
from curvebench.reports.tables import Tables, tables_of
from curvebench.spec.method import Method
from curvebench.spec.plan import ReportPlan, StudyPlan
from curvebench.spec.sources import by_name

MOST_DRAWN = 9  # Maximum number of optimizers in a study's figures.


def draw_all(plan: ReportPlan, log: Callable[[str], None]) -> int:
    """Draw the figures of a plan, and of the published sets that the plan shows, into the folders that plans
    name.

    Args:
        log: function that is called with a description of each step before the step.

    Returns:
        The number of figures.

    Raises:
        InputError: when a table is missing or damaged, or a claim has no measured value.
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
    """Return a copy of the plan whose figures are drawn as PDF files below `folder`.

    Each study gets a folder below `folder`. Each published set gets a folder that contains the folders of its
    studies.
    """

    def place(name: str) -> dict[str, Path]:
        return {"figures": folder / name / PDF}

    return plan.model_copy(
        update={
            "studies": tuple(study.model_copy(update=place(study.name)) for study in plan.studies),
            "checks": plan.checks and plan.checks.model_copy(update=place(CLAIM_FIGURES)),
            "archive": tuple(as_pdf(published, folder / published.published) for published in plan.archive),
        }
    )


def draw_figures(study: StudyPlan, tables: Tables, out: Path) -> list[Drawn]:
    """Draw all figures of a study into a folder, and write the list of figures that the site reads.

    Args:
        out: folder of the figures; it is created if necessary.
    """
    drawn_study = drawn_part(study, tables)
    drawers = (draw_curves, draw_sensitivities, draw_across, draw_targets, draw_front)
    figures = [figure for cell in cells(*drawn_study, out) for draw in drawers for figure in draw(cell)]
    figures += draw_sweeps(*drawn_study, out)
    figures += draw_forests(study, tables, out)
    figures = [with_source_figures(study, figure) for figure in figures]
    list_figures(figures, out)
    return figures


def drawn_part(study: StudyPlan, tables: Tables) -> tuple[StudyPlan, Tables]:
    """Return the study and its tables with only the optimizers that its figures show.

    If a study has more than `MOST_DRAWN` optimizers, the figures show all optimizers that joining studies
    add, and some of the study's own optimizers. These are the optimizers with the best mean rank by the
    headline metric on the first backend.
    """
    if len(study.optimizers) <= MOST_DRAWN:
        return study, tables
    ranks = board_ranks([(study, tables)], study.backends[0])
    joined = [optimizer.label for joining_study in study.joining for optimizer in joining_study.optimizers]
    ranked = [Method.of(method).optimizer for method in mean_ranks(ranks)["method"]]
    best = [label for label in dict.fromkeys(ranked) if label not in joined]
    labels = {*joined, *best[: max(MOST_DRAWN - len(joined), 1)]}
    is_shown = pl.col("optimizer").is_in(labels)
    optimizers = tuple(optimizer for optimizer in study.optimizers if optimizer.label in labels)
    return (
        study.model_copy(update={"optimizers": optimizers}),
        replace(tables, runs=tables.runs.filter(is_shown), timings=tables.timings.filter(is_shown)),
    )


def with_source_figures(study: StudyPlan, figure: Drawn) -> Drawn:
    """Return the figure with a caption that names the corresponding figures of the source document, if there
    are any.
    """
    names = source_figures_at(study, figure.workload, figure.stem)
    return replace(figure, caption=f"As {by_name(', '.join(names))}. {figure.caption}") if names else figure
