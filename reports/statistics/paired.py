"""Two methods on the same problem instances: paired values, effects and the sign test.

A pair consists of the values of two runs with the same seed, one of each method.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from math import comb
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

DIVERGED = "a run that diverged is infinite on the bad side, one without a value is left out"
UNDECIDED = "say first which of the two is better; where both diverged they tie, with a difference of 0"


def ordered_values(values: ArrayLike, name: str, remedy: str = DIVERGED) -> np.ndarray:
    """Return values as an array of floats, after checking that they can be ordered.

    NaN is neither less nor more than any number, so that sorting would put NaN first or last by chance.

    Args:
        values: numbers of any shape, infinities allowed.
        name: name of the column or argument with the values, for the error message.
        remedy: advice for the error message: how the caller should replace NaN.

    Raises:
        ValueError: for NaN.
    """
    array = np.asarray(values, dtype=float)
    if np.isnan(array).any():
        raise ValueError(f"{name}: NaN has no place in an order: {remedy}")
    return array


Direction = Literal["minimize", "maximize"]
Effect = Literal["ratio", "difference"]


def sign_p_value(differences: ArrayLike) -> float:
    """Return the exact one-sided p-value of the sign test that paired differences tend to be below zero.

    A small p-value means that more differences are below zero than chance explains. The test assumes
    independent pairs, and nothing about the distribution of the differences. Differences of zero are left out
    (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed., section 3.4).

    Args:
        differences: shape (pairs,), infinities allowed.

    Raises:
        ValueError: for NaN.
    """
    values = ordered_values(differences, "differences", UNDECIDED)
    values = values[values != 0]
    return _patterns_up_to(len(values))[int((values > 0).sum())] / 2 ** len(values)


def ties_against(differences: ArrayLike, negligible: float) -> np.ndarray:
    """Replace ties by the smallest positive number, so that ties count as differences above zero.

    A tie is a difference of at most `negligible` in absolute value. After the replacement, `sign_p_value`
    tests whether the median difference is below zero. If ties were left out, the sign test would only compare
    how many differences are above and below zero, and might reject although most pairs are ties.

    Args:
        differences: shape (pairs,), infinities allowed.
        negligible: largest absolute difference that counts as a tie, at least 0.
    """
    values = np.asarray(differences, dtype=float)
    return np.where(np.abs(values) <= negligible, np.finfo(float).tiny, values)


@lru_cache(maxsize=256)
def _patterns_up_to(count: int) -> tuple[int, ...]:
    """Count the patterns of `count` signs by their number of positive signs, cumulatively.

    Entry k of the result, from 0 to `count`, is the number of patterns with at most k positive signs.
    """
    return tuple(accumulate(comb(count, number) for number in range(count + 1)))


def effect_for(values: ArrayLike, direction: Direction) -> Effect:
    """Choose whether pairs of values are compared by ratio or by difference.

    Pairs are compared by ratio if less of the metric is better and no finite value is negative. Otherwise
    they are compared by difference.

    Args:
        values: values of all methods that are compared, infinities allowed.
        direction: whether less or more of the metric is better.
    """
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    return "ratio" if direction == "minimize" and (finite >= 0).all() else "difference"


def paired_values(frame: pl.DataFrame, value: str, treated: str, control: str) -> pl.DataFrame:
    """Return the values of two methods on every seed on which both methods have a value.

    Args:
        frame: columns method, seed and `value`, one row per method and seed; rows with a null value count as
            absent.
        value: name of the column with the values.
        treated, control: labels of the two methods in the column method.

    Returns:
        Columns seed, treated and control (the values of the two methods), sorted by seed.

    Raises:
        ValueError: when a method has two values on one seed, or a value is NaN.
    """
    ordered_values(frame[value].drop_nulls(), value)
    sides = []
    for name, method in (("treated", treated), ("control", control)):
        rows = frame.filter(pl.col("method") == method).select("seed", pl.col(value).cast(float).alias(name))
        if rows["seed"].is_duplicated().any():
            raise ValueError(f"{method} has more than one value on one seed")
        sides.append(rows.drop_nulls())
    return sides[0].join(sides[1], on="seed", how="inner").sort("seed")
