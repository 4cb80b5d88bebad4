"""The page of claims: all of them with verdicts, what those rest on, and figures."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.reports.claims.checked import check_measured, check_rows, parts_of, property_rows
from curvebench.reports.claims.page import claims_page
from curvebench.reports.claims.verdict_list import as_text, listed, read_verdicts, unrun, verdicts_of
from curvebench.results.schema import VERDICTS
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ChecksPlan, UnrunClaim
from tests.reports.changing import replace
from tests.reports.conftest import Report, site_of
from tests.reports.pages.reading import Page
from tests.reports.synthetic import CLAIMS, HOSTILE, INSTANCES, write_plan

REGRET, MISPRINT, _ = CLAIMS


def test_a_part_is_told_by_its_worst_measure(checks: ChecksPlan):
    rows = check_rows(checks)
    assert rows["share"].min() == 0
    parts = {(part["part"], part["variant"]): part for part in parts_of(checks.claims, rows)}
    assert list(parts) == [
        *(("gradient descent", ""), ("full AdaGrad", ""), ("an identity", "")),
        *(("a bound <u>b</u>", "as printed"), ("a bound <u>b</u>", "as corrected")),
        *(("an inequality", ""), (HOSTILE, "")),
    ]
    adagrad = parts["full AdaGrad", ""]
    assert (adagrad["instances"], adagrad["measures"], adagrad["missed"]) == (INSTANCES, 2 * INSTANCES, 0)
    assert adagrad["quantity"] == "regret over its bound"
    assert adagrad["seconds"] == pytest.approx(0.002 * INSTANCES), "an instance counts once"
    printed, corrected = parts["a bound <u>b</u>", "as printed"], parts["a bound <u>b</u>", "as corrected"]
    assert printed["value"] == printed["share"] == pytest.approx(1.1 * corrected["value"])
    assert printed["finding"] == "refuted"
    assert corrected["finding"] == "supported"
    nothing = parts["an inequality", ""]
    assert nothing["share"] == float("inf"), "what is not a number is the worst"
    assert nothing["missed"] == INSTANCES


def codes(row: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the reasons of a row of `claims`, with their counts and names."""
    return {each["code"]: (each["count"], each["of"], each["names"]) for each in row["reasons"]}


@pytest.fixture
def page(report: Report) -> dict[str, Any]:
    return claims_page(verdicts_of(report.plan), ())


def with_claim(checks: ChecksPlan, name: str, **changes: Any) -> ChecksPlan:
    """Return the checks with some of what the plan says of one claim replaced."""
    claims = (replace(one, **changes) if one.id == name else one for one in checks.claims)
    return replace(checks, claims=tuple(claims))


STUDIES = ("egop.digits_mlp", "egop.convex", "egop.fashion")


def test_all_claims_are_in_one_list_with_their_documents_and_counts(page: dict[str, Any]):
    assert [claim.id for claim in page["claims"]] == [*STUDIES, *CLAIMS]
    assert [document.numbers for document in page["documents"]] == [("000", "001"), ("002",)]
    counts = {"reproduced": 4, "not reproduced": 1, "not run": 1}
    assert page["counts"] == {verdict: counts.get(verdict, 0) for verdict in VERDICTS}
    assert sum(page["printed"].values()) == 1
    by_id = {claim.id: claim for claim in page["claims"]}
    assert by_id[MISPRINT].variant == "as corrected"
    convex = by_id["egop.convex"]
    assert convex.deciding["holm_p_value"] == max(each["holm_p_value"] for each in convex.comparisons)
    assert convex.registration
    assert "all seeds agree" in convex.exploratory
    assert not by_id["egop.digits_mlp"].exploratory


def test_a_claim_that_was_neither_run_nor_published_says_why_and_what_would_run_it(report: Report):
    said = {"sentence": "It is 0.", "source": "000", "reason": "neither run here nor published"}
    late = UnrunClaim(id="egop.late", **said, study="late", cost="a day of a GPU")
    (one,) = unrun(replace(report.plan, census=(late,)))
    assert (one.verdict, one.reason, one.cost) == ("not run", late.reason, late.cost)
    assert "studies=egop.late " in one.command


