"""Verdicts on claims, the hash of a decision rule, and values as shares of their limits: pure functions.

Planning, property checks and reports use these functions. A claim is a sentence of a paper. A claim is
decided by runs, or by property checks, which measure numbers on random instances and compare them with
limits; a bound is a limit that a number must not exceed. A claim on properties consists of subclaims. If the
source has a misprint, subclaims have variants, as printed and as corrected.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from curvebench.spec.document import under_first_names
from curvebench.spec.plan import StudyClaims

T = TypeVar("T")
Relation = Literal["<=", ">=", "=="]
Variant = Literal["", "as printed", "as corrected"]
SeriesKind = Literal["line", "fit", "reference", "contour", "path"]
LogAxes = Literal["", "x", "y", "x y"]
Verdict = Literal[
    "reproduced",
    "partly reproduced",
    "reproduced where",
    "depends on search",
    "not reproduced",
    "underpowered",
    "not run",
]
# Kind of the number (or choice) that would have to change for another verdict.
TurnsIn = Literal["margin", "target", "limit", "setting"]
# One-sided significance level of each comparison of a claim, and of all refutations of a claim together
ALPHA = 0.05
# Minimum share of the resamples of tuning seeds in which a finding (the result of a comparison) is the same.
# Tuning may choose other settings of the methods in a resample.
MIN_AGREEMENT = 0.95
# A bound is tested if the value of some instance is at least this share of the limit.
# A claim whose bounds are satisfied but not tested is reproduced only partly.
TESTED = 0.3
# Number of evaluations within which it is not known which run of a pair met a threshold first.
COARSE = 2
# A number that misses its limit by less than this factor nearly satisfies the claim.
# A method that misses the margin of its claim by less than this factor nearly satisfies the claim, too.
# If a claim is nearly satisfied, its threshold counts as the cause of the verdict.
NEARLY_HELD = 2.0
# By verdict, the code of the reason that names the domains with this verdict; "open_where" for others.
OF_DOMAIN = {"reproduced": "holds_where", "partly reproduced": "holds_where", "not reproduced": "fails_where"}
# Version of the code that computes verdicts from runs.
# The hash of every claim's decision rule contains this version, so that a new version changes all hashes.
# See tests/reports/claims/test_verdicts.py.
RULE_VERSION = 5


def rule_hash(claim: Mapping[str, Any], at_most_partly: str) -> str:
    """Return the hash of everything that decides a claim: the first 16 hexadecimal digits of a SHA-256.

    The order of the conditions, and of the keys in them, does not matter.

    Args:
        claim: `id` and `supported_if` as the study file has them, in plain JSON types.
        at_most_partly: reason why claims cannot be fully reproduced at the scale of the study; empty if there
            is no reason. The hash depends only on whether there is a reason.
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
    """Return a reason of a claim's verdict, an item of the column `reasons` of the table `claims`.

    Args:
        code: one of `curvebench.results.schema.REASONS`, where comments explain the numbers of each code.
        count, of, value, names: numbers and names of the reason; None or empty if the code has none.
    """
    return {"code": code, "count": count, "of": of, "value": value, "names": list(names)}


def _order(condition: Mapping[str, Any]) -> str:
    """Return the sort key of a condition, which does not depend on the order of keys in the study file."""
    metric = condition["metric"]
    return json.dumps({**condition, "metric": [metric["which"], metric["metric"]]}, sort_keys=True)


def satisfies(value: float, relation: Relation, limit: float, tolerance: float, sampled: bool) -> bool | None:
    """Return whether a measured value satisfies its limit; None if an estimate is too inaccurate to decide.

    Args:
        value: the measured value; infinite and NaN values never satisfy a limit.
        relation: relation that the claim asserts between value and limit.
        limit: number that the claim gives.
        tolerance: distance by which the value may miss the limit because of rounding; for an estimate, half
            of the length of its confidence interval.
        sampled: whether the value is an estimate from random samples. If the limit is in the confidence
            interval of the estimate, an inequality is undecided, while an equality is satisfied.
    """
    if not math.isfinite(value):
        return False
    if relation == "==":
        return abs(value - limit) <= tolerance
    if sampled and abs(value - limit) <= tolerance:
        return None
    return value <= limit + tolerance if relation == "<=" else value >= limit - tolerance


def bound_shares(measures: Iterable[tuple[str, float, Relation, float, float]]) -> dict[str, float]:
    """Return, for each quantity with an upper bound, the largest measured value as a share of its limit.

    Only measures with the relation `<=` and a positive limit count as bounds.

    Args:
        measures: quantity, value, relation, limit and tolerance of each measure of a subclaim.
    """
    shares: dict[str, float] = {}
    for quantity, value, relation, limit, tolerance in measures:
        if relation == "<=" and limit > 0:
            share = share_of_limit(value, relation, limit, tolerance)
            shares[quantity] = max(share, shares.get(quantity, 0.0))
    return shares


def least_tested(shares: Mapping[str, float]) -> tuple[str, float]:
    """Return the quantity with the smallest share of its limit, and this share.

    Args:
        shares: largest value as a share of its limit, by quantity. If there are no quantities, the result is
            an empty name and the share 0.
    """
    return min(shares.items(), key=lambda bound: bound[1], default=("", 0.0))


