"""What the tests of property claims share: few instances of a claim, and rules that are wrong on purpose."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from curvebench import interop
from curvebench.engine import replaying
from curvebench.optimizers.options import Options
from curvebench.optimizers.rule import Rule
from curvebench.property_checks.checks import PRINTED, Check, PropertyClaim, Row, verdicts
from tests.curvebench.property_checks.claim_rows import part_rows, rows


def few(claim: PropertyClaim, instances: int, parts: set[str] | None = None) -> PropertyClaim:
    """The claim, or some of its parts, with so many instances of each, and no search."""
    checks = tuple(
        dataclasses.replace(check, instances={"quick": instances, "paper": instances}, bound=False)
        for check in claim.checks
        if parts is None or check.part in parts
    )
    return dataclasses.replace(claim, checks=checks)


def found_rows(claim: PropertyClaim) -> list[Row]:
    """What its checks measure, at scale quick."""
    return list(rows(claim, "quick"))


def verdicts_of(claim: PropertyClaim) -> dict[Any, str]:
    """By variant, at scale quick."""
    return dict(verdicts(claim, found_rows(claim)))


def failing(claim: PropertyClaim) -> set[tuple[str, str]]:
    """Part and variant of what does not hold; a check is not gone on with once it missed."""

    def holds(check: Check) -> bool:
        return all(row.measure.holds for row in part_rows(claim.id, check, "quick"))

    return {(check.part, check.variant) for check in claim.checks if not holds(check)}


def assert_noticed(claim: PropertyClaim, instances: int, *parts: str) -> None:
    """Each of these parts misses as corrected, of so many instances."""
    checks = few(claim, instances, set(parts)).checks
    corrected = tuple(check for check in checks if check.variant != PRINTED)
    assert {part for part, _ in failing(dataclasses.replace(claim, checks=corrected))} == set(parts)


def wrap(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, wrong: Callable[..., Any]) -> None:
    """Let a function be another one, which is handed the right one before its arguments."""
    right = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **named: wrong(right, *given, **named))


def mutate(
    monkeypatch: pytest.MonkeyPatch,
    optimizer: str,
    instead: str | None = None,
    options: Mapping[str, Any] | None = None,
    **numbers: Callable[[float], float],
) -> None:
    """Let a rule be another one, have other options, or get other numbers than it is given."""
    choose, complete = interop.chosen, interop.completed
    changed: list[Rule] = []

    def chosen(name: str | Rule, given: Options | None) -> Rule:
        if name != optimizer:
            return choose(name, given)
        changed.append(dataclasses.replace(choose(instead or name, {**(given or {}), **(options or {})})))
        return changed[-1]

    def completed(rule: Rule, hyper: Mapping[str, Any]) -> dict[str, float]:
        values = complete(rule, hyper)
        wrong = any(rule is one for one in changed)
        return {key: numbers.get(key, float)(value) if wrong else value for key, value in values.items()}

    monkeypatch.setattr(replaying, "chosen", chosen)
    monkeypatch.setattr(replaying, "completed", completed)
