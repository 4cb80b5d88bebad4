"""How many seeds would decide what is open: final ones, or tuning ones where the settings do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.claims.verdicts import choices_in_words
from reports.statistics.decisions import POWER, SEEDS
from results.verdicts import ALPHA, KEPT


def open_by_choice(comparison: Mapping[str, Any]) -> bool:
    """Whether a comparison is open for the choice of its settings alone.

    Its final seeds decide it at the chosen settings, and draws of tuning seeds choose others that do not say
    the same.
    """
    agree = comparison["choices_agree"]
    if comparison["finding"] != "inconclusive" or agree is None or agree >= KEPT:
        return False
    supported = comparison["p_value"] <= ALPHA and _is_as_asked(comparison)
    return bool(supported or comparison["refuting_p_value"] <= ALPHA)


def _is_as_asked(comparison: Mapping[str, Any]) -> bool:
    """Whether the median is beyond the margin where it must be, which the test of "better" does not ask."""
    estimate, margin = comparison["estimate"], comparison["margin"]
    no_effect = 1.0 if comparison["effect"] == "ratio" else 0.0
    if comparison["relation"] != "better":
        return True
    return estimate is not None and (estimate - margin) * (margin - no_effect) >= 0


def of_comparison(comparison: Mapping[str, Any]) -> str:
    """Which further seeds would decide a comparison, in words; empty where none is known to."""
    if comparison["finding"] != "inconclusive" or not comparison["seeds"]:
        return ""
    if comparison["tuning_seeds_needed"]:
        return f"about {comparison['tuning_seeds_needed']:,} tuning seeds would decide it"
    if open_by_choice(comparison):
        return "more tuning seeds would be needed to choose its settings by"
    if comparison["seeds_needed"]:
        return f"about {comparison['seeds_needed']:,} seeds would decide it"
    if comparison["beyond_seeds"]:
        return "more seeds would not decide it"
    if choices_in_words(comparison) or comparison["seeds"] >= SEEDS[-1]:
        return ""
    return f"not even {SEEDS[-1]:,} seeds like these would decide it with a power of {POWER:.0%}"


def of_claim(verdict: Mapping[str, Any]) -> str:
    """Which further seeds would decide an open claim, in words; empty of others, or where none is known."""
    if verdict["verdict"] != "underpowered":
        return ""
    chosen = [one for one in verdict["comparisons"] if open_by_choice(one)]
    needed = [one["seeds_needed"] or 0 for one in verdict["comparisons"] if one not in chosen]
    words = []
    if verdict["seeds_needed"] and any(needed):
        words.append(f"about {max(needed):,} seeds would be needed to confirm or refute it")
    if verdict["tuning_seeds_needed"]:
        words.append(f"about {verdict['tuning_seeds_needed']:,} tuning seeds would be needed to choose by")
    elif chosen:
        words.append("more tuning seeds would be needed to choose by")
    if not words and verdict["beyond_seeds"]:
        words.append("these runs cannot decide it, and more seeds would not either")
    return "; ".join(words)