def test_a_claim_without_measures_is_an_error_unless_its_data_are_missing(report: Report, checks: ChecksPlan):
    rows = check_rows(checks).filter(pl.col("claim") != MISPRINT)
    with pytest.raises(InputError, match=r"plan\.json: the tables hold no measure of notes\.misprint"):
        check_measured(report.plan, rows)
    lacking = with_claim(checks, MISPRINT, missing="it needs clothes")
    check_measured(replace(report.plan, checks=lacking), rows)
    for given, reason in ((checks, "unmeasured"), (lacking, "no_data")):
        (row,) = (row for row in property_rows(given, rows, "quick") if row["claim"] == MISPRINT)
        assert (row["verdict"], *codes(row)) == ("not run", reason)


def test_a_claim_on_reduced_data_is_partly_reproduced_at_most(checks: ChecksPlan):
    measured = check_rows(checks)
    unknown = measured.with_columns(holds=pl.lit(None, pl.Boolean))
    for name, variant, rows, expected in (
        (REGRET, "", measured, ("partly reproduced", "held", "limited_scale")),
        (HOSTILE, "", measured, ("not reproduced", "held", "missed", "limited_scale")),
        (MISPRINT, "as printed", measured, ("not reproduced", "held", "missed")),
        (REGRET, "", unknown, ("underpowered", "held", "undecided")),  # an estimate leaves it open
    ):
        capped = with_claim(checks, name, at_most_partly="few digits")
        found = {(row["claim"], row["variant"]): row for row in property_rows(capped, rows, "quick")}
        row = found[name, variant]
        assert (row["verdict"], *codes(row)) == expected


def test_what_a_search_found_counts_for_the_verdict_and_not_for_the_share(checks: ChecksPlan):
    (claim,) = (claim for claim in checks.claims if claim.id == REGRET)
    first, *others = claim.parts
    part, parts = first.part, (replace(first, bound=True, instances=INSTANCES - 1), *others)
    searched = replace(checks, claims=(replace(claim, parts=parts),))
    found = (pl.col("part") == part) & (pl.col("instance") == INSTANCES - 1)
    rows = check_rows(checks).filter(claim=REGRET)
    broken = rows.with_columns(holds=pl.when(found).then(pl.lit(value=False)).otherwise(pl.col("holds")))
    for given, verdict in ((rows, "reproduced"), (broken, "not reproduced")):
        (row,) = property_rows(searched, given, "quick")
        assert row["verdict"] == verdict
        assert row["estimate"] == 1.0
        reasons = codes(row)
        assert reasons["held"][:2] == (2 * INSTANCES - 1, 2 * INSTANCES - 1)
        assert reasons.get("missed") == ((1, len(parts), [part]) if given is broken else None)


def test_a_part_is_tested_where_each_of_its_bounds_is_and_the_least_is_shown(checks: ChecksPlan):
    (claim,) = (claim for claim in checks.claims if claim.id == REGRET)
    parts = tuple(replace(one, bound=True, instances=INSTANCES - 2) for one in claim.parts[:1])
    searched = replace(checks, claims=(replace(claim, parts=parts),))
    rows = check_rows(checks).filter(claim=REGRET, part=parts[0].part)
    far = rows.with_columns(
        quantity=pl.lit("another regret"), value=pl.col("value") / 10, share=pl.col("share") / 10
    )
    missed = far.with_columns(value=2.0, share=2.0, holds=False)
    for given, verdict, finding, quantity in (
        (rows, "reproduced", "supported", "regret over its bound"),
        (pl.concat([rows, far]), "partly reproduced", "untested", "another regret"),
        (
            pl.concat([far, missed.with_columns(quantity=pl.lit("a third"))]),
            "not reproduced",
            "refuted",
            "a third",
        ),
    ):
        (row,) = property_rows(searched, given, "quick")
        assert (row["verdict"], row["seeds"]) == (verdict, INSTANCES - 2), "both searches are left out"
        assert codes(row).get("untested") == ((1, None, [quantity]) if finding == "untested" else None)
        (part,) = parts_of(searched.claims, given)
        assert (part["finding"], part["quantity"]) == (finding, quantity)


