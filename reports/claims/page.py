"""The page of claims: every claim with its verdict and evidence, grouped by the claim's source document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from curvebench.reports.claims.verdict_list import ClaimVerdict, Rows
from curvebench.reports.plan import figure_folder
from curvebench.results.schema import VERDICTS
from curvebench.results.verdicts import TESTED
from curvebench.spec.sources import OTHER, sources


def with_figures(verdicts: Iterable[ClaimVerdict], figures: Rows, of_checks: str) -> list[ClaimVerdict]:
    """Add to each verdict the figures that the page of claims shows for its claim.

    Args:
        figures: figures of all studies and property checks. Figures of the kinds "claim" and "series" belong
            to claims, and their key `workload` has the id of the claim. Figures of other kinds are ignored.
        of_checks: folder of the site with the figures of property checks.
    """
    claim_figures = [figure for figure in figures if figure["kind"] in ("claim", "series")]
    return [
        replace(
            verdict,
            figures=[figure for figure in claim_figures if figure["workload"] == verdict.id],
            folder=of_checks if verdict.about else figure_folder(verdict.study),
        )
        for verdict in verdicts
    ]


def claims_page(claims: Sequence[ClaimVerdict], machines: Iterable[str]) -> dict[str, Any]:
    """Return the variables of the template of the page of claims.

    Args:
        claims: verdicts with their figures, as `with_figures` returns them.
        machines: names of the machines that ran property checks.
    """
    anchors = {verdict.document.anchor for verdict in claims}
    tally, printed = Counter(item.verdict for item in claims), Counter(item.as_printed for item in claims)
    return {
        "claims": claims,
        "documents": [document for document in (*sources(), OTHER) if document.anchor in anchors],
        "counts": {verdict: tally[verdict] for verdict in VERDICTS},
        "printed": {verdict: printed[verdict] for verdict in VERDICTS if printed[verdict]},
        "machines": sorted(machines),
        "tested": TESTED,
    }
