"""Where the site keeps figures, as paths from its folder."""

from __future__ import annotations

from reports import formatting

CLAIM_FIGURES = "claim_figures"  # what property checks draw; studies' are below `figures`


def figure_folder(study: str) -> str:
    """The folder of a study's figures."""
    return f"figures/{formatting.slug(study)}"


def claim_figure(claim: str, study: str, backend: str) -> str:
    """The light variant of the figure of a claim's comparisons on a backend."""
    return f"{figure_folder(study)}/{formatting.slug(f'{claim}.{backend}')}.light.svg"
