"""Verdicts, the hash of the rule behind one, and how near measures are to limits: pure, shared by all."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from curvebench.spec.document import under_first_names
from curvebench.spec.plan import Deciding

Relation = Literal["<=", ">=", "=="]
Variant = Literal["", "as printed", "as corrected"]
SeriesKind = Literal["line", "fit", "reference", "contour", "path"]
LogAxes = Literal["", "x", "y", "x y"]
Verdict = Literal["reproduced", "partly reproduced", "not reproduced", "underpowered", "not run"]
ALPHA = 0.05  # one-sided, for each comparison that must hold, and for all refutations of a claim together
KEPT = 0.95  # of the choices that other tuning seeds would lead to, those at which a finding must be the same
TESTED = 0.3  # of its limit: a bound that no instance brought so near is held, and not tested
RULE_VERSION = 5  # raised when the way from runs to a verdict changes (tests/reports/claims/test_verdicts.py)


def rule_hash(claim: Mapping[str, Any], at_most_partly: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of what decides a claim, conditions in any order.

    Args:
        claim: `id` and `supported_if` as the study file has them, in plain JSON types.
        at_most_partly: as the scale has it.
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


def rules(study: Deciding) -> dict[str, str]:
    """The hash of the rule of each claim of a study, by id."""
    claims = (*study.claims, *study.repeated)
    return {claim.id: rule_hash(claim.written_rule, study.at_most_partly) for claim in claims}


def reason(
    code: str,
    count: int | None = None,
    of: int | None = None,
    value: float | None = None,
    names: Sequence[str] = (),
) -> dict[str, object]:
    """Return a reason of a claim's verdict; `curvebench.results.schema.REASONS` explains its numbers."""
    return {"code": code, "count": count, "of": of, "value": value, "names": list(names)}


def _order(condition: Mapping[str, Any]) -> str:
    """What conditions are sorted by: the same whatever the order of keys in the file that they come from."""
    metric = condition["metric"]
    return json.dumps({**condition, "metric": [metric["which"], metric["metric"]]}, sort_keys=True)


def satisfies(value: float, relation: Relation, limit: float, tolerance: float, sampled: bool) -> bool | None:
    """Whether a measure holds; None where an estimate's interval holds the limit, so that it cannot be told.

    Args:
        sampled: whether the value is an estimate, and the tolerance half of the length of its interval.
            Of what must equal its limit the interval need only hold that.
    """
    if not math.isfinite(value):
        return False
    if relation == "==":
        return abs(value - limit) <= tolerance
    if sampled and abs(value - limit) <= tolerance:
        return None
    return value <= limit + tolerance if relation == "<=" else value >= limit - tolerance


def bound_shares(measures: Iterable[tuple[str, float, Relation, float, float]]) -> dict[str, float]:
    """The greatest share of its limit that each bound of a part takes, by quantity.

    A bound is what must stay below a number above 0.

    Args:
        measures: quantity, value, relation, limit and tolerance of each.
    """
    shares: dict[str, float] = {}
    for quantity, value, relation, limit, tolerance in measures:
        if relation == "<=" and limit > 0:
            share = share_of_limit(value, relation, limit, tolerance)
            shares[quantity] = max(share, shares.get(quantity, 0.0))
    return shares


def least_tested(shares: Mapping[str, float]) -> tuple[str, float]:
    """The bound of a part that came least near its limit, and its share; a part without bounds has 0."""
    return min(shares.items(), key=lambda one: one[1], default=("", 0.0))


def verdicts(
    holding: Mapping[tuple[str, Variant], bool | None],
    at_most_partly: str = "",
    untested: Collection[tuple[str, str]] = (),
) -> dict[Variant, Verdict]:
    """The verdict by variant; by the empty one alone where nothing is misprinted.

    All parts hold: reproduced, and partly where some are not tested. One misses: not reproduced. Else some
    are None, which sampling does not decide: underpowered. As printed the misprinted parts alone are judged,
    so that a false statement is not saved by true ones beside it; as corrected, the corrected parts and those
    that are printed well.

    Args:
        holding: whether each part of a claim holds, by part and variant; None where it cannot be told.
        at_most_partly: why the claim cannot be fully reproduced; empty where it can.
        untested: the parts that hold and have a bound that nothing came near.
    """
    if not any(variant for _, variant in holding):
        return {"": _verdict(list(holding.values()), bool(at_most_partly or untested))}
    judged: dict[Variant, tuple[Variant, ...]] = {
        "as printed": ("as printed",),
        "as corrected": ("", "as corrected"),
    }
    found: dict[Variant, Verdict] = {}
    for variant, among in judged.items():
        parts = [holds for (_, own), holds in holding.items() if own in among]
        if parts:
            weak = any(own in among for _, own in untested)
            found[variant] = _verdict(parts, bool(at_most_partly) or weak)
    return found


def choices_flip(finding: Mapping[str, Any]) -> bool:
    """Return whether a finding depends on the choice of settings too much to be stated.

    Args:
        finding: `ties`, `ties_agree` and `choices_agree` of a row of the table `findings`.
    """
    agree = finding.get("ties_agree")
    return agree is not None and (agree < finding["ties"] or finding["choices_agree"] < KEPT)


def together(holding: Collection[bool | None]) -> bool | None:
    """Whether all hold, and there are some; None where none misses, and of some it cannot be told."""
    if not holding or False in holding:
        return False
    return None if None in holding else True


def _verdict(parts: list[bool | None], at_most_partly: bool) -> Verdict:
    hold = together(parts)
    if not hold:
        return "not reproduced" if hold is False else "underpowered"
    return "partly reproduced" if at_most_partly else "reproduced"


def share_of_limit(value: float, relation: Relation, limit: float, tolerance: float) -> float:
    """How much of what a claim allows a measure takes: from 0, at most 1 where it holds, else above 1.

    The tolerance is a part of what is allowed. For `<=` it is the value over that, for `>=` that over the
    value, where both are positive; for `==` the distance over the tolerance. Infinite where a number of one
    sign is held against one of the other, or against 0, and misses; and for what is infinite or not a number.
    """
    if not math.isfinite(value):
        return math.inf
    if relation == "==":
        return _share(abs(value - limit), tolerance)
    if relation == ">=":
        return _share(-value, tolerance - limit)
    return _share(value, limit + tolerance)


def _share(value: float, most: float) -> float:
    """The share for `value <= most`."""
    if most > 0:
        return max(value, 0.0) / most
    if most < 0:
        return most / value if value < 0 else math.inf
    return 0.0 if value <= 0 else math.inf
