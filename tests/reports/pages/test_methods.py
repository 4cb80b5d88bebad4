"""The page of methods: it explains every statistic that the site computes, and all captions lead to it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import curvebench.reports.statistics
from tests.reports.conftest import Report

ROOT = Path(curvebench.reports.statistics.__file__).parent
MODULES = {
    name: importlib.import_module(f"curvebench.reports.statistics.{name}")
    for _, name, _ in pkgutil.iter_modules([str(ROOT)])
}
FUNCTIONS = {
    name
    for module in MODULES.values()
    for name, value in vars(module).items()
    if inspect.isfunction(value) and not name.startswith("_")
}


def called() -> set[str]:
    """The functions of `curvebench.reports.statistics` that modules of the report import."""
    found = set()
    for path in ROOT.parent.rglob("*.py"):
        if path.is_relative_to(ROOT):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "curvebench.reports.statistics"
            ):
                found |= {alias.name for alias in node.names}
    return found & FUNCTIONS


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return (report.site / "methods.html").read_text()


def test_every_statistic_that_the_site_calls_is_explained(page: str):
    listed = re.findall(r"<dt>In the code</dt><dd>(.*?)</dd>", page)
    explained = {name for names in listed for name in re.findall("<code>(.*?)</code>", names)}
    assert called() - explained == set(), "add them to reports/templates/methods.html.jinja"
    assert explained <= FUNCTIONS
    assert {"holm", "best_set"} <= called()


def test_each_is_told_in_two_sentences_and_says_what_it_assumes(page: str):
    sections = re.findall(
        r'<h3 id="(.*?)">(.*?)</h3>\s*<p>(.*?)</p>.*?<dt>Assumes</dt><dd>(.*?)</dd>', page, flags=re.DOTALL
    )
    assert len(sections) == page.count('<h3 id="') >= 20
    contents = page.partition('<ul class="contents">')[2].partition("</ul>")[0]
    for anchor, name, says, assumes in sections:
        assert f'<a href="#{anchor}">{name}</a>' in contents
        assert len(re.findall(r"[.](?=\s[A-Z]|$)", says)) == 2, name
        assert assumes.endswith(".")
