"""A claim from given measures, and the measures of a claim without its series."""

from __future__ import annotations

from collections.abc import Iterator

from curvebench.property_checks.checks import Check, Measures, PropertyClaim, Row, part_results


def claim_of(measures: Measures, instances: int = 1, **about: bool) -> PropertyClaim:
    """Return a claim with one subclaim that has these measures."""
    check = Check("it is", "none", measures, {"paper": instances}, **about)
    return PropertyClaim("a.claim", "It is.", "none", "none", (check,))


def rows(claim: PropertyClaim, scale: str, rule: str = "") -> Iterator[Row]:
    """Yield every measure of every instance of a claim. The same rule hash gives the same measures."""
    for check in claim.checks:
        yield from part_rows(claim.id, check, scale, rule)


def part_rows(claim: str, check: Check, scale: str, rule: str = "") -> Iterator[Row]:
    """Yield every measure of every instance of one subclaim."""
    return (row for row in part_results(claim, check, scale, rule) if isinstance(row, Row))
