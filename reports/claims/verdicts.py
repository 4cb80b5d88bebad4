"""The verdict on every claim of a report, from the findings of its comparisons or property checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

import polars as pl

from curvebench.reports.claims.checked import property_rows, row_of
from curvebench.reports.claims.comparison import ClaimComparison, comparisons, outcome_lookup
from curvebench.reports.claims.findings import decided, effect_row
from curvebench.reports.claims.repeats import repeats_of
from curvebench.reports.statistics.decisions import Finding
from curvebench.reports.tables import Tables
from curvebench.results.schema import CLAIMS, FINDINGS
from curvebench.results.tuning import different_draws
from curvebench.results.verdicts import Verdict, reason
from curvebench.spec.plan import ReportPlan, StudyPlan

FEWEST_TUNING_SEEDS = 5  # of fewer a single draw weighs more than the 5 % that may disagree


@dataclass(frozen=True)
class Verdicts:
    """The record of verdicts, and the comparisons behind it.

    Args:
        claims: the table `claims`, one row a claim, variant and backend.
        findings: the table `findings`, one row a comparison, those of repeated claims last.
        comparisons: the comparisons of the claims that are decided, in the order of `findings`.
    """

    claims: pl.DataFrame
    findings: pl.DataFrame
    comparisons: tuple[ClaimComparison, ...]


def claim_verdicts(plan: ReportPlan, tables: Mapping[str, Tables], checks: pl.DataFrame | None) -> Verdicts:
    """The verdicts on all claims of a plan.

    Args:
        plan: what is shown.
        tables: of each study, by its name.
        checks: the measures of property checks; None where there are none.
    """
    compared = [
        one
        for study in plan.studies
        if study.claims
        for outcome_of in (outcome_lookup(study, tables[study.name]),)
        for backend in study.backends
        for claim in study.claims
        for one in comparisons(study, claim, tables[study.name], backend, outcome_of)
    ]
    findings = decided(compared).with_row_index("place")
    rows, deciding = [], []
    for study in plan.studies:
        for backend, claim in product(study.backends, study.claims):
            own = findings.filter(claim=claim.id, backend=backend)
            row = row_of(claim, study.name, plan.scale) | {"backend": backend, "rule": study.rules[claim.id]}
            row["rule_of_runs"] = rule_of_runs(tables[study.name].jobs, claim.id, backend)
            if weakest := _weakest(own):
                deciding.append(weakest["place"])
                row |= _decided_row(study, own, weakest)
            else:
                row["reasons"] = [reason("not_paired")]
            rows.append(row)
    rows += [
        row_of(claim, study.name, plan.scale)
        | {"rule": study.rules[claim.id], "reasons": [reason("left_out")]}
        for study in plan.skipped
        for claim in study.claims
    ]
    if plan.checks is not None and checks is not None:
        rows += property_rows(plan.checks, checks, plan.scale)
    findings = findings.with_columns(deciding=pl.col("place").is_in(deciding)).drop("place")
    repeats = [effect_row(one) | {"same_direction": same} for one, same in repeats_of(plan, tables, compared)]
    findings = pl.concat([findings, pl.DataFrame(repeats, schema=FINDINGS)])
    return Verdicts(pl.DataFrame(rows, schema=CLAIMS), findings, tuple(compared))


def combined(findings: Sequence[Finding]) -> Verdict:
    """The verdict on a claim all of whose comparisons must hold.

    All supported: reproduced. One refuted: not reproduced. Else some are inconclusive: underpowered.
    """
    if "refuted" in findings:
        return "not reproduced"
    return "reproduced" if set(findings) == {"supported"} else "underpowered"


def _decided_row(study: StudyPlan, findings: pl.DataFrame, weakest: Mapping[str, Any]) -> dict[str, object]:
    """Return verdict, reasons and numbers of a claim with pairs of runs, for a row of the table `claims`.

    Args:
        findings: of the claim on a backend.
        weakest: the finding whose estimate, interval and p-value are the claim's.
    """
    own, controls = findings.filter(~pl.col("positive_control")), findings.filter("positive_control")
    verdict, limits = combined(own["finding"].to_list()), list(_limits(study, findings))
    unmet = int((controls["finding"] != "supported").sum())
    if unmet:
        verdict = "underpowered"
    if verdict == "reproduced" and limits:
        verdict = "partly reproduced"
    counts = {kind: int((own["finding"] == kind).sum()) for kind in get_args(Finding)}
    reasons = [reason(kind, count, len(own)) for kind, count in counts.items() if count]
    if unmet:
        reasons.append(reason("control_unmet", unmet, len(controls)))
    needed = own.filter(pl.col("finding") == "inconclusive")["seeds_needed"]
    decidable = verdict == "underpowered" and not unmet and not needed.has_nulls()
    return {
        "verdict": verdict,
        "reasons": reasons if verdict == "underpowered" else [*reasons, *limits],
        **{name: weakest[name] for name in ("estimate", "low", "high")},
        "p_value": weakest["refuting_p_value" if weakest["finding"] == "refuted" else "p_value"],
        "seeds": findings["seeds"].min(),
        "seeds_needed": needed.max() if decidable else None,
    }


def _weakest(findings: pl.DataFrame) -> dict[str, Any] | None:
    """The finding of the comparison that decides; None where none has a pair.

    Of those that are refuted it is the one with the smallest corrected p-value of that; else of those that
    are inconclusive, else of all, the one with the largest p-value, which is the claim's own.
    """
    known = findings.filter(~pl.col("positive_control"), pl.col("seeds") > 0)
    for kind in ("refuted", "inconclusive", "supported"):
        by = pl.col("refuting_p_value") if kind == "refuted" else -pl.col("p_value")
        for row in known.filter(finding=kind).sort(by).head(1).to_dicts():
            return row
    return None


def _limits(study: StudyPlan, findings: pl.DataFrame) -> Iterator[dict[str, object]]:
    """Yield the reasons that cap what these runs can say."""
    if study.at_most_partly:
        yield reason("limited_scale")
    said = findings.filter(pl.col("finding") != "inconclusive")
    unknown = said.filter(pl.col("ties_agree").is_null())["settings_not_run"].drop_nulls()
    if not_run := max(unknown.to_list(), default=0):
        yield reason("settings_not_run", not_run)
    seeds = study.seeds.tuning
    chooses = study.tuning.trials > 1 and seeds < FEWEST_TUNING_SEEDS
    if chooses and findings["ties"].is_not_null().any():
        yield reason("few_tuning_seeds", seeds, different_draws(seeds))


def rule_of_runs(jobs: pl.DataFrame, claim: str, backend: str) -> str | None:
    """The hash of a claim's rule when its final runs were planned; None where they do not agree or say."""
    planned = jobs.filter(pl.col("claim_rules").list.len() > 0, backend=backend)["claim_rules"].to_list()
    found = {next((one["rule"] for one in rules if one["claim"] == claim), None) for rules in planned}
    return found.pop() if len(found) == 1 else None
