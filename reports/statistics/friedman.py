"""Methods ranked on problem instances: Friedman's test, critical differences, and the least p-values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, factorial

import numpy as np
from numpy.typing import ArrayLike

from reports.statistics.ranks import average_ranks
from results.least_p import least_paired_p


@dataclass(frozen=True)
class FriedmanTest:
    """Whether the methods' ranks differ at all.

    Args:
        statistic: Friedman's chi-square, corrected for ties.
        f_statistic: Iman and Davenport's form of it; infinite where all instances agree.
        p_value: of the statistic.
        least: the smallest p-value that the number of methods and instances permits.
        methods, instances: their numbers.
    """

    statistic: float
    f_statistic: float
    p_value: float
    least: float
    methods: int
    instances: int


def friedman_test(values: ArrayLike) -> FriedmanTest:
    """Test that all methods are alike, against any difference between their ranks.

    Assumes independent instances on each of which, under the null, every order of the methods is equally
    likely. The statistic is Friedman's (Journal of the American Statistical Association 32, 1937) in its form
    for ties (Conover, Practical Nonparametric Statistics, 3rd ed., section 5.8), also given as Iman and
    Davenport's F (Communications in Statistics A 9, 1980), whose distribution with k - 1 and (k - 1) (n - 1)
    degrees of freedom the p-value is of. That is an approximation, but never below the least p-value of the
    exact test.

    Args:
        values: shape (instances, methods), such as ranks; equal ones of an instance share their rank.

    Raises:
        ValueError: for fewer than two methods, no instance, or a value that is NaN.
    """
    table = np.asarray(values, dtype=float)
    if table.ndim != 2 or table.shape[0] < 1 or table.shape[1] < 2:
        raise ValueError(f"values of shape {table.shape}: at least 1 instance and 2 methods are needed")
    ranks = np.apply_along_axis(average_ranks, 1, table)
    instances, methods = ranks.shape
    middle = (methods + 1) / 2
    spread = float(((ranks - middle) ** 2).sum())
    between = float(((ranks.sum(axis=0) - instances * middle) ** 2).sum())
    # Without ties the spread is n k (k^2 - 1) / 12; where all methods tie everywhere nothing differs.
    statistic = (methods - 1) * between / spread if spread else 0.0
    left = instances * (methods - 1) - statistic
    f_statistic = (instances - 1) * statistic / left if left > 1e-9 else float("inf")
    from scipy.stats import f

    least = least_friedman_p(methods, instances)
    freedom = (methods - 1, (methods - 1) * (instances - 1))
    p_value = max(least, float(f.sf(f_statistic, *freedom)) if instances > 1 else 1.0)
    return FriedmanTest(statistic, f_statistic, p_value, least, methods, instances)


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


def indifferent_groups(means: Sequence[tuple[str, float]], critical: float) -> list[tuple[str, ...]]:
    """The largest runs of methods, in the order of mean ranks, in which no two differ significantly.

    Two differ by Nemenyi's test (1963) where their mean ranks are a critical difference or more apart. It is
    approximate, and its answer on two methods depends on which others take part (Benavoli, Corani and
    Mangili, Journal of Machine Learning Research 17, 2016). What a critical-difference diagram joins by bars:
    that two methods share a group does not say that they are equal.

    Args:
        means: name and mean rank of each method, the best first.
        critical: what `critical_difference` returns.

    Returns:
        Groups of two or more, the best first; one method may be in several.
    """
    found: list[range] = []
    for start, (_, first) in enumerate(means):
        end = start + sum(mean - first < critical for _, mean in means[start:])
        if end - start > 1 and not (found and found[-1].stop >= end):
            found.append(range(start, end))
    return [tuple(means[number][0] for number in group) for group in found]


def least_pairwise_p(methods: int, workloads: int) -> float:
    """The smallest p-value of exact two-sided Wilcoxon tests of all pairs of methods, with Holm's correction.

    A workload is a pair. Of 5 methods on 8 workloads it is 0.078: no test of 10 can reach 0.05.
    """
    return least_paired_p(workloads, comb(methods, 2), 2)


def least_friedman_p(methods: int, workloads: int) -> float:
    """The smallest p-value of the exact Friedman test: every workload orders the methods alike.

    One order is any of k!, so the chance that all n workloads share one is k!^(1 - n) (Hollander, Wolfe and
    Chicken, Nonparametric Statistical Methods, 3rd ed., section 7.1).
    """
    return float(factorial(methods)) ** (1 - workloads)
