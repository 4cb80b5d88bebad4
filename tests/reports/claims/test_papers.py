"""Verdicts on sentences of papers: what the claims say of them, and their pages."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from curvebench.__main__ import main
from curvebench.commands.claims import ONLY
from curvebench.paths import PUBLISHED
from curvebench.property_checks.checks import claims_by_id
from curvebench.reports.claims.page import NOT_HERE, OPEN, paper_page
from curvebench.reports.claims.verdict_list import GROUPS, ClaimVerdict, as_text, tally, verdicts_of
from curvebench.results.archive import read_archive
from curvebench.results.schema import VERDICTS
from curvebench.spec.sources import Paper, Sentence, papers
from tests.reports.changing import replace
from tests.reports.conftest import Report
from tests.reports.pages.reading import Page

SENTENCES = [sentence for paper in papers().values() for sentence in paper.sentences]


@cache
def published() -> dict[str, ClaimVerdict]:
    return {claim.id: claim for plan in read_archive(PUBLISHED) for claim in verdicts_of(plan)}


def test_every_part_of_a_sentence_names_a_part_of_its_claim():
    known = [sentence for sentence in SENTENCES if sentence.parts and sentence.claim in published()]
    assert len(known) > 150
    for sentence in known:
        claim = published()[sentence.claim]
        for part in sentence.parts:
            assert claim.named(replace(sentence, parts=(part,))), f"{claim.id}: {part}"


def test_parts_of_property_claims_are_those_of_today():
    claims = {name: claim for name, (_, claim) in claims_by_id().items()}
    for sentence in SENTENCES:
        names = [check.part for check in claims[sentence.claim].checks] if sentence.claim in claims else ()
        for part in sentence.parts if names else ():
            assert any(part in name for name in names), f"{sentence.claim}: {part}"


def test_a_sentence_is_the_whole_claim_only_if_it_says_no_part():
    claim = published()["egop.digits-mlp"]
    accuracy, whole = (Sentence(place="", quote="", tested="x", claim=claim.id, parts=parts) for parts in
                       (("test accuracy",), ("no such part",)))  # fmt: skip
    assert claim.verdict == "not reproduced"
    assert claim.verdict_on(accuracy) == "partly reproduced", "the digits are reduced data"
    assert claim.verdict_on(whole) == "not reproduced"


def part(name: str, finding: str, variant: str = "") -> dict[str, Any]:
    return {"part": name, "finding": finding, "variant": variant, "missed": 0}


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        (["good"], "reproduced"),
        (["good", "bad"], "not reproduced"),
        (["good", "open"], "underpowered"),
        (["far"], "partly reproduced"),
        (["misprint"], "reproduced"),
        (["bad", "open"], "not reproduced"),
    ],
)
def test_the_verdict_on_parts_follows_from_their_findings(parts: list[str], verdict: str):
    claim = replace(
        published()["egop.equivariance"],
        verdict="not reproduced",
        variant="as corrected",
        parts=[
            part("good", "supported"), part("bad", "refuted"), part("open", "inconclusive"),
            part("far", "untested"), part("misprint", "refuted", "as printed"),
            part("misprint", "supported", "as corrected"),
        ],
    )  # fmt: skip
    sentence = Sentence(place="", quote="", tested="x", claim=claim.id, parts=tuple(parts))
    assert claim.verdict_on(sentence) == verdict


def test_a_claim_at_an_edge_of_a_search_keeps_its_verdict_for_each_part():
    claim = published()["egop.convex"]
    sentence = next(one for one in SENTENCES if one.claim == claim.id and one.parts)
    assert claim.verdict_on(sentence) == "reproduced"
    at_edge = [{**row, "at_edge": ["adam"]} for row in claim.comparisons]
    edge = replace(claim, verdict="depends on search", comparisons=at_edge)
    assert edge.verdict_on(sentence) == "depends on search"


def test_claims_of_sources_questions_of_ours_and_stand_ins_are_counted_apart():
    counts = {label: (value, total) for _, value, label, total in tally([*published().values()])}
    asked, kinds = (
        ("claims of the sources", "questions of ours", "stand-ins"),
        ("training claims", "derivation checks"),
    )
    for labels in (asked, kinds):
        assert sum(counts[label][1].total() for label in labels) == len(published())
    assert counts["stand-ins"] == ("stand-in", counts["stand-ins"][1])
    ours = {claim.id for claim in published().values() if claim.asked_by == "us"}
    assert {"egop.convex-at-equal-gradients", "symo.train-linear-constant"} <= ours
    assert ours.isdisjoint(sentence.claim for sentence in SENTENCES)
    few = [published()[name] for name in ("egop.convex", "egop.equivariance", "spectral.vit-small")]
    assert as_text(few).splitlines()[-4:] == [
        "claims of the sources: 2 (2 reproduced)",
        "stand-ins: 1 (1 not reproduced)",
        "training claims: 2 (1 reproduced, 1 not reproduced)",
        "derivation checks: 1 (1 reproduced)",
    ]


def test_the_command_prints_each_group_alone(capsys: pytest.CaptureFixture[str]):
    assert [value for _, value, _ in GROUPS] == [*ONLY]
    for only in (("us",), ("source", "training"), ("stand-in", "derivation")):
        words = [word for value in only for word in ("--only", value)]
        assert (
            main(["verdicts", "--plan", str(PUBLISHED / "spectral-vit-small.2026-11-26"), "--json", *words])
            == 0
        )
        names = [claim["id"] for claim in json.loads(capsys.readouterr().out)]
        assert names == [], only
    assert main(["verdicts", "--only", "source", "--only", "training", "egop.convex"]) == 0
    assert "at-equal-gradients" not in capsys.readouterr().out


def test_programs_get_the_words_and_the_number_of_the_source():
    given = published()["symo.factor-momentum"].for_programs
    assert (given["kind"], given["asked_by"]) == ("derivation", "source")
    first = given["sentences"][0]
    assert (first["paper"], first["reported"]) == ("004", "0.5")
    assert first["quote"].startswith("Without momentum")


@pytest.mark.parametrize("number", papers())
def test_each_sentence_is_decided_open_or_not_decidable_here(number: str):
    page = paper_page(papers()[number], published())
    assert page["counts"].keys() <= {*VERDICTS, OPEN, NOT_HERE}
    assert sum(page["counts"].values()) == len(page["rows"]) == len(papers()[number].sentences)
    undecided = {OPEN, NOT_HERE, "underpowered"}
    assert page["decided"] == sum(row["verdict"] not in undecided for row in page["rows"])
    for row in page["rows"]:
        if row["verdict"] == OPEN:
            assert row["sentence"].open, "a claim is published, or it cannot be decided here"


def test_a_claim_that_was_not_run_leaves_its_sentence_open_or_not_decidable_here():
    claim = replace(published()["egop.convex"], verdict="not run")
    for not_here, verdict in (("", OPEN), ("the source timed a supercomputer", NOT_HERE)):
        sentence = Sentence(place="", quote="", tested="x", claim=claim.id, not_here=not_here)
        paper = Paper(key="", name="", title="", sentences=(sentence,))
        for claims in ({}, {claim.id: claim}):
            assert [row["verdict"] for row in paper_page(paper, claims)["rows"]] == [verdict]
        decided = paper_page(paper, {claim.id: replace(claim, verdict="reproduced")})
        assert decided["counts"] == {"reproduced": 1}


def test_each_paper_has_a_page_with_its_sentences_and_claims_lead_to_it(report: Report):
    claims = Page(report.site / "claims.html")
    links = set(claims.values("href"))
    shown = {number: papers()[number] for number in ("000", "001", "002")}  # with claims in the report
    assert {path.name for path in report.site.glob("paper_*")} == {f"paper_{number}.html" for number in shown}
    for number, paper in shown.items():
        page = Page(report.site / f"paper_{number}.html")
        assert len(page.values("data-verdict")) >= len(paper.sentences)
        text = " ".join(page.text.split())
        assert all(f"“{' '.join(sentence.quote.split())}”" in text for sentence in paper.sentences)
        assert f"paper_{number}.html" in links
