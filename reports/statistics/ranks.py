"""Ranks of methods on the problem instances on which all of them ran, and mean ranks with intervals.

An instance is a problem with one seed. A stratum consists of the ranks on the instances of one workload.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from curvebench.reports.statistics.paired import ordered_values
from curvebench.results.intervals import LEVEL

# Relative difference up to which two values tie.
# Training amplifies rounding errors to about this size, so that two equal runs may differ by as much.
NEGLIGIBLE = 1e-3
MIN_SEEDS = 5  # minimum number of seeds in each stratum (workload) for an interval of the mean rank


def tied(first: ArrayLike, second: ArrayLike, negligible: float = NEGLIGIBLE) -> np.ndarray:
    """Return whether two values tie: equal, or finite with a relative difference of at most `negligible`.

    Args:
        first, second: arrays that broadcast together; infinities allowed.
        negligible: largest difference of two values that tie, divided by the larger absolute value.

    Returns:
        A boolean for each pair of values, in the broadcast shape.
    """
    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(first - second) <= negligible * np.maximum(np.abs(first), np.abs(second))
    result: np.ndarray = (first == second) | (close & np.isfinite(first) & np.isfinite(second))
    return result


def tolerant_ranks(values: ArrayLike, negligible: float = NEGLIGIBLE) -> np.ndarray:
    """Return the rank of each value, from 1 for the smallest; nearly equal values tie (see `tied`).

    The rank of a value is 1 + (number of smaller values that do not tie) + (number of other values that tie)
    / 2. Whether two values tie does not depend on the other values, as in the paired test. The ranks of n
    values have the sum n (n + 1) / 2.

    Args:
        values: shape (..., n), infinities allowed; the values along the last axis are ranked.
        negligible: relative difference up to which two values tie.

    Returns:
        Shape (..., n).

    Raises:
        ValueError: for NaN.
    """
    array = ordered_values(values, "values")
    ours, others = array[..., :, None], array[..., None, :]
    ties = tied(ours, others, negligible)
    below = (others < ours) & ~ties
    ranks: np.ndarray = 1 + below.sum(axis=-1) + (ties.sum(axis=-1) - 1) / 2
    return ranks


def instance_ranks(frame: pl.DataFrame, descending: bool = False) -> pl.DataFrame:
    """Rank the methods on every instance on which all methods of the frame have a value; 1 is best.

    Values that tie (see `tied`) count as equal, as in the paired test (`tolerant_ranks`).

    Args:
        frame: columns seed (the instance), method and value, one row per method and seed. A diverged run has
            the worst value, infinity or minus infinity; rows with a null value count as absent.
        descending: whether the largest value is the best.

    Returns:
        Columns seed, method, rank.

    Raises:
        ValueError: when a method has two values on one instance, or a value is NaN.
    """
    columns, sign = ("method", "value"), -1 if descending else 1
    by_seed = _whole_instances(frame).group_by("seed", maintain_order=True).agg(*columns)
    complete = by_seed.explode(*columns)
    values = sign * complete["value"].to_numpy().reshape(len(by_seed), -1 if len(by_seed) else 0)
    return complete.select("seed", "method", rank=pl.Series(tolerant_ranks(values).ravel()))


def present_values(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a frame whose value is not null, with the values as floats.

    Args:
        frame: columns seed, method and value.

    Raises:
        ValueError: when a method has two values on one seed, or a value is NaN.
    """
    present = frame.drop_nulls("value").with_columns(pl.col("value").cast(pl.Float64))
    ordered_values(present["value"], "value")
    if present.select("seed", "method").is_duplicated().any():
        raise ValueError("a method has more than one value on one seed")
    return present


