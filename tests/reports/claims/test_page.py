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
from curvebench.reports.claims import wording
from curvebench.reports.claims.page import (
    check_measured,
    check_rows,
    claim_entries,
    claims_page,
    hangs_on_tuning,
    parts_of,
)
from curvebench.reports.claims.verdict_list import (
    as_text,
    detailed,
    listed,
    read_verdicts,
    unrun,
    verdicts_of,
)
from curvebench.reports.claims.verdicts import property_rows
from curvebench.reports.formatting import slug
from curvebench.reports.pages.versions import unrun_entries
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ChecksPlan, UnrunClaim
from tests.reports.changing import replace
from tests.reports.conftest import Report, changed_site, site_of
from tests.reports.synthetic import CLAIMS, HOSTILE, INSTANCES, Shape, rules_of, write_plan

REGRET, MISPRINT, _ = CLAIMS


def cells(text: str, label: str) -> list[list[str]]:
    """The cells of a table, by the label of its region, without their tags."""
    (table,) = re.findall(rf'aria-label="{re.escape(label)}">\n<table.*?</table>', text, flags=re.DOTALL)
    return [
        [
            html.unescape(re.sub(r"<.*?>", " ", cell)).strip()
            for cell in re.findall(r"<t[hd][ >].*?</t[hd]>", row, flags=re.DOTALL)
        ]
        for row in re.findall(r"<tr[ >].*?</tr>", table.partition("<tbody")[2], flags=re.DOTALL)
    ]


def test_a_part_is_told_by_its_worst_measure(checks: ChecksPlan):
    rows = check_rows(checks)
    assert rows["share"].min() == 0
    parts = {(part["part"], part["variant"]): part for part in parts_of(rows)}
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
    """The reasons of a row of `claims`, with their counts and names."""
    return {each["code"]: (each["count"], each["of"], each["names"]) for each in row["reasons"]}


@pytest.fixture
def page(report: Report, checks: ChecksPlan) -> dict[str, Any]:
    told = verdicts_of(report.plan)
    return claims_page(claim_entries(report.plan, check_rows(checks), told, [], "claim_figures"), ())


def _changes(raw: dict[str, Any]) -> None:
    """What the claims of the two studies, and the first that is checked, are besides."""
    digits, convex = raw["studies"]
    digits["at_most_partly"] = "the digits are few"
    digits["rules"]["egop.digits_mlp"] = "cd" * 8
    raw["checks"]["claims"][0]["at_most_partly"] = "the games are small"
    (claim,) = convex["claims"]
    asked = {**claim["holds_if"][0], "better": ["adam"], "workload": "least_squares"}
    claim["holds_if"] = [
        {**asked, "than": 0.25},
        {**asked, "than": ["adam @ egop"], "than_on": "log_sum_exp"},
    ]


