"""Verdicts, the hash of a decision rule, and the distance of measures from limits: pure functions.

The planning, the property checks and the reports all use them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from curvebench.spec.document import under_first_names
from curvebench.spec.plan import StudyClaims

Relation = Literal["<=", ">=", "=="]
Variant = Literal["", "as printed", "as corrected"]
SeriesKind = Literal["line", "fit", "reference", "contour", "path"]
LogAxes = Literal["", "x", "y", "x y"]
Verdict = Literal["reproduced", "partly reproduced", "not reproduced", "underpowered", "not run"]
ALPHA = 0.05  # one-sided level of each comparison of a claim, and of all refutations of a claim together
# A finding must be the same for at least this share of the settings that resampled tuning seeds choose.
MIN_AGREEMENT = 0.95
# A bound is tested if some instance takes at least this share of its limit. A claim whose bounds hold without
# being tested is reproduced only partly.
TESTED = 0.3
# Version of the way from runs to a verdict. It is a part of every hash, so that raising it changes the rule
# hash of all claims (tests/reports/claims/test_verdicts.py).
RULE_VERSION = 5


def rule_hash(claim: Mapping[str, Any], at_most_partly: str) -> str:
    """Return the hash of everything that decides a claim: the first 16 hexadecimal digits of a SHA-256.

    The order of the conditions, and of the keys in them, does not matter.

    Args:
        claim: `id` and `supported_if` as the study file has them, in plain JSON types.
        at_most_partly: reason of the scale why claims cannot be fully reproduced; only its presence counts.
    """
    first = under_first_names(claim)
    rule = {
        "version": RULE_VERSION,
        "alpha": ALPHA,
        "id": first["id"],
        "holds_if": sorted(first["holds_if"], key=_order),
        "at_most_partly": bool(at_most_partly),
    }
    return hashlib.sha256(json.dumps(rule, sort_keys=True).encode()).hexdigest()[:16]


def rules(study: StudyClaims) -> dict[str, str]:
    """Return the hash of the decision rule of each claim of a study, by the claim's id."""
    claims = (*study.claims, *study.repeated)
    return {claim.id: rule_hash(claim.written_rule, study.at_most_partly) for claim in claims}


def reason(
    code: str,
    count: int | None = None,
    of: int | None = None,
    value: float | None = None,
    names: Sequence[str] = (),
) -> dict[str, object]:
    """Return a reason of a claim's verdict, as the column `reasons` lists them.

    `curvebench.results.schema.REASONS` explains the codes and their numbers.
    """
    return {"code": code, "count": count, "of": of, "value": value, "names": list(names)}


def _order(condition: Mapping[str, Any]) -> str:
    """Return the sort key of a condition, which does not depend on the order of keys in the study file."""
    metric = condition["metric"]
    return json.dumps({**condition, "metric": [metric["which"], metric["metric"]]}, sort_keys=True)


def satisfies(value: float, relation: Relation, limit: float, tolerance: float, sampled: bool) -> bool | None:
    """Return whether a measure satisfies its limit; None where an estimate is too inaccurate to tell.

    Args:
        value: the measure; infinite and NaN values never satisfy a limit.
        relation: relation that the claim asserts between value and limit.
        limit: number that the claim sets.
        tolerance: distance by which the value may miss the limit, for rounding; for an estimate half of the
            length of its interval.
        sampled: whether the value is an estimate. If the limit lies in its interval, an inequality is
            undecided, while an equality is satisfied.
    """
    if not math.isfinite(value):
        return False
    if relation == "==":
        return abs(value - limit) <= tolerance
    if sampled and abs(value - limit) <= tolerance:
        return None
    return value <= limit + tolerance if relation == "<=" else value >= limit - tolerance


def bound_shares(measures: Iterable[tuple[str, float, Relation, float, float]]) -> dict[str, float]:
    """Return the largest share of its limit that each bound of a subclaim takes, by quantity.

    A bound is a measure that must stay below a positive limit.

    Args:
        measures: quantity, value, relation, limit and tolerance of each measure.
    """
    shares: dict[str, float] = {}
    for quantity, value, relation, limit, tolerance in measures:
        if relation == "<=" and limit > 0:
            share = share_of_limit(value, relation, limit, tolerance)
            shares[quantity] = max(share, shares.get(quantity, 0.0))
    return shares


