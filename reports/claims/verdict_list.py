"""`curvebench verdicts`: the verdict on every claim of a report, for people and for programs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import polars as pl
import polars.selectors as cs

from curvebench.reports import formatting
from curvebench.reports.claims import further_seeds
from curvebench.reports.claims.comparison import ClaimComparison, threshold_of
from curvebench.reports.claims.page import check_rows, parts_of
from curvebench.reports.claims.repeats import in_words
from curvebench.reports.claims.rerun import claim_with_repeats, command_of
from curvebench.reports.claims.verdicts import Verdicts, choices_in_words, claim_verdicts
from curvebench.reports.plan import claim_figure
from curvebench.reports.rendering import read_made
from curvebench.reports.tables import tables_of
from curvebench.results.schema import CLAIMS
from curvebench.results.verdicts import ALPHA
from curvebench.spec.claim import ComparisonKey
from curvebench.spec.plan import ReportPlan
from curvebench.spec.sets import FOLDER

HEADS = ("claim", "verdict", "estimate [interval]", "p", "seeds", "why")
NAMES = {"claim": "id", "p_value": "p"}  # of columns, as programs get them
IN_WORDS = ("shown", "range", "asks")  # of the effect of a comparison


def read_verdicts(plan: ReportPlan) -> Verdicts:
    """The verdicts on all claims of a plan, from its tables.

    Raises:
        InputError: when a table is missing or damaged.
    """
    deciding = [study for study in plan.studies if study.claims or study.repeated]
    tables = {study.name: tables_of(study) for study in deciding}
    return claim_verdicts(plan, tables, check_rows(plan.checks) if plan.checks else None)


def verdicts_of(plan: ReportPlan) -> list[dict[str, Any]]:
    """The verdicts on all claims of a plan as `listed` gives them; of a published set those that it holds.

    Raises:
        InputError: when a table or the set's file of verdicts is missing or damaged.
    """
    if plan.verdicts is None:
        return listed(plan, read_verdicts(plan))
    claims = sentences_of(plan)
    held = formatting.numbers_of(read_made(plan.verdicts, "sets publish"))
    return [one for one in held if one["id"] in claims]


def detailed(plan: ReportPlan, verdicts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The verdicts of a plan with what no set holds, from its tables and conditions.

    `missed` has the parts of a claim with a measure that misses, as
    `curvebench.reports.claims.page.parts_of` gives
    them. `target` of a comparison is the study's target that it counts steps to, where its condition has no
    value of its own, which `which` names; None of other quantities.

    Raises:
        InputError: when a table is missing or damaged.
    """
    parts = parts_of(check_rows(plan.checks)) if plan.checks else []
    conditions = {claim.id: (study, claim.conditions) for study in plan.studies for claim in study.claims}

    def target(comparison: Mapping[str, Any]) -> float | None:
        key = comparison["key"]
        study, own = conditions[key["claim"]]
        condition = own[key["condition"]]
        counts = condition.counted == "steps_to_target" and condition.target is None
        return threshold_of(study, condition, key["workload"]) if counts else None

    return [
        {
            **one,
            "comparisons": [{**each, "target": target(each)} for each in one["comparisons"]],
            "missed": [part for part in parts if part["claim"] == one["id"] and part["missed"]],
        }
        for one in verdicts
    ]


def reproduce_command(claim: str, plan: ReportPlan) -> str:
    """What reruns a claim of a published set and sets both beside each other."""
    return f"curvebench sets reproduce {claim} --published {(FOLDER / plan.published).as_posix()}"


def leading(plan: ReportPlan, claims: pl.DataFrame) -> pl.DataFrame:
    """The rows that speak for a claim: on its study's first backend, and where misprinted as corrected.

    Args:
        claims: the table `claims`.
    """
    first = {study.name: study.backends[0] for study in plan.studies}
    lead = pl.col("backend").is_null() | (
        pl.col("backend") == pl.col("study").replace_strict(first, default=None, return_dtype=pl.String)
    )
    return claims.filter(lead & (pl.col("variant") != "as printed"))


