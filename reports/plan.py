"""Texts and paths that a report derives from its plan."""

from __future__ import annotations

from curvebench.reports.formatting import metric_name, slug
from curvebench.spec.plan import StudyPlan

BOARD_FIGURES = "board_figures"  # Folder of the site for figures of the leaderboard page.
CLAIM_FIGURES = "claim_figures"  # Folder of the site for figures of claims that property checks decide.


def criterion(study: StudyPlan) -> str:
    """Describe the criterion by which tuning chose learning rates: "median of the final training loss"."""
    choice = study.tuning.choose
    words = f"{choice.statistic} of the {metric_name(choice.metric, choice.which)}"
    return f"{words} in the identity basis" if study.shares_rates else words


def figure_folder(study: str) -> str:
    """Return the folder of a study's figures, relative to the site."""
    return f"figures/{slug(study)}"


def claim_figure(claim: str, study: str, backend: str) -> str:
    """Return the path, relative to the site, of the figure that shows a claim's comparisons on a backend."""
    return f"{figure_folder(study)}/{slug(f'{claim}.{backend}')}.svg"
