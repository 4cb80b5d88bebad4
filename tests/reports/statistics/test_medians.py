"""Medians: groups, missing values, and quartiles."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from curvebench.reports.statistics.medians import medians, quartile_bands

INFINITE_TOO = st.floats(allow_nan=False, width=32)


def test_every_group_gets_its_median_and_missing_values_are_left_out():
    frame = pl.DataFrame({"method": ["b", "b", "b", "a", "a"], "value": [3.0, 1.0, 2.0, 5.0, None]})
    found = medians(frame, ["method"], "value")
    assert found.select("method", "median", "low", "high", "count").rows() == [
        ("b", 2.0, 1.0, 3.0, 3),
        ("a", 5.0, 5.0, 5.0, 1),
    ]


def test_medians_of_nothing_have_the_same_columns():
    empty = pl.DataFrame(schema={"method": pl.String, "value": pl.Float64})
    assert medians(empty, ["method"], "value").columns == [
        "method",
        "median",
        "low",
        "high",
        "level",
        "count",
    ]


@given(st.lists(INFINITE_TOO, min_size=1, max_size=30))
def test_quartiles_are_ordered_and_at_least_a_quarter_lies_on_each_side(values: list[float]):
    band = quartile_bands(pl.DataFrame({"g": ["x"] * len(values), "value": values}), ["g"], "value")
    low, middle, high = band.select("lower_quartile", "median", "upper_quartile").row(0)
    assert low <= middle <= high
    below = sum(value <= low for value in values)
    above = sum(value >= high for value in values)
    assert below * 4 >= len(values) - 3
    assert above * 4 >= len(values) - 3
