"""Claims that property checks decide: their measures, the rows of their verdicts, and their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import polars as pl

from curvebench.reports.failures import failed_check, reasons_of
from curvebench.reports.statistics.shares import share_interval
from curvebench.results.reading import read
from curvebench.results.verdicts import TESTED, bound_shares, least_tested, reason, share_of_limit, verdicts
from curvebench.spec.claim import Claim
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ChecksPlan, ClaimPlan, ReportPlan

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
    rows = read([folder / "checks.parquet" for folder in plan.tables], "checks")
    rows = rows.with_columns(pl.col("variant", "relation").cast(pl.String))
    about = rows.select("value", "relation", "limit", "tolerance").iter_rows()
    shares = [share_of_limit(*measure) for measure in about]
    jobs = read([folder / "jobs.parquet" for folder in plan.tables], "jobs")
    noted = jobs.select("spec_hash", "claim_rules").explode("claim_rules").unnest("claim_rules")
    rules = noted.drop_nulls().rename({"rule": "rule_of_runs"}).unique()
    rows = rows.with_columns(pl.Series("share", shares, dtype=pl.Float64))
    rows = rows.join(rules, on=["spec_hash", "claim"], how="left", maintain_order="left")
    return rows.filter(pl.col("claim").is_in([claim.id for claim in plan.claims]))


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


def parts_of(claims: Sequence[ClaimPlan], rows: pl.DataFrame) -> Rows:
    """Return a row for each part and variant: its worst measure, and the number of measures that do not hold.

    Where no instance came near a bound of the part, the measure shown is that of its least tested bound.
    """
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
    parts: Rows = ordered.join(seconds, on=PART, maintain_order="left").to_dicts()
    by_key = {tuple(row[name] for name in PART): row for row in parts}
    for claim in claims:
        own = rows.filter(claim=claim.id)
        for (part, variant), (quantity, _) in untested(claim, own).items():
            bound = own.filter(part=part, variant=variant, quantity=quantity).sort("share").select(MEASURE)
            nearest = bound.to_dicts()[-1] if len(bound) else {}
            by_key[claim.id, part, variant].update(nearest, finding="untested")
    return parts


def property_rows(plan: ChecksPlan, checks: pl.DataFrame, scale: str) -> list[dict[str, object]]:
    """Return the rows of all claims that property checks decide; claims without measures come last.

    The estimate is the share of instances all of whose measures hold, with an exact interval (Clopper and
    Pearson) for the share of all instances that could be drawn.

    Args:
        plan: which claims there are.
        checks: as `check_rows` gives them.
        scale: the plan's.
    """
    about = {claim.id: claim for claim in plan.claims}
    rows: list[dict[str, object]] = []
    for (claim,), own in checks.group_by(["claim"], maintain_order=True):
        parts = own.group_by("part", "variant", maintain_order=True).agg(
            pl.col("holds").all(ignore_nulls=False)
        )
        holding = {(part, variant): holds for part, variant, holds in parts.rows()}
        capped, weak = about[claim].at_most_partly, untested(about[claim], own)
        # of a part that is a bound searches found the instances after the first ones, which were drawn
        count_of = {(one.part, one.variant): one.instances for one in about[claim].parts if one.bound}
        places = own.select("part", "variant", "instance").iter_rows()
        drawn = own.filter([place < count_of.get((*part,), inf) for *part, place in places])
        for variant, verdict in verdicts(holding, capped, weak).items():
            judged = [variant] if variant != "as corrected" else ["", variant]
            among = drawn.filter(pl.col("variant").is_in(judged))
            loose = [least for (_, one), least in weak.items() if one in judged]
            instances = among.group_by("part", "instance").agg(pl.col("holds").all(ignore_nulls=False))
            held, count = int(instances["holds"].sum()), len(instances)
            undecided = instances["holds"].null_count()
            share = share_interval(held, count)
            first = own.row(0, named=True)
            misprint = variant == "as printed" and verdict == "not reproduced"  # which no scale would save
            reasons = [reason("held", held, count)]
            if undecided:
                reasons.append(reason("undecided", undecided, count))
            reasons += _missed(own.filter(pl.col("variant").is_in(judged)))
            if loose:
                quantity, least = min(loose, key=lambda one: one[1])
                reasons.append(reason("untested", len(loose), value=least, names=[quantity]))
            if capped and not misprint and verdict != "underpowered":
                reasons.append(reason("limited_scale"))
            rows.append(
                row_of(about[claim], about[claim].file, first["scale"])
                | {
                    "variant": variant,
                    "verdict": verdict,
                    "reasons": reasons,
                    "estimate": held / count,
                    "low": share.low,
                    "high": share.high,
                    "seeds": count,
                    "rule": about[claim].rule or first["spec_hash"],
                    "rule_of_runs": first["rule_of_runs"] if about[claim].rule else first["spec_hash"],
                }
            )
    unmeasured = [claim for claim in plan.claims if claim.id not in set(checks["claim"])]
    failures = {} if all(claim.missing for claim in unmeasured) else reasons_of(plan)
    return rows + [_unmeasured(claim, scale, failures) for claim in unmeasured]


def _missed(measures: pl.DataFrame) -> list[dict[str, object]]:
    """Return the reason that some parts of a claim have a measure that does not hold; none where all hold."""
    parts = measures.filter(~pl.col("holds"))["part"].unique(maintain_order=True).to_list()
    return [reason("missed", len(parts), measures["part"].n_unique(), names=parts)] if parts else []


def untested(claim: ClaimPlan, rows: pl.DataFrame) -> dict[tuple[str, str], tuple[str, float]]:
    """The parts of a claim that hold and have a bound that no instance in `rows` came near.

    By part and variant, of each the quantity that came least near its limit, and the greatest share that it
    took of that.
    """
    found = {}
    for one in (one for one in claim.parts if one.bound):
        own = rows.filter(part=one.part, variant=one.variant)
        about = own.select("quantity", "value", "relation", "limit", "tolerance")
        least = least_tested(bound_shares(about.iter_rows()))
        if len(own) and own["holds"].all(ignore_nulls=False) and least[1] < TESTED:
            found[one.part, one.variant] = least
    return found


def row_of(claim: ClaimPlan | Claim, study: str, scale: str) -> dict[str, object]:
    """Return the row of a claim in the table `claims` before it is decided.

    Args:
        study: the study, or the module of property checks, that decides it.
    """
    about = {"claim": claim.id, "source": claim.source, "study": study, "scale": scale}
    return {**about, "variant": "", "verdict": "not run", "seeds": 0}


def _unmeasured(claim: ClaimPlan, scale: str, reasons: Mapping[str, str]) -> dict[str, object]:
    """Return the row of a claim without a measure; `reasons` are those of claims and their modules."""
    failed = failed_check(claim, reasons)
    why = reason("no_data" if claim.missing else "failed" if failed else "unmeasured")
    return row_of(claim, claim.file, scale) | {"reasons": [why]}
