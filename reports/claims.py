"""The page of claims: each with its verdict and what that rests on, by the document that makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from reports.plan import ChecksPlan, ReportError, ReportPlan, StudyPlan
from reports.setting import setting_rows
from results.reading import read
from results.schema import VERDICTS
from results.verdicts import share_of_limit

Rows = list[dict[str, Any]]
Ties = Mapping[tuple[str, str, str], str]  # how a rate was chosen, by workload, backend and method
PART = ("claim", "part", "variant")
DECIDED_UNDER = ("Length of a run", "Seeds", "Backends")  # of the setting, what a verdict hangs on


def check_rows(plan: ChecksPlan) -> pl.DataFrame:
    """The measures of all claims, with `share`, how much each takes of what its claim allows.

    Raises:
        TableError: when a table is missing or damaged.
    """
    rows = read([folder / "checks.parquet" for folder in plan.tables], "checks")
    rows = rows.with_columns(pl.col("variant", "relation").cast(pl.String))
    about = rows.select("value", "relation", "limit", "tolerance").iter_rows()
    shares = [share_of_limit(*measure) for measure in about]
    return rows.with_columns(pl.Series("share", shares, dtype=pl.Float64))


def check_measured(plan: ReportPlan, rows: pl.DataFrame | None) -> None:
    """Check that every claim of the plan that property checks decide, and that has its data, has measures.

    Raises:
        ReportError: when one has none.
    """
    asked = {claim.id for claim in plan.checks.claims if not claim.missing} if plan.checks else set()
    unmeasured = asked - set(rows["claim"] if rows is not None else ())
    if unmeasured:
        remedy = "show another set" if plan.published else "run snakemake again"
        raise ReportError(f"{plan.path}: the tables hold no measure of {min(unmeasured)}; {remedy}")


def parts_of(rows: pl.DataFrame) -> Rows:
    """One row a part and variant, in the order of the table: its worst measure, and how many miss."""
    instances = rows.unique([*PART, "instance"], maintain_order=True)
    seconds = instances.group_by(PART).agg(pl.col("seconds").sum(), pl.len().alias("instances"))
    worst = rows.sort("share", descending=True, maintain_order=True).group_by(PART).first()
    counts = rows.group_by(PART, maintain_order=True).agg(
        pl.len().alias("measures"),
        (~pl.col("holds")).sum().alias("missed"),
        pl.col("holds").all().alias("part_holds"),
    )
    worst = worst.select(*PART, "source", "quantity", "value", "relation", "limit", "tolerance", "share")
    ordered = counts.join(worst, on=PART, maintain_order="left")
    found: Rows = ordered.join(seconds, on=PART, maintain_order="left").to_dicts()
    return found


@dataclass(frozen=True)
class Document:
    """A source of claims, by the numbers that stand for it."""

    numbers: tuple[str, ...]
    title: str
    about: str

    @property
    def anchor(self) -> str:
        """Its place on the page, and its value in the filter."""
        return "-".join(self.numbers) or "others"


DOCUMENTS = (
    Document(
        ("000", "001"),
        "Faster Adaptive Optimization via Expected Gradient Outer Product Reparameterization",
        "Two versions of one paper; 000 is the newer.",
    ),
    Document(("002",), "Adaptive Learning Methods", "Notes by Karl Stratos, 2026."),
    Document(
        ("003",),
        "Spectral-factorized Positive-definite Curvature Learning for NN Training",
        "By Wu Lin and others.",
    ),
    Document(
        ("004",),
        "Global curvature for second-order optimization of neural networks",
        "By Alberto Bernacchia.",
    ),
)
OTHER = Document((), "Other sources", "Named with each claim.")


def document_of(source: str) -> Document:
    """The document that a source is in ("002 eq. 22"), by its first word."""
    first = source.partition(" ")[0].rstrip(",;")
    return next((document for document in DOCUMENTS if first in document.numbers), OTHER)


def claims_page(
    plan: ReportPlan, rows: pl.DataFrame | None, told: Rows, figures: Rows, ties: Mapping[str, Ties]
) -> dict[str, Any]:
    """Everything on the page.

    Args:
        plan: what is shown.
        rows: as `check_rows` gives them; None where no claim is checked.
        told: the verdicts, as `reports.verdict_list.listed` gives them.
        figures: of all studies and of the checks; those of kinds "claim" and "series" are shown.
        ties: of each study that decides a claim, as `reports.pages.tied_rates` gives them.

    Raises:
        ReportError: when a claim of the plan has no measures.
    """
    checked = {claim.id: claim for claim in plan.checks.claims} if plan.checks else {}
    studies = {study.name: study for study in plan.studies}
    parts = parts_of(rows) if rows is not None else []
    check_measured(plan, rows)
    claims: Rows = []
    for verdict in told:
        about = checked.get(verdict["id"])
        own = [part for part in parts if part["claim"] == verdict["id"]]
        backends = [verdict["backend"], *(other["backend"] for other in verdict["others"])]
        drawn = {
            figure["backend"]: figure
            for figure in figures
            if figure["kind"] == "claim" and figure["workload"] == verdict["id"]
        }
        verdict = {
            **verdict,
            **_of_study(studies.get(verdict["study"]), verdict, ties.get(verdict["study"], {})),
        }
        claims.append(
            {
                **verdict,
                "about": about,
                "document": document_of(verdict["source"]),
                "deciding": deciding_comparison(verdict),
                "estimates": [
                    {"level": comparison["level"], "count": comparison["seeds"]}
                    for comparison in verdict["comparisons"]
                    if comparison["level"] is not None
                ],
                "rule_changed": verdict["rule_of_runs"] not in (None, verdict["rule"]),
                "as_printed": next(
                    (other["verdict"] for other in verdict["others"] if other["variant"] == "as printed"),
                    None,
                ),
                "series": [
                    figure
                    for figure in figures
                    if figure["kind"] == "series" and figure["workload"] == verdict["id"]
                ],
                "figures": [drawn[name] for name in dict.fromkeys([*backends, *drawn]) if name in drawn],
                "parts": own,
                "took": sum(part["seconds"] for part in own),
            }
        )
    found = {claim["document"].anchor for claim in claims}
    return {
        "claims": claims,
        "documents": [document for document in (*DOCUMENTS, OTHER) if document.anchor in found],
        "counts": {verdict: sum(claim["verdict"] == verdict for claim in claims) for verdict in VERDICTS},
        "printed": {
            verdict: sum(claim["as_printed"] == verdict for claim in claims)
            for verdict in VERDICTS
            if any(claim["as_printed"] == verdict for claim in claims)
        },
        "machines": rows["machine"].unique().sort().to_list() if rows is not None else [],
    }


def _of_study(study: StudyPlan | None, verdict: Mapping[str, Any], ties: Ties) -> dict[str, Any]:
    """The setting under which a study decides a claim, and its comparisons, with what they rest on."""
    if study is None:
        return {"setting": [], "at_most_partly": "", "notes": (), "comparisons": []}
    conditions = [
        condition for claim in study.claims if claim.id == verdict["id"] for condition in claim.conditions
    ]
    of_tuning = {condition.read for condition in conditions if condition.of_tuning}
    comparisons = [
        {
            **comparison,
            "of_tuning": comparison["which"] in of_tuning,
            "methods": {name: method for name, (_, method) in _sides(study, comparison).items()},
            "tied": [
                (comparison[name], ties[workload, verdict["backend"], method])
                for name, (workload, method) in _sides(study, comparison).items()
                if comparison["which"] not in of_tuning and (workload, verdict["backend"], method) in ties
            ],
        }
        for comparison in verdict["comparisons"]
    ]
    rows = dict(setting_rows(study))
    return {
        "setting": [f"{name}: {'; '.join(rows[name])}" for name in DECIDED_UNDER if name in rows],
        "at_most_partly": study.at_most_partly,
        "notes": study.notes,
        "comparisons": comparisons,
    }


def _sides(study: StudyPlan, comparison: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Workload and method of the sides of a comparison; a number is no method's."""
    sides = {}
    for name in ("treated", "control"):
        for method in study.methods:
            if comparison[name] == method:
                sides[name] = (comparison["workload"], method)
            elif comparison[name].startswith(f"{method} on "):
                sides[name] = (comparison[name].removeprefix(f"{method} on "), method)
    return sides


def deciding_comparison(verdict: Mapping[str, Any]) -> dict[str, Any] | None:
    """The comparison that a claim's estimate is of; None of a claim that none decides."""
    keys = ("estimate", "low", "high")
    for comparison in verdict["comparisons"]:
        same = all(comparison[key] == verdict[key] for key in keys)
        if comparison["seeds"] and same and comparison["holm_p_value"] == verdict["p"]:
            return dict(comparison)
    return None
