"""Which further seeds are asked for where a comparison or a claim is open."""

from __future__ import annotations

from typing import Any

import pytest

from curvebench.reports.claims.further_seeds import of_claim, of_comparison

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
}
BY_CHOICE = {**OPEN, "seeds_needed": None, "tuning_seeds_needed": 150, "choices_agree": 0.8}
UNKNOWN = {**OPEN, "seeds_needed": None}
BEYOND = {**UNKNOWN, "beyond_seeds": True}
SUPPORTED = {**UNKNOWN, "finding": "supported"}


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (OPEN, "about 40 final seeds would decide it"),
        ({**OPEN, "choices_agree": 0.5}, "about 40 final seeds would decide it"),
        (BY_CHOICE, "about 150 tuning seeds would decide it"),
        (BEYOND, "more seeds would not decide it"),
        (UNKNOWN, "not even 1,000 final seeds like these would decide it with a power of 90 %"),
        ({**UNKNOWN, "choices_agree": 0.5}, ""),
        ({**UNKNOWN, "seeds": 1000}, ""),
        ({**OPEN, "seeds": 0, "choices_agree": None}, ""),
        ({**OPEN, "finding": "refuted"}, ""),
    ],
)
def test_a_comparison_asks_for_the_seeds_that_would_decide_it(one: dict[str, Any], said: str):
    assert of_comparison(one) == said


FINAL = "about 40 final seeds would be needed to confirm or refute it"
TUNING = "about 150 tuning seeds would be needed to choose by"


@pytest.mark.parametrize(
    ("comparisons", "said"),
    [
        ([OPEN, SUPPORTED], FINAL),
        ([OPEN, {**OPEN, "seeds_needed": 20}], FINAL),
        ([BY_CHOICE, SUPPORTED], TUNING),
        ([BY_CHOICE, OPEN], f"{FINAL}; {TUNING}"),
        ([BY_CHOICE, BEYOND], "these runs cannot decide it, and more seeds would not either"),
        ([BY_CHOICE, UNKNOWN], ""),
        ([OPEN, UNKNOWN], ""),
        ([], ""),
    ],
)
def test_a_claim_asks_for_what_all_its_open_comparisons_need(comparisons: list[dict[str, Any]], said: str):
    assert of_claim({"verdict": "underpowered", "comparisons": comparisons}) == said
    assert of_claim({"verdict": "not reproduced", "comparisons": comparisons}) == ""
