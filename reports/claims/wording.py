"""Verdicts in words: rows of the tables `claims` and `findings`, with texts from `verdicts.jinja`.

The tables contain codes and numbers, no sentences. Pages, the terminal and the README of a published set take
the sentences from the template, so that the wording can be improved without changing published sets.

A row of `claims` is the verdict on one claim. A row of `findings` is one comparison of two methods (the
treated method and the control) that the claim requires, on one workload and backend.
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


# Function that calls a macro of `verdicts.jinja` and returns its text: say(NAME OF THE MACRO, ARGUMENTS).
say = partial(rendering.say, "verdicts.jinja")


# --- comparisons ---------------------------------------------------------------------------------


def control_in_words(key: ComparisonKey, number: float | None) -> str:
    """Return the label of the control: a method, a method on another workload, or a number.

    Args:
        key: labels of the methods and workloads of the comparison.
        number: number that the treated method is compared with; None if the control is a method.
    """
    if key.control is None:
        return plain(number or 0.0)
    elsewhere = key.control_workload != key.workload
    return f"{key.control} on {key.control_workload}" if elsewhere else key.control


def requirement(effect: str, low: float, high: float) -> str:
    """Return in words which median effects a claim accepts, such as "at most 0.950".

    Args:
        effect: "ratio" or "difference".
        low: smallest accepted effect. If there is none, it is 0 for a ratio and minus infinity for a
            difference.
        high: largest accepted effect; infinity if there is none.
    """
    write = ratio if effect == "ratio" else signed
    if high == inf:
        return f"at least {write(low)}"
    open_below = low <= 0 if effect == "ratio" else low == -inf
    return f"at most {write(high)}" if open_below else f"{write(low)} to {write(high)}"


def comparison(row: Row, condition: Condition) -> dict[str, Any]:
    """Add to a row of the table `findings` the texts that pages show in place of codes and numbers.

    Args:
        row: row of the table `findings`.
        condition: the condition of the claim that requires the comparison.

    Returns:
        The columns of the row, the comparison's key as the dictionary `key`, and texts such as
        `estimate_text` (the median effect) and `interval_text` (its interval). Both are None if the
        comparison has no pair of runs.
    """
    key = ComparisonKey(*(row[name] for name in ComparisonKey._fields))
    effect = effect_range = None
    if row["seeds"]:
        floor, ceiling = (
            MedianInterval(row[end], row["low"], row["high"], row["level"], row["seeds"])
            for end in ("at_least", "at_most")
        )
        unknown, words = row["unknown"] == row["seeds"], unknown_words(row["stop"], condition.undecided)
        effect, effect_range = EffectBounds(row["effect"], floor, ceiling, unknown, words).words
    described = {
        **row,
        "key": key._asdict(),
        "control": control_in_words(key, condition.number),
        "which": say("reading", condition),
        "of_tuning": condition.of_tuning,
        "where": condition.where,
        "positive_control": condition.positive_control if row["positive_control"] else None,
        "target": row["stop"] if condition.meets_targets else None,
        "estimate_text": effect,
        "interval_text": effect_range,
        "accepted_range": requirement(row["effect"], row["allowed_low"], row["allowed_high"]),
        "choices": say("choices", row),
        "search": say("search", {**row, "control": control_in_words(key, condition.number)}),
        "censoring": say("censoring", row, condition),
    }
    return described | {"further_seeds": say("seeds_for_comparison", described)}


# --- claims --------------------------------------------------------------------------------------


def reason(plan: ReportPlan, claim: Row, comparisons: Sequence[Row]) -> str:
    """Explain in words why a claim has its verdict.

    Args:
        plan: plan of the report that has the claim.
        claim: row of the claim in the table `claims`.
        comparisons: comparisons of the claim on the backend of this row, as `comparison` returns them.

    Raises:
        InputError: when the jobs of a property check that failed cannot be read.
    """
    why = {row["code"]: {**row, "because": _because(plan, claim, row["code"])} for row in claim["reasons"]}
    pair = ("treated", "control", "workload")
    censored = [
        row
        for row in _disambiguated(comparisons, *pair, "censoring")
        if row["finding"] == "inconclusive" and row["censoring"]
    ]
    without_steps = _grouped(_at_start(comparisons), "method", "count", "workload", "at_equal")
    bounded = _grouped(censored, "treated", "workload", "of", "censoring")
    return say("reason", claim, why, comparisons, without_steps, bounded, _disambiguated(comparisons, *pair))


def _because(plan: ReportPlan, claim: Row, code: str) -> str | None:
    """Return an explanation of one of the reasons of a verdict, from the plan or from the jobs.

    The result is None for a reason that the plan and the jobs do not explain.

    Args:
        plan: plan of the report that has the claim.
        claim: row of the claim in the table `claims`.
        code: code of the reason, such as "left_out".
    """
    checks = plan.checks
    checked = next((item for item in (checks.claims if checks else ()) if item.id == claim["claim"]), None)
    if code == "left_out":
        return next(study.reason for study in plan.skipped if study.name == claim["study"])
    if code == "limited_scale":
        return (checked or plan.study(claim["study"])).at_most_partly
    if checked and checks and code in ("no_data", "failed"):
        return checked.missing if code == "no_data" else failed_check(checked, reasons_of(checks))
    return None


def _grouped(rows: Sequence[Row], *names: str) -> list[list[Row]]:
    """Divide rows into groups with equal values in the columns `names`."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(groups.values())


