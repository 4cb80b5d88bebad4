"""The setting of a study in words, whatever its options are: the table `settings.yaml`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from curvebench.reports.rendering import templates
from curvebench.spec.plan import read_plan
from tests.reports.changing import update
from tests.reports.conftest import Report, changed_plan, words_of

CASES = YAML(typ="safe").load(Path(__file__).with_name("settings.yaml"))


def test_options_are_escaped_once_on_a_page():
    page: Any = templates().get_template("setting.jinja").module
    given = {"a": ["x & y", "<b>"], "b": ["<i>", "2", "3"], "c": [], "d": {"e": ["&"]}}
    said = " ".join(str(page.options(given)).split())
    assert said == "a x &amp; y and &lt;b&gt;, b &lt;i&gt;, 2 and 3, c none, d (e &amp;)"


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case["study"]))
def test_a_study_tells_its_setting_in_words(report: Report, tmp_path: Path, case: dict[str, Any]):
    plan = changed_plan(report.plan_file, tmp_path, lambda raw: update(raw["studies"][0], **case["study"]))
    said = words_of("setting.jinja", "rows", read_plan(plan).studies[0])
    found = {term: words.strip() for term, words in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", said)}
    assert found.items() >= case["says"].items()
    assert not found.keys() & {*case["lacks"]}