@pytest.fixture(scope="module")
def changed(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return changed_site(report, tmp_path_factory.mktemp("changed"), _changes)


STUDIES = ("egop.digits_mlp", "egop.convex", "egop.fashion")


def test_all_claims_are_in_one_list_with_their_documents_and_counts(page: dict[str, Any]):
    assert [claim["id"] for claim in page["claims"]] == [*STUDIES, *CLAIMS]
    assert [document.numbers for document in page["documents"]] == [("000", "001"), ("002",)]
    assert page["counts"] == {
        "reproduced": 4, "partly reproduced": 0, "not reproduced": 1, "underpowered": 0, "not run": 1,
    }  # fmt: skip
    assert sum(page["printed"].values()) == 1
    by_id = {claim["id"]: claim for claim in page["claims"]}
    assert by_id[MISPRINT]["variant"] == "as corrected"
    assert by_id[REGRET]["took"] == pytest.approx(2 * 0.002 * INSTANCES)
    convex = by_id["egop.convex"]
    assert convex["deciding"]["holm_p_value"] == max(each["holm_p_value"] for each in convex["comparisons"])
    assert not convex["exploratory"]


def test_a_claim_that_was_neither_run_nor_published_has_a_row_like_the_others(
    report: Report, page: dict[str, Any]
):
    said = {"sentence": "It is 0.", "source": "000", "reason": "neither run here nor published"}
    late = UnrunClaim(id="egop.late", **said, study="late", cost="a day of a GPU")
    plan = replace(report.plan, census=(late,))
    (entry,) = unrun_entries(plan)
    assert {*entry} == {*page["claims"][0]}
    assert (entry["verdict"], entry["reason"], entry["cost"]) == ("not run", late.reason, late.cost)
    assert "studies=egop.late " in entry["command"]
    assert {*unrun(plan)[0]} == {*verdicts_of(plan)[0]}, "programs get the same keys"


def test_a_claim_without_measures_is_an_error_and_no_verdict(report: Report, checks: ChecksPlan):
    rows = check_rows(checks).filter(pl.col("claim") != MISPRINT)
    with pytest.raises(InputError, match=r"plan\.json: the tables hold no measure of notes\.misprint"):
        claim_entries(report.plan, rows, [], [], "claim_figures")
    (row,) = (row for row in property_rows(checks, rows, "quick") if row["claim"] == MISPRINT)
    assert (row["verdict"], *codes(row)) == ("not run", "unmeasured")


def test_a_claim_whose_data_are_missing_is_not_run_and_no_error(report: Report, checks: ChecksPlan):
    rows = check_rows(checks).filter(pl.col("claim") != MISPRINT)
    lacking = replace(
        checks,
        claims=tuple(
            replace(claim, missing="it needs clothes") if claim.id == MISPRINT else claim
            for claim in checks.claims
        ),
    )
    check_measured(replace(report.plan, checks=lacking), rows)
    (row,) = (row for row in property_rows(lacking, rows, "quick") if row["claim"] == MISPRINT)
    assert (row["verdict"], *codes(row)) == ("not run", "no_data")


def test_a_claim_on_reduced_data_is_partly_reproduced_at_most(checks: ChecksPlan):
    capped = replace(
        checks, claims=tuple(replace(claim, at_most_partly="few digits") for claim in checks.claims)
    )
    told = {
        (row["claim"], row["variant"]): (row["verdict"], codes(row))
        for row in property_rows(capped, check_rows(checks), "quick")
    }
    verdict, reasons = told[REGRET, ""]
    assert (verdict, *reasons) == ("partly reproduced", "held", "limited_scale")
    verdict, reasons = told[HOSTILE, ""]
    assert (verdict, *reasons) == ("not reproduced", "held", "missed", "limited_scale")
    (misprint,) = (row for row in told if row[1] == "as printed")
    verdict, reasons = told[misprint]
    assert (verdict, "limited_scale" in reasons) == ("not reproduced", False)


def test_a_claim_on_reduced_data_that_an_estimate_leaves_open_is_not_capped_too(checks: ChecksPlan):
    (claim,) = (claim for claim in checks.claims if claim.id == REGRET)
    capped = replace(checks, claims=(replace(claim, at_most_partly="few digits"),))
    open_rows = check_rows(checks).filter(claim=REGRET).with_columns(holds=pl.lit(None, pl.Boolean))
    (row,) = property_rows(capped, open_rows, "quick")
    assert row["verdict"] == "underpowered"
    assert list(codes(row)) == ["held", "undecided"]


def test_what_a_search_found_counts_for_the_verdict_and_not_for_the_share(checks: ChecksPlan):
    (claim,) = (claim for claim in checks.claims if claim.id == REGRET)
    part = claim.parts[0].part
    parts = tuple(
        replace(one, bound=True, instances=INSTANCES - 1) if one.part == part else one for one in claim.parts
    )
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


def test_a_part_is_tested_where_each_of_its_bounds_is_and_the_least_is_shown(
    report: Report, checks: ChecksPlan
):
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
        told = [each for each in verdicts_of(report.plan) if each["id"] == REGRET]
        (entry,) = claim_entries(replace(report.plan, checks=searched), given, told, [], "claim_figures")
        (part,) = entry["parts"]
        assert (part["finding"], part["quantity"]) == (finding, quantity)


def plain_text(markup: str) -> str:
    """A piece of a page without its tags."""
    return html.unescape(" ".join(re.sub(r"<.*?>", " ", markup).split()))


def section(text: str, claim: str) -> str:
    """What the page says of one claim: its row, and what opens below it."""
    own = f'<div class="evidence" id="claim-{slug(claim)}">'
    (found,) = [part for part in text.split('<details class="claim"')[1:] if own in part]
    return plain_text(f"<p {found}")


def rows_of(text: str) -> dict[str, str]:
    """The row of each claim, by its id."""
    found = re.findall(
        r'<details class="claim" .*?<summary>(.*?)</summary>.*?id="claim-(.*?)"', text, re.DOTALL
    )
    return {name: plain_text(row) for row, name in found}


def test_the_list_says_of_each_claim_its_verdict_in_words(report: Report):
    text = (report.site / "claims.html").read_text()
    rows = rows_of(text)
    assert list(rows) == [*map(slug, (*STUDIES, *CLAIMS))]
    assert rows["egop.digits_mlp"].startswith(
        "✓ reproduced adam @ egop ends <i>lower</i> than adam. EGOP paper Fig"
    )
    assert rows[MISPRINT].startswith(
        "✓ reproduced What notes.misprint says <b>is so</b>. ✓ ✓ Stratos 2026 eq. 22 · notes."
    )
    assert "as corrected; as printed not reproduced" in rows[MISPRINT]
    for name in ("index.html", "claims.html"):
        text = " ".join((report.site / name).read_text().split())
        assert (
            "1 of them is misprinted or left open in the source and counted as corrected; as printed 1 is not"
            in text
        )
    assert rows["egop.fashion"].startswith("– not run")
    assert rows["egop.fashion"].endswith(
        "Fashion-MNIST is not on this machine <b>yet</b> · would cost at scale paper <i>a day</i> of a GPU"
    )
    assert rows[slug(HOSTILE)].startswith("✗ not reproduced")
    assert rows[slug(HOSTILE)].endswith("0 % of 400 instances hold")
    estimate = (
        r"adam @ egop / adam on digits_mlp, final training loss: 0\.00\d+ \[0\.00\d+, 0\.00\d+\], "
        r"asks at most 0\.950, p-value for 0.00098, 10 seeds · torch agrees at the same rates$"
    )
    assert re.search(estimate, rows["egop.digits_mlp"])


def test_every_claim_is_closed_and_the_index_counts_verdicts_and_papers(report: Report):
    text = (report.site / "claims.html").read_text()
    assert not re.search(r"<details[^>]* open", text)
    index = text.partition("<fieldset")[2].partition("</fieldset>")[0]
    counts = re.findall(r'value="(.*?)"( checked| disabled|)> <strong>(\d+)</strong>', index)
    assert counts == [
        *(("", " checked", "6"), ("reproduced", "", "4"), ("partly reproduced", " disabled", "0")),
        *(("not reproduced", "", "1"), ("underpowered", " disabled", "0"), ("not run", "", "1")),
    ]
    papers = plain_text(text.partition('<nav aria-label="On this page">')[2].partition("</nav>")[0])
    assert re.fullmatch(r"Faster Adaptive .* 3 Adaptive Learning Methods 3", papers)


def test_the_overview_counts_the_claims_of_the_page_of_claims(report: Report):
    counted = r"<strong>(\d+)</strong> (?:all|<span class=\"verdict\" data-verdict=\"(.*?)\")"
    index = (report.site / "index.html").read_text().partition('<h2 id="claims">')[2].partition("</ul>")
    claims = (report.site / "claims.html").read_text().partition("<fieldset")[2].partition("</fieldset>")[0]
    (total, _), *by_verdict = re.findall(counted, claims)
    assert re.findall(counted, index[0]) == by_verdict
    assert sum(int(count) for count, _ in by_verdict) == int(total)
    assert f"<p>{total} claims in all." in index[2]


def test_a_claim_of_a_study_says_what_its_verdict_rests_on(report: Report):
    text = (report.site / "claims.html").read_text()
    told, rule = section(text, "egop.digits_mlp"), rules_of(Shape())["egop.digits_mlp"]
    for part in (
        "adam @ egop ends <i>lower</i> than adam.",
        "Reproduced on jax: its one comparison is supported.",
        "On torch: ✓ reproduced",
        "adam @ egop / adam on digits_mlp, final training loss:",
        "where the claim asks at most 0.950",
        "p-value for 0.00098, 10 paired seeds",
        f"{rule} , as when the runs were planned",
        "snakemake --cores all reports --config studies=egop.digits_mlp scale=quick",
    ):
        assert part in told
    (row,) = cells(text, "Comparisons of egop.digits_mlp")
    assert (row[1], row[3], row[5], row[9]) == ("✓ supported", "better", "0.950", "10")
    assert row[6:9] == ["0.00098", "0.00098", "1.00"]
    assert "p-value for : of the one-sided test whose rejection supports the comparison; against:" in told
    assert 'href="study_digits_mlp.html"' in text
    (line,) = [line for line in text.splitlines() if "· egop.digits_mlp ·" in line]
    assert "· adam @ egop / adam on digits_mlp, final training loss: " in plain_text(line)
    runs = (report.site / "runs_digits_mlp.html").read_text()
    body = text.partition('aria-label="Comparisons of egop.digits_mlp"')[2].partition("</table>")[0]
    linked = re.findall(r'href="runs_digits_mlp\.html#(.*?)"', body)
    assert len(linked) == 2
    assert all(f'id="{anchor}"' in runs for anchor in linked)
    assert body.count("data-label=") == 9  # every cell has its column's name on a phone
    assert "Fashion-MNIST is not on this machine <b>yet</b>" in section(text, "egop.fashion")


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("reproduced", "torch agrees at the same rates"),
        ("not reproduced", "torch says not reproduced at the same rates"),
        ("not run", "no pairs of runs on torch"),
        (None, ""),
    ],
)
def test_a_verdict_says_whether_the_other_backend_agrees(report: Report, verdict: str | None, said: str):
    plan = report.plan
    found = read_verdicts(plan)
    on_torch = pl.col("backend") == "torch"
    claims = found.claims.with_columns(
        verdict=pl.when(on_torch)
        .then(pl.lit(verdict, pl.String))
        .otherwise(pl.col("verdict").cast(pl.String))
    ).drop_nulls("verdict")
    claims = claims.cast({"verdict": found.claims.schema["verdict"]})
    (row,) = [one for one in listed(plan, claims, found.findings) if one["id"] == "egop.digits_mlp"]
    assert (row["verdict"], row["agreement"]) == ("reproduced", said)


