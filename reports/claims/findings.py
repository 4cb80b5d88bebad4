"""The finding of each comparison, and about how many seeds would decide an inconclusive comparison.

A comparison sets a treated method against a control seed by seed, and a claim asserts a relation of the two
methods, such as "better". The finding is supported, refuted or inconclusive. The chosen settings are the
learning rates and other options that tuning found best, one setting for each of the two methods. Alternatives
are the same comparison at other settings that tuning may have chosen with other tuning seeds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from curvebench.reports.claims.censoring import Bounds
from curvebench.reports.claims.comparison import Alternative, ClaimComparison
from curvebench.reports.statistics import decisions
from curvebench.reports.statistics.decisions import POWER, RESAMPLED, SEEDS, Finding, decide, holm
from curvebench.results.intervals import median
from curvebench.results.schema import EDGE, FINDINGS
from curvebench.results.tuning import shares_of_choices
from curvebench.results.verdicts import ALPHA, MIN_AGREEMENT, choices_flip

# Columns of the table `findings` whose values are attributes of the condition with the same names.
OF_CONDITION = ("metric", "which", "quantity", "at_equal", "relation")
# Whether a comparison may depend on the search for the settings of its methods, for rows of `findings`
DEPENDS_ON_SEARCH = (pl.col("at_edge").list.len() > 0).fill_null(value=False)
Row = dict[str, Any]  # a row of the table `findings`: values by the name of the column


def decided(compared: Sequence[ClaimComparison]) -> pl.DataFrame:
    """Return the table `findings`: the estimate, the p-values and the finding of each comparison.

    A claim is supported only if all its comparisons are supported. Therefore the p-values for the asserted
    relation are used without correction (an intersection-union test). A single refuted comparison refutes the
    claim. Therefore the p-values against the relation are corrected by Holm's method for the number of
    comparisons. The table also has the p-values for the relation after Holm's correction, which show the
    comparisons that are supported jointly. Positive controls (comparisons that test a statement the source
    takes for granted) are corrected among themselves.

    Args:
        compared: comparisons of all claims, in the order of the rows.
    """
    claims: dict[tuple[str, str, bool], list[ClaimComparison]] = {}
    for comparison in compared:
        family = comparison.key.claim, comparison.backend, comparison.condition.positive_control is not None
        claims.setdefault(family, []).append(comparison)
    rows = {}
    for group in claims.values():
        p_values = holm([comparison.p_value for comparison in group])
        refuting = holm([comparison.refuting_p_value for comparison in group])
        for comparison, p_value, against in zip(group, p_values, refuting, strict=True):
            rows[id(comparison)] = _finding_row(comparison, p_value, against, len(group))
    return pl.DataFrame([rows[id(comparison)] for comparison in compared], schema=FINDINGS)


def _finding_row(comparison: ClaimComparison, holm_p_value: float, refuting: float, relations: int) -> Row:
    """Return the row of one comparison in the table `findings`.

    Args:
        holm_p_value: p-value for the relation, corrected by Holm's method.
        refuting: p-value against the relation, corrected by Holm's method.
        relations: number of comparisons whose p-values are corrected together.
    """
    row = effect_row(comparison) | {"finding": "inconclusive"}
    if not len(comparison.gains):
        return row
    finding, tuned = finding_of(comparison, refuting, relations)
    tuning_seeds = _tuning_seeds(comparison, tuned, refuting, relations)
    undecided = finding == "inconclusive" and tuning_seeds is None
    return row | {
        "p_value": comparison.p_value,
        "holm_p_value": holm_p_value,
        "refuting_p_value": refuting,
        "finding": finding,
        "turned": _turned(comparison, refuting),
        "at_edge": [{**dict.fromkeys(EDGE), **limit} for limit in comparison.at_edge],
        "seeds_needed": _seeds(comparison, relations) if undecided and not comparison.reach else None,
        "tuning_seeds_needed": tuning_seeds,
        **tuned,
    }


def effect_row(comparison: ClaimComparison) -> Row:
    """Return the columns of the table `findings` that are known before the comparison is decided."""
    condition, (low, high) = comparison.condition, comparison.accepted_range
    row: Row = {
        **comparison.key._asdict(),
        **{name: getattr(condition, name) for name in OF_CONDITION},
        "backend": comparison.backend,
        "positive_control": condition.positive_control is not None,
        "effect": comparison.effect,
        "margin": comparison.as_effect(comparison.smallest_accepted),
        "allowed_low": low,
        "allowed_high": high,
        "seeds": len(comparison.gains),
        "stop": comparison.stop,
        "beyond_seeds": comparison.beyond_seeds,
        "reach": comparison.reach,
    }
    if not len(comparison.gains):
        return row
    effect = comparison.bounds
    return row | {
        "estimate": effect.median,
        "at_least": effect.floor.median,
        "at_most": effect.ceiling.median,
        **{name: getattr(effect, name) for name in ("low", "high", "level")},
        **{name: getattr(comparison.gain_bounds, name) for name in ("unknown", "bounded")},
        **{name: getattr(comparison, name) for name in ("treated_at_start", "control_at_start", "unanimous")},
    }


def finding_of(comparison: ClaimComparison, refuting: float, relations: int) -> tuple[Finding, Row]:
    """Return the finding of a comparison, and how many alternatives have the same finding.

    The finding is inconclusive if it changes at other settings that tuning may have chosen (`choices_flip`),
    or if the threshold of the comparison cannot decide it (`Quantity.reach`).

    Args:
        refuting: p-value against the relation, corrected by Holm's method.
        relations: number of comparisons whose p-values are corrected together.

    Returns:
        The finding, and the columns of the table `findings` that count alternatives (`_over_settings`).
    """
    if comparison.reach:
        return "inconclusive", {}
    finding = _at_chosen(comparison, refuting)
    tuned = _over_settings(comparison, finding, relations)
    return ("inconclusive" if choices_flip(tuned) else finding), tuned


def _at_chosen(comparison: ClaimComparison, refuting: float) -> Finding:
    """Return the finding of a comparison at the chosen settings only.

    Args:
        refuting: p-value against the relation, corrected for the number of comparisons.
    """
    low, high = comparison.gain_bounds
    return decide(comparison.question, low, refuting, ALPHA, high)


def is_supported(comparison: ClaimComparison) -> bool:
    """Return whether pairs of runs support the relation of the claim at the chosen settings."""
    # Only a refutation depends on the p-value against the relation.
    return len(comparison.gains) > 0 and _at_chosen(comparison, refuting=1.0) == "supported"


def _over_settings(comparison: ClaimComparison, finding: Finding, relations: int) -> Row:
    """Count the alternatives with the same finding as the chosen settings.

    Alternatives matter if one of them ties with the chosen settings, or if tuning chooses alternatives in
    more than 5 % of the resamples of the tuning seeds. If alternatives matter but none of them was run, it is
    not known how many agree. If some alternatives were run, an alternative that was not run counts as
    disagreeing. P-values against the relation are corrected by Bonferroni's method here, since only this
    comparison changes its settings.

    Args:
        finding: finding at the chosen settings.
        relations: number of comparisons whose p-values are corrected together.

    Returns:
        Columns of the table `findings`: ties (number of alternatives that tie with the chosen settings) and
        settings_not_run (number of alternatives without runs). If known, also ties_agree (number of ties with
        the same finding) and choices_agree (share of the resamples of the tuning seeds in which tuning
        chooses settings with the same finding).
    """
    choices = comparison.alternatives
    not_run = sum(choice.gain_bounds is None for choice in choices)
    tuned: Row = {"ties": sum(choice.tied for choice in choices), "settings_not_run": not_run}
    matter = tuned["ties"] or sum(choice.share for choice in choices) > 1 - MIN_AGREEMENT
    if matter and not_run == len(choices):
        return tuned
    same = _agreeing(comparison, finding, relations)
    differing = sum(choice.share for choice in choices) - sum(choice.share for choice in same)
    return tuned | {"ties_agree": sum(choice.tied for choice in same), "choices_agree": 1 - differing}


def _agreeing(comparison: ClaimComparison, finding: Finding, relations: int) -> list[Alternative]:
    """Return the alternatives (the comparison at other settings) that have runs and the finding `finding`.

    Args:
        finding: finding at the chosen settings.
        relations: number of comparisons whose p-values are corrected together.
    """
    agreeing, question = [], comparison.question
    for choice in comparison.alternatives:
        if choice.gain_bounds is not None:
            low, high = choice.gain_bounds
            refuting = min(1.0, relations * question.refuting_p_value(low, high))
            if decide(question, low, refuting, ALPHA, high) == finding:
                agreeing.append(choice)
    return agreeing


def _seeds(comparison: ClaimComparison, relations: int) -> int | None:
    """Return about how many pairs of runs would decide an inconclusive comparison (`_is_decided`).

    Studies with more pairs are simulated by drawing from the pairs with replacement. The same pairs are drawn
    at the chosen settings and in all alternatives. The result is the smallest number of pairs in `SEEDS` with
    which at least the share `POWER` of the simulated studies is decided.

    Args:
        relations: number of comparisons whose p-values are corrected together.

    Returns:
        The number of pairs. None if no number in `SEEDS` suffices, if censoring would leave the comparison
        undecided with any number, or if some alternatives have another number of pairs than the comparison.
    """
    run_choices = [choice.gain_bounds for choice in comparison.alternatives if choice.gain_bounds is not None]
    if not run_choices:  # simulate only the chosen settings, since no alternative was run
        low, high = comparison.gain_bounds
        return decisions.seeds_needed(comparison.question, low, relations, ALPHA, high)
    count = len(comparison.gains)
    if comparison.beyond_seeds or any(len(bounds.low) != count for bounds in run_choices):
        return None

    def decides(size: int) -> bool:
        resamples = np.random.default_rng(size).choice(count, (RESAMPLED, size))
        decided_count = sum(_is_decided(comparison.at_pairs(drawn), relations) for drawn in resamples)
        return decided_count / RESAMPLED >= POWER

    sizes = [size for size in SEEDS if size > count]
    smallest = bisect_left(sizes, True, key=decides)
    return sizes[smallest] if smallest < len(sizes) else None


def _is_decided(comparison: ClaimComparison, relations: int) -> bool:
    """Return whether a comparison is supported or refuted, and its alternatives do not change this finding.

    The p-value of the test that can refute the relation is multiplied by the number of comparisons
    (`relations`). Holm's method may multiply it by a smaller number, so that the answer errs towards
    undecided.
    """
    refuting = min(1.0, relations * comparison.refuting_p_value)
    if _at_chosen(comparison, refuting) == "inconclusive":
        return False  # skip the alternatives, which are slow and cannot change this result
    return finding_of(comparison, refuting, relations)[0] != "inconclusive"


def _tuning_seeds(comparison: ClaimComparison, tuned: Row, refuting: float, relations: int) -> int | None:
    """Return about how many tuning seeds would make the finding independent of the choice of settings.

    Tuning is repeated on resamples of the tuning seeds of each size in `SEEDS`. The result is the smallest
    size at which tuning chooses settings with the same finding in 95 % of the resamples. This assumes that
    the present tuning seeds are representative.

    Args:
        tuned: columns of the table `findings` that count alternatives, as `finding_of` returns them.
        refuting: p-value against the relation, corrected by Holm's method.
        relations: number of comparisons whose p-values are corrected together.

    Returns:
        The number of tuning seeds. None if the comparison is inconclusive at the chosen settings, if the
        finding does not depend on the choice of settings, if settings that tie have different findings, or if
        no size in `SEEDS` suffices.
    """
    if not comparison.tuning_outcomes or not choices_flip(tuned) or tuned["ties_agree"] < tuned["ties"]:
        return None
    if (finding := _at_chosen(comparison, refuting)) == "inconclusive":
        return None
    outcomes = comparison.tuning_outcomes
    agreeing = {choice.settings for choice in _agreeing(comparison, finding, relations)}
    agreeing.add(tuple(outcome.chosen for outcome in outcomes))
    for size in (size for size in SEEDS if size > max(outcome.seeds for outcome in outcomes)):
        shares = shares_of_choices(outcomes, size)
        if sum(share for settings, share in shares.items() if settings in agreeing) >= MIN_AGREEMENT:
            return size
    return None


def _turned(comparison: ClaimComparison, refuting: float) -> int:
    """Count the tied alternatives whose median gain has another sign than the gain at the chosen settings.

    A tied alternative is the comparison at settings that were as good in tuning as the chosen settings.

    Alternatives at which censoring leaves the sign unknown are not counted. If the comparison is supported or
    refuted at the chosen settings, the count is 0.

    Args:
        refuting: p-value against the relation, corrected for the number of comparisons.
    """
    if _at_chosen(comparison, refuting) != "inconclusive":
        return 0
    chosen, ties = _direction(comparison.gain_bounds), [case for case in comparison.alternatives if case.tied]
    directions = [_direction(case.gain_bounds) for case in ties if case.gain_bounds is not None]
    return sum(chosen is not None and direction not in (chosen, None) for direction in directions)


def _direction(gains: Bounds) -> float | None:
    """Return the sign of the median gain: -1, 0 or 1; None if censoring leaves the sign unknown.

    Args:
        gains: bounds of the gain of each pair.
    """
    low, high = (float(np.sign(median(end))) for end in gains)
    return low if low == high else None
