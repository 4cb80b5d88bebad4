"""Verdicts of property checks, and how near measures are to limits: pure, shared by harness and reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

Relation = Literal["<=", ">=", "=="]
Variant = Literal["", "as printed", "as corrected"]
Verdict = Literal["reproduced", "partly reproduced", "not reproduced"]


def verdicts(holding: Mapping[tuple[str, Variant], bool]) -> dict[Variant, Verdict]:
    """The verdict by variant; by the empty one alone where nothing is misprinted.

    All parts hold: reproduced; some: partly reproduced; none: not reproduced. Parts that are printed well
    count in both variants.

    Args:
        holding: whether each part of a claim holds, by part and variant.
    """
    misprinted = {variant for _, variant in holding if variant}
    variants: list[Variant] = sorted(misprinted, reverse=True) or [""]
    return {
        variant: _verdict([holds for (_, own), holds in holding.items() if own in ("", variant)])
        for variant in variants
    }


def _verdict(parts: list[bool]) -> Verdict:
    if parts and all(parts):
        return "reproduced"
    return "partly reproduced" if any(parts) else "not reproduced"


def share_of_limit(value: float, relation: Relation, limit: float, tolerance: float) -> float:
    """How much of what a claim allows a measure takes: from 0, at most 1 where it holds, else above 1.

    The tolerance is a part of what is allowed. For `<=` it is the value over that, for `>=` that over the
    value, where both are positive; for `==` the distance over the tolerance. Infinite where a number of one
    sign is held against one of the other, or against 0, and misses; and for what is not a number.
    """
    if relation == "==":
        share = _share(abs(value - limit), tolerance)
    elif relation == ">=":
        share = _share(-value, tolerance - limit)
    else:
        share = _share(value, limit + tolerance)
    return math.inf if math.isnan(share) else share


def _share(value: float, most: float) -> float:
    """The share for `value <= most`."""
    if math.isnan(value):
        return math.inf
    if most > 0:
        return max(value, 0.0) / most
    if most < 0:
        return most / value if value < 0 else math.inf
    return 0.0 if value <= 0 else math.inf
