"""The hierarchical bootstrap: against formulas, its fallback, pairing, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from reports.statistics.bootstrap import Statistic, bootstrap_interval
from reports.statistics.means import t_interval

MEAN = Statistic(pl.col("value").mean())


def frame_of(values: Any) -> pl.DataFrame:
    """Arrays of values, one a workload."""
    return pl.concat(
        pl.DataFrame(
            {"workload": f"w{number}", "seed": range(len(each)), "value": np.asarray(each, dtype=float)}
        )
        for number, each in enumerate(values)
    )


@pytest.mark.parametrize("kind", ["percentile", "basic", "bca"])
def test_of_many_seeds_it_is_the_t_interval(kind: Any):
    values = np.random.default_rng(0).normal(size=60)
    found = bootstrap_interval(frame_of([values]), MEAN, np.random.default_rng(1), kind, resamples=8000)
    expected: Any = t_interval(values)
    half = (expected.high - expected.low) / 2
    assert (found.kind, found.seeds, found.workloads) == (kind, 60, 1)
    assert found.estimate == pytest.approx(expected.mean)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.1 * half)


def test_below_20_seeds_it_is_a_t_interval_and_says_so():
    values = np.random.default_rng(0).normal(size=19)
    found = bootstrap_interval(frame_of([values]), MEAN, np.random.default_rng(1))
    expected: Any = t_interval(values)
    assert found.kind == "t"
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_over_workloads_the_fallback_is_welchs():
    from scipy.stats import ttest_ind

    random = np.random.default_rng(3)
    left, right = random.normal(size=8), 3 * random.normal(size=12)
    difference = Statistic(MEAN.within, pl.col("within").max() - pl.col("within").min())
    found = bootstrap_interval(frame_of([left + 50, right]), difference, random)
    expected = ttest_ind(left + 50, right, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_workloads_weigh_the_same_however_many_seeds_they_have():
    found = bootstrap_interval(frame_of([np.zeros(20), np.ones(40)]), MEAN, np.random.default_rng(0))
    assert (found.estimate, found.low, found.high, found.seeds) == (0.5, 0.5, 0.5, 20)


def test_all_rows_of_a_seed_stay_together():
    # Two methods that differ by 1 on every seed, however far seeds lie apart.
    values = 100 * np.random.default_rng(0).normal(size=20)
    frame = pl.concat(
        frame_of([values + number]).with_columns(method=pl.lit(method)) for number, method in enumerate("ab")
    ).sample(fraction=1.0, shuffle=True, seed=0)
    of = {name: pl.col("value").filter(pl.col("method") == name).mean() for name in "ab"}
    found = bootstrap_interval(frame, Statistic(of["b"] - of["a"]), np.random.default_rng(0))
    assert (found.low, found.high) == pytest.approx((1.0, 1.0))


def test_drawing_workloads_too_makes_it_wider():
    random = np.random.default_rng(0)
    frame = frame_of(random.normal(size=(25, 20)) + 3 * random.normal(size=(25, 1)))
    inside = bootstrap_interval(frame, MEAN, random)
    outside = bootstrap_interval(frame, MEAN, random, draw_workloads=True)
    assert outside.high - outside.low > 5 * (inside.high - inside.low)
    few = bootstrap_interval(
        frame.filter(pl.col("workload").str.len_chars() == 2), MEAN, random, draw_workloads=True
    )
    assert (few.kind, few.workloads) == ("t", 10)


def test_bca_leans_to_the_longer_tail():
    values = np.exp(np.random.default_rng(4).normal(size=30))
    ends = {
        kind: bootstrap_interval(frame_of([values]), MEAN, np.random.default_rng(1), kind)
        for kind in ("percentile", "bca", "basic")
    }
    assert ends["bca"].high > ends["percentile"].high > ends["basic"].high


def test_the_same_generator_gives_the_same_interval():
    frame = frame_of([np.arange(20.0)])
    first, second = (bootstrap_interval(frame, MEAN, np.random.default_rng(7)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("values", "message"),
    [([[1.0]], "two seeds"), ([[1.0, np.inf]], "finite"), ([[]], "rows")],
)
def test_what_cannot_be_resampled_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(frame_of(values), MEAN, np.random.default_rng(0))
