"""Numbers, names and settings as readers see them: the table `words.yaml`."""

from __future__ import annotations

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
from curvebench.results.intervals import median_interval
from curvebench.spec.training import Schedule
from tests.reports.conftest import words_of

TABLE = YAML(typ="safe").load(Path(__file__).with_name("words.yaml"))


def levels(given: list[Any], noun: str) -> str:
    """What a table says of its intervals, those of medians of so many values or of another level."""
    found = [median_interval(range(each)) if isinstance(each, int) else each for each in given]
    return words_of("macros.html.jinja", "levels", found, noun)


WORDS_OF_VERDICTS = ("agreement", "choices", "exploratory", "seeds_for_claim", "seeds_for_comparison")
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
