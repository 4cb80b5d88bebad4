"""The plan: what is wrong with it is said with its file and a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from curvebench.spec.errors import InputError
from curvebench.spec.plan import read_plan
from tests.reports.conftest import Report, changed_plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read .*run snakemake"),
        ("{", "not JSON"),
        ('{"scale": "quick"}', r"not a plan: studies \(Field required"),
        ('{"scale": "quick", "studies": [3]}', r"not a plan: studies\[0\]"),
    ],
)
def test_a_missing_or_broken_plan_names_its_file(tmp_path: Path, text: str | None, message: str):
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InputError, match=rf"plan\.json: {message}"):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("compare", "message"),
    [
        ({"metric": "train_los", "which": "final"}, "no metric 'train_los'; did you mean 'train_loss'"),
        ({"metric": "train_loss", "which": "last"}, "compare.which .*'final' or 'best'"),
    ],
)
def test_an_impossible_comparison_is_refused(report: Report, tmp_path: Path, compare: dict, message: str):
    changed_plan(report.plan_file, tmp_path, lambda raw: raw["studies"][0].update(compare=compare))
    with pytest.raises(InputError, match=message):
        read_plan(tmp_path)


def test_a_page_names_uncharged_bases_and_a_headline_of_rounding(report: Report, changed: Path):
    for site, anew in ((changed, True), (report.site, False)):
        page = (site / "study_digits_mlp.html").read_text()
        for words in (
            "What a run estimates anew is among its own gradient evaluations",
            "gradient evaluations of the run (only bases before the run not charged)",
            "counts as that.",
        ):
            assert (words in page) == anew


def test_an_unknown_study_lists_those_there_are(report: Report):
    with pytest.raises(InputError, match=r"no study 'digit' .*digits_mlp, convex"):
        report.plan.study("digit")
