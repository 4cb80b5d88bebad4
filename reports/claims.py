"""The page of claims: what property checks say of each, beside the claims that studies decide."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl

from reports.plan import ChecksPlan, ReportError, ReportPlan
from results.reading import read
from results.verdicts import share_of_limit, verdicts

Rows = list[dict[str, Any]]
PART = ("claim", "part", "variant")


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


def claims_page(plan: ReportPlan, rows: pl.DataFrame | None) -> dict[str, Any]:
    """Everything on the page.

    Args:
        plan: what is shown.
        rows: as `check_rows` gives them; None where no claim is checked.

    Raises:
        ReportError: when a claim of the plan has no measures.
    """
    claims: Rows = []
    parts = parts_of(rows) if rows is not None else []
    for claim in plan.checks.claims if plan.checks else ():
        own = [part for part in parts if part["claim"] == claim.id]
        if not own:
            raise ReportError(f"{plan.path}: the tables hold no measure of {claim.id}; run snakemake again")
        found = verdicts({(part["part"], part["variant"]): part["part_holds"] for part in own})
        claims.append(
            {
                "about": claim,
                "verdicts": found,
                "verdict": list(found.values())[-1],  # as corrected, where it is misprinted
                "parts": own,
                # variants see the same instances
                "instances": sum({part["part"]: part["instances"] for part in own}.values()),
                "seconds": sum(part["seconds"] for part in own),
            }
        )
    return {
        "claims": claims,
        "counts": Counter(claim["verdict"] for claim in claims),
        "misprinted": sum(len(claim["verdicts"]) > 1 for claim in claims),
        "machines": rows["machine"].unique().sort().to_list() if rows is not None else [],
        "of_studies": [
            {"study": study.name, "id": claim.id, "sentence": claim.sentence, "source": claim.source}
            for study in plan.studies
            for claim in study.claims
        ],
    }
