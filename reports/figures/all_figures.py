"""All figures of a study, with their list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from documents.plan import StudyPlan
from reports.figures.across import draw_across
from reports.figures.drawing import Drawn, list_figures
from reports.figures.forest import draw_forests
from reports.figures.fronts import draw_front
from reports.figures.study_figures import cells, draw_curves, draw_sensitivities, sources_beside
from reports.figures.targets import draw_targets
from reports.tables import Tables


def draw_figures(study: StudyPlan, tables: Tables, out: Path) -> list[Drawn]:
    """Draw a study's curves, times to target and claims into a folder; write their list for the site.

    Args:
        out: is made where it is missing.
    """
    drawers = (draw_curves, draw_sensitivities, draw_across, draw_targets, draw_front)
    drawn = [figure for cell in cells(study, tables, out) for draw in drawers for figure in draw(cell)]
    drawn += draw_forests(study, tables, out)
    drawn = [with_source_figures(study, figure) for figure in drawn]
    list_figures(drawn, out)
    return drawn


def with_source_figures(study: StudyPlan, figure: Drawn) -> Drawn:
    """The figure with a caption that names the figures of the source that it lies beside, if there are."""
    named = sources_beside(study, figure.workload, figure.stem)
    return replace(figure, caption=f"As {', '.join(named)}. {figure.caption}") if named else figure
