"""Verdicts in words: rows of the tables `claims` and `findings` with what `verdicts.jinja` says of them.

The record has no sentence; pages, the terminal and the README of a published set get theirs from that
template, so that wording can be improved without touching a published set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

from curvebench.reports import rendering
from curvebench.reports.claims.censoring import EffectBounds, unknown_words
from curvebench.reports.failures import failed_check, reasons_of
from curvebench.reports.formatting import plain, ratio, signed
from curvebench.results.intervals import MedianInterval
from curvebench.spec.claim import Claim
from curvebench.spec.conditions.condition import ComparisonKey, Condition
from curvebench.spec.plan import ReportPlan, StudyPlan

Row = Mapping[str, Any]


say = partial(rendering.say, "verdicts.jinja")  # what a macro says


# --- comparisons ---------------------------------------------------------------------------------


def control_in_words(key: ComparisonKey, number: float | None) -> str:
    """Name what a method is compared with: a method, a method on another workload, or a number."""
    if key.control is None:
        return plain(number or 0.0)
    elsewhere = key.control_workload != key.workload
    return f"{key.control} on {key.control_workload}" if elsewhere else key.control


def requirement(effect: str, low: float, high: float) -> str:
    """Say which median effects a claim accepts: "at most 0.950"."""
    write = ratio if effect == "ratio" else signed
    if high == inf:
        return f"at least {write(low)}"
    open_below = low <= 0 if effect == "ratio" else low == -inf
    return f"at most {write(high)}" if open_below else f"{write(low)} to {write(high)}"


def comparison(row: Row, condition: Condition) -> dict[str, Any]:
    """Return a row of `findings` as pages show it: with its key, and with words for codes and numbers.

    Args:
        row: the row.
        condition: the condition of the claim that asks for it.
    """
    key = ComparisonKey(*(row[name] for name in ComparisonKey._fields))
    shown = interval = None
    if row["seeds"]:
        floor, ceiling = (
            MedianInterval(row[end], row["low"], row["high"], row["level"], row["seeds"])
            for end in ("at_least", "at_most")
        )
        unknown, words = row["unknown"] == row["seeds"], unknown_words(row["stop"], condition.undecided)
        shown, interval = EffectBounds(row["effect"], floor, ceiling, unknown, words).words
    found = {
        **row,
        "key": key._asdict(),
        "control": control_in_words(key, condition.number),
        "which": say("reading", condition),
        "of_tuning": condition.of_tuning,
        "positive_control": condition.positive_control if row["positive_control"] else None,
        "target": row["stop"] if condition.meets_targets else None,
        "shown": shown,
        "range": interval,
        "asks": requirement(row["effect"], row["allowed_low"], row["allowed_high"]),
        "choices": say("choices", row),
        "censoring": say("censoring", row, condition),
    }
    return found | {"further_seeds": say("seeds_for_comparison", found)}


# --- claims --------------------------------------------------------------------------------------


def reason(plan: ReportPlan, claim: Row, comparisons: Sequence[Row]) -> str:
    """Say why a claim has its verdict.

    Args:
        plan: the plan that has the claim.
        claim: its row of the table `claims`.
        comparisons: its comparisons on the row's backend, as `comparison` gives them.

    Raises:
        InputError: when the jobs of a property check that failed cannot be read.
    """
    why = {
        each["code"]: {**each, "because": _because(plan, claim, each["code"])} for each in claim["reasons"]
    }
    pair = ("treated", "control", "workload")
    censored = [
        one
        for one in _told_apart(comparisons, *pair, "censoring")
        if one["finding"] == "inconclusive" and one["censoring"]
    ]
    return say(
        "reason",
        claim,
        why,
        comparisons,
        _grouped(_at_start(comparisons), "method", "count", "workload", "at_equal"),
        _grouped(censored, "treated", "workload", "of", "censoring"),
        _told_apart(comparisons, *pair),
    )


def _because(plan: ReportPlan, claim: Row, code: str) -> str | None:
    """Return what plan and jobs say of a reason; None where its numbers say all."""
    checks = plan.checks
    about = next((one for one in (checks.claims if checks else ()) if one.id == claim["claim"]), None)
    if code == "left_out":
        return next(study.reason for study in plan.skipped if study.name == claim["study"])
    if code == "limited_scale":
        return (about or plan.study(claim["study"])).at_most_partly
    if about and checks and code in ("no_data", "failed"):
        return about.missing if code == "no_data" else failed_check(about, reasons_of(checks))
    return None


def _grouped(rows: Sequence[Row], *names: str) -> list[list[Row]]:
    """Return the rows in groups of the same values of these columns."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(groups.values())


def _at_start(comparisons: Sequence[Row]) -> list[Row]:
    """Return the sides that took no step at equal cost: `method`, the `other` one, and `count` pairs."""
    return [
        {**one, "method": one[side], "other": one[other], "count": one[f"{side}_at_start"]}
        for one in comparisons
        for side, other in (("treated", "control"), ("control", "treated"))
        if one[f"{side}_at_start"]
    ]


def _told_apart(comparisons: Sequence[Row], *names: str) -> list[Row]:
    """Add `of`, the value and metric of a comparison where another one has the same columns, else None."""
    about = [tuple(one[name] for name in names) for one in comparisons]
    return [
        {**one, "of": (one["which"], one["metric"]) if about.count(key) > 1 else None}
        for one, key in zip(comparisons, about, strict=True)
    ]


def agreement(claim: Row, comparisons: Sequence[Row], others: Sequence[tuple[Row, Sequence[Row]]]) -> str:
    """Say whether other backends lead to the same finding in each comparison of a claim; empty without one.

    Args:
        claim: its row of the table `claims`.
        comparisons: its comparisons.
        others: the rows of other backends, with their comparisons.
    """
    findings = [(one["key"], one["finding"]) for one in comparisons]
    told = [
        {**other, "alike": sum((one["key"], one["finding"]) in findings for one in theirs)}
        for other, theirs in others
    ]
    return say("agreement", claim["verdict"], len(comparisons), told)


def repeat(study: StudyPlan, claim: Claim, comparisons: Sequence[Row]) -> dict[str, Any]:
    """Return what became of a claim that was repeated in another setting.

    Args:
        study: the study that repeats it.
        claim: the claim that repeats.
        comparisons: its comparisons that have pairs in both studies, at least one.
    """
    flipped = [
        f"{one['treated']} and {one['control']}, {one['which']} {one['metric']} on {one['workload']}"
        for one in comparisons
        if not one["same_direction"]
    ]
    (first, *more) = comparisons
    return {
        "claim": claim.id,
        "changed": claim.changed,
        "study": study.name,
        "comparisons": len(comparisons),
        "reversed": flipped,
        "seeds": min(one["seeds"] for one in comparisons),
        "effect": "" if more else f"{first['shown']} {first['range']}",
    }