@pytest.mark.parametrize(
    ("verdict", "agree", "choices", "hangs"),
    [
        ("underpowered", 1, 1.0, True),
        ("underpowered", 2, 0.9, True),
        ("underpowered", 2, 0.96, False),
        ("underpowered", None, None, False),
        ("not reproduced", 1, 1.0, False),
    ],
)
def test_an_open_claim_hangs_on_tuning_where_other_settings_disagree(
    verdict: str, agree: int | None, choices: float | None, hangs: bool
):
    one = {"ties": 2, "ties_agree": agree, "choices_agree": choices, "settings_not_run": 0}
    comparison = {"choices": wording.choices(one)}
    assert hangs_on_tuning({"verdict": verdict, "comparisons": [comparison]}) == hangs


def test_backends_agree_part_by_part(report: Report):
    """The same word of the claim is no agreement where its comparisons say otherwise."""
    found = read_verdicts(report.plan)
    mine = (pl.col("claim") == "egop.digits_mlp") & (pl.col("backend") == "torch")
    finding = pl.when(mine).then(pl.lit("inconclusive")).otherwise(pl.col("finding").cast(pl.String))
    findings = found.findings.with_columns(finding.cast(found.findings.schema["finding"]).alias("finding"))
    (row,) = [one for one in listed(report.plan, found.claims, findings) if one["id"] == "egop.digits_mlp"]
    assert row["agreement"] == "torch agrees in 0 of 1 parts at the same rates"


