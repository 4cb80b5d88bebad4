"""The page of claims: each with its verdict and what that rests on, by the document that makes it."""

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
    """The claims of a plan with the figures that the page shows.

    Args:
        figures: of all studies and of the checks; those of kinds "claim" and "series" are shown.
        of_checks: the site's folder of the figures of checks.
    """
    shown = [figure for figure in figures if figure["kind"] in ("claim", "series")]
    return [
        replace(
            verdict,
            figures=[figure for figure in shown if figure["workload"] == verdict.id],
            folder=of_checks if verdict.about else figure_folder(verdict.study),
        )
        for verdict in verdicts
    ]


def claims_page(claims: Sequence[ClaimVerdict], machines: Iterable[str]) -> dict[str, Any]:
    """Everything on the page.

    Args:
        machines: on which claims were checked.
    """
    found = {claim.document.anchor for claim in claims}
    tally, printed = Counter(one.verdict for one in claims), Counter(one.as_printed for one in claims)
    return {
        "claims": claims,
        "documents": [document for document in (*sources(), OTHER) if document.anchor in found],
        "counts": {verdict: tally[verdict] for verdict in VERDICTS},
        "printed": {verdict: printed[verdict] for verdict in VERDICTS if printed[verdict]},
        "machines": sorted(machines),
        "tested": TESTED,
    }
