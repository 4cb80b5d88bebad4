"""The settings of a report in the words of pages."""

from __future__ import annotations

from curvebench.reports.formatting import metric_name, slug
from curvebench.spec.plan import StudyPlan

BOARD_FIGURES = "board_figures"  # of the site, for what the leaderboard shows
CLAIM_FIGURES = "claim_figures"  # of the site, for what property checks draw


def criterion(study: StudyPlan) -> str:
    """By what learning rates were chosen, as words."""
    chosen = study.tuning.choose
    words = f"{chosen.statistic} of the {chosen.which} {metric_name(chosen.metric)}"
    return f"{words} in the identity basis" if study.shares_rates else words


def figure_folder(study: str) -> str:
    """The folder of the site with a study's figures."""
    return f"figures/{slug(study)}"


def claim_figure(claim: str, study: str, backend: str) -> str:
    """The light variant of the figure of a claim's comparisons on a backend."""
    return f"{figure_folder(study)}/{slug(f'{claim}.{backend}')}.svg"
