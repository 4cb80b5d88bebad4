"""Claims that property checks decide: their measures, their subclaims, and their rows in the table `claims`.

A property check evaluates a mathematical statement on random instances. A subclaim is one sentence of a claim
with a finding of its own; tables and plans call it `part`. A measure is one number computed on one instance
of a subclaim, with the limit that the claim sets for this number. A bound is a limit that the number must not
exceed. A measure holds if it satisfies its limit. A claim that its source misprints is checked in two
variants, "as printed" and "as corrected"; the variant of other claims is "".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import polars as pl

from curvebench.reports.claims.causes import limit_cause
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
# Finding on a subclaim, by whether all measures of the subclaim satisfy their limits.
# A subclaim with undecided measures has no entry; its finding is "inconclusive".
FINDINGS = {True: "supported", False: "refuted"}


def check_rows(plan: ChecksPlan) -> pl.DataFrame:
    """Read the measures of the plan's claims from the table `checks`, and add two columns.

    The column `share` is the measured value as a share of its limit (`share_of_limit`). The column
    `rule_of_runs` is the hash that the claim's decision rule had when the checks were planned. It is null if
    the checks job did not record the hash.

    Raises:
        InputError: when a table `checks` or `jobs` is missing or damaged.
    """
    rows = read([folder / "checks.parquet" for folder in plan.tables], "checks")
    rows = rows.with_columns(pl.col("variant", "relation").cast(pl.String))
    measures = rows.select("value", "relation", "limit", "tolerance").iter_rows()
    shares = [share_of_limit(*measure) for measure in measures]
    jobs = read([folder / "jobs.parquet" for folder in plan.tables], "jobs")
    recorded = jobs.select("spec_hash", "claim_rules").explode("claim_rules").unnest("claim_rules")
    rules = recorded.drop_nulls().rename({"rule": "rule_of_runs"}).unique()
    rows = rows.with_columns(pl.Series("share", shares, dtype=pl.Float64))
    rows = rows.join(rules, on=["spec_hash", "claim"], how="left", maintain_order="left")
    return rows.filter(pl.col("claim").is_in([claim.id for claim in plan.claims]))


def check_measured(plan: ReportPlan, rows: pl.DataFrame | None) -> None:
    """Check that every claim of the property checks has measures.

    A claim may lack measures if its data are missing, or if a job recorded that its checks failed.

    Args:
        rows: measures, as `check_rows` returns them; None if the report has no property checks.

    Raises:
        InputError: when a claim has no measure for another reason; the message names the claim.
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
    """Return a row for each subclaim and variant, with its worst measure and its finding.

    The worst measure is the measure with the largest value as a share of its limit. If a subclaim has a bound
    that no instance came near, its finding is "untested". The row then has the largest measure of this bound
    in place of the worst measure.

    Args:
        claims: claims of property checks.
        rows: measures of these claims, as `check_rows` returns them.

    Returns:
        Rows with the keys `PART`, the keys `MEASURE` (of the worst measure), where (domain), source, measures
        (number of measures), missed (number of measures that violate their limit), finding, instances (number
        of instances) and seconds (of all instances).
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
    domains = {(claim.id, part.part, part.variant): part.where for claim in claims for part in claim.parts}
    for key, row in by_key.items():
        row["where"] = domains.get(key, "")
    for claim in claims:
        of_claim = rows.filter(claim=claim.id)
        for (part, variant), (quantity, _) in untested(claim, of_claim).items():
            bound = of_claim.filter(part=part, variant=variant, quantity=quantity).sort("share")
            nearest = bound.select(MEASURE).tail(1).to_dicts()
            by_key[claim.id, part, variant].update(*nearest, finding="untested")
    return parts


def property_rows(plan: ChecksPlan, checks: pl.DataFrame, scale: str) -> list[dict[str, object]]:
    """Return the rows of the table `claims` for all claims that property checks decide.

    The estimate is the share of random instances whose measures all satisfy their limits. The interval of the
    estimate (Clopper and Pearson's exact interval) is for the share among all instances that could be drawn.
    Claims without measures come last.

    Args:
        plan: the property checks with their claims.
        checks: measures, as `check_rows` returns them.
        scale: scale of the report's plan, such as "quick" or "paper".
    """
    plans = {claim.id: claim for claim in plan.claims}
    rows: list[dict[str, object]] = []
    for (claim,), measures in checks.group_by(["claim"], maintain_order=True):
        by_part = measures.group_by("part", "variant", maintain_order=True)
        all_hold = by_part.agg(pl.col("holds").all(ignore_nulls=False)).rows()
        holding = {(part, variant): holds for part, variant, holds in all_hold}
        capped, weak = plans[claim].at_most_partly, untested(plans[claim], measures)
        # For subclaims with a bound, a search for the worst case adds instances after the random instances.
        # The estimate is a share of random instances, so that instances of the search must be left out.
        count_of = {(part.part, part.variant): part.instances for part in plans[claim].parts if part.bound}
        numbers = measures.select("part", "variant", "instance").iter_rows()
        sampled = measures.filter([number < count_of.get((*part,), inf) for *part, number in numbers])
        where = {(part.part, part.variant): part.where for part in plans[claim].parts}
        for variant, (verdict, reasons_where) in verdicts(holding, capped, weak, where).items():
            judged = [variant] if variant != "as corrected" else ["", variant]
            judged_rows = sampled.filter(pl.col("variant").is_in(judged))
            loose = [bound for (_, printing), bound in weak.items() if printing in judged]
            instances = judged_rows.group_by("part", "instance").agg(pl.col("holds").all(ignore_nulls=False))
            holding_count, count = int(instances["holds"].sum()), len(instances)
            undecided = instances["holds"].null_count()
            share = share_interval(holding_count, count)
            first = measures.row(0, named=True)
            # A misprinted statement that is false is false at any scale of the checks.
            # A limited scale is therefore no reason for the verdict on the statement as printed.
            misprint = variant == "as printed" and verdict == "not reproduced"
            reasons = [reason("held", holding_count, count)]
            if undecided:
                reasons.append(reason("undecided", undecided, count))
            of_variant = measures.filter(pl.col("variant").is_in(judged))
            reasons += [*_missed(of_variant), *reasons_where]
            if loose:
                quantity, least = min(loose, key=lambda bound: bound[1])
                reasons.append(reason("untested", len(loose), value=least, names=[quantity]))
            if capped and not misprint and verdict != "underpowered":
                reasons.append(reason("limited_scale"))
            rows.append(
                row_of(plans[claim], plans[claim].file, first["scale"])
                | {
                    "variant": variant,
                    "verdict": verdict,
                    "reasons": reasons,
                    "estimate": holding_count / count,
                    "low": share.low,
                    "high": share.high,
                    "seeds": count,
                    "rule": plans[claim].rule or first["spec_hash"],
                    "rule_of_runs": first["rule_of_runs"] if plans[claim].rule else first["spec_hash"],
                    **limit_cause(plans[claim], verdict, misprint, of_variant),
                }
            )
    unmeasured = [claim for claim in plan.claims if claim.id not in set(checks["claim"])]
    failures = {} if all(claim.missing for claim in unmeasured) else reasons_of(plan)
    return rows + [_unmeasured(claim, scale, failures) for claim in unmeasured]


def _missed(measures: pl.DataFrame) -> list[dict[str, object]]:
    """Return a list with the reason that names the subclaims with a violated limit.

    The list is empty if all measures satisfy their limits.
    """
    parts = measures.filter(~pl.col("holds"))["part"].unique(maintain_order=True).to_list()
    return [reason("missed", len(parts), measures["part"].n_unique(), names=parts)] if parts else []


def untested(claim: ClaimPlan, rows: pl.DataFrame) -> dict[tuple[str, str], tuple[str, float]]:
    """Return the subclaims that are satisfied, but have a bound that no instance came near.

    An instance comes near a bound if its value is at least the share `TESTED` of the limit. A bound that no
    instance comes near counts as untested.

    Args:
        rows: measures of the claim, as `check_rows` returns them.

    Returns:
        By pair of subclaim and variant: the quantity that stayed furthest below its limit, and the largest
        value of this quantity on any instance as a share of the limit.
    """
    bounds = {}
    for subclaim in (subclaim for subclaim in claim.parts if subclaim.bound):
        measures = rows.filter(part=subclaim.part, variant=subclaim.variant)
        columns = measures.select("quantity", "value", "relation", "limit", "tolerance")
        nearest = least_tested(bound_shares(columns.iter_rows()))
        if len(measures) and measures["holds"].all(ignore_nulls=False) and nearest[1] < TESTED:
            bounds[subclaim.part, subclaim.variant] = nearest
    return bounds


def row_of(claim: ClaimPlan | Claim, study: str, scale: str) -> dict[str, object]:
    """Return the row of a claim in the table `claims` before the claim is decided.

    Args:
        study: name of the study, or of the module of property checks, that decides the claim.
        scale: name of the scale, such as "quick" or "paper".
    """
    identity = {"claim": claim.id, "source": claim.source, "study": study, "scale": scale}
    return {**identity, "variant": "", "verdict": "not run", "seeds": 0}


def _unmeasured(claim: ClaimPlan, scale: str, reasons: Mapping[str, str]) -> dict[str, object]:
    """Return the row of the table `claims` for a claim without measures, with the reason for their absence.

    Args:
        reasons: reasons why checks failed, by the name of a claim or of a module of checks, as `reasons_of`
            returns them.
    """
    failed = failed_check(claim, reasons)
    why = reason("no_data" if claim.missing else "failed" if failed else "unmeasured")
    return row_of(claim, claim.file, scale) | {"reasons": [why]}