def listed(plan: ReportPlan, found: Verdicts) -> list[dict[str, Any]]:
    """One object a claim in plain JSON types: its verdict, what it rests on, and how to run it again.

    `published` is the set that it is of, empty for what was run here.

    `estimate` is None where runs that stopped leave the median effect open; `low` and `high` are then the
    ends of its interval with the least and the greatest effects that may be. `shown` and `range` say it in
    words, of a claim that comparisons decide and of each comparison, where `at_least` and `at_most` bound the
    median. A comparison has its `key`; `deciding` is the key of the one that the estimate is of, which
    `decided_by` names, and `asks` says what the claim asks of its median effect; `beyond_seeds` tells that no
    number of seeds would decide a comparison, and `tuning_seeds_needed` about how many tuning seeds would,
    where what others choose says otherwise.

    `figure` is a path from the site's folder, None where no comparison is drawn. `others` holds the verdict
    as printed, where a statement is misprinted, and those on other backends; `repeats` what became of the
    claim in other settings.
    """
    rows = _without_enums(leading(plan, found.claims))
    others = _without_enums(found.claims).join(
        rows, on=["claim", "variant", "backend"], how="anti", nulls_equal=True
    )
    sentences = sentences_of(plan)
    compared: dict[tuple[str, str], dict[ComparisonKey, dict[str, Any]]] = {}
    findings = _without_enums(found.findings).to_dicts()
    for finding, one, tuning_seeds in zip(findings, found.comparisons, found.tuning_seeds, strict=True):
        about = finding.pop("claim"), finding.pop("backend")
        needed = {"tuning_seeds_needed": tuning_seeds}
        compared.setdefault(about, {})[one.key] = finding | _effect_of(one) | needed
    verdicts = []
    for row in rows.iter_rows(named=True):
        about = row["claim"], row["backend"]
        own, key = compared.get(about, {}), found.deciding.get(about)
        deciding = own[key] if key else {}
        verdicts.append(
            {
                **{NAMES.get(name, name): value for name, value in row.items()},
                "sentence": sentences[row["claim"]],
                "published": plan.published,
                "exploratory": exploratory(row),
                "figure": claim_figure(row["claim"], row["study"], row["backend"])
                if any(one["seeds"] for one in own.values())
                else None,
                "comparisons": list(own.values()),
                "repeats": [
                    {**asdict(repeat), "reversed": list(repeat.reversed)}
                    for repeat in found.repeats.get(about, ())
                ],
                "others": others.filter(claim=row["claim"])
                .select("variant", "backend", "verdict")
                .to_dicts(),
                "agreement": _agreement(row, others, compared),
                "page": _place(row["claim"]),
                "command": reproduce_command(row["claim"], plan)
                if plan.published
                else command_of(row["claim"], plan.scale, plan.folders),
                "command_with_repeats": claim_with_repeats(row["claim"], plan),
                "deciding": deciding.get("key"),
                "decided_by": contest(deciding) if deciding else None,
                **{name: deciding.get(name) for name in IN_WORDS},
                "beyond_seeds": any(
                    one["finding"] == "inconclusive" and one["beyond_seeds"] for one in own.values()
                ),
                "tuning_seeds_needed": max(
                    (one["tuning_seeds_needed"] or 0 for one in own.values()), default=0
                )
                or None,
            }
        )
    return verdicts


def unrun(plan: ReportPlan) -> list[dict[str, Any]]:
    """The claims that are decided nowhere, in the form of `listed`."""
    unknown = (*(NAMES.get(name, name) for name in CLAIMS), *IN_WORDS)
    unknown = (*unknown, "figure", "command_with_repeats", "deciding", "decided_by")
    return [
        {
            **dict.fromkeys(unknown),
            **one.model_dump(exclude={"cost"}),
            "variant": "",
            "scale": plan.scale,
            "verdict": "not run",
            "seeds": 0,
            "published": "",
            "exploratory": "",
            "agreement": "",
            "comparisons": [],
            "repeats": [],
            "others": [],
            "beyond_seeds": False,
            "tuning_seeds_needed": None,
            "page": _place(one.id),
            "command": command_of(one.id, one.scale or plan.scale, plan.folders),
        }
        for one in plan.census
    ]