def test_the_page_and_the_list_tell_of_settings_that_do_not_say_the_same(report: Report, checks: ChecksPlan):
    found = read_verdicts(report.plan)
    own = pl.col("claim") == "egop.digits_mlp"
    given = {"finding": "inconclusive", "p_value": 0.2, "ties": 3, "ties_agree": 1}
    findings = found.findings.with_columns(
        pl.when(own).then(pl.lit(value).cast(found.findings.schema[name])).otherwise(name).alias(name)
        for name, value in given.items()
    )
    told = [one for one in listed(report.plan, found.claims, findings) if one["id"] == "egop.digits_mlp"]
    (entry,) = claim_entries(report.plan, check_rows(checks), told, [], "claim_figures")
    assert ["2 of 3 settings" in each["choices"] for each in entry["comparisons"]] == [True]
    text = " ".join(as_text(detailed(report.plan, told), details=True).split())
    assert "p 0.20 for it" in text
    assert "2 of 3 settings" in text


@pytest.mark.parametrize(("agree", "shown"), [(0.97, True), (1 - 1e-12, False), (None, False)])
def test_the_page_shows_how_often_other_draws_say_the_same(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agree: float | None, shown: bool
):
    tuned = {"ties": 0, "ties_agree": 0, "settings_not_run": 0, "choices_agree": agree}
    monkeypatch.setattr("curvebench.reports.claims.verdicts._over_settings", lambda *_: tuned)
    for module in ("verdicts", "wording"):
        monkeypatch.setattr(f"curvebench.reports.claims.{module}.choices_flip", lambda _: False)
    text = (site_of(report.plan_file, tmp_path) / "claims.html").read_text()
    (row,) = cells(text, "Comparisons of egop.digits_mlp")
    assert ("the same in 97.0 % of the draws of tuning seeds" in row[1]) == shown
    assert ("draws" in row[1]) == shown


