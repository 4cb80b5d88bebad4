"""NaN is refused, by name, wherever values are put in an order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from reports.statistics.decisions import holm
from reports.statistics.effects import cliffs_delta, rank_biserial
from reports.statistics.friedman import friedman_test, pairwise_tests
from reports.statistics.improvement import probability_of_improvement
from reports.statistics.paired import (
    compare_pairs,
    paired_values,
    sign_p_value,
    signed_rank_p_value,
)
from reports.statistics.ranks import average_ranks, instance_ranks, tolerant_ranks, wins
from reports.statistics.selection import best_set
from reports.statistics.values import ordered_values

NAN = float("nan")
SEED = ["seed"]
FRAME = pl.DataFrame(
    {
        "workload": "w",
        "seed": [1, 2, 3] * 2,
        "method": ["a"] * 3 + ["b"] * 3,
        "loss": [1.0, 2.0, NAN, 2.0, 3.0, 4.0],
    }
)

OF_FRAMES: dict[str, Callable[[pl.DataFrame], object]] = {
    "instance_ranks": lambda frame: instance_ranks(frame, SEED, "method", "loss"),
    "wins": lambda frame: wins(frame, SEED, "method", "loss"),
    "friedman_test": lambda frame: friedman_test(frame, SEED, "method", "loss", "minimize"),
    "pairwise_tests": lambda frame: pairwise_tests(frame, SEED, "method", "loss", "minimize"),
    "best_set": lambda frame: best_set(frame, SEED, "method", "loss", "minimize", 0.05),
    "paired_values": lambda frame: paired_values(frame, ["workload"], SEED, "method", "loss", "a", "b"),
}
OF_ARRAYS: dict[str, tuple[str, Callable[[list[float]], object]]] = {
    "average_ranks": ("values", average_ranks),
    "tolerant_ranks": ("values", tolerant_ranks),
    "holm": ("p_values", holm),
    "signed_rank_p_value": ("differences", signed_rank_p_value),
    "sign_p_value": ("differences", sign_p_value),
    "rank_biserial": ("differences", rank_biserial),
    "compare_pairs": ("treated", lambda values: compare_pairs(values, [0.1, 0.2], "minimize")),
    "compare_pairs, control": ("control", lambda values: compare_pairs([0.1, 0.2], values, "minimize")),
    "cliffs_delta": ("left", lambda values: cliffs_delta(values, [0.1, 0.2])),
}


@pytest.mark.parametrize("name", OF_FRAMES)
def test_nan_in_a_column_is_refused_by_its_name(name: str):
    with pytest.raises(ValueError, match=r"loss: NaN .* infinite on the bad side"):
        OF_FRAMES[name](FRAME)
    OF_FRAMES[name](FRAME.with_columns(pl.col("loss").fill_nan(float("inf"))))
    OF_FRAMES[name](FRAME.with_columns(pl.col("loss").fill_nan(None)))


@pytest.mark.parametrize("paired", [True, False])
def test_no_improvement_is_read_off_nan(paired: bool):
    frame = FRAME.rename({"loss": "value"})
    for treated, control in (("a", "b"), ("b", "a")):
        with pytest.raises(ValueError, match="value: NaN"):
            probability_of_improvement(frame, treated, control, "minimize", paired)


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_nan_in_an_array_is_refused_by_the_arguments_name(name: str):
    argument, called = OF_ARRAYS[name]
    with pytest.raises(ValueError, match=f"{argument}: NaN has no place in an order: "):
        called([NAN, 0.01])
    called([0.02, 0.01])


def test_infinities_are_ordered():
    values = ordered_values([1, -np.inf, np.inf], "loss")
    assert values.dtype == float
    assert values.tolist() == [1.0, -np.inf, np.inf]
