"""The smallest p-value that so many pairs can give: pure, shared by harness and reports."""

from __future__ import annotations

from math import ceil, log2


def least_paired_p(pairs: int, family: int = 1) -> float:
    """The smallest p-value that the exact sign and signed-rank tests can give, after Holm's correction.

    All pairs lean one way: 2^-pairs on one side. Holm's correction multiplies the smallest of `family`
    p-values by their number.

    Raises:
        ValueError: unless pairs and family are at least 1.
    """
    if pairs < 1 or family < 1:
        raise ValueError(f"{pairs} pairs in a family of {family}: both must be at least 1")
    return min(1.0, family * 2.0**-pairs)


def least_pairs(alpha: float, family: int = 1) -> int:
    """The least number of pairs with which such a test can reach `alpha` at all.

    Raises:
        ValueError: unless alpha is above 0 and at most 1, and family at least 1.
    """
    if not 0 < alpha <= 1 or family < 1:
        raise ValueError(f"alpha {alpha} in a family of {family}: 0 < alpha <= 1 and at least 1 are needed")
    return max(1, ceil(log2(family / alpha) - 1e-12))
