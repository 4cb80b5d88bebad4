"""Methods that no other beats: sets that may be the best, and fronts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.reports.statistics.paired import Direction
from curvebench.reports.statistics.selection import best_set, least_p_value, on_front

Values = Mapping[str, Sequence[float | None]]


def frame(values: Values) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"seed": seed, "method": method, "value": value}
            for method, own in values.items()
            for seed, value in enumerate(own)
        ],
        schema={"seed": pl.Int64, "method": pl.String, "value": pl.Float64},
    )


def kept(values: Values, direction: Direction = "minimize", negligible: float = 1e-3) -> dict[str, bool]:
    found = best_set(frame(values), direction, 0.05, negligible)
    return dict(found.select("method", "kept").iter_rows())


def test_one_that_is_beaten_on_every_seed_leaves():
    values = {"good": [1.0] * 8, "bad": [2.0 + seed for seed in range(8)], "equal": [1.0001] * 8}
    assert kept(values) == {"good": True, "bad": False, "equal": True}
    assert kept(values, "maximize") == {"good": False, "bad": True, "equal": False}
    assert kept(values, negligible=0.0)["equal"] is False


@pytest.mark.parametrize(("alpha", "leaves"), [(2 / 64, True), (1.99 / 64, False)])
def test_p_values_are_corrected_for_the_opponents(alpha: float, leaves: bool):
    values = {"good": [1.0] * 6, "bad": [2.0, 3, 4, 5, 6, 7], "middle": [1.5, 1.6, 1.7, 0.5, 0.4, 0.3]}
    found = best_set(frame(values), "minimize", alpha)
    assert found["kept"].to_list() == [True, not leaves, True]
    assert least_p_value(frame(values)) == pytest.approx(2 / 64)


def test_too_few_seeds_leave_everything_open():
    values = {"good": [1.0] * 4, "bad": [9.0] * 4}
    found = best_set(frame(values), "minimize", 0.05)
    assert found["kept"].all()
    assert least_p_value(frame(values)) == pytest.approx(1 / 16)


def test_only_shared_seeds_distinguish_methods():
    one, rest = [1.0] * 6, [None] * 5
    assert least_p_value(frame({"many": one, "few": [2.0, *rest], "other": [3.0, *rest]})) == 1.0
    pair = {"a": [*one, None], "b": [*one, None]}
    others = {name: [*rest, None, 1.0] for name in "cdefg"}
    assert least_p_value(frame(pair | others)) == pytest.approx(1 / 64), (
        "those on other seeds are no opponents"
    )
    assert least_p_value(frame({"alone": one})) == 1.0


def test_a_diverged_run_is_worst_and_a_missing_one_is_no_pair():
    inf = float("inf")
    assert kept({"good": [1.0] * 7, "bad": [inf] * 7}) == {"good": True, "bad": False}
    assert kept({"good": [1.0] * 4 + [None] * 3, "bad": [2.0] * 7}) == {"good": True, "bad": True}
    assert kept({"alone": [1.0] * 7}) == {"alone": True}


INFINITE = float("inf")
POINTS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5) | st.just(INFINITE)), min_size=1, max_size=12
)


def front(rows: list[tuple[float, float]], negligible: float = 0.0) -> list[bool]:
    losses, costs = zip(*rows, strict=True)
    found: list[bool] = on_front(losses, costs, negligible).tolist()
    return found


def test_a_front_by_hand():
    assert front([(1, 9), (2, 5), (2, 6), (3, 5), (4, 1), (5, 1)]) == [True, True, False, False, True, False]
    assert front([(1, 2), (1, 2), (2, 2)]) == [True, True, False]
    assert front([(INFINITE, 1), (1, 2), (0, INFINITE)]) == [False, True, False]


@given(POINTS)
def test_it_is_the_definition(rows):
    expected = [
        np.isfinite(cost) and not any(a <= loss and b <= cost and (a < loss or b < cost) for a, b in rows)
        for loss, cost in rows
    ]
    assert front(rows) == expected


def test_what_differs_by_less_than_is_negligible_is_equal():
    rows = [(1.0, 1.0), (1 - 1e-6, 2.0), (0.9, 2.0)]
    assert front(rows[:2]) == [True, True]
    assert front(rows[:2], 1e-3) == [True, False]
    assert front(rows, 1e-3) == [True, False, True]
