"""Property checks: claims that hold or fail on random instances, with no run of a study behind them."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks" / "claims"
PRINTED, CORRECTED = "as printed", "as corrected"

Relation = Literal["<=", ">=", "=="]
Variant = Literal["", "as printed", "as corrected"]
Verdict = Literal["reproduced", "partly reproduced", "not reproduced"]


@dataclass(frozen=True)
class Measure:
    """A number of one instance beside what a claim says of it.

    Args:
        quantity: what it is, with its unit where it has one; the same in all instances.
        value: what was measured.
        relation: how it must stand to the limit.
        limit: what the claim says.
        tolerance: by how much it may miss the limit, for rounding or sampling.
    """

    quantity: str
    value: float
    relation: Relation
    limit: float
    tolerance: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether it does; a value that is not a number never does."""
        if self.relation == "<=":
            return bool(self.value <= self.limit + self.tolerance)
        if self.relation == ">=":
            return bool(self.value >= self.limit - self.tolerance)
        return bool(abs(self.value - self.limit) <= self.tolerance)


@dataclass(frozen=True)
class Check:
    """One part of a claim.

    Args:
        part: what it says, in one line.
        source: file and place.
        measures: the measures of one instance, drawn from a generator of its own.
        instances: how many are drawn, by scale; a scale that is not named has those of `paper`.
        variant: whether a misprinted statement is taken as it stands or as it must be meant; empty where
            it is printed well.
    """

    part: str
    source: str
    measures: Callable[[np.random.Generator], Iterable[Measure]]
    instances: Mapping[str, int]
    variant: Variant = ""


@dataclass(frozen=True)
class PropertyClaim:
    """A claim that its checks decide.

    Args:
        id: stable key, such as `notes.regret`.
        sentence: what is claimed.
        source: file and place.
        setting: what is drawn and run, and what was chosen where the source is silent or wrong.
        checks: its parts.
    """

    id: str
    sentence: str
    source: str
    setting: str
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Row:
    """A measure with its claim, part and instance."""

    claim: str
    part: str
    variant: Variant
    instance: int
    measure: Measure


def modules() -> tuple[str, ...]:
    """The modules of benchmarks/claims that define claims, by their last name."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")))


def claims_of(module: str) -> tuple[PropertyClaim, ...]:
    """The claims that a module defines."""
    found: tuple[PropertyClaim, ...] = importlib.import_module(f"benchmarks.claims.{module}").CLAIMS
    return found


def rows(claim: PropertyClaim, scale: str) -> Iterator[Row]:
    """Every measure of every instance of a claim; an instance is the same whatever else is run."""
    for check in claim.checks:
        key = zlib.crc32(f"{claim.id} {check.part}".encode())  # printed and corrected see the same instances
        for instance in range(check.instances.get(scale, check.instances["paper"])):
            random = np.random.default_rng([key, instance])
            for measure in check.measures(random):
                yield Row(claim.id, check.part, check.variant, instance, measure)


def verdicts(claim: PropertyClaim, found: Sequence[Row]) -> dict[Variant, Verdict]:
    """The verdict by variant; by the empty one alone where nothing is misprinted.

    A part holds where each of its measures does. Parts that are printed well count in both variants.
    """
    variants = sorted({check.variant for check in claim.checks} - {""}) or [""]
    holding = {
        (check.part, check.variant): all(
            row.measure.holds for row in found if (row.part, row.variant) == (check.part, check.variant)
        )
        for check in claim.checks
    }
    return {
        variant: _verdict([holds for (_, own), holds in holding.items() if own in ("", variant)])
        for variant in variants
    }


def _verdict(parts: Sequence[bool]) -> Verdict:
    if all(parts):
        return "reproduced"
    return "partly reproduced" if any(parts) else "not reproduced"
