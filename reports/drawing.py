"""All figures of a study, with their list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reports.across import draw_across
from reports.figures import Drawn, draw_study, list_figures
from reports.forest import draw_forests
from reports.fronts import draw_fronts
from reports.plan import StudyPlan
from reports.tables import Tables
from reports.targets import draw_targets


def draw_figures(study: StudyPlan, tables: Tables, out: Path) -> list[Drawn]:
    """Draw a study's curves, times to target, costs and claims into a folder; write their list for the site.

    Args:
        out: is made where it is missing.
    """
    drawers = (draw_study, draw_across, draw_targets, draw_fronts, draw_forests)
    drawn = [beside(study, figure) for draw in drawers for figure in draw(study, tables, out)]
    list_figures(drawn, out)
    return drawn


def beside(study: StudyPlan, figure: Drawn) -> Drawn:
    """The figure with a caption that names the figures of the source that it lies beside, if there are."""
    ending = figure.name.partition(f".{figure.backend}.")[2]
    names = (ending, f"{figure.workload}.{ending}")
    named = [source for source, own in study.source_figures.items() if own in names]
    return replace(figure, caption=f"As {', '.join(named)}. {figure.caption}") if named else figure
