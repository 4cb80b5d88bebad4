"""Verdicts on the claims of a report, from the findings of comparisons or from property checks.

A finding (supported, refuted or inconclusive) is the result of one comparison of two methods; a verdict (such
as reproduced or underpowered) is the result of a claim, which may require many comparisons. A pair consists
of two runs with the same seed, one of each method. Tuning runs choose the settings (learning rates and other
options) of the final runs, which are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, get_args

import numpy as np
import polars as pl

from curvebench.reports.claims.causes import run_cause
from curvebench.reports.claims.checked import property_rows, row_of
from curvebench.reports.claims.comparison import ClaimComparison, comparisons, outcome_lookup
from curvebench.reports.claims.findings import DEPENDS_ON_SEARCH, decided, effect_row
from curvebench.reports.claims.repeats import repeats_of
from curvebench.reports.statistics.decisions import Finding
from curvebench.reports.statistics.ranks import NEGLIGIBLE
from curvebench.reports.tables import Tables, tables_of
from curvebench.results.schema import CLAIMS, FINDINGS
from curvebench.results.tuning import MethodSearch, different_draws, limits_of, search_lookup
from curvebench.results.verdicts import Verdict, by_domain, over_domains, reason
from curvebench.spec.claim import Claim
from curvebench.spec.method import Method
from curvebench.spec.plan import ReportPlan, StudyPlan

# Minimum number of tuning seeds for the criterion that a finding is the same for 95 % of their resamples.
# With fewer seeds, a single resample can have a probability of more than 5 %.
# The criterion of 95 % is too coarse for fewer tuning seeds.
FEWEST_TUNING_SEEDS = 5
ARMS = ("treated", "control")  # the two methods of a comparison


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on claims, with the comparisons from which they follow.

    Args:
        claims: the table `claims`, one row per claim, variant and backend.
        findings: the table `findings`, one row per comparison. Comparisons of claims that repeat another
            claim come last.
        comparisons: the comparisons in the order of `findings`, except the comparisons of repeating claims.
    """

    claims: pl.DataFrame
    findings: pl.DataFrame
    comparisons: tuple[ClaimComparison, ...]


def claim_verdicts(plan: ReportPlan, tables: Mapping[str, Tables], checks: pl.DataFrame | None) -> Verdicts:
    """Decide all claims of a plan, and return their verdicts with the comparisons from which they follow.

    Args:
        plan: the studies, skipped studies and property checks whose claims are decided.
        tables: tables of each study, by the name of the study.
        checks: measures of property checks, as `check_rows` returns them; None if the plan has no property
            checks.
    """
    compared = [
        comparison
        for study in plan.studies
        if study.claims
        for outcome_of in (outcome_lookup(study, tables[study.name]),)
        for backend in study.backends
        for claim in study.claims
        for comparison in comparisons(study, claim, tables[study.name], backend, outcome_of)
    ]
    compared = with_limits(plan, tables, compared)
    findings = decided(compared).with_row_index("place")
    rows, deciding = [], []
    for study in plan.studies:
        for backend, claim in product(study.backends, study.claims):
            claim_findings = findings.filter(claim=claim.id, backend=backend)
            row = row_of(claim, study.name, plan.scale) | {"backend": backend, "rule": study.rules[claim.id]}
            row["rule_of_runs"] = rule_of_runs(tables[study.name].jobs, claim.id, backend)
            judged = _judged(claim, tables[study.name].jobs, claim_findings)
            if weakest := _weakest(judged) or _weakest(claim_findings):
                deciding.append(weakest["place"])
                row |= _decided_row(study, claim, tables[study.name], claim_findings, judged, weakest)
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
    repeats = [effect_row(row) | {"same_direction": same} for row, same in repeats_of(plan, tables, compared)]
    findings = pl.concat([findings, pl.DataFrame(repeats, schema=FINDINGS)])
    return Verdicts(pl.DataFrame(rows, schema=CLAIMS), findings, tuple(compared))


def combined(findings: Sequence[Finding], at_edge: Sequence[bool] = ()) -> Verdict:
    """Return the verdict on a claim from the findings of all comparisons that the claim requires.

    The claim is reproduced if all comparisons are supported. It is not reproduced if at least one comparison
    is refuted. Otherwise it is underpowered. If a supported comparison may depend on the search for settings,
    or all refuted ones may, the claim is neither reproduced nor refuted: it depends on the search.

    Args:
        findings: finding of each comparison.
        at_edge: whether each comparison may depend on the search; empty if none may.
    """
    found = {*zip(findings, at_edge or [False] * len(findings), strict=True)}
    if ("refuted", False) in found:
        return "not reproduced"
    if "refuted" in findings:
        return "depends on search"
    if set(findings) != {"supported"}:
        return "underpowered"
    return "depends on search" if ("supported", True) in found else "reproduced"