def exploratory(row: Mapping[str, Any]) -> str:
    """Say why the runs of a row of `claims` may have suggested its rule; empty where they have not."""
    if not row["seeds"] or row["rule_of_runs"] == row["rule"]:
        return ""
    if row["rule_of_runs"] is not None:
        return "the rule was changed after the runs were planned"
    return "its runs were planned without this claim, or under several rules" if row["backend"] else ""


def _agreement(
    row: Mapping[str, Any],
    others: pl.DataFrame,
    compared: Mapping[tuple[str, str], Mapping[ComparisonKey, Mapping[str, Any]]],
) -> str:
    """Whether other backends say the same of each comparison of a claim; empty where there is none.

    They run at the same rates and on the same instances: that is a check of the backends, not of the claim.
    """
    found = others.filter(claim=row["claim"], variant=row["variant"]).drop_nulls("backend")
    own = compared.get((row["claim"], row["backend"]), {})
    said, missing = [], []
    for backend, verdict in found.select("backend", "verdict").iter_rows():
        theirs = compared.get((row["claim"], backend), {})
        alike = sum(one["finding"] == theirs[key]["finding"] for key, one in own.items() if key in theirs)
        if verdict == "not run":
            missing.append(backend)
        elif verdict != row["verdict"]:
            said.append(f"{backend} says {verdict}")
        else:
            said.append(
                f"{backend} agrees" + ("" if alike == len(own) else f" in {alike} of {len(own)} parts")
            )
    words = [", ".join(said) + " at the same rates"] if said else []
    return ", ".join([*words, *(f"no pairs of runs on {backend}" for backend in missing)])


def _place(claim: str) -> str:
    return f"claims.html#claim-{formatting.slug(claim)}"


def _effect_of(one: ClaimComparison) -> dict[str, Any]:
    """The key of a comparison and what is known of its median effect, in numbers and words."""
    found: dict[str, Any] = {"key": one.key._asdict()}
    if not len(one.gains):
        unknown = dict.fromkeys(("at_least", "at_most", *IN_WORDS))
        return found | unknown | {"beyond_seeds": False}
    bounds = one.bounds
    shown, interval = bounds.words
    return found | {
        "at_least": bounds.floor.median,
        "at_most": bounds.ceiling.median,
        "shown": shown,
        "range": interval,
        "asks": one.asks,
        "beyond_seeds": one.beyond_seeds,
    }


def contest(comparison: Mapping[str, Any]) -> str:
    """A comparison in words: `adam @ egop / adam on digits_mlp`; with − where its effect is a difference."""
    sign = "/" if comparison["effect"] == "ratio" else "−"
    treated, control, where = comparison["treated"], comparison["control"], f"on {comparison['workload']}"
    elsewhere = comparison["key"]["control_workload"] not in (None, comparison["workload"])
    return f"{treated} {where} {sign} {control}" if elsewhere else f"{treated} {sign} {control} {where}"


def sentences_of(plan: ReportPlan) -> dict[str, str]:
    """What each claim of a plan says, by id."""
    of_studies = [*(study.claims for study in plan.studies), *(study.claims for study in plan.skipped)]
    sentences = {claim.id: claim.sentence for claims in of_studies for claim in claims}
    return sentences | {claim.id: claim.sentence for claim in (plan.checks.claims if plan.checks else ())}


