"""All figures of a study, with their list."""

from __future__ import annotations

from pathlib import Path

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
    drawers = (draw_study, draw_targets, draw_fronts, draw_forests)
    drawn = [figure for draw in drawers for figure in draw(study, tables, out)]
    list_figures(drawn, out)
    return drawn
