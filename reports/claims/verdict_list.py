"""`curvebench verdicts`: the verdict on every claim of a report, for people and for programs.

A comparison sets two methods (the treated method and the control) against each other on one workload, as a
claim requires. A subclaim is one sentence of a claim that property checks decide, with a finding of its own.
Backends are the libraries that execute runs (torch and jax).
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import polars as pl

from curvebench.reports import formatting, rendering
from curvebench.reports.claims import wording
from curvebench.reports.claims.checked import check_rows, parts_of
from curvebench.reports.claims.registration import Registration, decided_before, registered
from curvebench.reports.claims.rerun import claim_with_repeats, command_of
from curvebench.reports.claims.verdicts import Verdicts, claim_verdicts
from curvebench.reports.plan import claim_figure
from curvebench.reports.tables import tables_of
from curvebench.results.reading import read
from curvebench.results.schema import CLAIMS, VERDICTS
from curvebench.spec.claim import Claim
from curvebench.spec.plan import ClaimPlan, Publication, ReportPlan, StudyPlan
from curvebench.spec.sources import Sentence, Source, sentences_on, source_of

HEADS = ("claim", "verdict", "estimate [interval]", "p", "seeds", "why")
# Attributes of `ClaimVerdict` whose names differ from their column of the table `claims`, by the column.
NAMES = {"claim": "id", "p_value": "p"}
# Macros of `verdicts.jinja` that name the methods of a comparison, and the quantity that is compared.
NAMED = ("contest", "quantity")
MAX_REASONS = 3  # number of reasons in a row of the table, beside the cause
# Keys under which a comparison has texts: the median effect, its interval, and the accepted effects.
IN_WORDS = ("estimate_text", "interval_text", "accepted_range")
Rows = Sequence[Mapping[str, Any]]
Kind = Literal["training", "derivation"]
AskedBy = Literal["source", "us", "stand-in"]
# Groups in which claims are counted and filtered: attribute of `ClaimVerdict`, its value, and a label.
GROUPS: tuple[tuple[str, Kind | AskedBy, str], ...] = (
    ("asked_by", "source", "claims of the sources"),
    ("asked_by", "us", "questions of ours"),
    ("asked_by", "stand-in", "stand-ins"),
    ("kind", "training", "training claims"),
    ("kind", "derivation", "derivation checks"),
)


@dataclass(frozen=True, kw_only=True)
class ClaimVerdict:
    """A claim and its verdict, with everything that pages, the terminal and programs show of the claim.

    The defaults describe a claim that was not run. The JSON output for programs has all attributes from `id`
    to `command_with_repeats`; docs/reference/commands.md explains them. Only pages and the terminal use the
    attributes after `command_with_repeats`.

    Args:
        comparisons: comparisons on the claim's backend, as `curvebench.reports.claims.wording.comparison`
            returns them.
        deciding: the comparison from which the claim's estimate, interval and p-value come.
        plan: plan of the study that decides the claim; None if the claim was not run, or if property checks
            decide it.
        about: plan of the claim, if property checks decide it; None for a claim about runs.
        registration: when the limits of the claim were registered; None if that is not known.
        origin: origin of the published set that decides the claim; None for local runs.
        cost: expected cost of running the claim, in words.
        parts: rows of the subclaims of property checks, as `curvebench.reports.claims.checked.parts_of`
            returns them.
        figures: figures that the page of claims shows.
        folder: folder of the files of `figures`, relative to the site.
    """

    id: str
    sentence: str
    source: str
    study: str
    scale: str
    command: str
    reason: str
    variant: str = ""
    verdict: str = "not run"
    reasons: Rows = ()
    backend: str | None = None
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    seeds: int = 0
    seeds_needed: int | None = None
    rule: str | None = None
    rule_of_runs: str | None = None
    cause: str | None = None
    turns_in: str | None = None
    turns_at: float | None = None
    published: str = ""
    exploratory: str = ""
    registration: Registration | None = None
    further_seeds: str = ""
    agreement: str = ""
    figure: str | None = None
    comparisons: Rows = ()
    repeats: Rows = ()
    others: Rows = ()
    command_with_repeats: str | None = None
    deciding: Mapping[str, Any] | None = None
    plan: StudyPlan | None = None
    about: ClaimPlan | None = None
    origin: Publication | None = None
    cost: str = ""
    parts: Rows = ()
    figures: Rows = ()
    folder: str = ""

    @property
    def document(self) -> Source:
        """Source document that makes the claim."""
        return source_of(self.source)

    @property
    def kind(self) -> Kind:
        """Whether training runs or property checks decide the claim."""
        return "derivation" if self.study.endswith(".py") else "training"

    @property
    def sentences(self) -> Rows:
        """Sentences of the source documents that the claim decides: mappings with the keys of a paper file.

        If the claim is a stand-in, the sentences are about the larger problem that it replaces.
        """
        pairs = sentences_on(self.id)
        return [{"paper": number, **sentence.model_dump()} for number, sentence in pairs]

    @property
    def asked_by(self) -> AskedBy:
        """Whether a source makes the claim, or whether it is a question of this project.

        The third value, "stand-in", is for a question of this project about a smaller problem than the
        problem of the source.
        """
        if any(sentence["claim"] == self.id for sentence in self.sentences):
            return "source"
        return "stand-in" if self.sentences else "us"

    def named(self, sentence: Sentence) -> Rows:
        """Return the comparisons or subclaims that a sentence of a paper names.

        The result is empty if the sentence is about the whole claim.
        """
        rows = [(row["part"], row) for row in self.parts if row["variant"] in ("", self.variant)]
        rows += [(": ".join(wording.say(name, row) for name in NAMED), row) for row in self.comparisons]
        return [row for name, row in rows if any(part in name for part in sentence.parts)]

    def verdict_on(self, sentence: Sentence) -> str:
        """Return the verdict on a sentence that the claim decides.

        It is the claim's verdict, unless the sentence is about some parts of the claim only, and other parts
        are the reason why the claim is not reproduced.
        """
        rows = self.named(sentence)
        findings = {row["finding"] for row in rows}
        if not rows or "refuted" in findings or any(row.get("at_edge") for row in rows):
            return self.verdict
        if "inconclusive" in findings:
            return "underpowered"
        described = self.about or self.plan
        limited = "untested" in findings or bool(described and described.at_most_partly)
        return "partly reproduced" if limited else "reproduced"

    @property
    def page(self) -> str:
        """Address of the claim on the site."""
        return f"claims.html#claim-{formatting.slug(self.id)}"

    @property
    def as_printed(self) -> str | None:
        """Verdict on the claim as its source prints it; None if the source does not misprint the claim."""
        return next((row["verdict"] for row in self.others if row["variant"] == "as printed"), None)

    @property
    def depends_on_tuning(self) -> bool:
        """Whether the claim is underpowered, and a finding depends on the settings that tuning chooses."""
        return self.verdict == "underpowered" and any(item["choices"] for item in self.comparisons)

    @property
    def missed(self) -> Rows:
        """Rows of the subclaims with a measured value that violates its limit."""
        return [part for part in self.parts if part["missed"]]

    @property
    def for_programs(self) -> dict[str, Any]:
        """Values of the claim in the JSON output, by key."""
        names = [field.name for field in fields(self)]
        attributes = {name: getattr(self, name) for name in names[: names.index("deciding")]}
        of = self.deciding
        return attributes | {
            "registration": self.registration and asdict(self.registration),
            "page": self.page,
            "kind": self.kind,
            "asked_by": self.asked_by,
            "sentences": self.sentences,
            "missed": self.missed,
            "deciding": of and of["key"],
            "decided_by": of and wording.say("contest", of),
            **{name: of and of[name] for name in IN_WORDS},
        }


def read_verdicts(plan: ReportPlan) -> Verdicts:
    """Compute the verdicts on all claims of a plan from its tables.

    Raises:
        InputError: when a table is missing or damaged.
    """
    deciding = [study for study in plan.studies if study.claims or study.repeated]
    tables = {study.name: tables_of(study) for study in deciding}
    return claim_verdicts(plan, tables, check_rows(plan.checks) if plan.checks else None)


def verdicts_of(plan: ReportPlan) -> list[ClaimVerdict]:
    """Return the verdicts on all claims of a plan: computed for local runs, read for a published set.

    Raises:
        InputError: when a table is missing or damaged.
    """
    if plan.verdicts is None:
        computed = read_verdicts(plan)
        return listed(plan, computed.claims, computed.findings)
    return listed(plan, *(read([plan.verdicts / f"{name}.parquet"], name) for name in ("claims", "findings")))


def listed(plan: ReportPlan, claims: pl.DataFrame, findings: pl.DataFrame) -> list[ClaimVerdict]:
    """Return the verdicts on the claims of a plan from the tables `claims` and `findings`.

    The list has one verdict for each claim. If a claim was run on several backends, this is the verdict on
    the first backend of the study. If a source misprints a claim, this is the verdict on the corrected
    variant.

    Args:
        claims: the table `claims`. Rows of claims that are not in the plan are left out.
        findings: the table `findings`, with the comparisons of these claims.

    Raises:
        InputError: when a table of property checks is missing or damaged.
    """
    sentences, decided, compared = sentences_of(plan), _claims_by_id(plan), compared_of(plan, findings)
    studies = {study.name: study for study in plan.studies}
    checked = {claim.id: claim for claim in plan.checks.claims} if plan.checks else {}
    parts = parts_of(plan.checks.claims, check_rows(plan.checks)) if plan.checks else []
    costs = {claim.id: study.cost for study in plan.skipped for claim in study.claims}
    all_rows = claims.to_dicts()

    def comparisons_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
        return compared.get((row["claim"], row["backend"]), [])

    verdicts = []
    for row in all_rows:
        if row["claim"] not in sentences or row["variant"] == "as printed":
            continue
        if row["backend"] and row["backend"] != studies[row["study"]].backends[0]:
            continue
        name, comparisons = row["claim"], comparisons_of(row)
        others = [peer for peer in all_rows if peer["claim"] == name and _key(peer) != _key(row)]
        same_variant = [peer for peer in others if peer["backend"] and peer["variant"] == row["variant"]]
        elsewhere = [(peer, comparisons_of(peer)) for peer in same_variant]
        registration, unanimous = registered().get(name), _unanimous(row, comparisons)
        is_local = unanimous and not plan.published and row["study"] in studies
        verdicts.append(
            ClaimVerdict(
                **{NAMES.get(column, column): row[column] for column in CLAIMS},
                sentence=sentences[name],
                published=plan.published,
                reason=wording.reason(plan, row, comparisons),
                exploratory=wording.say(
                    *("exploratory", row, plan.published, registration, unanimous),
                    is_local and decided_before(studies[row["study"]], name),
                ),
                registration=registration,
                further_seeds=wording.say("seeds_for_claim", row["verdict"], comparisons),
                figure=claim_figure(name, row["study"], row["backend"])
                if any(peer["seeds"] for peer in comparisons)
                else None,
                comparisons=comparisons,
                repeats=[
                    wording.repeat(study, claim, repetitions)
                    for study, claim in decided.values()
                    if claim.repeats == name and (repetitions := compared.get((claim.id, row["backend"])))
                ],
                others=[{key: peer[key] for key in ("variant", "backend", "verdict")} for peer in others],
                agreement=wording.agreement(row, comparisons, elsewhere),
                command=command_of(name, plan),
                command_with_repeats=claim_with_repeats(name, plan),
                deciding=next((peer for peer in comparisons if peer["deciding"]), None),
                plan=studies.get(row["study"]),
                about=checked.get(name),
                origin=plan.origin,
                cost=costs.get(name, ""),
                parts=[part for part in parts if part["claim"] == name],
            )
        )
    return verdicts


def compared_of(plan: ReportPlan, findings: pl.DataFrame) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the comparisons of a plan's claims, with the texts that pages show.

    Args:
        findings: the table `findings`. Rows of claims that are not in the plan are left out.

    Returns:
        By pair (claim, backend), the comparisons of the claim on the backend, as `wording.comparison` returns
        them.
    """
    claims_by_id, compared = _claims_by_id(plan), dict[tuple[str, str], list[dict[str, Any]]]()
    for row in findings.iter_rows(named=True):
        if row["claim"] in claims_by_id:
            described = wording.comparison(row, claims_by_id[row["claim"]][1].conditions[row["condition"]])
            compared.setdefault((described.pop("claim"), described.pop("backend")), []).append(described)
    return compared


