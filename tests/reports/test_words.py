"""Settings, numbers and names in words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from curvebench.reports import formatting
from curvebench.reports.claims.wording import requirement, say
from curvebench.reports.formatting import slug
from curvebench.reports.rendering import templates
from curvebench.results.intervals import median_interval
from curvebench.spec.plan import read_plan
from curvebench.spec.training import Schedule
from tests.reports.changing import update
from tests.reports.conftest import Report, changed_plan, words_of

TABLE = YAML(typ="safe").load(Path(__file__).with_name("words.yaml"))


def levels(given: list[Any], noun: str) -> str:
    """Return the words of a page on the levels of intervals.

    Args:
        given: for each interval, the number of values whose median it is for, or the interval.
    """
    found = [median_interval(range(each)) if isinstance(each, int) else each for each in given]
    return words_of("macros.html.jinja", "levels", found, noun)


WORDS_OF_VERDICTS = (
    *("agreement", "cause", "choices", "domains", "exploratory"),
    *("seeds_for_claim", "seeds_for_comparison"),
)
SAYS: dict[str, Callable[..., object]] = {
    **{name: partial(say, name) for name in WORDS_OF_VERDICTS},
    "levels": levels,
    "requirement": requirement,
    "options": partial(words_of, "setting.jinja", "options"),
    "basis": partial(words_of, "setting.jinja", "basis"),
    "schedule": lambda given: words_of("setting.jinja", "schedule", Schedule.model_validate(given)),
}


@pytest.mark.parametrize(
    ("name", "given", "said"), [(name, given, said) for name, rows in TABLE.items() for *given, said in rows]
)
def test_numbers_names_and_settings_read_well(name: str, given: list[Any], said: object):
    assert (SAYS.get(name) or getattr(formatting, name))(*given) == said


@given(st.text(), st.text())
def test_names_become_safe_and_different_parts_of_links(left: str, right: str):
    assert not set(slug(left)) & set("/\\<>\"'&# ?%")
    assert slug(left) not in ("", ".", "..")
    assert (slug(left) == slug(right)) == (left == right)


CASES = YAML(typ="safe").load(Path(__file__).with_name("settings.yaml"))


def test_options_are_escaped_once_on_a_page():
    page: Any = templates().get_template("setting.jinja").module
    given = {"a": ["x & y", "<b>"], "b": ["<i>", "2", "3"], "c": [], "d": {"e": ["&"]}}
    said = " ".join(str(page.options(given)).split())
    assert said == "a x &amp; y and &lt;b&gt;, b &lt;i&gt;, 2 and 3, d (e &amp;)"


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case["study"]))
def test_a_study_tells_its_setting_in_words(report: Report, tmp_path: Path, case: dict[str, Any]):
    plan = changed_plan(report.plan_file, tmp_path, lambda raw: update(raw["studies"][0], **case["study"]))
    said = words_of("setting.jinja", "rows", read_plan(plan).studies[0])
    found = {term: words.strip() for term, words in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", said)}
    assert found.items() >= case["says"].items()
    assert not found.keys() & {*case["lacks"]}
