"""The verdict on every claim of a report, from paired runs or property checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import polars as pl

from documents.claim import Claim, ComparisonKey
from documents.plan import ChecksPlan, ClaimPlan, Deciding, ReportPlan, SkippedStudy, StudyPlan
from reports.claims.comparison import ClaimComparison, comparisons
from reports.claims.repeats import Repeat, repeats_of
from reports.failures import failed_check, reasons_of
from reports.plan import reading
from reports.statistics.decisions import Finding, decide, holm, seeds_needed
from reports.statistics.shares import share_interval
from reports.tables import Tables
from results.schema import CLAIMS, FINDINGS
from results.verdicts import ALPHA, Variant, Verdict, verdicts


@dataclass(frozen=True)
class Verdicts:
    """The tables `claims` (one row a claim, variant and backend) and `findings` (one row a comparison).

    `comparisons` are in the order of `findings`; by claim and backend, `deciding` is the one whose estimate a
    claim has, and `repeats` what became of the claim where it was repeated in another setting.
    """

    claims: pl.DataFrame
    findings: pl.DataFrame
    comparisons: tuple[ClaimComparison, ...]
    deciding: Mapping[tuple[str, str], ComparisonKey] = field(default_factory=dict)
    repeats: Mapping[tuple[str, str], tuple[Repeat, ...]] = field(default_factory=dict)


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
        for backend in study.backends
        for claim in study.claims
        for one in comparisons(study, claim, tables[study.name], backend)
    ]
    findings = decided(compared)
    repeats = repeats_of(plan, tables, compared)
    places: dict[tuple[str, str], list[int]] = {}
    for place, one in enumerate(compared):
        places.setdefault((one.key.claim, one.backend), []).append(place)
    rows, deciding = [], {}
    for study in plan.studies:
        for backend, claim in product(study.backends, study.claims):
            about = (claim.id, backend)
            own, of_claim = findings[places.get(about, [])], [compared[at] for at in places.get(about, [])]
            rule = rule_of_runs(tables[study.name].jobs, claim.id, backend)
            row = _empty_row(study, claim, plan.scale) | {"backend": backend, "study": study.name}
            row |= {"rule_of_runs": rule}
            if weakest := _weakest(own):
                place, finding = weakest
                deciding[about] = of_claim[place].key
                row |= _decided_row(study, own, of_claim, finding, repeats.get(about, ()))
            else:
                row |= {"verdict": "not run", "reason": f"no pairs of runs on {backend}"}
            rows.append(row)
    rows += [not_run(skipped, claim, plan.scale) for skipped in plan.skipped for claim in skipped.claims]
    if plan.checks is not None and checks is not None:
        rows += property_rows(plan.checks, checks, plan.scale)
    return Verdicts(pl.DataFrame(rows, schema=CLAIMS), findings, tuple(compared), deciding, repeats)


def decided(compared: Sequence[ClaimComparison]) -> pl.DataFrame:
    """The table `findings`: each comparison's estimate, corrected p-value and what it says.

    Holm's correction goes over the comparisons of a family on one backend; one without pairs counts with a
    p-value of 1.
    """
    families: dict[tuple[str, str], list[ClaimComparison]] = {}
    for one in compared:
        families.setdefault((one.condition.family, one.backend), []).append(one)
    adjusted = {
        id(one): corrected
        for family in families.values()
        for one, corrected in zip(family, holm([one.p_value for one in family]), strict=True)
    }
    rows = [
        _finding_row(one, adjusted[id(one)], len(families[one.condition.family, one.backend]))
        for one in compared
    ]
    return pl.DataFrame(rows, schema=FINDINGS)


def _finding_row(one: ClaimComparison, adjusted: float, family: int) -> dict[str, object]:
    condition = one.condition
    row: dict[str, object] = {
        "claim": one.key.claim,
        "backend": one.backend,
        "workload": one.key.workload,
        "metric": condition.metric,
        "which": reading(condition),
        "relation": condition.relation,
        "treated": one.key.treated,
        "control": one.control,
        "effect": one.effect,
        "margin": one.as_effect(one.margin if condition.relation == "better" else -one.margin),
        "family": condition.family,
        "seeds": len(one.gains),
        "finding": "open",
    }
    if not len(one.gains):
        return row
    effect, (low, high) = one.bounds, one.interval
    found = decide(one.question, low, adjusted, ALPHA, high)
    needed = seeds_needed(one.question, low, family, ALPHA, high) if found == "open" else None
    return row | {
        "estimate": effect.median,
        "low": effect.low,
        "high": effect.high,
        "level": effect.floor.level,
        "p_value": one.p_value,
        "holm_p_value": adjusted,
        "finding": found,
        "seeds_needed": needed,
    }


# --- claims --------------------------------------------------------------------------------------


def combined(findings: Sequence[Finding]) -> Verdict:
    """The verdict on a claim all of whose comparisons must hold.

    All hold: reproduced. Some hold and some fail: partly reproduced. All fail: not reproduced. Else some are
    open and further seeds could change the answer: underpowered.
    """
    kinds = set(findings)
    if kinds == {"holds"}:
        return "reproduced"
    if {"holds", "fails"} <= kinds:
        return "partly reproduced"
    return "not reproduced" if kinds == {"fails"} else "underpowered"


def _decided_row(
    study: StudyPlan,
    findings: pl.DataFrame,
    compared: Sequence[ClaimComparison],
    weakest: Mapping[str, object],
    repeats: Sequence[Repeat],
) -> dict[str, object]:
    """Verdict, reason and numbers of a claim with pairs of runs, for a row of the table `claims`.

    Args:
        findings: of the claim on a backend.
        compared: its comparisons, in the order of `findings`.
        weakest: the finding whose estimate, interval and p-value are the claim's.
    """
    verdict = combined(findings["finding"].to_list())
    reasons = [_reason(findings), *_censoring(findings, compared)]
    if verdict == "reproduced" and study.at_most_partly:
        verdict = "partly reproduced"
        reasons.append(f"partly at most, since {study.at_most_partly}")
    needed = findings.filter(pl.col("finding") == "open")["seeds_needed"]
    return {
        "verdict": verdict,
        "reason": "; ".join([*reasons, *map(str, repeats)]),
        **{name: weakest[name] for name in ("estimate", "low", "high")},
        "p_value": weakest["holm_p_value"],
        "seeds": findings["seeds"].min(),
        "seeds_needed": needed.max() if verdict == "underpowered" and not needed.has_nulls() else None,
    }


def _weakest(findings: pl.DataFrame) -> tuple[int, dict[str, object]] | None:
    """Place and finding of the comparison that decides; None where none has a pair.

    Of those that fail, else of those that are open, else of all, it is the one with the largest corrected
    p-value. As all must hold, that p-value is the claim's own (an intersection-union test).
    """
    for kind in ("fails", "open", "holds"):
        among = findings.with_row_index("place").filter(pl.col("finding") == kind, pl.col("seeds") > 0)
        if len(among):
            row = among.sort("holm_p_value", descending=True).row(0, named=True)
            return row.pop("place"), row
    return None


def _reason(findings: pl.DataFrame) -> str:
    said = {"holds": ("holds", "hold"), "fails": ("fails", "fail"), "open": ("is open", "are open")}
    if len(findings) == 1:
        return f"its one comparison {said[findings['finding'].item()][0]}"
    counts = {kind: int((findings["finding"] == kind).sum()) for kind in said}
    words = ", ".join(f"{count} {said[kind][count > 1]}" for kind, count in counts.items() if count)
    return f"of {len(findings)} comparisons {words}"


def _censoring(findings: pl.DataFrame, compared: Sequence[ClaimComparison]) -> Iterator[str]:
    """What runs that stopped keep from deciding, of each comparison that is open, in words."""
    for finding, one in zip(findings["finding"], compared, strict=True):
        if finding == "open" and one.censoring:
            about = (
                f"{one.key.treated} and {one.control} on {one.key.workload}: " if len(compared) > 1 else ""
            )
            yield about + one.censoring


def _empty_row(study: Deciding, claim: Claim, scale: str) -> dict[str, object]:
    return {
        "claim": claim.id,
        "variant": "",
        "source": claim.source,
        "scale": scale,
        "seeds": 0,
        "rule": study.rules[claim.id],
    }


def not_run(skipped: SkippedStudy, claim: Claim, scale: str) -> dict[str, object]:
    """The row of a claim whose study is left out."""
    return _empty_row(skipped, claim, scale) | {
        "study": skipped.name,
        "verdict": "not run",
        "reason": skipped.reason,
    }


def rule_of_runs(jobs: pl.DataFrame, claim: str, backend: str) -> str | None:
    """The hash of a claim's rule when its final runs were planned; None where they do not agree or say."""
    found = (
        jobs.filter((pl.col("stage") == "final") & (pl.col("backend") == backend))
        .select(
            pl.col("claim_rules")
            .list.eval(pl.element().filter(pl.element().struct.field("claim") == claim).struct.field("rule"))
            .list.first()
            .alias("rule")
        )["rule"]
        .unique()
    )
    return str(found[0]) if len(found) == 1 and found[0] is not None else None