def _whole_instances(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the seeds on which all methods of a frame have a value."""
    return present_values(frame).filter(pl.len().over("seed") == frame["method"].n_unique())


def wins(frame: pl.DataFrame, descending: bool = False) -> pl.DataFrame:
    """Return the number of instances on which each method is the best or ties with the best (see `tied`).

    An instance on which no value is finite has no winner. Instances on which a method has no value are left
    out, as in `instance_ranks`.

    Args:
        frame: columns seed (the instance), method and value, one row per method and seed. A diverged run has
            the worst value, infinity or minus infinity; rows with a null value count as absent.
        descending: whether the largest value is the best.

    Returns:
        Columns method, wins (number of instances) and count (number of instances on which all methods have a
        value), in the order in which methods first appear.

    Raises:
        ValueError: when a method has two values on one instance, or a value is NaN.
    """
    complete, value = _whole_instances(frame), pl.col("value")
    best = complete.select((value.max() if descending else value.min()).over("seed")).to_series().to_numpy()
    won = pl.Series("wins", tied(complete["value"].to_numpy(), best) & np.isfinite(best), dtype=pl.Int64)
    by_method = complete.with_columns(won).group_by("method", maintain_order=True)
    return by_method.agg(pl.col("wins").sum(), count=pl.len().cast(pl.Int64))


def stratified_mean(
    strata: Sequence[ArrayLike], methods: Sequence[int], level: float = LEVEL
) -> tuple[float, float | None, float | None]:
    """Return the mean over strata of the mean rank inside each stratum, with an approximate t interval.

    A stratum has the ranks of one method on the instances of one workload. Let W be the number of strata, n_w
    the number of ranks in stratum w, and v_w the variance of these ranks. The variance of the mean is
    sum(v_w / n_w) / W^2, and the degrees of freedom are Satterthwaite's (Biometrics Bulletin 2, 1946). Ranks
    are assumed to be independent, inside a stratum and between strata.

    A t interval with the sample variances alone would be too narrow for two reasons: a few ranks may be equal
    by chance, and the ranks of a method that is nearly always the best or the worst are skewed. Therefore the
    result is the smallest interval that contains both of the following intervals, after Agresti and Coull
    (The American Statistician 52, 1998):

    - An interval about the mean. Here v_w is the sample variance, but at least p (1 - p) with
      p = 2 / (n_w + 4): the variance if two of n_w + 4 ranks differed from the others by 1.
    - An interval about the mean of more ranks: two ranks are added to each stratum, one better and one worse
      than the stratum's mean. Their distance from this mean is one standard deviation, and at least 1, but
      they stay between the first and the last possible rank. If the mean is near the first or the last rank,
      the added ranks move the centre of the interval inwards.

    `docs/statistics.md` has the measured coverage. The interval is too wide for a method whose rank never
    changes.

    Args:
        strata: ranks of one method, an array of shape (n_w,) for each stratum, with at least one rank.
        methods: number of methods in each stratum, which is the largest possible rank.
        level: nominal coverage of the interval.

    Returns:
        The mean and the two ends of its interval. Both ends are None if a stratum has fewer than `MIN_SEEDS`
        ranks.

    Raises:
        ValueError: without strata.
    """
    arrays = [np.asarray(stratum, dtype=float) for stratum in strata]
    if not arrays:
        raise ValueError("a stratified mean needs at least one stratum")
    mean = float(np.mean([array.mean() for array in arrays]))
    if any(len(array) < MIN_SEEDS for array in arrays):
        return mean, None, None
    sizes = np.array([len(array) for array in arrays], dtype=float)
    extended = [_with_edges(array, most) for array, most in zip(arrays, methods, strict=True)]
    moved = float(np.mean([array.mean() for array in extended]))
    floors = 2 * (sizes + 2) / (sizes + 4) ** 2
    half = _half_width(np.maximum([array.var(ddof=1) for array in arrays], floors), sizes, level)
    wider_half = _half_width(np.array([array.var(ddof=1) for array in extended]), sizes, level)
    return mean, min(mean - half, moved - wider_half), max(mean + half, moved + wider_half)


def _with_edges(ranks: np.ndarray, most: int) -> np.ndarray:
    """Append two ranks to the ranks of a stratum, one below and one above their mean.

    The appended ranks are one standard deviation, and at least 1, away from the mean (see `stratified_mean`).

    Args:
        ranks: shape (n,).
        most: largest possible rank.

    Returns:
        Shape (n + 2,).
    """
    mean, step = ranks.mean(), max(1.0, float(ranks.std(ddof=1)))
    return np.append(ranks, [max(1.0, mean - step), min(float(most), mean + step)])


def _half_width(variances: np.ndarray, sizes: np.ndarray, level: float) -> float:
    """Return half the width of the t interval of a stratified mean.

    Args:
        variances: variance of the ranks in each stratum, shape (strata,).
        sizes: number of ranks in each stratum, shape (strata,).
        level: nominal coverage of the interval.
    """
    # The function stdtrit equals scipy.stats.t.ppf, which is slow because it checks its arguments.
    from scipy.special import stdtrit

    parts = variances / sizes
    if not parts.any():  # All variances are 0 only for a single method, which always has rank 1.
        return 0.0
    freedom = parts.sum() ** 2 / (parts**2 / (sizes - 1)).sum()
    return float(stdtrit(freedom, (1 + level) / 2) * np.sqrt(parts.sum()) / len(sizes))


def mean_ranks(ranks: pl.DataFrame, level: float = LEVEL) -> pl.DataFrame:
    """Return the mean rank of every method, with its interval.

    Ranks are averaged over the seeds of each stratum, then over strata with equal weights.

    Args:
        ranks: frames that `instance_ranks` returns, stacked over workloads, with the workload in a column
            stratum.
        level: nominal coverage of the interval.

    Returns:
        Columns method, mean, low and high (ends of the interval, clipped to 1 and the mean number of
        methods), strata (number of strata) and seeds (smallest number of seeds in a stratum). Methods on more
        strata come first. Of methods on equally many strata, the method with the smallest mean rank comes
        first.
    """
    ranks = ranks.with_columns(pl.col("method").n_unique().over("stratum").alias("_methods"))
    rows = []
    for (name,), group in ranks.group_by("method", maintain_order=True):
        strata = group.partition_by("stratum", maintain_order=True)
        parts = [part["rank"].to_numpy() for part in strata]
        methods = [int(part["_methods"].item(0)) for part in strata]
        mean, low, high = stratified_mean(parts, methods, level)
        low = None if low is None else max(1.0, low)
        high = None if high is None else min(float(np.mean(methods)), high)
        rows.append((name, mean, low, high, len(parts), min(map(len, parts))))
    numbers = dict.fromkeys(("mean", "low", "high"), pl.Float64())
    counts = dict.fromkeys(("strata", "seeds"), pl.Int64())
    schema = {"method": ranks.schema["method"], **numbers, **counts}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.sort("strata", "mean", descending=[True, False])
