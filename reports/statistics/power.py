"""What so few runs can show: smallest reachable p-values, and numbers of pairs for a stated effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import comb, factorial
from typing import Literal

import numpy as np

from results.least_p import least_paired_p, least_pairs

__all__ = [
    "LEAST_POWER",
    "MOST_PAIRS",
    "POWERS",
    "PairedTest",
    "least_friedman_p",
    "least_paired_p",
    "least_pairs",
    "least_pairwise_p",
    "pairs_for",
    "sign_power",
    "signed_rank_power",
    "t_power",
]

PairedTest = Literal["t", "wilcoxon", "sign"]

LEAST_POWER = 0.8
MOST_PAIRS = 10_000


def least_pairwise_p(methods: int, workloads: int) -> float:
    """The smallest p-value of exact two-sided Wilcoxon tests of all pairs of methods, with Holm's correction.

    A workload is a pair. Of 5 methods on 8 workloads it is 0.078: no test of 10 can reach 0.05.
    """
    return least_paired_p(workloads, comb(methods, 2), 2)


def least_friedman_p(methods: int, workloads: int) -> float:
    """The smallest p-value of the exact Friedman test: every workload orders the methods alike.

    One order is any of k!, so the chance that all n workloads share one is k!^(1 - n) (Hollander, Wolfe and
    Chicken, Nonparametric Statistical Methods, 3rd ed., section 7.1).

    Raises:
        ValueError: unless there are at least 2 methods and 1 workload.
    """
    if methods < 2 or workloads < 1:
        raise ValueError(f"{methods} methods on {workloads} workloads: at least 2 and 1 are needed")
    return float(factorial(methods)) ** (1 - workloads)


def pairs_for(
    effect: float,
    test: PairedTest,
    power: float = LEAST_POWER,
    alpha: float = 0.05,
    family: int = 1,
) -> int:
    """How many pairs a one-sided test needs to find an effect.

    Assumes independent normal differences. The t test's power is exact (noncentral t), and so is the sign
    test's (binomial); the signed-rank test's is close (`signed_rank_power`). Of a family each test is taken
    at alpha over their number, the most severe step of Holm's.

    Args:
        effect: the mean difference over the standard deviation of differences (Cohen's d_z), above 0.
        test: "t", "wilcoxon" or "sign".
        power: the share of studies that reject.
        alpha: the level of the family.
        family: the number of tests that share a correction.

    Raises:
        ValueError: where an argument is out of range, or more than 10,000 pairs are needed.
    """
    if effect <= 0 or not 0 < alpha < power < 1 or family < 1:
        raise ValueError(
            f"effect {effect}, alpha {alpha}, power {power}, family {family}: effect > 0, family >= 1 and "
            "0 < alpha < power < 1 are needed"
        )
    enough = POWERS[test](np.arange(1, MOST_PAIRS + 1), effect, alpha / family) >= power
    if not enough.any():
        raise ValueError(f"an effect of {effect} needs more than {MOST_PAIRS} pairs")
    return int(np.argmax(enough)) + 1


def t_power(pairs: np.ndarray, effect: float, alpha: float) -> np.ndarray:
    """The power of the one-sided t test on normal differences, for each number of pairs; 0 for one."""
    from scipy.special import nctdtr, stdtrit

    freedom = np.maximum(pairs - 1, 1)
    power = 1 - nctdtr(freedom, effect * np.sqrt(pairs), stdtrit(freedom, 1 - alpha))
    return np.where(pairs > 1, power, 0.0)


def signed_rank_power(pairs: np.ndarray, effect: float, alpha: float) -> np.ndarray:
    """About the power of the one-sided signed-rank test on normal differences.

    That of a t test on 3 / pi times as many pairs (the tests' relative efficiency, Hollander, Wolfe and
    Chicken, section 3.11), or the chance that all pairs lean one way, whichever is larger.
    """
    from scipy.special import nctdtr, ndtr, stdtrit

    counted = 3 / np.pi * pairs
    freedom = np.maximum(counted - 1, 1)
    power = 1 - nctdtr(freedom, effect * np.sqrt(counted), stdtrit(freedom, 1 - alpha))
    return np.where(pairs >= least_pairs(alpha), np.maximum(power, ndtr(effect) ** pairs), 0.0)


def sign_power(pairs: np.ndarray, effect: float, alpha: float) -> np.ndarray:
    """The exact power of the one-sided sign test on normal differences."""
    from scipy.special import ndtr
    from scipy.stats import binom

    wins = binom.isf(alpha, pairs, 0.5) + 1  # the least number of them whose tail is at most alpha
    power: np.ndarray = binom.sf(wins - 1, pairs, ndtr(effect))
    return power


POWERS: Mapping[PairedTest, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "t": t_power,
    "wilcoxon": signed_rank_power,
    "sign": sign_power,
}
