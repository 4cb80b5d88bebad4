"""Pages of the made-up report as a reader has them: their words, cells, links and pictures, frozen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reports.conftest import KernelReport, Report, changed_site
from tests.reports.pages.reading import Page

HERE = Path(__file__).parent


PAGES = ("claims", "index", "kernels", "leaderboard", "parity", "provenance", "study_digits_mlp")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_and_links_what_it_did(name: str, report: Report, frozen: Callable[[Path, str], None]):
    frozen(HERE / f"frozen/{name}.txt", Page(report.site / f"{name}.html").outline)


def test_the_page_of_stored_kernels_says_and_links_what_it_did(
    kernel_report: KernelReport, frozen: Callable[[Path, str], None]
):
    frozen(HERE / "frozen/stored_kernels.txt", Page(kernel_report.site / "kernels.html").outline)


def change_claims(raw: dict[str, Any]) -> None:
    """Change a rule, limit what two claims can reach, and compare with a number and another workload."""
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


def test_claims_that_were_changed_or_limited_say_so(
    report: Report, tmp_path: Path, frozen: Callable[[Path, str], None]
):
    site = changed_site(report, tmp_path, change_claims)
    frozen(HERE / "frozen/changed_claims.txt", Page(site / "claims.html").outline)
    pages = {name: (site / f"study_{name}.html").read_text() for name in ("digits_mlp", "convex")}
    assert [name for name, text in pages.items() if "xploratory" in text] == ["digits_mlp"]