def _judged(claim: Claim, jobs: pl.DataFrame, findings: pl.DataFrame) -> pl.DataFrame:
    """Return the comparisons that decide a claim, without positive controls.

    If the runs were made on another kind of machine than the source timed, comparisons of seconds do not
    decide the claim.

    Args:
        jobs: the table `jobs` of the claim's study.
        findings: the claim's rows of the table `findings` on one backend.
    """
    relations = findings.filter(~pl.col("positive_control"))
    devices = jobs.filter(pl.col("backend").is_in(findings["backend"].unique().to_list()))["device"]
    if not claim.hardware or (devices == claim.hardware).all():
        return relations
    by_clock = [claim.conditions[place].by_clock for place in relations["condition"]]
    return relations.filter(~pl.Series(by_clock, dtype=pl.Boolean))


def _decided_row(
    study: StudyPlan,
    claim: Claim,
    tables: Tables,
    findings: pl.DataFrame,
    judged: pl.DataFrame,
    weakest: Mapping[str, Any],
) -> dict[str, object]:
    """Return the verdict on a claim, with its reasons and numbers, by column of the table `claims`.

    At least one comparison of the claim must have a pair of runs. If comparisons of seconds do not decide the
    claim because of the machine (`_judged`), and no other comparison refutes it, its verdict is "not run".

    Args:
        tables: tables of the study.
        findings: the claim's rows of the table `findings` on one backend.
        judged: the rows of `findings` that decide the claim, as `_judged` returns them.
        weakest: the row of `findings` whose estimate, interval and p-value stand for the claim, as `_weakest`
            returns it.
    """
    relations, controls = findings.filter(~pl.col("positive_control")), findings.filter("positive_control")
    other_hardware = len(judged) < len(relations)
    wheres = (claim.conditions[place].where for place in judged["condition"])
    at_edge = judged.select(DEPENDS_ON_SEARCH).to_series().to_list()
    domains = by_domain(zip(wheres, zip(judged["finding"], at_edge, strict=True), strict=True))
    verdict, reasons_where = over_domains(
        {name: combined([one for one, _ in part], [at for _, at in part]) for name, part in domains.items()}
    )
    limits = list(_limits(study, findings))
    unmet = int((controls["finding"] != "supported").sum())
    if unmet:
        verdict = "underpowered"
    if verdict in ("reproduced", "reproduced where") and limits:
        verdict = "partly reproduced"
    if other_hardware and verdict != "not reproduced":
        verdict = "not run"
    counts = {kind: int((relations["finding"] == kind).sum()) for kind in get_args(Finding)}
    reasons = [reason(kind, count, len(relations)) for kind, count in counts.items() if count]
    if unmet:
        reasons.append(reason("control_unmet", unmet, len(controls)))
    for kind, count in judged["reach"].drop_nulls().value_counts(sort=True).iter_rows():
        reasons.append(reason(kind, count, len(relations)))
    if any(at_edge):
        reasons.append(reason("at_edge", sum(at_edge), len(relations)))
    if other_hardware:
        reasons.append(reason("other_hardware", names=[claim.hardware]))
    reasons += reasons_where
    needed = relations.filter(pl.col("finding") == "inconclusive")["seeds_needed"]
    decidable = verdict == "underpowered" and not unmet and not needed.has_nulls()
    return {
        "verdict": verdict,
        "reasons": reasons if verdict == "underpowered" else [*reasons, *limits],
        **{name: weakest[name] for name in ("estimate", "low", "high")},
        "p_value": weakest["refuting_p_value" if weakest["finding"] == "refuted" else "p_value"],
        "seeds": findings["seeds"].min(),
        "seeds_needed": needed.max() if decidable else None,
        **run_cause(study, claim, tables, verdict, judged),
    }


def _weakest(findings: pl.DataFrame) -> dict[str, Any] | None:
    """Return the row of the comparison that decides the claim; None if no comparison has a pair of runs.

    If some comparisons are refuted, the result is the refuted comparison with the smallest corrected p-value
    against the claimed relation, if possible one that does not depend on the search for settings. Otherwise,
    if some comparisons are inconclusive, it is the inconclusive comparison with the largest p-value for the
    relation. Otherwise it is the supported comparison with the largest p-value for the relation. Positive
    controls are left out.

    Args:
        findings: the claim's rows of the table `findings` on one backend.
    """
    paired = findings.filter(~pl.col("positive_control"), pl.col("seeds") > 0)
    for kind in ("refuted", "inconclusive", "supported"):
        order = [-pl.col("p_value")]
        if kind == "refuted":
            order = [DEPENDS_ON_SEARCH, pl.col("refuting_p_value")]
        for row in paired.filter(finding=kind).sort(order).head(1).to_dicts():
            return row
    return None