def _unanimous(row: Mapping[str, Any], comparisons: Rows) -> bool:
    """Return whether fresh seeds would be no new data, because all seeds or random instances agree.

    Args:
        row: row of the claim in the table `claims`.
        comparisons: comparisons of the claim; empty if property checks decide it.
    """
    if not comparisons:
        return row["estimate"] in (0.0, 1.0)
    return any(item["unanimous"] and item["finding"] != "inconclusive" for item in comparisons)


def _key(row: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the variant and the backend of a row of `claims`, which distinguish the rows of one claim."""
    return row["variant"], row["backend"]


def _claims_by_id(plan: ReportPlan) -> dict[str, tuple[StudyPlan, Claim]]:
    """Return the claims that studies of a plan decide or repeat, each with its study, by the claim's id."""
    return {claim.id: (study, claim) for study in plan.studies for claim in (*study.claims, *study.repeated)}


def unrun(plan: ReportPlan) -> list[ClaimVerdict]:
    """Return entries without a verdict for the claims that neither local runs nor a published set decides."""
    return [
        ClaimVerdict(**row.model_dump() | {"scale": plan.scale}, command=command_of(row.id, plan, row.scale))
        for row in plan.census
    ]


def sentences_of(plan: ReportPlan) -> dict[str, str]:
    """Return the sentence of each claim of a plan, by the claim's id."""
    of_studies = (claim for study in (*plan.studies, *plan.skipped) for claim in study.claims)
    sentences = {claim.id: claim.sentence for claim in of_studies}
    return sentences | {claim.id: claim.sentence for claim in (plan.checks.claims if plan.checks else ())}


def tally(verdicts: Sequence[ClaimVerdict]) -> list[tuple[str, str, str, Counter[str]]]:
    """Count the verdicts of each group of claims.

    Returns:
        Attribute, value and label of each group that has claims (`GROUPS`), with the number of claims by
        verdict.
    """
    counted = (
        (name, value, label, Counter(item.verdict for item in verdicts if getattr(item, name) == value))
        for name, value, label in GROUPS
    )
    return [group for group in counted if group[-1]]


def as_json(verdicts: Sequence[ClaimVerdict]) -> str:
    """Format the verdicts as JSON; infinite numbers and NaN, which JSON cannot express, become null."""
    plain = formatting.json_value([verdict.for_programs for verdict in verdicts])
    return json.dumps(plain, indent=1, ensure_ascii=False)


def as_text(verdicts: Sequence[ClaimVerdict], details: bool = False) -> str:
    """Format the verdicts as a table for people.

    Args:
        details: whether to print all reasons and the evidence for each claim below the table, and not the
            number of claims by group and verdict.
    """
    rows = [HEADS, *(_cells(verdict) for verdict in verdicts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS) - 1)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        why = textwrap.wrap(row[-1], 60, break_on_hyphens=False) or [""]
        lines.append("  ".join([*cells, why[0]]).rstrip())
        lines += [" " * (sum(widths) + 2 * len(widths)) + continuation for continuation in why[1:]]
    counts = () if details else tally(verdicts)
    lines += [""] * bool(counts)
    for _, _, label, verdict_counts in counts:
        numbers = (f"{verdict_counts[name]} {name}" for name in VERDICTS if verdict_counts[name])
        lines.append(f"{label}: {verdict_counts.total()} ({', '.join(numbers)})")
    for verdict in verdicts if details else ():
        head, *evidence = rendering.lines("verdicts.jinja", "details", verdict)
        lines += ["", head, *(f"  {line}" for line in (*_reasons(verdict), *evidence))]
    return "\n".join(lines)


def _cells(verdict: ClaimVerdict) -> tuple[str, ...]:
    """Return the cells of a claim's row in the table, in the order of the columns `HEADS`."""
    p_value = formatting.NONE if verdict.p is None else formatting.p_value(verdict.p)
    reasons = ["exploratory" if text.startswith("exploratory") else text for text in _reasons(verdict)]
    shown = MAX_REASONS + bool(verdict.cause)
    more = [f"and {len(reasons) - shown} more"] if len(reasons) > shown else []
    why = "; ".join([*reasons[:shown], *more])
    return verdict.id, verdict.verdict, wording.say("estimate", verdict), p_value, str(verdict.seeds), why


def _reasons(verdict: ClaimVerdict) -> list[str]:
    """Return all texts about a verdict: first the cause, then whether the claim is exploratory."""
    texts = [*filter(None, verdict.reason.split("; "))]
    texts += rendering.lines("verdicts.jinja", "other_reasons", verdict)
    return sorted(texts, key=lambda text: (not text.startswith("cause"), not text.startswith("exploratory")))
