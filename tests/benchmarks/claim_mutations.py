"""What the tests of property claims share: few instances of a claim, and rules that are wrong on purpose."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from harness import replaying
from harness.checks import Check, PropertyClaim, part_rows, verdicts


def few(claim: PropertyClaim, instances: int, parts: set[str] | None = None) -> PropertyClaim:
    """The claim, or some of its parts, with so many instances of each."""
    checks = tuple(
        dataclasses.replace(check, instances={"quick": instances, "paper": instances})
        for check in claim.checks
        if parts is None or check.part in parts
    )
    return dataclasses.replace(claim, checks=checks)


def verdicts_of(claim: PropertyClaim) -> dict[Any, str]:
    """By variant, at scale quick."""
    return dict(
        verdicts(claim, [row for check in claim.checks for row in part_rows(claim.id, check, "quick")])
    )


def failing(claim: PropertyClaim) -> set[tuple[str, str]]:
    """Part and variant of what does not hold."""

    def holds(check: Check) -> bool:
        return all(row.measure.holds for row in part_rows(claim.id, check, "quick"))

    return {(check.part, check.variant) for check in claim.checks if not holds(check)}


def mutate(
    monkeypatch: pytest.MonkeyPatch,
    optimizer: str,
    instead: str | None = None,
    options: Mapping[str, Any] | None = None,
    **numbers: Callable[[float], float],
) -> None:
    """Let a rule be another one, have other options, or get other numbers than it is given."""
    right = replaying._chosen

    def wrong(name: str, hyper: Any, backend: str, dtype: str, given: Any) -> Any:
        if name != optimizer:
            return right(name, hyper, backend, dtype, given)
        rule, values = right(instead or name, hyper, backend, dtype, {**given, **(options or {})})
        return rule, {key: numbers.get(key, float)(value) for key, value in values.items()}

    monkeypatch.setattr(replaying, "_chosen", wrong)
