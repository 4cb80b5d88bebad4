"""The verdict on every claim of a report, from paired runs or property checks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

import numpy as np
import polars as pl

from curvebench.reports.claims.censoring import Interval
from curvebench.reports.claims.checked import property_rows
from curvebench.reports.claims.comparison import Alternative, ClaimComparison, comparisons, tried_in
from curvebench.reports.claims.repeats import repeats_of
from curvebench.reports.statistics.decisions import (
    POWER,
    RESAMPLED,
    SEEDS,
    Finding,
    Question,
    decide,
    holm,
    seeds_needed,
)
from curvebench.reports.tables import Tables
from curvebench.results.intervals import median
from curvebench.results.schema import CLAIMS, FINDINGS
from curvebench.results.tuning import different_draws, shares_of_choices
from curvebench.results.verdicts import (
    ALPHA,
    KEPT,
    Verdict,
    choices_flip,
    reason,
)
from curvebench.spec.claim import Claim
from curvebench.spec.plan import Deciding, ReportPlan, StudyPlan

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
        for tried_of in (tried_in(study, tables[study.name]),)
        for backend in study.backends
        for claim in study.claims
        for one in comparisons(study, claim, tables[study.name], backend, tried_of)
    ]
    findings = decided(compared).with_row_index("place")
    rows, deciding = [], []
    for study in plan.studies:
        for backend, claim in product(study.backends, study.claims):
            own = findings.filter(claim=claim.id, backend=backend)
            row = _empty_row(study, claim, plan.scale) | {"backend": backend}
            row["rule_of_runs"] = rule_of_runs(tables[study.name].jobs, claim.id, backend)
            if weakest := _weakest(own):
                deciding.append(weakest["place"])
                row |= _decided_row(study, own, weakest)
            else:
                row["reasons"] = [reason("not_paired")]
            rows.append(row)
    rows += [
        _empty_row(study, claim, plan.scale) | {"reasons": [reason("left_out")]}
        for study in plan.skipped
        for claim in study.claims
    ]
    if plan.checks is not None and checks is not None:
        rows += property_rows(plan.checks, checks, plan.scale)
    findings = findings.with_columns(deciding=pl.col("place").is_in(deciding)).drop("place")
    repeats = [
        _effect_row(one) | {"same_direction": same} for one, same in repeats_of(plan, tables, compared)
    ]
    findings = pl.concat([findings, pl.DataFrame(repeats, schema=FINDINGS)])
    return Verdicts(pl.DataFrame(rows, schema=CLAIMS), findings, tuple(compared))


def decided(compared: Sequence[ClaimComparison]) -> pl.DataFrame:
    """The table `findings`: each comparison's estimate, its p-values and what it says.

    All comparisons of a claim must hold, so that each is supported by its own p-value (an intersection-union
    test), and one that is refuted refutes the claim, so that refutations are corrected by Holm's method. His
    correction of the p-values for the relation says which comparisons hold together.
    """
    claims: dict[tuple[str, str, bool], list[ClaimComparison]] = {}
    for one in compared:
        together = one.key.claim, one.backend, one.condition.positive_control is not None
        claims.setdefault(together, []).append(one)
    rows = {
        id(one): _finding_row(one, together, refuting, len(own))
        for own in claims.values()
        for one, together, refuting in zip(
            own, holm([one.p_value for one in own]), holm([one.refuting_p_value for one in own]), strict=True
        )
    }
    return pl.DataFrame([rows[id(one)] for one in compared], schema=FINDINGS)


def _finding_row(one: ClaimComparison, together: float, refuting: float, relations: int) -> dict[str, object]:
    row = _effect_row(one) | {"finding": "inconclusive"}
    if not len(one.gains):
        return row
    found, tuned = finding_of(one, refuting, relations)
    tuning_seeds = _tuning_seeds(one, tuned, refuting, relations)
    undecided = found == "inconclusive" and tuning_seeds is None
    return row | {
        "p_value": one.p_value,
        "holm_p_value": together,
        "refuting_p_value": refuting,
        "finding": found,
        "turned": _turned(one, refuting),
        "seeds_needed": _seeds(one, relations) if undecided else None,
        "tuning_seeds_needed": tuning_seeds,
        **tuned,
    }


def _effect_row(one: ClaimComparison) -> dict[str, object]:
    """Return what a row of `findings` has of a comparison before it is decided."""
    condition, (low, high) = one.condition, one.allowed
    row: dict[str, object] = {
        **one.key._asdict(),
        "backend": one.backend,
        "metric": condition.metric,
        "which": condition.which,
        "quantity": condition.quantity,
        "at_equal": condition.at_equal,
        "relation": condition.relation,
        "positive_control": condition.positive_control is not None,
        "effect": one.effect,
        "margin": one.as_effect(one.margin if condition.relation == "better" else -one.margin),
        "allowed_low": low,
        "allowed_high": high,
        "seeds": len(one.gains),
        "stop": one.stop,
        "beyond_seeds": one.beyond_seeds,
    }
    if not len(one.gains):
        return row
    effect = one.bounds
    return row | {
        "estimate": effect.median,
        "at_least": effect.floor.median,
        "at_most": effect.ceiling.median,
        "low": effect.low,
        "high": effect.high,
        "level": effect.level,
        "unknown": one.interval.unknown,
        "bounded": one.interval.bounded,
        "treated_at_start": one.treated_at_start,
        "control_at_start": one.control_at_start,
    }


def finding_of(one: ClaimComparison, refuting: float, relations: int) -> tuple[Finding, dict[str, Any]]:
    """What a comparison says, and how often other settings say the same as the chosen ones.

    Args:
        refuting: its p-value against the relation, corrected.
        relations: how many comparisons the claim rests on.
    """
    found = _at_chosen(one, refuting)
    tuned = _over_settings(one, found, relations)
    return ("inconclusive" if choices_flip(tuned) else found), tuned


def _at_chosen(one: ClaimComparison, refuting: float) -> Finding:
    """What a comparison says at the chosen settings."""
    low, high = one.interval
    return decide(one.question, low, refuting, ALPHA, high)


def _over_settings(one: ClaimComparison, found: Finding, relations: int) -> dict[str, Any]:
    """How often a comparison has the same finding at other settings that tuning may have chosen.

    Where none of them was run, nothing is known of that; where some were, the others count as disagreeing.
    Refutations are corrected by Bonferroni's method, since the other comparisons keep their settings.
    """
    others = one.alternatives
    not_run = sum(other.interval is None for other in others)
    tuned: dict[str, Any] = {"ties": sum(other.tied for other in others), "settings_not_run": not_run}
    matter = tuned["ties"] or sum(other.share for other in others) > 1 - KEPT
    if matter and not_run == len(others):
        return tuned
    same = _agreeing(one, found, relations)
    differing = sum(other.share for other in others) - sum(other.share for other in same)
    return tuned | {"ties_agree": sum(other.tied for other in same), "choices_agree": 1 - differing}


def _agreeing(one: ClaimComparison, found: Finding, relations: int) -> list[Alternative]:
    """The other settings at which a comparison says the same."""
    return [other for other in one.alternatives if _finding_at(other, one.question, relations) == found]


def _finding_at(other: Alternative, question: Question, relations: int) -> Finding | None:
    """What a comparison says at other settings; None where they were not run."""
    if other.interval is None:
        return None
    low, high = other.interval
    refuting = min(1.0, relations * question.refuting_p_value(low, high))
    return decide(question, low, refuting, ALPHA, high)


def _seeds(one: ClaimComparison, relations: int) -> int | None:
    """About how many pairs would decide an inconclusive comparison, at all settings that may be chosen.

    Studies are drawn from the pairs with replacement, the same pairs at all settings; the answer is the least
    size of `SEEDS` of which at least `POWER` are decided. None where no size would do, or settings have other
    pairs.
    """
    pairs = {len(other.interval.low) for other in one.alternatives if other.interval is not None}
    if not pairs:  # nothing is known of other settings
        low, high = one.interval
        return seeds_needed(one.question, low, relations, ALPHA, high)
    count = len(one.gains)
    if one.beyond_seeds or pairs != {count}:
        return None

    def decides(size: int) -> bool:
        drawn = np.random.default_rng(size).choice(count, (RESAMPLED, size))
        return bool(np.mean([_is_decided(one.of_pairs(places), relations) for places in drawn]) >= POWER)

    sizes = [size for size in SEEDS if size > count]
    least = bisect_left(sizes, True, key=decides)
    return sizes[least] if least < len(sizes) else None


def _is_decided(one: ClaimComparison, relations: int) -> bool:
    refuting = min(1.0, relations * one.refuting_p_value)  # as severe as Holm's method may be
    if _at_chosen(one, refuting) == "inconclusive":
        return False  # whatever the other settings say, which takes longer to find
    return finding_of(one, refuting, relations)[0] != "inconclusive"


def _tuning_seeds(
    one: ClaimComparison, tuned: Mapping[str, Any], refuting: float, relations: int
) -> int | None:
    """Return about how many tuning seeds would do where those that there are may choose other settings.

    That is the smallest size of `SEEDS` of which 95 % of the draws choose settings with the same finding, if
    further seeds are like those that are there. None for a comparison that is inconclusive for more than its
    choices, whose ties disagree, or for which no size would do.

    Args:
        tuned: how often other settings agree, as `finding_of` gives it.
    """
    if not one.tried or not choices_flip(tuned) or tuned["ties_agree"] < tuned["ties"]:
        return None
    if (found := _at_chosen(one, refuting)) == "inconclusive":
        return None  # however often they choose these settings again
    same = _agreeing(one, found, relations)
    agreeing = {tuple(each.chosen for each in one.tried), *(other.settings for other in same)}
    sizes = (size for size in SEEDS if size > max(each.seeds for each in one.tried))
    for size in sizes:
        drawn = shares_of_choices(one.tried, size)
        if sum(share for settings, share in drawn.items() if settings in agreeing) >= KEPT:
            return size
    return None


# --- claims --------------------------------------------------------------------------------------


def combined(findings: Sequence[Finding]) -> Verdict:
    """The verdict on a claim all of whose comparisons must hold.

    All supported: reproduced. One refuted: not reproduced. Else some are inconclusive: underpowered.
    """
    if "refuted" in findings:
        return "not reproduced"
    return "reproduced" if set(findings) == {"supported"} else "underpowered"


def _decided_row(
    study: StudyPlan, findings: pl.DataFrame, weakest: Mapping[str, object]
) -> dict[str, object]:
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


def _turned(one: ClaimComparison, refuting: float) -> int:
    """Count the settings that tie at which the effect of an open comparison has another direction.

    Effects whose direction is not known, because runs stopped, are not counted. 0 for a comparison that the
    chosen settings decide.
    """
    if _at_chosen(one, refuting) != "inconclusive":
        return 0
    chosen, ties = _direction(one.interval), [other.interval for other in one.alternatives if other.tied]
    known = [_direction(interval) for interval in ties if interval is not None]
    return sum(chosen is not None and each not in (chosen, None) for each in known)


def _direction(gains: Interval) -> float | None:
    """The sign of the median gain; None where it is not known."""
    low, high = (float(np.sign(median(end))) for end in gains)
    return low if low == high else None


def _empty_row(study: Deciding, claim: Claim, scale: str) -> dict[str, object]:
    return {
        "claim": claim.id,
        "variant": "",
        "verdict": "not run",
        "source": claim.source,
        "scale": scale,
        "study": study.name,
        "seeds": 0,
        "rule": study.rules[claim.id],
    }


def rule_of_runs(jobs: pl.DataFrame, claim: str, backend: str) -> str | None:
    """The hash of a claim's rule when its final runs were planned; None where they do not agree or say."""
    planned = jobs.filter(pl.col("claim_rules").list.len() > 0, backend=backend)["claim_rules"].to_list()
    found = {next((one["rule"] for one in rules if one["claim"] == claim), None) for rules in planned}
    return found.pop() if len(found) == 1 else None
