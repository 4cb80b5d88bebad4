"""Which further seeds are asked for where a comparison or a claim is open."""

from __future__ import annotations

from typing import Any

import pytest

from reports.claims.further_seeds import of_claim, of_comparison, open_by_choice

OPEN = {
    "finding": "inconclusive",
    "relation": "better",
    "effect": "ratio",
    "margin": 0.95,
    "seeds": 20,
    "estimate": 0.8,
    "p_value": 0.3,
    "refuting_p_value": 1.0,
    "beyond_seeds": False,
    "seeds_needed": 40,
    "tuning_seeds_needed": None,
    "ties": 0,
    "ties_agree": 0,
    "choices_agree": 1.0,
    "settings_not_run": 0,
}
BY_CHOICE = {**OPEN, "p_value": 0.006, "choices_agree": 0.5, "seeds_needed": 1000}
TUNING = "more tuning seeds would be needed to choose its settings by"


@pytest.mark.parametrize(
    ("change", "by_choice"),
    [
        ({}, True),
        ({"p_value": 1.0, "refuting_p_value": 0.006}, True),
        ({"choices_agree": 0.95}, False),
        ({"choices_agree": None}, False),
        ({"p_value": 0.06}, False),
        ({"estimate": 0.97}, False),
        ({"estimate": None}, False),
        ({"estimate": 0.97, "relation": "no_worse", "margin": 1.05}, True),
        ({"estimate": 0.3, "effect": "difference", "margin": 0.2}, True),
        ({"estimate": -0.3, "effect": "difference", "margin": -0.2}, True),
        ({"estimate": 0.1, "effect": "difference", "margin": 0.2}, False),
        ({"finding": "supported"}, False),
    ],
)
def test_a_comparison_is_open_by_choice_where_final_seeds_decide_it(change: dict[str, Any], by_choice: bool):
    assert open_by_choice({**BY_CHOICE, **change}) == by_choice


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (OPEN, "about 40 seeds would decide it"),
        (BY_CHOICE, TUNING),
        ({**BY_CHOICE, "tuning_seeds_needed": 150}, "about 150 tuning seeds would decide it"),
        ({**OPEN, "choices_agree": 0.5}, "about 40 seeds would decide it"),
        ({**OPEN, "seeds_needed": None, "beyond_seeds": True}, "more seeds would not decide it"),
        ({**OPEN, "seeds_needed": None, "choices_agree": 0.5}, ""),
        ({**OPEN, "seeds_needed": None, "seeds": 1000}, ""),
        ({**OPEN, "seeds": 0, "choices_agree": None}, ""),
        ({**OPEN, "finding": "refuted"}, ""),
    ],
)
def test_a_comparison_asks_for_the_seeds_that_would_decide_it(one: dict[str, Any], said: str):
    assert of_comparison(one) == said


FINAL, CHOICE = (
    "about 40 seeds would be needed to confirm or refute it",
    "more tuning seeds would be needed to choose by",
)


@pytest.mark.parametrize(
    ("comparisons", "about", "said"),
    [
        ([OPEN], {"seeds_needed": 40}, FINAL),
        ([BY_CHOICE], {"seeds_needed": 1000}, CHOICE),
        ([BY_CHOICE, OPEN], {"seeds_needed": 1000}, f"{FINAL}; {CHOICE}"),
        ([BY_CHOICE], {"tuning_seeds_needed": 150}, "about 150 tuning seeds would be needed to choose by"),
        ([OPEN], {"beyond_seeds": True}, "these runs cannot decide it, and more seeds would not either"),
        ([OPEN, OPEN], {}, ""),
        ([BY_CHOICE], {"verdict": "not reproduced", "tuning_seeds_needed": 150}, ""),
    ],
)
def test_a_claim_asks_for_final_seeds_only_where_they_leave_a_comparison_open(
    comparisons: list[dict[str, Any]], about: dict[str, Any], said: str
):
    unknown = {"verdict": "underpowered", "seeds_needed": None, "tuning_seeds_needed": None}
    one = {**unknown, "beyond_seeds": False, "comparisons": comparisons, **about}
    assert of_claim(one) == said
