"""The page of claims, with every claim and its evidence, and the page of a paper, with its sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from curvebench.reports.claims.verdict_list import ClaimVerdict, Rows, tally
from curvebench.reports.plan import figure_folder
from curvebench.results.schema import VERDICTS
from curvebench.results.verdicts import TESTED
from curvebench.spec.sources import OTHER, Paper, sources

# Words that the page of a paper shows for a sentence without a verdict, in place of the verdict.
OPEN, NOT_HERE = "open", "not decidable here"


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
    counted, printed = Counter(item.verdict for item in claims), Counter(item.as_printed for item in claims)
    return {
        "claims": claims,
        "documents": [document for document in (*sources(), OTHER) if document.anchor in anchors],
        "counts": {verdict: counted[verdict] for verdict in VERDICTS},
        "printed": {verdict: printed[verdict] for verdict in VERDICTS if printed[verdict]},
        "machines": sorted(machines),
        "tested": TESTED,
        "tally": tally(claims),
    }


def paper_page(paper: Paper, claims: Mapping[str, ClaimVerdict]) -> dict[str, Any]:
    """Return the variables of the template of the page of a paper.

    Args:
        claims: verdicts of the page of claims, by id.
    """
    rows: list[dict[str, Any]] = []
    for sentence in paper.sentences:
        claim = claims.get(sentence.claim)
        verdict = NOT_HERE if sentence.not_here else OPEN
        if claim and claim.verdict != "not run":
            verdict = claim.verdict_on(sentence)
        stand_in = claims.get(sentence.stand_in)
        rows.append({"sentence": sentence, "claim": claim, "stand_in": stand_in, "verdict": verdict})
    counted = Counter(row["verdict"] for row in rows)
    undecided = counted[OPEN] + counted[NOT_HERE] + counted["underpowered"]
    return {
        "paper": paper,
        "rows": rows,
        "counts": {name: counted[name] for name in (*VERDICTS, OPEN, NOT_HERE) if counted[name]},
        "decided": len(rows) - undecided,
    }
