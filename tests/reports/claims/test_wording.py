"""Verdicts in words: the numbers that a sentence must have, and when nothing is said."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from curvebench.reports.claims.wording import (
    choices,
    exploratory,
    requirement,
    seeds_for_claim,
    seeds_for_comparison,
)

OPEN = {
    "finding": "inconclusive",
    "seeds": 20,
    "beyond_seeds": False,
    "seeds_needed": 40,
    "tuning_seeds_needed": None,
    "ties": 0,
    "ties_agree": 0,
    "choices_agree": 1.0,
    "settings_not_run": 0,
    "choices": "",
}
BY_CHOICE = {**OPEN, "seeds_needed": None, "tuning_seeds_needed": 150, "choices_agree": 0.8}
UNKNOWN = {**OPEN, "seeds_needed": None}
BEYOND = {**UNKNOWN, "beyond_seeds": True}
SUPPORTED = {**UNKNOWN, "finding": "supported"}


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (OPEN, ("40", "final")),
        ({**OPEN, "choices": "open"}, ("40", "final")),
        (BY_CHOICE, ("150", "tuning")),
        (BEYOND, ("more seeds",)),
        (UNKNOWN, ("1,000", "90 %")),
        ({**UNKNOWN, "choices": "open"}, ()),
        ({**UNKNOWN, "seeds": 1000}, ()),
        ({**OPEN, "seeds": 0}, ()),
        ({**OPEN, "finding": "refuted"}, ()),
    ],
)
def test_a_comparison_asks_for_the_seeds_that_would_decide_it(one: dict[str, Any], said: tuple[str, ...]):
    words = seeds_for_comparison(one)
    assert bool(words) == bool(said)
    assert all(token in words for token in said)


@pytest.mark.parametrize(
    ("comparisons", "said"),
    [
        ([OPEN, SUPPORTED], ("40 final",)),
        ([OPEN, {**OPEN, "seeds_needed": 20}], ("40 final",)),
        ([BY_CHOICE, SUPPORTED], ("150 tuning",)),
        ([BY_CHOICE, OPEN], ("40 final", "150 tuning")),
        ([BY_CHOICE, BEYOND], ("more seeds",)),
        ([BY_CHOICE, UNKNOWN], ()),
        ([OPEN, UNKNOWN], ()),
        ([], ()),
    ],
)
def test_a_claim_asks_for_what_all_its_open_comparisons_need(
    comparisons: list[dict[str, Any]], said: tuple[str, ...]
):
    words = seeds_for_claim("underpowered", comparisons)
    assert bool(words) == bool(said)
    assert all(token in words for token in said)
    assert seeds_for_claim("not reproduced", comparisons) == ""


@pytest.mark.parametrize(
    ("agree", "share", "not_run", "said"),
    [
        (2, 0.96, 1, ()),
        (1, 0.96, 0, ("1 of 2 settings",)),
        (2, 0.79, 0, ("21.0 %", "5 %")),
        (0, 0.79, 3, ("2 of 2 settings", "21.0 %", ": 3)")),
    ],
)
def test_settings_that_lead_to_another_finding_are_counted(
    agree: int, share: float, not_run: int, said: tuple[str, ...]
):
    row = {"ties": 2, "ties_agree": agree, "choices_agree": share, "settings_not_run": not_run}
    assert bool(choices(row)) == bool(said)
    assert all(token in choices(row) for token in said)


@pytest.mark.parametrize(
    ("effect", "low", "high", "said"),
    [
        ("ratio", 0.0, 0.95, "at most 0.950"),
        ("ratio", 1.05, inf, "at least 1.05"),
        ("ratio", 0.95, 1.05, "0.950 to 1.05"),
        ("difference", -inf, 0.02, "at most +0.0200"),
    ],
)
def test_a_requirement_names_the_bounds_that_it_has(effect: str, low: float, high: float, said: str):
    assert requirement(effect, low, high) == said


def test_a_verdict_is_exploratory_where_its_rule_is_not_the_one_of_its_runs():
    row = {"seeds": 3, "rule": "a", "rule_of_runs": "a", "backend": "jax"}
    assert exploratory(row) == exploratory({**row, "seeds": 0, "rule_of_runs": "b"}) == ""
    assert exploratory({**row, "rule_of_runs": "b"})
    assert exploratory({**row, "rule_of_runs": None})
    assert exploratory({**row, "rule_of_runs": None, "backend": None}) == "", "of property checks"