def _limits(study: StudyPlan, findings: pl.DataFrame) -> Iterator[dict[str, object]]:
    """Yield the reasons why runs can reproduce a claim only partly, even if all findings support the claim.

    Args:
        findings: the claim's rows of the table `findings` on one backend.
    """
    if study.at_most_partly:
        yield reason("limited_scale")
    decided_findings = findings.filter(pl.col("finding") != "inconclusive")
    unknown = decided_findings.filter(pl.col("ties_agree").is_null())["settings_not_run"].drop_nulls()
    if not_run := max(unknown.to_list(), default=0):
        yield reason("settings_not_run", not_run)
    tuned = findings.filter(pl.col("ties").is_not_null()).select("treated", "control").to_dict()
    methods = {method for arm in tuned.values() for method in arm.drop_nulls()}
    optimizers = (study.optimizer(Method.of(method).optimizer) for method in methods)
    chooses = any(study.tuning.for_optimizer(optimizer).trials > 1 for optimizer in optimizers)
    if chooses and study.seeds.tuning < FEWEST_TUNING_SEEDS:
        yield reason("few_tuning_seeds", study.seeds.tuning, different_draws(study.seeds.tuning))


def rule_of_runs(jobs: pl.DataFrame, claim: str, backend: str) -> str | None:
    """Return the hash that a claim's decision rule had when its final runs were planned.

    Args:
        jobs: the table `jobs` of the claim's study.
        claim: id of the claim.
        backend: backend of the claim's runs.

    Returns:
        The hash; None if the jobs on this backend have different hashes, or if no job recorded a hash.
    """
    planned = jobs.filter(pl.col("claim_rules").list.len() > 0, backend=backend)["claim_rules"].to_list()
    hashes = {next((entry["rule"] for entry in rules if entry["claim"] == claim), None) for rules in planned}
    return hashes.pop() if len(hashes) == 1 else None


# --- limits of searches -----------------------------------------------------------------------------


def with_limits(
    plan: ReportPlan, tables: Mapping[str, Tables], compared: Sequence[ClaimComparison]
) -> list[ClaimComparison]:
    """Add to comparisons the limits of the searches in which tuning chose the settings of the two methods.

    A search has a limit if a chosen value is the lowest or highest value tried, or if another study found a
    better setting inside the search. The other studies are the studies of the plan, and the studies of the
    published sets that the report shows.

    Args:
        plan: the studies.
        tables: tables of each study, by the name of the study.
        compared: comparisons of claims of these studies.
    """
    studies = [(study, partial(_runs, tables, study)) for study in plan.studies]
    studies += [(one, partial(_runs, {}, one)) for archived in plan.archive for one in archived.studies]
    comparable_to = search_lookup(studies)
    deciding = {comparison.study for comparison in compared if comparison.tuning_sources}
    found = {study.name: [*comparable_to(study)] for study in plan.studies if study.name in deciding}
    return [
        replace(one, at_edge=tuple(_search_limits(plan.study(one.study), one, found[one.study])))
        if one.tuning_sources
        else one
        for one in compared
    ]


def _runs(tables: Mapping[str, Tables], study: StudyPlan) -> pl.DataFrame:
    read = tables.get(study.name)
    return (tables_of(study) if read is None else read).runs


def _search_limits(
    study: StudyPlan, comparison: ClaimComparison, found: Sequence[MethodSearch]
) -> Iterator[dict[str, Any]]:
    """Yield the limits of the searches of both arms, items of the column `at_edge` of the table `findings`.

    A better setting that another study found is a limit only if it may change the finding. A better setting
    of the treated method cannot do so if this method is already as good as claimed, and a better setting of
    the control cannot do so if it is not.

    Args:
        study: the study of the comparison.
        found: searches of the study and of other studies for the same methods on the same problems.
    """
    question, share = comparison.question, comparison.condition.smallest_effect or NEGLIGIBLE
    behind = "control" if question.satisfied_by(float(np.median(comparison.gains))) else "treated"
    matter = ARMS if question.relation == "same" else (behind,)
    own = {search.key: search for search in found if search.study is study}
    of_arms = [own.get(source) for source in comparison.tuning_sources]
    for arm, search, rival in zip(ARMS, of_arms, reversed(of_arms), strict=False):
        if search:
            for limit in limits_of(search, rival, found if arm in matter else (), share):
                yield {"arm": arm, **limit}
