"""Friedman's test and tests of all pairs, against all orders, published tables and libraries."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import f as f_distribution
from scipy.stats import friedmanchisquare, rankdata, wilcoxon

from reports.statistics import friedman
from reports.statistics.friedman import (
    critical_difference,
    friedman_test,
    indifferent_groups,
    pairwise_tests,
)

INFINITE = float("inf")


def table(values: np.ndarray) -> pl.DataFrame:
    """A row for each instance and method, from shape (instances, methods); methods are a, b, c, ..."""
    rows = [(i, chr(ord("a") + m), float(value)) for (i, m), value in np.ndenumerate(values)]
    return pl.DataFrame(rows, schema=["seed", "method", "loss"], orient="row")


def overall(values: np.ndarray, direction: str = "minimize") -> friedman.FriedmanTest:
    return friedman_test(table(values), ["seed"], "method", "loss", direction)  # type: ignore[arg-type]


def paired(values: np.ndarray, test: str = "wilcoxon") -> pl.DataFrame:
    return pairwise_tests(table(values), ["seed"], "method", "loss", "minimize", test)  # type: ignore[arg-type]


def by_enumeration(values: np.ndarray) -> float:
    ranks = rankdata(values, axis=1)
    observed = (ranks.sum(axis=0) ** 2).sum() - 1e-9
    orders = [list(permutations(row)) for row in ranks]
    found = [(np.sum(choice, axis=0) ** 2).sum() >= observed for choice in product(*orders)]
    return float(np.mean(found))


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(1, 4) | st.just(INFINITE), min_size=3, max_size=3), min_size=2, max_size=4)
)
def test_the_exact_p_value_goes_through_all_orders_with_ties(rows):
    values = np.array(rows, dtype=float)
    found = overall(values)
    assert found.null == "exact"
    assert found.p_value == pytest.approx(by_enumeration(values))
    assert found.p_value >= found.least * (1 - 1e-9)


def test_published_p_values():
    # Hollander, Wolfe and Chicken, table of Friedman's distribution: k = 3, n = 4 and k = 4, n = 3.
    agree = np.array([[1, 2, 3]] * 4)
    assert overall(agree).p_value == pytest.approx(0.00463, abs=1e-5)
    assert overall(agree).least == pytest.approx(6.0**-3)
    assert overall(agree).f_statistic == INFINITE
    one_off = np.array([[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 3, 2]])
    assert (overall(one_off).statistic, overall(one_off).p_value) == pytest.approx((6.5, 0.0417), abs=1e-4)


@pytest.mark.parametrize("decimals", [1, 6])
def test_the_statistic_is_scipys_with_and_without_ties(decimals: int):
    values = np.random.default_rng(4).normal(10, 1, (12, 5)).round(decimals)
    found = overall(values)
    expected = friedmanchisquare(*rankdata(values, axis=1).T)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.f_statistic == pytest.approx(11 * found.statistic / (12 * 4 - found.statistic))
    assert (found.methods, found.instances) == (5, 12)


def test_drawn_orders_and_the_f_distribution_agree_where_both_can_be_had(monkeypatch: pytest.MonkeyPatch):
    values = np.random.default_rng(5).normal(0, 1, (60, 5)) + 0.15 * np.arange(5)
    drawn = overall(values)
    assert drawn.null == "permutation"
    assert drawn.least == 1e-4
    expected = f_distribution.sf(drawn.f_statistic, 4, 4 * 59)
    assert drawn.p_value == pytest.approx(expected, rel=0.2)
    monkeypatch.setattr(friedman, "DRAWN_UP_TO", 10)
    friedman._null_distribution.cache_clear()
    assert overall(values).null == "F"
    assert overall(values).p_value == pytest.approx(expected)


def test_the_direction_infinities_and_rounding_do_not_matter_to_the_test():
    values = np.random.default_rng(6).normal(10, 1, (6, 3))
    assert overall(values).p_value == pytest.approx(overall(-values, "maximize").p_value)
    values[:, 2] = INFINITE
    apart = values.copy()
    apart[:, 0] = apart[:, 1] * (1 + 1e-9)
    assert overall(apart).p_value == pytest.approx(overall(np.array([[1, 1, 2]] * 6)).p_value)


def test_methods_that_are_all_equal_do_not_differ():
    found = overall(np.ones((5, 3)))
    assert (found.statistic, found.p_value) == (0.0, 1.0)
    assert set(paired(np.ones((5, 3)))["p_value"]) == {1.0}
    assert paired(np.ones((5, 3)), "nemenyi")["p_value"].to_list() == pytest.approx([1.0] * 3)


def test_instances_that_a_method_lacks_are_left_out_and_little_is_refused():
    values = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    frame = table(values).filter(~((pl.col("seed") == 0) & (pl.col("method") == "b")))
    assert friedman_test(frame, ["seed"], "method", "loss", "minimize").instances == 2
    assert pairwise_tests(frame, ["seed"], "method", "loss", "minimize")["p_value"].to_list() == [0.5]
    with pytest.raises(ValueError, match="1 of method"):
        friedman_test(frame.filter(method="a"), ["seed"], "method", "loss", "minimize")
    apart = frame.filter(
        ((pl.col("method") == "a") & (pl.col("seed") == 0))
        | ((pl.col("method") == "b") & (pl.col("seed") == 1))
    )
    with pytest.raises(ValueError, match="0 instances"):
        friedman_test(apart, ["seed"], "method", "loss", "minimize")
    with pytest.raises(ValueError, match="more than one value"):
        friedman_test(pl.concat([frame, frame]), ["seed"], "method", "loss", "minimize")


def test_all_pairs_by_wilcoxon_are_scipys_with_holm():
    values = np.random.default_rng(7).normal(0, 1, (9, 3)) + np.array([0, 0.5, 2.0])
    found = paired(values)
    assert found.select("first", "second").rows() == [("a", "b"), ("a", "c"), ("b", "c")]
    alone = [wilcoxon(values[:, i], values[:, j], mode="exact").pvalue for i, j in ((0, 1), (0, 2), (1, 2))]
    expected = np.empty(3)
    running = 0.0
    for step, place in enumerate(np.argsort(alone)):
        running = max(running, min(1.0, (3 - step) * alone[place]))
        expected[place] = running
    assert found["p_value"].to_list() == pytest.approx(expected)
    assert found["least"].to_list() == [3 * 2 / 2**9] * 3
    assert (found["difference"] < 0).all()


def test_no_wilcoxon_test_of_five_methods_on_eight_instances_reaches_five_percent():
    found = paired(np.arange(5) + np.linspace(0, 0.5, 8)[:, None])
    assert found["p_value"].min() == pytest.approx(found["least"][0])
    assert found["least"][0] == pytest.approx(0.078125)
    assert indifferent_groups(found) == [("a", "b", "c", "d", "e")]
    assert overall(np.arange(5) + np.zeros((8, 1))).p_value < 1e-3


def test_critical_differences_are_those_that_are_published():
    # Demsar 2006, table 5(a): q = 1.960, 2.343, 2.569, 2.728, ..., 3.164 for 2 to 10 methods at 0.05.
    for methods, quantile in ((2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)):
        expected = quantile * np.sqrt(methods * (methods + 1) / (6 * 30))
        assert critical_difference(methods, 30) == pytest.approx(expected, rel=5e-4)
    with pytest.raises(ValueError, match="at least 2"):
        critical_difference(1, 5)


def test_nemenyi_and_the_critical_difference_say_the_same():
    values = np.random.default_rng(9).normal(0, 1, (14, 5)) + 0.6 * np.arange(5)
    found = paired(values, "nemenyi")
    apart = critical_difference(5, 14)
    assert 2 < sum(found["p_value"] <= 0.05) < 8
    for row in found.iter_rows(named=True):
        assert (row["p_value"] <= 0.05) == (abs(row["difference"]) >= apart)


def test_groups_are_the_longest_runs_in_which_no_two_differ():
    names = "abcde"
    differ = {("a", "d"), ("a", "e"), ("b", "e"), ("c", "e"), ("b", "d")}
    pairs = pl.DataFrame(
        [(x, y, 0.01 if (x, y) in differ else 0.5) for i, x in enumerate(names) for y in names[i + 1 :]],
        schema=["first", "second", "p_value"],
        orient="row",
    )
    assert indifferent_groups(pairs) == [("a", "b", "c"), ("c", "d"), ("d", "e")]
    assert indifferent_groups(pairs.with_columns(p_value=pl.lit(0.0))) == []
    assert indifferent_groups(pairs.clear()) == []