def _without_enums(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with its enums as text."""
    return frame.with_columns(cs.enum().cast(pl.String))


def as_json(verdicts: list[dict[str, Any]]) -> str:
    """The list for programs; what is infinite or not a number is null, which JSON can say."""
    return json.dumps(formatting.json_value(verdicts), indent=1, ensure_ascii=False)


def as_text(verdicts: list[dict[str, Any]], details: bool = False) -> str:
    """The list for people, as `detailed` gives it: a table, and with details what each claim rests on."""
    rows = [HEADS, *(_cells(verdict) for verdict in verdicts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS) - 1)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        why = textwrap.wrap(row[-1], 60, break_on_hyphens=False) or [""]
        lines.append("  ".join([*cells, why[0]]).rstrip())
        lines += [" " * (sum(widths) + 2 * len(widths)) + more for more in why[1:]]
    return "\n".join([*lines, *(_detail(verdict) for verdict in verdicts if details)])


def _detail(verdict: dict[str, Any]) -> str:
    """A claim's sentence, what each comparison found, of what, and what is asked; and what missed."""
    lines = [
        f"  {one['finding']:<12}  {contest(one)}: {_quantity(one)}, "
        f"{one['shown'] or formatting.NONE} {one['range'] or ''}, asks {one['asks']}{_why_open(one)}"
        for one in verdict["comparisons"]
    ]
    lines += [f"  {'missed':<12}  {_missed(part)}" for part in verdict["missed"]]
    return "\n".join(["", f"{verdict['id']}: {verdict['sentence']} ({verdict['source']})", *lines])


def _quantity(comparison: Mapping[str, Any]) -> str:
    """What a comparison is of: "steps until 0.1 is reached by the best test loss"."""
    words = f"{comparison['which']} {formatting.metric_name(comparison['metric'])}"
    target = comparison["target"]
    return words if target is None else f"{words} (target {formatting.plain(target)})"


def _why_open(comparison: Mapping[str, Any]) -> str:
    """Why a comparison is inconclusive; empty of others."""
    if comparison["finding"] != "inconclusive":
        return ""
    if not comparison["seeds"]:
        return "; no pairs of runs"
    words = choices_in_words(comparison)
    choices = _after(words)
    if comparison["beyond_seeds"]:
        return f"; runs that stopped leave it open, and more seeds would not decide it{choices}"
    for_it, against = (formatting.p_value(comparison[name]) for name in ("p_value", "refuting_p_value"))
    unasked = ", with a median that is not as asked" if comparison["p_value"] <= ALPHA and not words else ""
    low, high, margin = (comparison[name] for name in ("low", "high", "margin"))
    spans = (
        f"; the interval spans the smallest effect, {formatting.number(margin)}"
        if low < margin < high
        else ""
    )
    further = _after(further_seeds.of_comparison(comparison))
    return f"; p {for_it} for it{unasked}, {against} against it{spans}{choices}{further}"


def _after(words: str) -> str:
    """Words as the next part of a reason; nothing where there are none."""
    return f"; {words}" if words else ""


def _missed(part: Mapping[str, Any]) -> str:
    """A part that missed, with its worst measure: value and limit."""
    name = f"{part['part']} ({part['variant']})" if part["variant"] else part["part"]
    sign = {"<=": "≤", ">=": "≥", "==": "="}[part["relation"]]
    tolerance = f" ± {formatting.rate(part['tolerance'])}" if part["tolerance"] else ""
    return (
        f"{name}: {part['missed']:,} of {part['measures']:,} measures; the worst, {part['quantity']}: "
        f"{formatting.number(part['value'], 4)}, limit {sign} {formatting.plain(part['limit'])}{tolerance}"
    )


def _cells(verdict: dict[str, Any]) -> tuple[str, ...]:
    estimate = formatting.number(verdict["estimate"])
    if verdict["estimate"] is None and verdict["shown"]:
        estimate = f"{verdict['shown']} {verdict['range']}"
    elif verdict["low"] is not None:
        estimate += f" {formatting.interval(verdict['low'], verdict['high'])}"
    why = verdict["reason"] + "".join(_after(in_words(repeat)) for repeat in verdict["repeats"])
    for one in verdict["comparisons"]:
        if one["key"] == verdict["deciding"]:
            why += f"; the estimate is of {contest(one)}, {_quantity(one)}, of which the claim asks "
            why += one["asks"]
    why += _after(further_seeds.of_claim(verdict)) + _after(verdict["agreement"])
    why += "".join(
        f"; as printed {one['verdict']}" for one in verdict["others"] if one["variant"] == "as printed"
    )
    if verdict["published"]:
        why += f"; of the set {verdict['published']}, scale {verdict['scale']}"
    elif verdict["verdict"] != "not run":
        why += f"; run here, scale {verdict['scale']}"
    if verdict["exploratory"]:
        why += f"; exploratory: {verdict['exploratory']}"
    p_value = formatting.NONE if verdict["p"] is None else formatting.p_value(verdict["p"])
    return verdict["id"], verdict["verdict"], estimate, p_value, str(verdict["seeds"]), why
