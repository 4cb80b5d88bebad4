"""The page of methods: it explains every statistic that the site computes, and all captions lead to it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import reports.statistics
from reports.methods import STATISTICS
from tests.reports.conftest import Report

ROOT = Path(reports.statistics.__file__).parent
MODULES = {
    name: importlib.import_module(f"reports.statistics.{name}")
    for _, name, _ in pkgutil.iter_modules([str(ROOT)])
}
FUNCTIONS = {
    name
    for module in MODULES.values()
    for name, value in vars(module).items()
    if inspect.isfunction(value) and not name.startswith("_")
}


def called() -> set[str]:
    """The functions of `reports.statistics` that modules of the report import."""
    found = set()
    for path in ROOT.parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("reports.statistics"):
                found |= {alias.name for alias in node.names}
    return found & FUNCTIONS


def test_every_statistic_that_the_site_calls_is_explained():
    explained = {name for statistic in STATISTICS for name in statistic.functions}
    assert called() - explained == set(), "add them to reports/methods.py"
    assert explained <= FUNCTIONS
    assert {"median_interval", "holm", "best_set"} <= called()


def test_each_is_told_in_two_sentences_and_says_what_it_assumes():
    anchors = [statistic.anchor for statistic in STATISTICS]
    assert len(anchors) == len(set(anchors))
    for statistic in STATISTICS:
        assert len(re.findall(r"[.](?= [A-Z]|$)", statistic.says)) == 2, statistic.name
        assert statistic.assumes.endswith(".")


def test_the_page_has_them_all_and_pages_lead_to_it(report: Report):
    text = (report.site / "methods.html").read_text()
    for statistic in STATISTICS:
        assert f'id="{statistic.anchor}"' in text
    for name in ("index", "claims", "study_digits_mlp"):
        assert re.search(r'href="methods\.html#[a-z-]+"', (report.site / f"{name}.html").read_text())
    for path in report.site.glob("*.html"):
        assert 'href="methods.html"' in path.read_text()