def test_a_rule_that_was_changed_after_the_runs_is_said(changed: Path):
    text = (changed / "claims.html").read_text()
    told, rule = section(text, "egop.digits_mlp"), rules_of(Shape())["egop.digits_mlp"]
    assert f"{'cd' * 8} , changed after the runs were planned (then {rule} )" in told
    why = "the rule was changed after the runs were planned"
    assert f"exploratory : {why}" in rows_of(text)["egop.digits_mlp"]
    assert f"<strong>Exploratory</strong>: {why}." in (changed / "study_digits_mlp.html").read_text()
    assert "xploratory" not in (changed / "study_convex.html").read_text()


def test_the_parts_show_value_limit_tolerance_and_share(report: Report):
    text = (report.site / "claims.html").read_text()
    descent, adagrad = cells(text, f"Parts of {REGRET}")
    assert descent[0] == "gradient descent"
    assert descent[2].split() == [str(INSTANCES), "400", "ms"]
    assert descent[3].split() == ["✓", "holds", "0", "of", "200", "measures", "miss"]
    assert re.fullmatch(r"regret over its bound +0\.\d+ ≤ 1", descent[4])
    assert adagrad[5] == "1.0000"
    identity, printed, _ = cells(text, f"Parts of {MISPRINT}")
    assert identity[4].endswith("= 0 ± 10⁻¹²")
    assert printed[0].split()[-2:] == ["as", "printed"]
    assert printed[3].startswith("✗ misses")
    assert cells(text, html.escape(f"Parts of {HOSTILE}"))[1][5] == "∞"


def test_the_page_shows_what_checks_draw(report: Report, checks: ChecksPlan):
    drawn = json.loads((checks.figures / "figures.json").read_text())
    assert {figure["kind"] for figure in drawn} == {"series"}
    text = (report.site / "claims.html").read_text()
    for figure in drawn:
        assert (report.site / "claim_figures" / f"{figure['name']}.svg").is_file()
        assert f'src="claim_figures/{figure["name"]}.svg"' in text


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


def test_a_report_without_claims_has_no_such_page(tmp_path: Path):
    plan = write_plan(tmp_path, [])
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"skipped": []}))
    site = site_of(plan, tmp_path)
    assert not (site / "claims.html").exists()
    assert "claims.html" not in (site / "index.html").read_text()


def test_a_lost_table_or_figure_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = write_plan(tmp_path, [], checks=True)
    assert main(["site", "--plan", str(plan), "--out", str(tmp_path / "site")]) == 2
    assert re.search(r"figures/claims/figures\.json: cannot be read .*snakemake", capsys.readouterr().err)
    (tmp_path / "checks/checks.parquet").unlink()
    assert main(["verdicts", "--plan", str(plan)]) == 2
    assert re.search(r"checks/checks\.parquet: no such file; .*snakemake", capsys.readouterr().err)
