"""The page of claims: each with its verdict and what that rests on, by the document that makes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from curvebench.reports.claims.verdicts import untested
from curvebench.reports.failures import failed_check, reasons_of
from curvebench.reports.plan import figure_folder
from curvebench.results.reading import read
from curvebench.results.schema import VERDICTS
from curvebench.results.verdicts import TESTED, share_of_limit
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ChecksPlan, ClaimPlan, ReportPlan, StudyPlan
from curvebench.spec.sources import OTHER, source_of, sources

Rows = list[dict[str, Any]]
PART = ("claim", "part", "variant")
MEASURE = ("quantity", "value", "relation", "limit", "tolerance", "share")
FINDINGS = {True: "supported", False: "refuted"}  # by whether all measures hold; else it cannot be told


def check_rows(plan: ChecksPlan) -> pl.DataFrame:
    """The measures of the plan's claims, with `share`, how much each takes of what its claim allows.

    `rule_of_runs` is the hash of the claim's rule when they were planned, null where that was not noted.

    Raises:
        InputError: when a table is missing or damaged.
    """
    rows = with_share(read([folder / "checks.parquet" for folder in plan.tables], "checks"))
    jobs = read([folder / "jobs.parquet" for folder in plan.tables], "jobs")
    noted = jobs.select("spec_hash", "claim_rules").explode("claim_rules").unnest("claim_rules")
    rules = noted.drop_nulls().rename({"rule": "rule_of_runs"}).unique()
    rows = rows.join(rules, on=["spec_hash", "claim"], how="left", maintain_order="left")
    return rows.filter(pl.col("claim").is_in([claim.id for claim in plan.claims]))


def with_share(rows: pl.DataFrame) -> pl.DataFrame:
    """The table `checks` with text for enums, and with `share`."""
    rows = rows.with_columns(pl.col("variant", "relation").cast(pl.String))
    about = rows.select("value", "relation", "limit", "tolerance").iter_rows()
    shares = [share_of_limit(*measure) for measure in about]
    return rows.with_columns(pl.Series("share", shares, dtype=pl.Float64))


def check_measured(plan: ReportPlan, rows: pl.DataFrame | None) -> None:
    """Check that each claim that property checks decide, that has its data and did not fail, has measures.

    Raises:
        InputError: when one has none.
    """
    measured = set(rows["claim"] if rows is not None else ())
    claims = plan.checks.claims if plan.checks else ()
    unmeasured = [claim for claim in claims if not claim.missing and claim.id not in measured]
    reasons = reasons_of(plan.checks) if plan.checks and unmeasured else {}
    unknown = [claim.id for claim in unmeasured if not failed_check(claim, reasons)]
    if unknown:
        remedy = "show another set" if plan.published else "run snakemake again"
        raise InputError(f"{plan.path}: the tables hold no measure of {min(unknown)}; {remedy}")


def parts_of(rows: pl.DataFrame) -> Rows:
    """One row a part and variant, in the order of the table: its worst measure, and how many miss."""
    instances = rows.unique([*PART, "instance"], maintain_order=True)
    seconds = instances.group_by(PART).agg(pl.col("seconds").sum(), pl.len().alias("instances"))
    worst = rows.sort("share", descending=True, maintain_order=True).group_by(PART).first()
    counts = rows.group_by(PART, maintain_order=True).agg(
        pl.len().alias("measures"),
        (~pl.col("holds")).sum().alias("missed"),
        finding=pl.col("holds").all(ignore_nulls=False).replace_strict(FINDINGS, default="inconclusive"),
    )
    worst = worst.select(*PART, "source", *MEASURE)
    ordered = counts.join(worst, on=PART, maintain_order="left")
    found: Rows = ordered.join(seconds, on=PART, maintain_order="left").to_dicts()
    return found


def claim_entries(
    plan: ReportPlan, rows: pl.DataFrame | None, verdicts: Rows, figures: Rows, of_checks: str
) -> Rows:
    """The claims of a plan as the page shows them.

    Args:
        plan: what is shown.
        rows: as `check_rows` gives them; None where no claim is checked.
        verdicts: as `curvebench.reports.claims.verdict_list.listed` gives them.
        figures: of all studies and of the checks; those of kinds "claim" and "series" are shown.
        of_checks: the site's folder of the figures of checks.
    """
    checked = {claim.id: claim for claim in plan.checks.claims} if plan.checks else {}
    studies = {study.name: study for study in plan.studies}
    costs = {claim.id: study.cost for study in plan.skipped for claim in study.claims}
    costs |= {one.id: one.cost for one in plan.census}
    parts = parts_of(rows) if rows is not None else []
    check_measured(plan, rows)
    claims: Rows = []
    for verdict in verdicts:
        about = checked.get(verdict["id"])
        own = [part for part in parts if part["claim"] == verdict["id"]]
        if about and rows is not None:
            own = _with_untested(about, own, rows.filter(claim=about.id))
        claims.append(
            {
                **verdict,
                **_of_study(studies.get(verdict["study"]), verdict),
                "about": about,
                "cost": costs.get(verdict["id"], ""),
                "document": source_of(verdict["source"]),
                "deciding": next(
                    (each for each in verdict["comparisons"] if each["key"] == verdict["deciding"]), None
                ),
                "hangs_on_tuning": hangs_on_tuning(verdict),
                "as_printed": next(
                    (other["verdict"] for other in verdict["others"] if other["variant"] == "as printed"),
                    None,
                ),
                "figures": [
                    figure
                    for figure in figures
                    if figure["kind"] in ("claim", "series") and figure["workload"] == verdict["id"]
                ],
                "parts": own,
                "took": sum(part["seconds"] for part in own),
                "set": plan if plan.published else None,
                "folder": of_checks if about else figure_folder(verdict["study"]),
            }
        )
    return claims


def hangs_on_tuning(verdict: Mapping[str, Any]) -> bool:
    """Whether a claim is open, and at other settings that tuning may choose a comparison says otherwise."""
    return verdict["verdict"] == "underpowered" and any(one["choices"] for one in verdict["comparisons"])


def _with_untested(claim: ClaimPlan, parts: Rows, rows: pl.DataFrame) -> Rows:
    """The parts of a claim; where one is held, not tested, with its least tested bound for the worst."""
    weak = untested(claim, rows)
    shown = []
    for part in parts:
        key = part["part"], part["variant"]
        if key in weak:
            own = rows.filter(part=key[0], variant=key[1], quantity=weak[key][0])
            (nearest,) = own.sort("share").select(MEASURE).tail(1).to_dicts() or [{}]
            part = part | nearest | {"finding": "untested"}
        shown.append(part)
    return shown


def claims_page(claims: Rows, machines: Iterable[str]) -> dict[str, Any]:
    """Everything on the page.

    Args:
        claims: as `claim_entries` gives them.
        machines: on which claims were checked.
    """
    found = {claim["document"].anchor for claim in claims}
    tally, printed = (Counter(claim[name] for claim in claims) for name in ("verdict", "as_printed"))
    return {
        "claims": claims,
        "documents": [document for document in (*sources(), OTHER) if document.anchor in found],
        "counts": {verdict: tally[verdict] for verdict in VERDICTS},
        "printed": {verdict: printed[verdict] for verdict in VERDICTS if printed[verdict]},
        "machines": sorted(machines),
        "tested": TESTED,
    }


def _of_study(study: StudyPlan | None, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The setting under which a study decides a claim, and its comparisons."""
    if study is None:
        return {"plan": None, "comparisons": []}
    (claim,) = (claim for claim in study.claims if claim.id == verdict["id"])
    comparisons = [
        {
            **comparison,
            "of_tuning": claim.conditions[comparison["key"]["condition"]].of_tuning,
        }
        for comparison in verdict["comparisons"]
    ]
    return {"plan": study, "comparisons": comparisons}
