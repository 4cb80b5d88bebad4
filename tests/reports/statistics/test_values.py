"""NaN is refused, by name, wherever values are put in an order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from curvebench.reports.statistics.decisions import holm
from curvebench.reports.statistics.paired import (
    paired_values,
    sign_p_value,
)
from curvebench.reports.statistics.ranks import instance_ranks, tolerant_ranks, wins
from curvebench.reports.statistics.selection import best_set
from curvebench.reports.statistics.shares import probability_of_improvement
from curvebench.reports.statistics.values import ordered_values

NAN = float("nan")
FRAME = pl.DataFrame(
    {
        "seed": [1, 2, 3] * 2,
        "method": ["a"] * 3 + ["b"] * 3,
        "value": [1.0, 2.0, NAN, 2.0, 3.0, 4.0],
    }
)

OF_FRAMES: dict[str, Callable[[pl.DataFrame], object]] = {
    "instance_ranks": instance_ranks,
    "wins": wins,
    "paired_values": lambda frame: paired_values(frame, "value", "a", "b"),
    "best_set": lambda frame: best_set(frame, "minimize", 0.05),
}
OF_ARRAYS: dict[str, tuple[str, Callable[[list[float]], object]]] = {
    "tolerant_ranks": ("values", tolerant_ranks),
    "holm": ("p_values", holm),
    "sign_p_value": ("differences", sign_p_value),
    "probability_of_improvement": ("gains", probability_of_improvement),
}


@pytest.mark.parametrize("name", OF_FRAMES)
def test_nan_in_a_column_is_refused_by_its_name(name: str):
    with pytest.raises(ValueError, match=r"value: NaN .* infinite on the bad side"):
        OF_FRAMES[name](FRAME)
    OF_FRAMES[name](FRAME.with_columns(pl.col("value").fill_nan(float("inf"))))
    OF_FRAMES[name](FRAME.with_columns(pl.col("value").fill_nan(None)))


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_nan_in_an_array_is_refused_by_the_arguments_name(name: str):
    argument, called = OF_ARRAYS[name]
    with pytest.raises(ValueError, match=f"{argument}: NaN has no place in an order: "):
        called([NAN, 0.01])
    called([0.02, 0.01])


def test_infinities_are_ordered():
    values = ordered_values([1, -np.inf, np.inf], "value")
    assert values.dtype == float
    assert values.tolist() == [1.0, -np.inf, np.inf]