# --- property checks -----------------------------------------------------------------------------


def property_rows(plan: ChecksPlan, checks: pl.DataFrame, scale: str) -> list[dict[str, object]]:
    """The rows of the claims that property checks decide, of the plan's claims without measures in the end.

    The estimate is the share of instances all of whose measures hold, with an exact interval (Clopper and
    Pearson) for the share of all instances that could be drawn.

    Args:
        plan: which claims there are.
        checks: the table `checks`.
        scale: the plan's.
    """
    about = {claim.id: claim for claim in plan.claims}
    rows: list[dict[str, object]] = []
    for (claim,), own in checks.group_by(["claim"], maintain_order=True):
        parts = own.group_by("part", "variant", maintain_order=True).agg(pl.col("holds").all())
        holding: dict[tuple[str, Variant], bool] = {
            (part, variant): holds for part, variant, holds in parts.rows()
        }
        capped = about[claim].at_most_partly
        for variant, verdict in verdicts(holding, capped).items():
            among = own.filter(
                pl.col("variant").is_in([variant] if variant != "as corrected" else ["", variant])
            )
            instances = among.group_by("part", "instance").agg(pl.col("holds").all())
            held, count = int(instances["holds"].sum()), len(instances)
            share = share_interval(held, count)
            first = own.row(0, named=True)
            rows.append(
                {
                    "claim": claim,
                    "variant": variant,
                    "verdict": verdict,
                    "reason": f"all measures hold on {held} of {count} instances"
                    + (f"; partly at most, since {capped}" if capped and held == count else ""),
                    "source": about[claim].source,
                    "scale": first["scale"],
                    "study": about[claim].file,
                    "estimate": held / count,
                    "low": share.low,
                    "high": share.high,
                    "seeds": count,
                    "rule": first["spec_hash"],
                    "rule_of_runs": first["spec_hash"],
                }
            )
    unmeasured = [claim for claim in plan.claims if claim.id not in set(checks["claim"])]
    reasons = {} if all(claim.missing for claim in unmeasured) else reasons_of(plan)
    return rows + [_unmeasured(claim, scale, reasons) for claim in unmeasured]


def _unmeasured(claim: ClaimPlan, scale: str, reasons: Mapping[str, str]) -> dict[str, object]:
    """The row of a claim that no measure is there of; `reasons` are those of claims and their modules."""
    failed = failed_check(claim, reasons)
    return {
        "claim": claim.id,
        "variant": "",
        "verdict": "not run",
        "reason": claim.missing or failed or "the tables hold no measure of it",
        "source": claim.source,
        "scale": scale,
        "study": claim.file,
        "seeds": 0,
    }