def by_domain(items: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """Return the findings that decide a claim in each of its domains, by the domain.

    A domain is a value of a quantity that the source of the claim leaves open. If no item has a domain, the
    only domain is the empty text.

    Args:
        items: domain and finding of each condition or subclaim. A finding without a domain belongs to every
            domain.
    """
    parts = list(items)
    domains = dict.fromkeys(where for where, _ in parts if where) or {"": None}
    return {domain: [part for where, part in parts if where in ("", domain)] for domain in domains}


def over_domains(verdicts: Mapping[str, Verdict]) -> tuple[Verdict, list[dict[str, object]]]:
    """Return the verdict on a claim from its verdicts in domains, and reasons that name the domains.

    A claim is reproduced if it is reproduced in all domains. If it is reproduced in some of them, the verdict
    is "reproduced where", or "partly reproduced" if it is only partly reproduced in these domains. A claim
    that is reproduced in no domain is not reproduced if it is refuted in all domains, and otherwise
    undecided.

    Args:
        verdicts: verdict by domain, as the findings in `by_domain` lead to it.
    """
    named: dict[str, list[str]] = {}
    for domain, verdict in verdicts.items():
        named.setdefault(OF_DOMAIN.get(verdict, "open_where"), []).append(domain)
    reasons = [reason(code, names=named[code]) for code in sorted(named, reverse=True)]
    distinct = list(dict.fromkeys(verdicts.values()))
    if len(distinct) == 1:
        return distinct[0], reasons if len(verdicts) > 1 else []
    if "holds_where" in named:
        wholly = "reproduced" in distinct and len(named) > 1
        return ("reproduced where" if wholly else "partly reproduced"), reasons
    return ("depends on search" if "depends on search" in distinct else "underpowered"), reasons


def verdicts(
    holding: Mapping[tuple[str, Variant], bool | None],
    at_most_partly: str = "",
    untested: Collection[tuple[str, str]] = (),
    where: Mapping[Any, str] | None = None,
) -> dict[Variant, tuple[Verdict, list[dict[str, object]]]]:
    """Return the verdict of property checks on each variant of a claim, with reasons that name domains.

    The following applies to each domain of the claim; `over_domains` combines the verdicts of the domains.
    A claim is reproduced if all its subclaims are satisfied, and only partly reproduced if a satisfied
    subclaim is untested. A claim is not reproduced if one subclaim is violated. Otherwise some subclaims are
    undecided because of sampling, and the claim is underpowered. The variant `as printed` depends only on the
    misprinted subclaims, so that correct subclaims next to a misprinted one do not count for this variant.
    The variant `as corrected` depends on the corrected subclaims and on the subclaims without a misprint.

    Args:
        holding: whether each subclaim is satisfied, by subclaim and variant; None if the subclaim is
            undecided. The variant is empty for a subclaim without a misprint.
        at_most_partly: reason why the claim cannot be fully reproduced; empty if there is no such reason.
        untested: subclaims, with their variants, that are satisfied and have a bound that no instance came
            near.
        where: domain of each subclaim that has one, by subclaim and variant.

    Returns:
        Verdict and reasons by variant; if the source has no misprint, the only variant is "".
    """
    judged: dict[Variant, tuple[Variant, ...]] = {
        "as printed": ("as printed",),
        "as corrected": ("", "as corrected"),
    }
    if not any(variant for _, variant in holding):
        judged = {"": ("",)}
    by_variant = {}
    for variant, among in judged.items():
        domains = by_domain(((where or {}).get(part, ""), part) for part in holding if part[1] in among)
        decided = {
            domain: _verdict(
                [holding[part] for part in parts], bool(at_most_partly) or not {*parts}.isdisjoint(untested)
            )
            for domain, parts in domains.items()
            if parts
        }
        if decided:
            by_variant[variant] = over_domains(decided)
    return by_variant


def choices_flip(finding: Mapping[str, Any]) -> bool:
    """Return whether a finding depends on tuning's choice of settings, so that the finding counts as
    inconclusive.

    Args:
        finding: row of the table `findings`; the columns `ties`, `ties_agree` and `choices_agree` are used.
    """
    agree = finding.get("ties_agree")
    return agree is not None and (agree < finding["ties"] or finding["choices_agree"] < MIN_AGREEMENT)


def all_hold(holding: Collection[bool | None]) -> bool | None:
    """Return whether all subclaims are satisfied; None if some are undecided and the others are satisfied.

    Args:
        holding: whether each subclaim is satisfied; None for an undecided subclaim. Without subclaims the
            result is False.
    """
    if not holding or False in holding:
        return False
    return None if None in holding else True


def _verdict(parts: list[bool | None], at_most_partly: bool) -> Verdict:
    """Return the verdict on a claim.

    Args:
        parts: whether each subclaim is satisfied; None for an undecided subclaim.
        at_most_partly: whether the claim can be reproduced only partly.
    """
    outcome = all_hold(parts)
    if not outcome:
        return "not reproduced" if outcome is False else "underpowered"
    return "partly reproduced" if at_most_partly else "reproduced"


def share_of_limit(value: float, relation: Relation, limit: float, tolerance: float) -> float:
    """Return a measured value as a share of its limit: at most 1 if it satisfies the relation, else more.

    For `<=` the share is value / (limit + tolerance), for `>=` it is (limit - tolerance) / value, if
    numerator and denominator are positive. For `==` the share is the distance of the value from the limit,
    divided by the tolerance. The share is infinite for infinite and undefined values, and for a value that
    violates a limit of 0 or of the opposite sign.
    """
    if not math.isfinite(value):
        return math.inf
    if relation == "==":
        return _share(abs(value - limit), tolerance)
    if relation == ">=":
        return _share(-value, tolerance - limit)
    return _share(value, limit + tolerance)


def _share(value: float, most: float) -> float:
    """Return a value as a share of its largest allowed value `most`; above 1 if the value exceeds `most`.

    For a negative `most`, the share is most / value if the value is negative, and otherwise infinite. If
    `most` is 0, the share is 0 for values that are not positive, and otherwise infinite.
    """
    if most > 0:
        return max(value, 0.0) / most
    if most < 0:
        return most / value if value < 0 else math.inf
    return 0.0 if value <= 0 else math.inf
