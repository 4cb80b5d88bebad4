"""`curvebench verdicts`: the verdict on every claim of a report, for people and for programs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from curvebench.paths import PUBLISHED
from curvebench.reports import formatting
from curvebench.reports.claims import wording
from curvebench.reports.claims.page import check_rows, parts_of
from curvebench.reports.claims.rerun import claim_with_repeats, command_of
from curvebench.reports.claims.verdicts import Verdicts, claim_verdicts
from curvebench.reports.plan import claim_figure
from curvebench.reports.tables import tables_of
from curvebench.results.reading import read
from curvebench.results.schema import CLAIMS
from curvebench.results.verdicts import ALPHA
from curvebench.spec.claim import Claim
from curvebench.spec.plan import ReportPlan, StudyPlan

HEADS = ("claim", "verdict", "estimate [interval]", "p", "seeds", "why")
NAMES = {"claim": "id", "p_value": "p"}  # of columns, as programs get them
IN_WORDS = ("shown", "range", "asks")  # of the effect of a comparison


def read_verdicts(plan: ReportPlan) -> Verdicts:
    """Compute the verdicts on all claims of a plan from its tables.

    Raises:
        InputError: when a table is missing or damaged.
    """
    deciding = [study for study in plan.studies if study.claims or study.repeated]
    tables = {study.name: tables_of(study) for study in deciding}
    return claim_verdicts(plan, tables, check_rows(plan.checks) if plan.checks else None)


def verdicts_of(plan: ReportPlan) -> list[dict[str, Any]]:
    """Return the verdicts on all claims of a plan as `listed` does; those of a published set are read.

    Raises:
        InputError: when a table is missing or damaged.
    """
    if plan.verdicts is None:
        found = read_verdicts(plan)
        return listed(plan, found.claims, found.findings)
    return listed(
        plan, *(read([plan.verdicts / f"{table}.parquet"], table) for table in ("claims", "findings"))
    )


def detailed(plan: ReportPlan, verdicts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add `missed` to verdicts: the parts of a claim with a measure that misses, from the table `checks`.

    The parts are as `curvebench.reports.claims.page.parts_of` gives them.

    Raises:
        InputError: when a table is missing or damaged.
    """
    parts = parts_of(check_rows(plan.checks)) if plan.checks else []
    return [
        {**one, "missed": [part for part in parts if part["claim"] == one["id"] and part["missed"]]}
        for one in verdicts
    ]


def reproduce_command(claim: str, plan: ReportPlan) -> str:
    """What reruns a claim of a published set and sets both beside each other."""
    return f"curvebench sets reproduce {claim} --published {(PUBLISHED / plan.published).as_posix()}"


