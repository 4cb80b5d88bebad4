"""The plan: what is wrong with it is said with its file and a remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.plan import ReportError, read_plan
from tests.reports.conftest import Report


def test_a_missing_or_broken_plan_names_its_file(tmp_path: Path):
    path = tmp_path / "plan.json"
    with pytest.raises(ReportError, match=r"plan\.json: cannot be read .*run snakemake"):
        read_plan(path)
    path.write_text("{")
    with pytest.raises(ReportError, match=r"plan\.json: not JSON"):
        read_plan(path)
    path.write_text('{"scale": "quick"}')
    with pytest.raises(ReportError, match=r"plan\.json: lacks the key 'studies'"):
        read_plan(path)
    path.write_text('{"scale": "quick", "studies": [3]}')
    with pytest.raises(ReportError, match=r"plan\.json: not a report plan"):
        read_plan(path)


@pytest.mark.parametrize(
    ("compare", "message"),
    [
        ({"metric": "train_los", "which": "final"}, "'train_los' is no metric of digits_mlp .*train_loss"),
        ({"metric": "train_loss", "which": "last"}, "final or best"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_refused(
    report: Report, tmp_path: Path, compare: dict, message: str
):
    raw = json.loads(report.plan_file.read_text())
    raw["studies"][0]["compare"] = compare
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(ReportError, match=message):
        read_plan(path)


@pytest.mark.parametrize(("every", "told"), [("5 steps", True), (None, False)])
def test_a_page_says_which_bases_its_curves_are_not_charged_with(
    report: Report, tmp_path: Path, every: str | None, told: bool
):
    raw = json.loads(report.plan_file.read_text())
    raw["studies"] = raw["studies"][:1]
    raw["studies"][0]["bases"]["egop"]["every"] = every
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(raw))
    assert read_plan(path).studies[0].estimates_anew == told
    assert main(["site", "--plan", str(path), "--out", str(tmp_path / "site")]) == 0
    page = (tmp_path / "site" / "study_digits_mlp.html").read_text()
    assert ("What a run estimates anew is among its own gradient evaluations" in page) == told
    of_run = "gradient evaluations of the run (only bases before the run not charged)"
    assert (of_run in page) == told


def test_an_unknown_study_lists_those_there_are(report: Report):
    with pytest.raises(ReportError, match=r"no study 'digit' .*digits_mlp, convex"):
        report.plan.study("digit")