def _at_start(comparisons: Sequence[Row]) -> list[Row]:
    """Return a row for each method that could take no step in some pairs of a comparison at equal cost.

    Returns:
        Rows with the columns of the comparison, the method as `method`, its opponent as `other`, and as
        `count` the number of pairs in which the method could take no step.
    """
    return [
        {**row, "method": row[arm], "other": row[opponent], "count": row[f"{arm}_at_start"]}
        for row in comparisons
        for arm, opponent in (("treated", "control"), ("control", "treated"))
        if row[f"{arm}_at_start"]
    ]


def _disambiguated(comparisons: Sequence[Row], *names: str) -> list[Row]:
    """Add the key `of` to comparisons, so that a text can distinguish comparisons with the same name.

    Args:
        names: columns with which the text names a comparison, such as treated, control and workload.

    Returns:
        The comparisons. If another comparison has the same values in the columns `names`, the key `of` is the
        pair of the columns which and metric. Otherwise it is None.
    """
    keys = [tuple(row[name] for name in names) for row in comparisons]
    return [
        {**row, "of": (row["which"], row["metric"]) if keys.count(key) > 1 else None}
        for row, key in zip(comparisons, keys, strict=True)
    ]


def agreement(claim: Row, comparisons: Sequence[Row], others: Sequence[tuple[Row, Sequence[Row]]]) -> str:
    """Return a text that says in how many comparisons other backends lead to the same finding.

    Args:
        claim: row of the claim in the table `claims`, for one backend.
        comparisons: comparisons of the claim on the backend of this row.
        others: for each other backend, the row of the claim and the comparisons on the other backend. Without
            other backends, the text is empty.
    """
    findings = [(row["key"], row["finding"]) for row in comparisons]
    compared = [
        {**claim_row, "alike": sum((row["key"], row["finding"]) in findings for row in rows)}
        for claim_row, rows in others
    ]
    return say("agreement", claim["verdict"], len(comparisons), compared)


def repeat(study: StudyPlan, claim: Claim, comparisons: Sequence[Row]) -> dict[str, Any]:
    """Describe the result of repeating a claim under changed circumstances, for the page of claims.

    Args:
        study: the study that repeats the claim.
        claim: the repeating claim.
        comparisons: the comparisons of the repeating claim that have pairs of runs both in `study` and in the
            study that decides the claim; at least one.
    """
    flipped = [
        f"{row['treated']} and {row['control']}, {row['which']} {row['metric']} on {row['workload']}"
        for row in comparisons
        if not row["same_direction"]
    ]
    (first, *more) = comparisons
    return {
        "claim": claim.id,
        "changed": claim.changed,
        "study": study.name,
        "comparisons": len(comparisons),
        "reversed": flipped,
        "seeds": min(row["seeds"] for row in comparisons),
        "effect": "" if more else f"{first['estimate_text']} {first['interval_text']}",
    }
