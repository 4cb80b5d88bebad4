"""Fronts of loss against cost: by hand and by definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from curvebench.reports.statistics.pareto import on_front

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