def test_a_verdict_says_whether_the_other_backend_agrees_part_by_part(report: Report):
    """The same word of the claim is no agreement where its comparisons say otherwise."""
    found = read_verdicts(report.plan)
    mine = (pl.col("claim") == "egop.digits_mlp") & (pl.col("backend") == "torch")
    finding = pl.when(mine).then(pl.lit("inconclusive")).otherwise(pl.col("finding").cast(pl.String))
    changed = found.findings.with_columns(finding.cast(found.findings.schema["finding"]).alias("finding"))
    for findings, said in ((found.findings, "agrees"), (changed, "agrees in 0 of 1 parts")):
        told = {one.id: one for one in listed(report.plan, found.claims, findings)}
        assert told["egop.digits_mlp"].agreement == f"torch {said} at the same rates"


@pytest.mark.parametrize(
    ("verdict", "choices", "hangs"),
    [("underpowered", "open", True), ("underpowered", "", False), ("not reproduced", "open", False)],
)
def test_an_open_claim_may_depend_on_tuning(page: dict[str, Any], verdict: str, choices: str, hangs: bool):
    one = replace(page["claims"][0], verdict=verdict, comparisons=[{"choices": choices}])
    assert one.depends_on_tuning == hangs


def test_the_list_tells_of_settings_that_do_not_say_the_same(report: Report):
    found = read_verdicts(report.plan)
    own = pl.col("claim") == "egop.digits_mlp"
    given = {"finding": "inconclusive", "p_value": 0.2, "ties": 3, "ties_agree": 1}
    findings = found.findings.with_columns(
        pl.when(own).then(pl.lit(value).cast(found.findings.schema[name])).otherwise(name).alias(name)
        for name, value in given.items()
    )
    told = [one for one in listed(report.plan, found.claims, findings) if one.id == "egop.digits_mlp"]
    text = " ".join(as_text(told, details=True).split())
    assert "p 0.20 for it" in text
    assert "2 of 3 settings" in text


@pytest.mark.parametrize(("agree", "shown"), [(0.97, ["97.0"]), (1 - 1e-12, []), (None, [])])
def test_the_page_shows_how_often_other_draws_say_the_same(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agree: float | None, shown: list[str]
):
    tuned = {"ties": 0, "ties_agree": 0, "settings_not_run": 0, "choices_agree": agree}
    monkeypatch.setattr("curvebench.reports.claims.findings._over_settings", lambda *_: tuned)
    monkeypatch.setattr("curvebench.reports.claims.findings.choices_flip", lambda _: False)
    page = Page(site_of(report.plan_file, tmp_path) / "claims.html")
    evidence = page.outline.partition("[id=claim-egop.digits_mlp]")[2].partition("[id=claim-")[0]
    assert re.findall(r"the same in (\S+) % of the draws of tuning seeds", evidence) == shown


def test_checks_alone_make_a_report(tmp_path: Path):
    plan = write_plan(tmp_path, [], checks=True)
    assert main(["figures", "--plan", str(plan)]) == 0
    site = site_of(plan, tmp_path)
    overview = (site / "index.html").read_text()
    assert "No study has final runs yet" not in overview
    assert "Do the claims hold?" in overview
    assert "Toy CPU" in (site / "provenance.html").read_text()
    captions = re.findall(r"<figcaption>(.*?) <a", (site / "claims.html").read_text())
    missing = [html.unescape(one).partition("Of the claim's parts miss: ")[2] for one in captions]
    assert missing == ["", f"an inequality; {HOSTILE}."], "of a claim that holds none is named"


def test_a_report_without_claims_has_no_such_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    plan = write_plan(tmp_path, [])
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"skipped": []}))
    site = site_of(plan, tmp_path)
    assert not (site / "claims.html").exists()
    assert "claims.html" not in (site / "index.html").read_text()
    capsys.readouterr()
    assert main(["verdicts", "--plan", str(plan)]) == 0
    assert capsys.readouterr().out == "The report has no claim.\n"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("curvebench.paths.PUBLISHED", tmp_path)
    assert main(["verdicts"]) == 2
    assert "neither a published set in" in capsys.readouterr().err


def test_a_lost_table_or_figure_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = write_plan(tmp_path, [], checks=True)
    assert main(["site", "--plan", str(plan), "--out", str(tmp_path / "site")]) == 2
    assert re.search(r"figures/claims/figures\.json: cannot be read .*snakemake", capsys.readouterr().err)
    (tmp_path / "checks/checks.parquet").unlink()
    assert main(["verdicts", "--plan", str(plan)]) == 2
    assert re.search(r"checks/checks\.parquet: no such file; .*snakemake", capsys.readouterr().err)
