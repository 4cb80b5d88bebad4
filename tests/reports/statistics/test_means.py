"""Means: exact t and studentized intervals, groups, and values that have no mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from reports.statistics.means import geometric_means, means, studentized_interval, t_interval


def test_the_t_interval_is_scipys():
    values = [1.0, 2.0, 4.0, 8.0]
    found = t_interval(values)
    expected = t.interval(0.95, 3, np.mean(values), np.std(values, ddof=1) / 2)
    assert (found.low, found.high) == pytest.approx(expected)
    assert (found.mean, found.count) == (3.75, 4)


def test_one_value_gives_no_interval_and_four_no_studentized_one():
    assert t_interval([3.0]).low is None
    assert studentized_interval([1.0, 2.0, 3.0, 4.0], np.random.default_rng(0)).low is None


@pytest.mark.parametrize("bad", [[], [1.0, np.inf], [np.nan, 1.0]])
def test_what_has_no_mean_is_refused(bad):
    with pytest.raises(ValueError, match="mean needs"):
        t_interval(bad)


@given(st.lists(st.floats(-1e3, 1e3), min_size=5, max_size=12), st.floats(-10, 10))
def test_a_studentized_interval_holds_the_mean_and_moves_with_the_values(values, shift):
    found: Any = studentized_interval(values, np.random.default_rng(1))
    moved: Any = studentized_interval(np.array(values) + shift, np.random.default_rng(1))
    assert found.low <= found.mean + 1e-9
    assert found.high >= found.mean - 1e-9
    assert moved.mean == pytest.approx(found.mean + shift, abs=1e-9)


def test_the_studentized_interval_reaches_further_where_the_tail_is():
    values = np.exp(np.random.default_rng(2).normal(size=20))
    found: Any = studentized_interval(values, np.random.default_rng(0))
    assert found.high - found.mean > 1.2 * (found.mean - found.low)
    assert found == studentized_interval(values, np.random.default_rng(0))


FRAME = pl.DataFrame({"method": ["b", "b", "b", "a", "a"], "value": [1.0, 2.0, 4.0, 5.0, None]})


def test_every_group_gets_its_mean():
    found = means(FRAME, ["method"], "value")
    assert found.select("method", "mean", "count").rows() == [("b", pytest.approx(7 / 3), 3), ("a", 5.0, 1)]
    assert found["low"].to_list()[1] is None
    assert found.schema == means(FRAME.clear(), ["method"], "value").schema


def test_a_geometric_mean_is_that_of_logarithms():
    found = geometric_means(FRAME.filter(method="b"), ["method"], "value").row(0, named=True)
    logs = t_interval(np.log([1.0, 2.0, 4.0]))
    assert found["mean"] == pytest.approx(2.0)
    assert np.log([found["low"], found["high"]]) == pytest.approx([logs.low, logs.high])
    with pytest.raises(ValueError, match="above 0"):
        geometric_means(FRAME.with_columns(value=pl.lit(0.0)), ["method"], "value")


def test_a_generator_asks_for_studentized_intervals():
    values = np.exp(np.random.default_rng(2).normal(size=20))
    frame = pl.DataFrame({"method": "a", "value": values})
    found = means(frame, ["method"], "value", generator=np.random.default_rng(0)).row(0, named=True)
    assert found["high"] == studentized_interval(values, np.random.default_rng(0)).high
