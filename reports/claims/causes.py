"""Causes of verdicts: why a claim is not reproduced, and at which margin, target or limit it would be.

A claim is refuted by comparisons of two methods, or by measured numbers that violate a limit. The cause is a
code of `curvebench.spec.claim.Cause`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, log
from typing import Any, NamedTuple

import polars as pl

from curvebench.reports.claims.comparison import comparisons
from curvebench.reports.claims.findings import DEPENDS_ON_SEARCH, is_supported
from curvebench.reports.claims.quantities import recorded
from curvebench.reports.statistics.ranks import NEGLIGIBLE, tied
from curvebench.reports.tables import Tables
from curvebench.results.verdicts import NEARLY_HELD, Verdict
from curvebench.spec.claim import Claim
from curvebench.spec.plan import ClaimPlan, StudyPlan

# Factors by which targets are changed to find a target at which a claim holds, the smallest changes first.
# Only for the first two factors the target counts as the cause.
FACTORS = tuple(10.0 ** (sign * half / 2) for half in range(1, 5) for sign in (1, -1))
# Causes of the verdicts that have only one possible cause, by verdict.
# `turns_in` is the choice that would have to change for another verdict.
OF_VERDICT: Mapping[Verdict, Mapping[str, str]] = {
    "reproduced where": {"cause": "unstated_setting", "turns_in": "setting"},
    "depends on search": {"cause": "rival", "turns_in": "setting"},
}


def run_cause(
    study: StudyPlan, claim: Claim, tables: Tables, verdict: Verdict, findings: pl.DataFrame
) -> Mapping[str, Any]:
    """Return the cause of the verdict on a claim about runs, and the change that would lead to another one.

    The result has the columns cause, turns_in and turns_at of the table `claims`: the code of the cause, the
    kind of number that would have to change (such as "margin"), and the value at which the verdict changes.

    Args:
        study, claim, tables: the claim, its study, and tables of the study.
        verdict: verdict on the claim.
        findings: rows of the table `findings` on one backend that decide the claim.
    """
    if verdict != "not reproduced":
        open_findings = findings.filter(finding="inconclusive")
        at_once = len(open_findings) > 0 and not open_findings["reach"].has_nulls()
        by_verdict = {"not run": "other_hardware", "underpowered": "saturated" if at_once else None}
        return OF_VERDICT.get(verdict, {"cause": by_verdict.get(verdict)})
    # A refuted comparison that depends on the search for settings does not refute the claim.
    refuted = findings.filter(~DEPENDS_ON_SEARCH, finding="refuted")
    if all(_at_floor(tables, row) for row in refuted.iter_rows(named=True)):
        return {"cause": "saturated"}
    misses = list(filter(None, map(_miss, refuted.iter_rows(named=True))))
    turns: dict[str, Any] = {}
    near = len(misses) == len(refuted) and all(miss.near for miss in misses)
    if len(misses) == len(refuted):
        # Each comparison would hold at another margin. All of them would hold at the furthest margin.
        turns = {"turns_in": "margin", "turns_at": max(misses).effect}
    elif factor := _factor_that_turns(study, claim, tables, refuted):
        turns = {"turns_in": "target", "turns_at": factor * refuted["stop"][0]}
        near = factor in FACTORS[:2]
    cause = "other_data" if study.at_most_partly else "threshold" if near else "contradicts"
    return {"cause": cause, **turns}


def _at_floor(tables: Tables, row: Mapping[str, Any]) -> bool:
    """Return whether both methods of a comparison end at a value that the treated method cannot improve.

    The median effect is then negligible. The value is a floor or a stop of the study, or most runs of the
    treated method change by a negligible amount in the second half of their steps.

    Args:
        tables: tables of the study.
        row: a row of the table `findings`.
    """
    effect = row["estimate"]
    if row["quantity"] != "value" or effect is None or not tied(effect + (row["effect"] != "ratio"), 1.0):
        return False
    if row["stop"] is not None:
        return True
    cell = {"workload": row["workload"], "method": row["treated"], "backend": row["backend"]}
    runs = tables.runs.filter(stage="final", **cell)
    early = pl.col("value").filter(pl.col("step") <= pl.col("step").max() / 2).last()
    ends = recorded(tables, runs, row["metric"]).group_by("run").agg(pl.col("value").last(), early=early)
    return len(ends) > 0 and float(tied(ends["value"], ends["early"]).mean()) > 0.5


class Miss(NamedTuple):
    """How far a refuted comparison is from its margin.

    Args:
        change: absolute logarithm of the factor between the median gain and the margin.
        effect: the median effect, which is the margin at which the comparison would hold.
        near: whether the comparison fails only because of the size of the margin. If the claim says that the
            treated method is better, the method gains at least the margin divided by `NEARLY_HELD`.
            Otherwise, the two methods differ by at most `NEARLY_HELD` times the margin.
    """

    change: float
    effect: float
    near: bool


def _miss(row: Mapping[str, Any]) -> Miss | None:
    """Return how far a row of the table `findings` is from its margin.

    The result is None if the comparison would not hold at any margin. This is the case if the effect is a
    tie, is opposite to the claim, or is known only by bounds.
    """
    effect, gain = row["estimate"], log if row["effect"] == "ratio" else float
    if not effect or not isfinite(effect):
        return None
    factor = gain(effect) / gain(row["margin"])
    if row["relation"] == "better":
        is_gain = factor > 0 and abs(gain(effect)) > NEGLIGIBLE
        return Miss(abs(log(factor)), effect, factor >= 1 / NEARLY_HELD) if is_gain else None
    return Miss(log(abs(factor)), effect, abs(factor) <= NEARLY_HELD)


def _factor_that_turns(study: StudyPlan, claim: Claim, tables: Tables, refuted: pl.DataFrame) -> float | None:
    """Return the factor of targets at which all refuted comparisons would hold, as close to 1 as possible.

    The steps to the changed targets are read from the curves.

    Args:
        refuted: the refuted comparisons on one backend, rows of the table `findings`.

    Returns:
        The factor; None if a comparison counts no steps to a target, or no factor in `FACTORS` suffices.
    """
    if refuted["quantity"].unique().to_list() != ["steps_to_target"]:
        return None
    for factor in FACTORS:
        conditions = [
            claim.conditions[row["condition"]].model_copy(
                update={
                    row["relation"]: (row["treated"],),
                    "compared_to": (row["control"],),
                    "workload": row["workload"],
                    "target": factor * row["stop"],
                }
            )
            for row in refuted.iter_rows(named=True)
        ]
        changed = claim.model_copy(update={"conditions": conditions})
        # Read the steps of one comparison after the other, and stop at the first that does not hold.
        if all(map(is_supported, comparisons(study, changed, tables, refuted["backend"][0]))):
            return factor
    return None


def limit_cause(
    claim: ClaimPlan, verdict: Verdict, misprint: bool, measures: pl.DataFrame
) -> Mapping[str, Any]:
    """Return the cause of the verdict on a property claim, and the limit at which the claim would hold.

    The result has the columns cause, turns_in and turns_at of the table `claims`: the code of the cause, the
    kind of number that would have to change ("limit"), and the value of this number.

    Args:
        claim: the claim.
        verdict: verdict on the claim, or on a variant of it.
        misprint: whether the variant is the statement as its source misprints it.
        measures: measures of the subclaims of the variant, as `curvebench.reports.claims.checked.check_rows`
            returns them.
    """
    if verdict != "not reproduced":
        return OF_VERDICT.get(verdict, {})
    # Shares are infinite if the limit is 0, so that the distance from the limit decides among them.
    distance = (pl.col("value") - pl.col("limit")).abs()
    worst = measures.filter(~pl.col("holds")).sort("share", distance, descending=True).row(0, named=True)
    slack = {"<=": -1, ">=": 1, "==": 0}[worst["relation"]] * worst["tolerance"]
    cause = "contradicts"
    if not misprint:
        # A limit between 1 and 2 is that of a ratio, and 1 means no effect. The excess counts from there.
        most = min(NEARLY_HELD, worst["limit"]) if worst["limit"] > 1 and slack else NEARLY_HELD
        near = "threshold" if worst["share"] <= most else cause
        cause = claim.cause or ("other_data" if claim.at_most_partly else near)
    turns = {"turns_in": "limit", "turns_at": worst["value"] + slack} if isfinite(worst["value"]) else {}
    return {"cause": cause, **turns}
