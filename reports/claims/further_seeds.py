"""Which further seeds would decide what is open, in words: final ones, or tuning ones where settings do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curvebench.reports.claims.verdicts import choices_in_words
from curvebench.reports.formatting import percent
from curvebench.reports.statistics.decisions import POWER, SEEDS


def of_comparison(comparison: Mapping[str, Any]) -> str:
    """Which further seeds would decide a comparison, in words; empty where none is known to."""
    if comparison["finding"] != "inconclusive" or not comparison["seeds"]:
        return ""
    if comparison["tuning_seeds_needed"]:
        return f"about {comparison['tuning_seeds_needed']:,} tuning seeds would decide it"
    if comparison["seeds_needed"]:
        return f"about {comparison['seeds_needed']:,} final seeds would decide it"
    if comparison["beyond_seeds"]:
        return "more seeds would not decide it"
    if choices_in_words(comparison) or comparison["seeds"] >= SEEDS[-1]:
        return ""
    return f"not even {SEEDS[-1]:,} final seeds like these would decide it with a power of {percent(POWER)}"


def of_claim(verdict: Mapping[str, Any]) -> str:
    """Which further seeds would decide an open claim, in words; empty of others, or where none is known."""
    if verdict["verdict"] != "underpowered":
        return ""
    parts = [one for one in verdict["comparisons"] if one["finding"] == "inconclusive"]
    if any(one["beyond_seeds"] for one in parts):
        return "these runs cannot decide it, and more seeds would not either"
    tuning = [one["tuning_seeds_needed"] for one in parts if one["tuning_seeds_needed"]]
    final = [one["seeds_needed"] for one in parts if not one["tuning_seeds_needed"]]
    if None in final:
        return ""
    words = [f"about {max(final):,} final seeds would be needed to confirm or refute it"] if final else []
    if tuning:
        words.append(f"about {max(tuning):,} tuning seeds would be needed to choose by")
    return "; ".join(words)