def least_tested(shares: Mapping[str, float]) -> tuple[str, float]:
    """Return the bound of a subclaim that takes the smallest share of its limit, with this share.

    A subclaim without bounds has an empty name and the share 0.
    """
    return min(shares.items(), key=lambda bound: bound[1], default=("", 0.0))


def verdicts(
    holding: Mapping[tuple[str, Variant], bool | None],
    at_most_partly: str = "",
    untested: Collection[tuple[str, str]] = (),
) -> dict[Variant, Verdict]:
    """Return the verdict of property checks by variant; the variant is empty where the source has no
    misprint.

    A claim is reproduced if all its subclaims hold, only partly if some of them are not tested. It is not
    reproduced if one misses. Otherwise sampling leaves some undecided, and the claim is underpowered. As
    printed, only the misprinted subclaims are judged, so that true statements next to a false one do not save
    it. As corrected, the corrected subclaims and the well-printed ones are judged.

    Args:
        holding: whether each subclaim holds, by subclaim and variant; None where an estimate is undecided.
        at_most_partly: reason why the claim cannot be fully reproduced; empty where it can.
        untested: subclaims that hold and have a bound that no instance came near, by subclaim and variant.
    """
    if not any(variant for _, variant in holding):
        return {"": _verdict(list(holding.values()), bool(at_most_partly or untested))}
    judged: dict[Variant, tuple[Variant, ...]] = {
        "as printed": ("as printed",),
        "as corrected": ("", "as corrected"),
    }
    by_variant: dict[Variant, Verdict] = {}
    for variant, among in judged.items():
        parts = [holds for (_, printing), holds in holding.items() if printing in among]
        if parts:
            weak = any(printing in among for _, printing in untested)
            by_variant[variant] = _verdict(parts, bool(at_most_partly) or weak)
    return by_variant


def choices_flip(finding: Mapping[str, Any]) -> bool:
    """Whether a finding depends on the choice of settings too much to be stated.

    Args:
        finding: row of the table `findings`, or its columns `ties`, `ties_agree` and `choices_agree`.
    """
    agree = finding.get("ties_agree")
    return agree is not None and (agree < finding["ties"] or finding["choices_agree"] < MIN_AGREEMENT)


def all_hold(holding: Collection[bool | None]) -> bool | None:
    """Return whether all subclaims hold and there are any; None if none misses and some are undecided."""
    if not holding or False in holding:
        return False
    return None if None in holding else True


def _verdict(parts: list[bool | None], at_most_partly: bool) -> Verdict:
    """Return the verdict on subclaims that must all hold."""
    outcome = all_hold(parts)
    if not outcome:
        return "not reproduced" if outcome is False else "underpowered"
    return "partly reproduced" if at_most_partly else "reproduced"


def share_of_limit(value: float, relation: Relation, limit: float, tolerance: float) -> float:
    """Return the share of the accepted range that a measure takes: at most 1 if it holds, otherwise above 1.

    The tolerance belongs to the accepted range. For `<=` the share is value / (limit + tolerance), for `>=`
    the inverse with limit - tolerance, where both are positive. For `==` it is the distance from the limit
    divided by the tolerance. It is infinite for infinite and undefined values, and for a measure that misses
    a limit of the other sign or 0.
    """
    if not math.isfinite(value):
        return math.inf
    if relation == "==":
        return _share(abs(value - limit), tolerance)
    if relation == ">=":
        return _share(-value, tolerance - limit)
    return _share(value, limit + tolerance)


def _share(value: float, most: float) -> float:
    """Return the share for the relation `value <= most`."""
    if most > 0:
        return max(value, 0.0) / most
    if most < 0:
        return most / value if value < 0 else math.inf
    return 0.0 if value <= 0 else math.inf
