"""Fronts of loss against cost: by hand, by definition, and how firm they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.statistics.pareto import front_shares

INFINITE = float("inf")
POINTS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5) | st.just(INFINITE)), min_size=1, max_size=12
)


def front(rows: list[tuple[float, float]]) -> list[bool]:
    """Which of one run each of so many methods are on the front."""
    return shares(runs({str(number): [row] for number, row in enumerate(rows)}))["on_front"].to_list()


def test_a_front_by_hand():
    assert front([(1, 9), (2, 5), (2, 6), (3, 5), (4, 1), (5, 1)]) == [True, True, False, False, True, False]


def test_equal_rows_stay_and_what_is_infinite_does_not():
    assert front([(1, 2), (1, 2), (2, 2)]) == [True, True, False]
    assert front([(INFINITE, 1), (1, 2), (0, INFINITE)]) == [False, True, False]
    assert front([(INFINITE, INFINITE)]) == [False]


@given(POINTS)
def test_it_is_the_definition(rows):
    expected = [
        np.isfinite(cost) and not any(a <= loss and b <= cost and (a < loss or b < cost) for a, b in rows)
        for loss, cost in rows
    ]
    assert front(rows) == expected


@given(POINTS, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_the_unit_do_not_matter(rows, random):
    shuffled = random.sample(rows, len(rows))
    scaled = [(2 * loss + 1, 8 * cost) for loss, cost in shuffled]
    on_front = {row for row, kept in zip(rows, front(rows), strict=True) if kept}
    assert {row for row, kept in zip(shuffled, front(scaled), strict=True) if kept} == on_front


def runs(values: dict[str, list[tuple[float, float]]]) -> pl.DataFrame:
    rows = [(name, seed, *each) for name, group in values.items() for seed, each in enumerate(group)]
    schema = {"method": str, "seed": int, "loss": float, "seconds": float}
    return pl.DataFrame(rows, schema=schema, orient="row")


def shares(frame: pl.DataFrame, **options: Any) -> pl.DataFrame:
    return front_shares(frame, "seconds", **options)


def test_the_front_of_medians_and_how_firm_it_is():
    random = np.random.default_rng(2)
    frame = runs(
        {
            "quick": [(2.0 + x, 1.0) for x in random.normal(0, 0.01, 9)],
            "good": [(1.0 + x, 4.0) for x in random.normal(0, 0.01, 9)],
            "bad": [(3.0 + x, 5.0) for x in random.normal(0, 0.01, 9)],
            "like good": [(1.0 + x, 4.0) for x in random.normal(0, 0.01, 9)],
            "diverged": [(INFINITE, 0.1)] * 9,
        }
    )
    found = shares(frame)
    assert found["method"].to_list() == ["quick", "good", "bad", "like good", "diverged"]
    share = dict(found.select("method", "share").iter_rows())
    assert (share["quick"], share["bad"], share["diverged"]) == (1.0, 0.0, 0.0)
    assert 0 < share["good"] < 1
    assert share["good"] + share["like good"] == pytest.approx(1.0)  # no ties between them
    assert found["on_front"].sum() == 2
    assert found["loss"][0] == pytest.approx(frame.filter(method="quick")["loss"].median())
    assert found["count"].to_list() == [9] * 5
    assert found.equals(shares(frame))


def test_seeds_are_drawn_together():
    # "worse" loses to "better" on each seed, while seeds differ by far more.
    instances = np.random.default_rng(3).lognormal(0, 2, 9)
    frame = runs({"better": [(x, 1.0) for x in instances], "worse": [(1.1 * x, 1.0) for x in instances]})
    assert shares(frame)["share"].to_list() == [1.0, 0.0]


def test_what_differs_by_less_than_is_negligible_is_equal():
    frame = runs({"cheap": [(1.0, 1.0)] * 3, "dear": [(1 - 1e-6, 2.0)] * 3, "better": [(0.9, 2.0)] * 3})
    two = frame.filter(pl.col("method") != "better")
    assert shares(two)["on_front"].to_list() == [True, True]
    assert shares(two, negligible=1e-3)["on_front"].to_list() == [True, False]
    assert shares(frame, negligible=1e-3)["on_front"].to_list() == [True, False, True]
    as_dear = frame.with_columns(seconds=pl.lit(1.0))
    assert shares(as_dear, negligible=1e-3)["share"].to_list() == [0.0, 0.0, 1.0]


def test_only_shared_seeds_count_and_bad_tables_are_refused():
    frame = runs({"a": [(1.0, 1.0), (2.0, 1.0)], "b": [(3.0, 0.5)]})
    assert shares(frame).select("loss", "count").rows() == [(1.0, 1), (3.0, 1)]
    apart = frame.filter(~((pl.col("method") == "a") & (pl.col("seed") == 0)))
    with pytest.raises(ValueError, match="a, b: no seed"):
        shares(apart)
    with pytest.raises(ValueError, match="more than one row"):
        shares(pl.concat([frame, frame]))
    with pytest.raises(ValueError, match="0 resamples"):
        shares(frame, resamples=0)
    with pytest.raises(ValueError, match="loss is null or NaN"):
        shares(frame.with_columns(loss=pl.lit(float("nan"))))
    with pytest.raises(ValueError, match="seconds is null or NaN"):
        shares(frame.with_columns(seconds=pl.lit(None, pl.Float64)))
