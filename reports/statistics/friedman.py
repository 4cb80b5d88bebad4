"""Methods ranked on problem instances: Friedman's test, tests of all pairs, and groups that do not differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations
from typing import Literal

import numpy as np
import polars as pl

from reports.statistics.decisions import holm
from reports.statistics.paired import Direction, Effect, compare_pairs, effect_for
from reports.statistics.power import least_friedman_p, least_pairwise_p
from reports.statistics.ranks import NEGLIGIBLE, average_ranks, instance_ranks

Null = Literal["exact", "permutation", "F"]
PairTest = Literal["nemenyi", "sign", "wilcoxon"]

EXACT_ROWS = 50_000  # rank sums that the exact distribution may take in one step
DRAWS = 9_999  # of orders, where there are too many to go through
DRAWN_UP_TO = 100  # instances; above, the F distribution is close


@dataclass(frozen=True)
class FriedmanTest:
    """Whether the methods' ranks differ at all.

    Args:
        statistic: Friedman's chi-square, corrected for ties.
        f_statistic: Iman and Davenport's form of it; infinite where all instances agree.
        p_value: of the statistic.
        null: where the p-value comes from: all orders, orders drawn at random, or the F distribution.
        least: the smallest p-value that the number of methods and instances (and of drawn orders) permits.
        methods, instances: their numbers.
    """

    statistic: float
    f_statistic: float
    p_value: float
    null: Null
    least: float
    methods: int
    instances: int


def friedman_test(
    frame: pl.DataFrame, instance: Sequence[str], method: str, value: str, direction: Direction
) -> FriedmanTest:
    """Test that all methods are alike, against any difference between their ranks.

    Assumes independent instances on each of which, under the null, every order of the methods is equally
    likely. Ties share their rank (see `instance_ranks`). The statistic is Friedman's (Journal of the American
    Statistical Association 32, 1937) in its form for ties (Conover, Practical Nonparametric Statistics,
    3rd ed., section 5.8), also given as Iman and Davenport's F (Communications in Statistics A 9, 1980).
    The p-value counts the orders inside instances that give as large a statistic: all of them where that
    is affordable (3 methods on 40 instances, 4 on 10, 5 on 5), else drawn ones, itself included; with more
    than 100 instances it is that of F with k - 1 and (k - 1) (n - 1) degrees of freedom.

    Args:
        frame: columns `instance`, `method`, `value`, one row a method and instance; instances that a method
            has no value on are left out; a diverged run is infinite on the bad side.
        instance: columns that name a problem instance.
        direction: whether less is better.

    Raises:
        ValueError: for fewer than two methods, no instance that all of them have a value on, a method
            with two values on one, or a value that is NaN.
    """
    _, ranks = _rank_table(frame, instance, method, value, direction)
    instances, methods = ranks.shape
    middle = (methods + 1) / 2
    spread = float(((ranks - middle) ** 2).sum())
    between = float(((ranks.sum(axis=0) - instances * middle) ** 2).sum())
    # Without ties the spread is n k (k^2 - 1) / 12; where all methods tie everywhere nothing differs.
    statistic = (methods - 1) * between / spread if spread else 0.0
    left = instances * (methods - 1) - statistic
    f_statistic = (instances - 1) * statistic / left if left > 1e-9 else float("inf")
    p_value, null = _p_value(ranks, f_statistic)
    least = max(least_friedman_p(methods, instances), 1 / (1 + DRAWS) if null == "permutation" else 0.0)
    return FriedmanTest(statistic, f_statistic, p_value, null, least, methods, instances)


def pairwise_tests(
    frame: pl.DataFrame,
    instance: Sequence[str],
    method: str,
    value: str,
    direction: Direction,
    test: PairTest = "sign",
) -> pl.DataFrame:
    """Two-sided tests of all pairs of methods, corrected for their number.

    "sign" and "wilcoxon" are the tests of `compare_pairs` on the values, Holm-corrected; the latter assumes
    what `signed_rank_p_value` does and that differences, or ratios of values that are nowhere negative, can
    be compared across instances. "nemenyi" compares mean ranks with a studentized range (Nemenyi 1963;
    Demsar, Journal of Machine Learning Research 7, 2006); it is approximate, and its answer on two methods
    depends on which others take part (Benavoli, Corani and Mangili, Journal of Machine Learning Research 17,
    2016).

    Args:
        frame, instance, method, value, direction: see `friedman_test`.

    Returns:
        Columns first, second (names, the one with the lower mean rank first), difference (of mean ranks,
        first minus second), p_value (corrected), least (the smallest that so few instances permit; null
        for "nemenyi"), by the methods' mean ranks.

    Raises:
        ValueError: see `friedman_test`.
    """
    names, ranks = _rank_table(frame, instance, method, value, direction)
    means = ranks.mean(axis=0)
    pairs = list(combinations(range(len(names)), 2))
    if test == "nemenyi":
        from scikit_posthocs import posthoc_nemenyi_friedman

        matrix = posthoc_nemenyi_friedman(ranks).to_numpy()
        p_values, least = [min(1.0, float(matrix[pair])) for pair in pairs], None
    else:
        values = _table(frame.drop_nulls(value), instance, method, value, names)
        effect = effect_for(values, direction)
        p_values = holm(
            [
                _two_sided(values[:, first], values[:, second], direction, effect, test)
                for first, second in pairs
            ]
        )
        least = least_pairwise_p(len(names), len(ranks))
    return pl.DataFrame(
        {
            "first": [names[first] for first, _ in pairs],
            "second": [names[second] for _, second in pairs],
            "difference": [float(means[first] - means[second]) for first, second in pairs],
            "p_value": p_values,
            "least": [least] * len(pairs),
        },
        schema_overrides={"least": pl.Float64()},
    )


def critical_difference(methods: int, instances: int, alpha: float = 0.05) -> float:
    """The difference of mean ranks above which Nemenyi's test calls two methods different.

    q sqrt(k (k + 1) / (6 n)), where q is the quantile of the studentized range over sqrt(2) (Demsar, Journal
    of Machine Learning Research 7, 2006, section 3.2.2).

    Raises:
        ValueError: unless there are at least 2 methods and 1 instance.
    """
    if methods < 2 or instances < 1:
        raise ValueError(f"{methods} methods on {instances} instances: at least 2 and 1 are needed")
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - alpha, methods, np.inf)) / np.sqrt(2)
    return float(quantile * np.sqrt(methods * (methods + 1) / (6 * instances)))


def indifferent_groups(pairs: pl.DataFrame, alpha: float = 0.05) -> list[tuple[str, ...]]:
    """The largest runs of methods, in the order of mean ranks, in which no two differ significantly.

    What a critical-difference diagram joins by bars. That two methods share a group does not say that they
    are equal.

    Args:
        pairs: what `pairwise_tests` returns.

    Returns:
        Groups of two or more, the best first; one method may be in several.
    """
    if pairs.is_empty():
        return []
    names = [pairs["first"][0], *pairs.filter(first=pairs["first"][0])["second"]]
    place = {name: number for number, name in enumerate(names)}
    differ = {
        (place[row["first"]], place[row["second"]])
        for row in pairs.iter_rows(named=True)
        if row["p_value"] <= alpha
    }
    found: list[range] = []
    for start in range(len(names)):
        end = start + 1
        while end < len(names) and not any((other, end) in differ for other in range(start, end)):
            end += 1
        if end - start > 1 and not (found and found[-1].stop >= end):
            found.append(range(start, end))
    return [tuple(names[number] for number in group) for group in found]


def _rank_table(
    frame: pl.DataFrame, instance: Sequence[str], method: str, value: str, direction: Direction
) -> tuple[list[str], np.ndarray]:
    """Methods by mean rank, and their ranks of shape (instances, methods)."""
    found = instance_ranks(frame, instance, method, value, descending=direction == "maximize")
    if frame[method].n_unique() < 2 or found.is_empty():
        raise ValueError(
            f"{frame[method].n_unique()} of {method}, {found.select(instance).n_unique()} instances that all "
            "have a value on: at least 2 and 1 are needed"
        )
    order = found.group_by(method).agg(pl.col("rank").mean()).sort("rank", method)[method].to_list()
    # Ties within a tolerance need not be transitive: ranks of ranks are.
    table = np.apply_along_axis(average_ranks, 1, _table(found, instance, method, "rank", order))
    return order, table


def _table(
    frame: pl.DataFrame, instance: Sequence[str], method: str, value: str, names: Sequence[str]
) -> np.ndarray:
    """Values of shape (instances, methods), of the instances that have all."""
    wide = frame.pivot(on=method, index=list(instance), values=value).select(names).drop_nulls()
    return wide.cast(pl.Float64).to_numpy()


def _two_sided(left: np.ndarray, right: np.ndarray, direction: Direction, effect: Effect, test: str) -> float:
    sides = (
        compare_pairs(*pair, direction, effect, NEGLIGIBLE, test=test).p_value
        for pair in ((left, right), (right, left))
    )
    return min(1.0, 2 * min(sides))


def _p_value(ranks: np.ndarray, f_statistic: float) -> tuple[float, Null]:
    """Of the sum of squared rank sums, which grows with the statistic."""
    instances, methods = ranks.shape
    doubled = np.rint(2 * ranks).astype(np.int64)  # whole numbers, ties or not
    squares = (doubled.sum(axis=0) ** 2).sum()
    found = _null_distribution(tuple(sorted(tuple(sorted(row)) for row in doubled.tolist())))
    if found is None:
        from scipy.stats import f

        return float(f.sf(f_statistic, methods - 1, (methods - 1) * (instances - 1))), "F"
    null, values, chances = found
    as_large = float(chances[values >= squares].sum())
    if null == "exact":
        return min(1.0, as_large), "exact"
    return (1 + DRAWS * as_large) / (1 + DRAWS), "permutation"


@lru_cache(maxsize=64)  # without ties it depends on two numbers alone
def _null_distribution(rows: tuple[tuple[int, ...], ...]) -> tuple[Null, np.ndarray, np.ndarray] | None:
    """Sums of squared rank sums and their chances if every order inside an instance is equally likely.

    Args:
        rows: twice the ranks of every instance, whole numbers; their order does not matter.

    Returns:
        None for more than `DRAWN_UP_TO` instances whose orders are too many to go through.
    """
    exact = _exact_sums(np.array(rows))
    if exact is not None:
        sums, chances = exact
        return "exact", (sums**2).sum(axis=1), chances
    if len(rows) > DRAWN_UP_TO:
        return None
    random = np.random.default_rng(0)
    drawn = np.zeros((DRAWS, len(rows[0])), dtype=np.int64)
    for row in rows:
        drawn += random.permuted(np.tile(row, (DRAWS, 1)), axis=1)
    return "permutation", (drawn**2).sum(axis=1), np.full(DRAWS, 1 / DRAWS)


def _exact_sums(doubled: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """All rank sums, each sorted, and their chances; None where they are too many.

    Under the null every assignment of the sums to the methods is equally likely, so that their order can be
    dropped on the way.

    Args:
        doubled: twice the ranks, shape (instances, methods), whole numbers.
    """
    instances, methods = doubled.shape
    base = int(2 * methods * instances + 1)
    if methods > 8 or base**methods >= 2**62:
        return None
    digits = base ** np.arange(methods)
    sums: np.ndarray = np.sort(doubled[:1], axis=1)
    chances: np.ndarray = np.ones(1)
    for row in doubled[1:]:
        orders = np.array(sorted(set(permutations(row.tolist()))))
        if len(sums) * len(orders) > EXACT_ROWS:
            return None
        following = np.sort((sums[:, None] + orders).reshape(-1, methods), axis=1)
        codes, which = np.unique(following @ digits, return_inverse=True)
        weights = np.repeat(chances, len(orders)) / len(orders)
        chances = np.bincount(which, weights)
        sums = codes[:, None] // digits % base
    return sums, chances
