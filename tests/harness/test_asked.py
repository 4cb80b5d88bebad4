"""What is read from the source of property checks: what is open in them, and which always come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest

from harness.asked import asks, described
from harness.check_jobs import columns
from harness.checks import Check, Measure, claims_of, part_rows
from results.check_flaws import of_checks
from results.schema import CHECKS
from results.set_plan import OPEN, ChecksPart, SetPlan

BOUND = 2.0
NAMED = "a name"


def _written(random: np.random.Generator) -> Iterator[Measure]:
    yield Measure("in full", 1.0, "<=", 1.0, tolerance=1e-3)
    yield Measure(NAMED, 1.0, ">=", -BOUND / 2 + 3)
    size = float(random.uniform())
    yield Measure(f"of size {size}", size, "<=", size, size * BOUND)


def _branching(random: np.random.Generator, printed: bool) -> Iterator[Measure]:
    if printed:
        yield Measure("printed", 1.0, "==", 1.0)
    for _ in range(2):
        yield Measure("again", 1.0, "==", 1.0)
    yield Measure("printed", 1.0, "==", 1.0)
    yield from _shared("shared", random)


def _shared(quantity: str, random: np.random.Generator) -> Iterator[Measure]:
    relation = "<=" if random.integers(2) else ">="
    yield Measure(quantity, 1.0, relation, BOUND)  # type: ignore[arg-type]


def _leaving(random: np.random.Generator) -> Iterator[Measure]:
    if random.integers(2):
        return
    yield Measure("seldom", 1.0, "<=", BOUND)


def _shadowing(random: np.random.Generator, BOUND: float = 1.0) -> Iterator[Measure]:
    yield Measure("shadowed", 1.0, "<=", BOUND)


Said = tuple[str, str | None, float | None, float | None, bool]


@pytest.mark.parametrize(
    ("measures", "found"),
    [
        (
            _written,
            [
                (NAMED, ">=", 2.0, 0.0, True),
                ("in full", "<=", 1.0, 1e-3, True),
                (f"of size {OPEN}", "<=", None, None, True),
            ],
        ),
        (
            partial(_branching, printed=True),
            [
                ("again", "==", 1.0, 0.0, False),
                ("printed", "==", 1.0, 0.0, True),
                (OPEN, None, 2.0, 0.0, False),
            ],
        ),
        (_leaving, [("seldom", "<=", 2.0, 0.0, False)]),
        (_shadowing, [("shadowed", "<=", None, 0.0, True)]),
    ],
    ids=["written", "branching", "leaving", "shadowing"],
)
def test_a_measure_is_read_from_its_call(measures: Any, found: list[Said]):
    check = Check("part", "none", measures, {"paper": 1})
    read = [tuple(each.values()) for each in asks(check, "paper")]
    assert sorted(map(repr, read)) == sorted(map(repr, found))


def test_what_is_not_at_a_files_top_may_give_any_of_its_measures():
    def inner(random: np.random.Generator) -> Iterator[Measure]:
        yield Measure("inside", 1.0, "<=", 1.0)

    found = asks(Check("part", "none", inner, {"paper": 1}), "paper")
    assert {"seldom", "in full", "inside"} <= {each["quantity"] for each in found}
    assert not any(each["always"] for each in found)
    assert asks(Check("part", "none", Called(), {"paper": 1}), "paper") == found


class Called:
    """Gives measures where it is called."""

    def __call__(self, random: np.random.Generator) -> Iterator[Measure]:
        return _written(random)


@pytest.mark.parametrize("module", ["notes_kronecker", "notes_hindsight", "notes_shampoo", "notes_momentum"])
def test_what_is_drawn_is_what_the_plan_asks_for(module: str):
    scale, rows, claims = "quick", [], []
    for claim in claims_of(module):
        for check in claim.checks:
            about = {"source": check.source, "scale": scale}
            rows += [columns(row) | about for row in part_rows(claim.id, check, scale)]
        claims.append({"id": claim.id, "parts": [described(check, scale) for check in claim.checks]})
    part = ChecksPart.model_validate_json(json.dumps({"tables": [], "claims": claims}))
    plan = SetPlan.model_construct(checks=part)
    assert list(of_checks(plan, pl.DataFrame(rows, schema=CHECKS))) == []
    assert [ask.quantity for claim in part.claims for each in claim.parts or [] for ask in each.asks]
