"""Where the site keeps figures, as paths from its folder."""

from __future__ import annotations

from reports import formatting

CLAIM_FIGURES = "claim_figures"  # those of property checks; studies' are below `figures`


def figure_folder(study: str) -> str:
    """The folder of a study's figures."""
    return f"figures/{formatting.slug(study)}"


def claim_figure(claim: str, study: str | None, backend: str | None) -> str:
    """The light variant of a claim's figure: of a study's comparisons on a backend, or of property checks.

    Args:
        claim: its id.
        study, backend: None where property checks decide it.
    """
    folder = CLAIM_FIGURES if study is None else figure_folder(study)
    name = claim if study is None else f"{claim}.{backend}"
    return f"{folder}/{formatting.slug(name)}.light.svg"
