"""The page of parity: what is judged, what fails and what is only shown is told in words."""

from __future__ import annotations

import pytest

from curvebench.reports.pages.parity import matrix, parity_page, parity_rows
from curvebench.results.schema import COMPARISONS
from curvebench.spec.plan import ParityPlan
from tests.reports.conftest import Report
from tests.reports.synthetic import DIFFERENT, HOSTILE, PROBLEMS


@pytest.fixture
def plan(report: Report) -> ParityPlan:
    assert report.plan.parity is not None
    return report.plan.parity


def test_a_problem_that_an_optimizer_was_not_compared_on_has_an_empty_cell(plan: ParityPlan):
    rows = parity_rows(plan)
    fewer = rows.filter(~((rows["problem"] == "bowl") & (rows["optimizer"] == HOSTILE)))
    cells = {row["optimizer"]: row["cells"] for row in matrix(plan, fewer, COMPARISONS[0])["rows"]}
    assert [cell and cell["problem"] for cell in cells["adam"]] == list(PROBLEMS)
    assert [cell and cell["problem"] for cell in cells[HOSTILE]] == [None, list(PROBLEMS)[1]]


def test_what_is_judged_is_counted_and_what_fails_is_named(plan: ParityPlan):
    page = parity_page(plan, parity_rows(plan))
    assert (page["judged"], page["measured"]) == (6, 6)
    assert [(row["optimizer"], row["problem"]) for row in page["failed"]] == [(DIFFERENT, "bowl")]
    assert page["worst"] == 3e-5
