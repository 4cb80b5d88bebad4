"""The page of claims: verdicts with their rule, every part with its worst measure, and figures of all."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import polars as pl
import pytest

from reports.__main__ import main
from reports.claims import check_rows, claims_page, parts_of
from reports.plan import ChecksPlan, ReportError
from tests.reports.conftest import Report
from tests.reports.synthetic import CLAIMS, HOSTILE, INSTANCES, write_plan

REGRET, MISPRINT, _ = CLAIMS


@pytest.fixture
def plan(report: Report) -> ChecksPlan:
    assert report.plan.checks is not None
    return report.plan.checks


def cells(text: str, label: str) -> list[list[str]]:
    """The cells of a table, by the label of its region, without their tags."""
    (table,) = re.findall(rf'aria-label="{re.escape(label)}">\n<table.*?</table>', text, flags=re.DOTALL)
    return [
        [
            html.unescape(re.sub(r"<.*?>", " ", cell)).strip()
            for cell in re.findall(r"<t[hd][ >].*?</t[hd]>", row, flags=re.DOTALL)
        ]
        for row in re.findall(r"<tr[ >].*?</tr>", table.partition("<tbody>")[2], flags=re.DOTALL)
    ]


def test_a_part_is_told_by_its_worst_measure(plan: ChecksPlan):
    rows = check_rows(plan)
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
    assert not printed["part_holds"]
    assert corrected["part_holds"]
    nothing = parts["an inequality", ""]
    assert nothing["share"] == float("inf"), "what is not a number is the worst"
    assert nothing["missed"] == INSTANCES


def test_verdicts_and_counts(report: Report, plan: ChecksPlan):
    page = claims_page(report.plan, check_rows(plan))
    assert [claim["verdicts"] for claim in page["claims"]] == [
        {"": "reproduced"},
        {"as printed": "not reproduced", "as corrected": "reproduced"},
        {"": "not reproduced"},
    ]
    assert page["counts"] == {"reproduced": 2, "not reproduced": 1}
    assert page["misprinted"] == 1
    assert [claim["instances"] for claim in page["claims"]] == [2 * INSTANCES] * 3
    assert [(claim["study"], claim["id"]) for claim in page["of_studies"]] == [
        ("digits_mlp", "egop.digits_mlp"),
        ("convex", "egop.convex"),
    ]


def test_a_claim_without_measures_is_an_error_and_no_verdict(report: Report, plan: ChecksPlan):
    rows = check_rows(plan).filter(pl.col("claim") != MISPRINT)
    with pytest.raises(ReportError, match=r"plan\.json: the tables hold no measure of notes\.misprint"):
        claims_page(report.plan, rows)


def test_the_page_tells_verdicts_the_rule_and_how_to_compute_them_again(report: Report):
    text = (report.site / "claims.html").read_text()
    listed = cells(text, "Claims checked on random instances")
    assert [row[0] for row in listed] == list(CLAIMS)
    assert listed[1][1] == "What notes.misprint says <b>is so</b>."
    assert " ".join(listed[1][3].split()) == "as printed: ✗ not reproduced as corrected: ✓ reproduced"
    assert " ".join(listed[2][3].split()) == "✗ not reproduced"
    assert [row[0] for row in cells(text, "Claims decided by studies")] == ["egop.digits_mlp", "egop.convex"]
    for part in (
        "3 claims, of which 2 are reproduced, 0 partly, 1 not (1 is misprinted and counts as corrected)",
        "All parts hold: reproduced. Some: partly reproduced. None: not reproduced.",
        "one miss is enough for it not to hold",
        "As printed, the misprinted parts alone are judged",
        "Most parts have no statistical test and no interval behind them",
        "<code>python -m harness checks notes.regret</code>",
        "200 &lt;i&gt;games&lt;/i&gt;",
        'href="study_digits_mlp.html#claims"',
    ):
        assert part in text


def test_the_parts_show_value_limit_tolerance_and_share(report: Report):
    text = (report.site / "claims.html").read_text()
    descent, adagrad = cells(text, f"Parts of {REGRET}")
    assert descent[0] == "gradient descent"
    assert descent[2].split() == [str(INSTANCES), "400", "ms"]
    assert descent[3].split() == ["✓", "holds", "0", "of", "200", "measures", "miss"]
    assert re.fullmatch(r"regret over its bound +0\.\d+ ≤ 1", descent[4])
    assert re.fullmatch(r"1 − \d.*×10⁻⁹", adagrad[5])
    identity, printed, _ = cells(text, f"Parts of {MISPRINT}")
    assert identity[4].endswith("= 0 ± 10⁻¹²")
    assert printed[0].split()[-2:] == ["as", "printed"]
    assert printed[3].startswith("✗ misses")
    assert cells(text, html.escape(f"Parts of {HOSTILE}"))[1][5] == "∞"


def test_every_claim_has_a_figure_in_both_themes_that_its_words_tell(report: Report, plan: ChecksPlan):
    figures = json.loads((plan.figures / "figures.json").read_text())
    assert [figure["workload"] for figure in figures] == list(CLAIMS)
    text = (report.site / "claims.html").read_text()
    for figure in figures:
        for theme in ("light", "dark"):
            assert (report.site / "claim_figures" / f"{figure['name']}.{theme}.svg").is_file()
            assert f'src="claim_figures/{figure["name"]}.{theme}.svg"' in text
    regret, misprint, _ = figures
    assert re.search(
        r"gradient descent: regret over its bound: median 0\.\d+, worst 0\.\d+, 0 of 200", regret["alt"]
    )
    assert re.search(r"\(as printed\): .*, worst 1\.\d+, \d+ of 200 miss", misprint["alt"])
    assert "150 are drawn" in regret["caption"]
    light = (plan.figures / f"{misprint['name']}.light.svg").read_text()
    assert "a bound &lt;u&gt;b&lt;/u&gt; (as printed)" in light
    dark = (plan.figures / f"{misprint['name']}.dark.svg").read_text()
    assert "#d05a00" in light
    assert "#d05a00" not in dark


def test_the_same_measures_give_the_same_drawing(report: Report, plan: ChecksPlan, tmp_path: Path):
    assert main(["claims", "--plan", str(report.plan_file), "--out", str(tmp_path)]) == 0
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (plan.figures / path.name).read_bytes()


def test_the_overview_counts_verdicts_and_the_provenance_has_the_job(report: Report):
    overview = (report.site / "index.html").read_text()
    assert re.search(r"Of 3 claims .* 2 are reproduced, 0 partly, 1 not, where a misprinted", overview)
    assert "<td>claims</td><td>checks</td><td>notes_toy</td>" in (report.site / "provenance.html").read_text()


def test_checks_alone_make_a_report(tmp_path: Path):
    plan = write_plan(tmp_path, [], checks=True)
    assert main(["claims", "--plan", str(plan)]) == 0
    assert main(["site", "--plan", str(plan), "--out", str(tmp_path / "site")]) == 0
    overview = (tmp_path / "site/index.html").read_text()
    assert "No study has final runs yet" not in overview
    assert "Do the claims hold?" in overview
    assert "Decided by studies" not in (tmp_path / "site/claims.html").read_text()
    assert "Toy CPU" in (tmp_path / "site/provenance.html").read_text()


def test_a_report_without_claims_has_no_such_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = write_plan(tmp_path, [])
    assert main(["site", "--plan", str(plan), "--out", str(tmp_path / "site")]) == 0
    assert not (tmp_path / "site/claims.html").exists()
    assert "claims.html" not in (tmp_path / "site/index.html").read_text()
    assert main(["claims", "--plan", str(plan)]) == 1
    assert "plan.json: no claims are checked in it" in capsys.readouterr().err


def test_a_lost_table_or_figure_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = write_plan(tmp_path, [], checks=True)
    assert main(["site", "--plan", str(plan), "--out", str(tmp_path / "site")]) == 1
    assert re.search(r"figures/claims/figures\.json: cannot be read .*snakemake", capsys.readouterr().err)
    (tmp_path / "checks/checks.parquet").unlink()
    assert main(["claims", "--plan", str(plan)]) == 1
    assert re.search(r"checks/checks\.parquet: no such file; .*snakemake", capsys.readouterr().err)
