"""The page of parity: what is judged, what fails and what is only shown is told in words."""

from __future__ import annotations

import re

import pytest

from curvebench.reports.pages.parity import jobs_of, matrix, parity_page, parity_rows
from curvebench.results.schema import COMPARISONS
from curvebench.spec.plan import ParityPlan
from tests.reports.conftest import Report
from tests.reports.synthetic import DIFFERENT, HOSTILE, PROBLEMS


@pytest.fixture
def plan(report: Report) -> ParityPlan:
    assert report.plan.parity is not None
    return report.plan.parity


def test_a_comparison_becomes_a_matrix_of_optimizers_by_problems(plan: ParityPlan):
    rows = parity_rows(plan)
    found = matrix(
        plan, rows.filter(~((rows["problem"] == "bowl") & (rows["optimizer"] == HOSTILE))), COMPARISONS[0]
    )
    assert [row["optimizer"] for row in found["rows"]] == ["adam", DIFFERENT, HOSTILE]
    assert [[cell and cell["problem"] for cell in row["cells"]] for row in found["rows"]] == [
        list(PROBLEMS),
        list(PROBLEMS),
        [None, list(PROBLEMS)[1]],
    ]


def test_what_is_judged_is_counted_and_what_fails_is_named(plan: ParityPlan):
    page = parity_page(plan, parity_rows(plan))
    assert (page["judged"], page["measured"]) == (6, 6)
    assert [(row["optimizer"], row["problem"]) for row in page["failed"]] == [(DIFFERENT, "bowl")]
    assert page["worst"] == 3e-5


def test_the_page_tells_each_kind_of_cell_in_words(report: Report):
    text = (report.site / "parity.html").read_text()
    assert "5 of 6 judged comparisons agree to 10⁻¹⁰" in text
    assert "momentum on bowl, torch against jax: 3.0×10⁻⁵" in text
    for kind, count in (("✓ equal", 5), ("✗ different", 1), ("~ as measured", 6)):
        assert len(re.findall(rf"<span class=\"range\">{kind}</span>", text)) == count
    assert text.count("step 1: 0.50") == 2 * 3 * 2
    assert "curvebench parity" in text
    assert "flat &lt;i&gt;valley&lt;/i&gt;" in text
    assert "it is flat" in text


def test_the_overview_says_whether_backends_agree_and_the_provenance_has_the_jobs(
    report: Report, plan: ParityPlan
):
    overview = (report.site / "index.html").read_text()
    assert re.search(r"Not everywhere\..*5 of 6 comparisons .* agree to 10⁻¹⁰", overview)
    assert len(jobs_of(plan)) == 3
    provenance = (report.site / "provenance.html").read_text()
    assert len(re.findall(r"<td>parity</td><td>parity</td>", provenance)) == 3
