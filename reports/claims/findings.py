"""The finding of each comparison of a claim: at the chosen settings, at others, and with more seeds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from curvebench.reports.claims.censoring import Interval
from curvebench.reports.claims.comparison import Alternative, ClaimComparison
from curvebench.reports.statistics import decisions
from curvebench.reports.statistics.decisions import POWER, RESAMPLED, SEEDS, Finding, decide, holm
from curvebench.results.intervals import median
from curvebench.results.schema import FINDINGS
from curvebench.results.tuning import shares_of_choices
from curvebench.results.verdicts import ALPHA, KEPT, choices_flip

OF_CONDITION = ("metric", "which", "quantity", "at_equal", "relation")  # columns of the table


def decided(compared: Sequence[ClaimComparison]) -> pl.DataFrame:
    """The table `findings`: each comparison's estimate, its p-values and what it says.

    All comparisons of a claim must hold, so that each is supported by its own p-value (an intersection-union
    test), and one that is refuted refutes the claim, so that refutations are corrected by Holm's method. His
    correction of the p-values for the relation says which comparisons hold together.
    """
    claims: dict[tuple[str, str, bool], list[ClaimComparison]] = {}
    for one in compared:
        together = one.key.claim, one.backend, one.condition.positive_control is not None
        claims.setdefault(together, []).append(one)
    rows = {
        id(one): _finding_row(one, together, refuting, len(own))
        for own in claims.values()
        for one, together, refuting in zip(
            own, holm([one.p_value for one in own]), holm([one.refuting_p_value for one in own]), strict=True
        )
    }
    return pl.DataFrame([rows[id(one)] for one in compared], schema=FINDINGS)


def _finding_row(one: ClaimComparison, together: float, refuting: float, relations: int) -> dict[str, object]:
    row = effect_row(one) | {"finding": "inconclusive"}
    if not len(one.gains):
        return row
    found, tuned = finding_of(one, refuting, relations)
    tuning_seeds = _tuning_seeds(one, tuned, refuting, relations)
    undecided = found == "inconclusive" and tuning_seeds is None
    return row | {
        "p_value": one.p_value,
        "holm_p_value": together,
        "refuting_p_value": refuting,
        "finding": found,
        "turned": _turned(one, refuting),
        "seeds_needed": _seeds(one, relations) if undecided else None,
        "tuning_seeds_needed": tuning_seeds,
        **tuned,
    }


def effect_row(one: ClaimComparison) -> dict[str, object]:
    """Return what a row of `findings` has of a comparison before it is decided."""
    condition, (low, high) = one.condition, one.accepted_range
    row: dict[str, object] = {
        **one.key._asdict(),
        **{name: getattr(condition, name) for name in OF_CONDITION},
        "backend": one.backend,
        "positive_control": condition.positive_control is not None,
        "effect": one.effect,
        "margin": one.as_effect(one.margin if condition.relation == "better" else -one.margin),
        "allowed_low": low,
        "allowed_high": high,
        "seeds": len(one.gains),
        "stop": one.stop,
        "beyond_seeds": one.beyond_seeds,
    }
    if not len(one.gains):
        return row
    effect = one.bounds
    return row | {
        "estimate": effect.median,
        "at_least": effect.floor.median,
        "at_most": effect.ceiling.median,
        **{name: getattr(effect, name) for name in ("low", "high", "level")},
        **{name: getattr(one.interval, name) for name in ("unknown", "bounded")},
        **{name: getattr(one, name) for name in ("treated_at_start", "control_at_start")},
    }


def finding_of(one: ClaimComparison, refuting: float, relations: int) -> tuple[Finding, dict[str, Any]]:
    """What a comparison says, and how often other settings say the same as the chosen ones.

    Args:
        refuting: its p-value against the relation, corrected.
        relations: how many comparisons the claim rests on.
    """
    found = _at_chosen(one, refuting)
    tuned = _over_settings(one, found, relations)
    return ("inconclusive" if choices_flip(tuned) else found), tuned


def _at_chosen(one: ClaimComparison, refuting: float) -> Finding:
    """What a comparison says at the chosen settings."""
    low, high = one.interval
    return decide(one.question, low, refuting, ALPHA, high)


def _over_settings(one: ClaimComparison, found: Finding, relations: int) -> dict[str, Any]:
    """How often a comparison has the same finding at other settings that tuning may have chosen.

    Where none of them was run, nothing is known of that; where some were, the others count as disagreeing.
    Refutations are corrected by Bonferroni's method, since the other comparisons keep their settings.
    """
    others = one.alternatives
    not_run = sum(other.interval is None for other in others)
    tuned: dict[str, Any] = {"ties": sum(other.tied for other in others), "settings_not_run": not_run}
    matter = tuned["ties"] or sum(other.share for other in others) > 1 - KEPT
    if matter and not_run == len(others):
        return tuned
    same = _agreeing(one, found, relations)
    differing = sum(other.share for other in others) - sum(other.share for other in same)
    return tuned | {"ties_agree": sum(other.tied for other in same), "choices_agree": 1 - differing}


def _agreeing(one: ClaimComparison, found: Finding, relations: int) -> list[Alternative]:
    """The other settings at which a comparison says the same; settings that were not run say nothing."""
    ends = [(other, other.interval) for other in one.alternatives if other.interval is not None]
    ask = one.question
    refuting = [min(1.0, relations * ask.refuting_p_value(*interval)) for _, interval in ends]
    return [
        other
        for (other, (low, high)), against in zip(ends, refuting, strict=True)
        if decide(ask, low, against, ALPHA, high) == found
    ]


def _seeds(one: ClaimComparison, relations: int) -> int | None:
    """About how many pairs would decide an inconclusive comparison, at all settings that may be chosen.

    Studies are drawn from the pairs with replacement, the same pairs at all settings; the answer is the least
    size of `SEEDS` of which at least `POWER` are decided. None where no size would do, or settings have other
    pairs.
    """
    pairs = {len(other.interval.low) for other in one.alternatives if other.interval is not None}
    if not pairs:  # nothing is known of other settings
        low, high = one.interval
        return decisions.seeds_needed(one.question, low, relations, ALPHA, high)
    count = len(one.gains)
    if one.beyond_seeds or pairs != {count}:
        return None

    def decides(size: int) -> bool:
        drawn = np.random.default_rng(size).choice(count, (RESAMPLED, size))
        return bool(np.mean([_is_decided(one.of_pairs(places), relations) for places in drawn]) >= POWER)

    sizes = [size for size in SEEDS if size > count]
    least = bisect_left(sizes, True, key=decides)
    return sizes[least] if least < len(sizes) else None


def _is_decided(one: ClaimComparison, relations: int) -> bool:
    refuting = min(1.0, relations * one.refuting_p_value)  # as severe as Holm's method may be
    if _at_chosen(one, refuting) == "inconclusive":
        return False  # whatever the other settings say, which takes longer to find
    return finding_of(one, refuting, relations)[0] != "inconclusive"


def _tuning_seeds(
    one: ClaimComparison, tuned: Mapping[str, Any], refuting: float, relations: int
) -> int | None:
    """Return about how many tuning seeds would do where those that there are may choose other settings.

    That is the smallest size of `SEEDS` of which 95 % of the draws choose settings with the same finding, if
    further seeds are like those that are there. None for a comparison that is inconclusive for more than its
    choices, whose ties disagree, or for which no size would do.

    Args:
        tuned: how often other settings agree, as `finding_of` gives it.
    """
    if not one.tuning_outcomes or not choices_flip(tuned) or tuned["ties_agree"] < tuned["ties"]:
        return None
    if (found := _at_chosen(one, refuting)) == "inconclusive":
        return None  # however often they choose these settings again
    same = _agreeing(one, found, relations)
    agreeing = {tuple(each.chosen for each in one.tuning_outcomes), *(other.settings for other in same)}
    sizes = (size for size in SEEDS if size > max(each.seeds for each in one.tuning_outcomes))
    for size in sizes:
        drawn = shares_of_choices(one.tuning_outcomes, size)
        if sum(share for settings, share in drawn.items() if settings in agreeing) >= KEPT:
            return size
    return None


def _turned(one: ClaimComparison, refuting: float) -> int:
    """Count the settings that tie at which the effect of an open comparison has another direction.

    Effects whose direction is not known, because runs stopped, are not counted. 0 for a comparison that the
    chosen settings decide.
    """
    if _at_chosen(one, refuting) != "inconclusive":
        return 0
    chosen, ties = _direction(one.interval), [other.interval for other in one.alternatives if other.tied]
    known = [_direction(interval) for interval in ties if interval is not None]
    return sum(chosen is not None and each not in (chosen, None) for each in known)


def _direction(gains: Interval) -> float | None:
    """The sign of the median gain; None where it is not known."""
    low, high = (float(np.sign(median(end))) for end in gains)
    return low if low == high else None