def leading(plan: ReportPlan, claims: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that speak for claims: of the study's first backend; where misprinted, as corrected.

    Args:
        claims: the table `claims`; rows of claims that the plan does not have are left out.
    """
    first = {study.name: study.backends[0] for study in plan.studies}
    lead = pl.col("backend").is_null() | (
        pl.col("backend") == pl.col("study").replace_strict(first, default=None, return_dtype=pl.String)
    )
    known = pl.col("claim").is_in(list(sentences_of(plan)))
    return claims.filter(known, lead, pl.col("variant") != "as printed")


def listed(plan: ReportPlan, claims: pl.DataFrame, findings: pl.DataFrame) -> list[dict[str, Any]]:
    """Return one object a claim in plain JSON types, as pages and the terminal show it.

    It has what the record has, in `comparisons` too, with words for codes and numbers
    (`curvebench.reports.claims.wording`), and how to run the claim again. docs/reference/commands.md
    explains the keys.

    Args:
        claims, findings: the tables.
    """
    sentences, about, compared = sentences_of(plan), _claims_by_id(plan), compared_of(plan, findings)
    every = claims.to_dicts()

    def own(row: Mapping[str, Any]) -> list[dict[str, Any]]:
        return compared.get((row["claim"], row["backend"]), [])

    verdicts = []
    for row in leading(plan, claims).iter_rows(named=True):
        others = [one for one in every if one["claim"] == row["claim"] and _key(one) != _key(row)]
        elsewhere = [(one, own(one)) for one in others if one["backend"] and one["variant"] == row["variant"]]
        deciding = next((one for one in own(row) if one["deciding"]), None)
        verdicts.append(
            {
                **{NAMES.get(name, name): value for name, value in row.items()},
                "sentence": sentences[row["claim"]],
                "published": plan.published,
                "reason": wording.reason(plan, row, own(row)),
                "exploratory": wording.exploratory(row),
                "further_seeds": wording.seeds_for_claim(row["verdict"], own(row)),
                "figure": claim_figure(row["claim"], row["study"], row["backend"])
                if any(one["seeds"] for one in own(row))
                else None,
                "comparisons": own(row),
                "repeats": [
                    wording.repeat(study, claim, again)
                    for name, (study, claim) in about.items()
                    if claim.repeats == row["claim"]
                    for again in [compared.get((name, row["backend"]))]
                    if again
                ],
                "others": [{name: one[name] for name in ("variant", "backend", "verdict")} for one in others],
                "agreement": wording.agreement(row, own(row), elsewhere),
                "page": _place(row["claim"]),
                "command": reproduce_command(row["claim"], plan)
                if plan.published
                else command_of(row["claim"], plan.scale, plan.folders),
                "command_with_repeats": claim_with_repeats(row["claim"], plan),
                "deciding": deciding and deciding["key"],
                "decided_by": deciding and wording.contest(deciding),
                **{name: deciding and deciding[name] for name in IN_WORDS},
            }
        )
    return verdicts


def compared_of(plan: ReportPlan, findings: pl.DataFrame) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the comparisons of a plan's claims as `wording.comparison` does, by claim and backend.

    Args:
        findings: the table; rows of claims that the plan does not have are left out.
    """
    about, compared = _claims_by_id(plan), dict[tuple[str, str], list[dict[str, Any]]]()
    for row in findings.iter_rows(named=True):
        if row["claim"] in about:
            shown = wording.comparison(row, about[row["claim"]][1].conditions[row["condition"]])
            compared.setdefault((shown.pop("claim"), shown.pop("backend")), []).append(shown)
    return compared


def _key(row: Mapping[str, Any]) -> tuple[str, str | None]:
    return row["variant"], row["backend"]


def _claims_by_id(plan: ReportPlan) -> dict[str, tuple[StudyPlan, Claim]]:
    """Return the claims that studies of a plan decide or repeat, each with its study."""
    return {claim.id: (study, claim) for study in plan.studies for claim in (*study.claims, *study.repeated)}


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
            "reasons": [],
            "exploratory": "",
            "agreement": "",
            "further_seeds": "",
            "comparisons": [],
            "repeats": [],
            "others": [],
            "page": _place(one.id),
            "command": command_of(one.id, one.scale or plan.scale, plan.folders),
        }
        for one in plan.census
    ]


def _place(claim: str) -> str:
    return f"claims.html#claim-{formatting.slug(claim)}"


def sentences_of(plan: ReportPlan) -> dict[str, str]:
    """What each claim of a plan says, by id."""
    of_studies = [*(study.claims for study in plan.studies), *(study.claims for study in plan.skipped)]
    sentences = {claim.id: claim.sentence for claims in of_studies for claim in claims}
    return sentences | {claim.id: claim.sentence for claim in (plan.checks.claims if plan.checks else ())}


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
        f"  {one['finding']:<12}  {wording.contest(one)}: {_quantity(one)}, "
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
    choices = _after(comparison["choices"])
    if comparison["beyond_seeds"]:
        return f"; runs that stopped leave it open, and more seeds would not decide it{choices}"
    for_it, against = (formatting.p_value(comparison[name]) for name in ("p_value", "refuting_p_value"))
    unasked = ", with a median that is not as asked" if comparison["p_value"] <= ALPHA and not choices else ""
    low, high, margin = (comparison[name] for name in ("low", "high", "margin"))
    spans = (
        f"; the interval spans the smallest effect, {formatting.number(margin)}"
        if low < margin < high
        else ""
    )
    further = _after(comparison["further_seeds"])
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
    why = verdict["reason"] + "".join(
        _after(wording.repeat_in_words(repeat)) for repeat in verdict["repeats"]
    )
    for one in verdict["comparisons"]:
        if one["key"] == verdict["deciding"]:
            why += f"; the estimate is of {wording.contest(one)}, {_quantity(one)}, of which the claim asks "
            why += one["asks"]
    why += _after(verdict["further_seeds"]) + _after(verdict["agreement"])
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
