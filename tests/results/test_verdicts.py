"""Verdicts from parts, and how much of its limit a measure takes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.results import verdicts


@pytest.mark.parametrize(
    ("holding", "expected"),
    [
        ({("a", ""): True, ("b", ""): True}, {"": "reproduced"}),
        ({("a", ""): True, ("b", ""): False}, {"": "not reproduced"}),
        ({("a", ""): False, ("b", ""): False}, {"": "not reproduced"}),
        (
            {("a", ""): True, ("b", "as printed"): False, ("b", "as corrected"): True},
            {"as printed": "not reproduced", "as corrected": "reproduced"},
        ),
        (
            {("a", ""): False, ("b", "as printed"): True, ("b", "as corrected"): True},
            {"as printed": "reproduced", "as corrected": "not reproduced"},
        ),
        (
            {("a", "as printed"): True, ("b", "as printed"): False, ("b", "as corrected"): False},
            {"as printed": "not reproduced", "as corrected": "not reproduced"},
        ),
        (
            {("a", ""): True, ("b", "as printed"): False},
            {"as printed": "not reproduced", "as corrected": "reproduced"},
        ),
        ({("b", "as printed"): False}, {"as printed": "not reproduced"}),
    ],
)
def test_one_part_that_does_not_hold_refutes_the_claim(holding, expected):
    found = {variant: verdict for variant, (verdict, _) in verdicts.verdicts(holding).items()}
    assert found == expected
    assert list(found) == list(expected), "as printed comes first"


@pytest.mark.parametrize(
    ("by_domain", "expected", "named"),
    [
        ({"": "underpowered"}, "underpowered", {}),
        ({"x": "reproduced", "y": "reproduced"}, "reproduced", {"holds_where": ["x", "y"]}),
        ({"x": "reproduced", "y": "partly reproduced"}, "partly reproduced", {"holds_where": ["x", "y"]}),
        (
            {"x": "not reproduced", "y": "reproduced"},
            "reproduced where",
            {"holds_where": ["y"], "fails_where": ["x"]},
        ),
        (
            {"x": "partly reproduced", "y": "underpowered"},
            "partly reproduced",
            {"holds_where": ["x"], "open_where": ["y"]},
        ),
        ({"x": "not reproduced", "y": "not reproduced"}, "not reproduced", {"fails_where": ["x", "y"]}),
        (
            {"x": "not reproduced", "y": "underpowered"},
            "underpowered",
            {"fails_where": ["x"], "open_where": ["y"]},
        ),
    ],
)
def test_a_claim_holds_where_its_domains_do(by_domain, expected, named):
    verdict, reasons = verdicts.over_domains(by_domain)
    assert verdict == expected
    assert {each["code"]: each["names"] for each in reasons} == named


def test_parts_without_a_domain_belong_to_each():
    holding: dict[tuple[str, verdicts.Variant], bool | None] = {
        ("a", ""): True,
        ("b", ""): False,
        ("c", ""): True,
    }
    where = {("b", ""): "n = 1", ("c", ""): "n = 2"}
    assert verdicts.verdicts(holding, where=where)[""][0] == "reproduced where"
    assert verdicts.verdicts({**holding, ("a", ""): False}, where=where)[""][0] == "not reproduced"
    assert verdicts.verdicts(holding)[""] == ("not reproduced", [])


@pytest.mark.parametrize(
    ("holds", "expected"), [((True, True), "partly"), ((True, False), "not"), ((False, False), "not")]
)
def test_what_cannot_be_fully_reproduced_is_reproduced_in_part_at_most(holds, expected):
    variants: tuple[verdicts.Variant, ...] = ("", "as corrected")
    for variant in variants:
        holding = {(part, variant): each for part, each in zip("ab", holds, strict=True)}
        found = verdicts.verdicts(holding, "the data are reduced")
        assert found == {variant: (f"{expected} reproduced", [])}


@pytest.mark.parametrize(
    ("value", "relation", "limit", "tolerance", "share"),
    [
        (1.0, "<=", 4.0, 0.0, 0.25),
        (1.0, "<=", 3.0, 1.0, 0.25),
        (8.0, "<=", 4.0, 0.0, 2.0),
        (-8.0, "<=", 4.0, 0.0, 0.0),
        (-8.0, "<=", -4.0, 0.0, 0.5),
        (4.0, "<=", -4.0, 0.0, math.inf),
        (0.0, "<=", 0.0, 0.0, 0.0),
        (1e-300, "<=", 0.0, 0.0, math.inf),
        (8.0, ">=", 4.0, 0.0, 0.5),
        (-1e-13, ">=", 0.0, 1e-12, 0.1),
        (1.0, ">=", 0.0, 1e-12, 0.0),
        (3.5, "==", 3.0, 2.0, 0.25),
        (3.0, "==", 3.0, 0.0, 0.0),
        (math.nan, "<=", 1.0, 0.0, math.inf),
        (math.nan, "==", 1.0, 0.0, math.inf),
        (math.inf, ">=", 1.0, 0.0, math.inf),
        (-math.inf, "<=", 1.0, 0.0, math.inf),
    ],
)
def test_the_share_of_the_limit(value, relation, limit, tolerance, share):
    assert verdicts.share_of_limit(value, relation, limit, tolerance) == pytest.approx(share)


def test_each_bound_has_the_greatest_share_of_its_own_limit():
    measures: list[tuple[str, float, verdicts.Relation, float, float]] = [
        *(("near", 0.5, "<=", 1.0, 0.0), ("near", 1.8, "<=", 2.0, 0.0), ("far", 0.2, "<=", 4.0, 0.0)),
        *(
            ("an error", 0.0, "<=", 0.0, 1.0),
            ("a sum", 1.0, "==", 1.0, 0.1),
            ("a floor", 2.0, ">=", 1.0, 0.0),
        ),
    ]
    shares = verdicts.bound_shares(measures)
    assert shares == pytest.approx({"near": 0.9, "far": 0.05})
    assert verdicts.least_tested(shares) == ("far", shares["far"])
    assert verdicts.least_tested({}) == ("", 0.0), "what has no bound is not tested"


NUMBERS = st.floats(-1e6, 1e6).filter(lambda number: number == 0 or abs(number) > 1e-6)


@given(NUMBERS, st.sampled_from(["<=", ">=", "=="]), NUMBERS, st.floats(1e-3, 1e3))
def test_a_share_above_1_is_a_miss_and_below_1_none(value, relation, limit, tolerance):
    from curvebench.property_checks.checks import Measure

    share = verdicts.share_of_limit(value, relation, limit, tolerance)
    assert share >= 0
    if abs(share - 1) > 1e-6:
        assert Measure("it", value, relation, limit, tolerance).holds == (share < 1)
