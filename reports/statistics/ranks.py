"""Ranks of methods on the problem instances that all of them met, and their mean with an interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from curvebench.reports.statistics.paired import ordered_values
from curvebench.results.intervals import LEVEL

NEGLIGIBLE = 1e-3  # relative: what rounding, amplified by training, leaves between two equal methods
LEAST_SEEDS = 5  # in a stratum, for an interval of the mean rank


def tied(left: ArrayLike, right: ArrayLike, negligible: float = NEGLIGIBLE) -> np.ndarray:
    """Whether values are equal, or finite and no further apart than `negligible` of the larger one.

    Args:
        left, right: arrays that broadcast together.
    """
    left, right = np.asarray(left, dtype=float), np.asarray(right, dtype=float)
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(left - right) <= negligible * np.maximum(np.abs(left), np.abs(right))
    result: np.ndarray = (left == right) | (close & np.isfinite(left) & np.isfinite(right))
    return result


def tolerant_ranks(values: ArrayLike, negligible: float = NEGLIGIBLE) -> np.ndarray:
    """Ranks from 1 (least) on in which near values tie: 1 + those below + half of those that tie.

    Every pair is judged alone, as in the paired test, so that the ranks of n values sum to n (n + 1) / 2.

    Args:
        values: shape (n,), infinities allowed.

    Returns:
        Shape (n,).

    Raises:
        ValueError: for NaN.
    """
    array = ordered_values(values, "values")
    ties = tied(array[:, None], array[None, :], negligible)
    below = (array[None, :] < array[:, None]) & ~ties
    ranks: np.ndarray = 1 + below.sum(axis=1) + (ties.sum(axis=1) - 1) / 2
    return ranks


def instance_ranks(frame: pl.DataFrame, descending: bool = False) -> pl.DataFrame:
    """Rank the methods of every instance that all methods of the frame have a value on; 1 is best.

    Values that the paired test calls a tie (see `tied`) share their rank.

    Args:
        frame: columns seed (the instance), method and value, one row a method and seed; a diverged run is
            infinite on the bad side; rows with a null value count as absent.
        descending: whether more is better.

    Returns:
        Columns seed, method, rank.

    Raises:
        ValueError: where a method has two values on one instance, or a value is NaN.
    """
    whole, sign = _whole_instances(frame), -1 if descending else 1
    ranked = [
        group.select("seed", "method", rank=tolerant_ranks(sign * group["value"].to_numpy()))
        for group in whole.partition_by("seed", maintain_order=True)
    ]
    return pl.concat([whole.select("seed", "method", rank=pl.lit(0.0)).clear(), *ranked])


def present_values(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows with a value, as a float.

    Raises:
        ValueError: where a method has two values on one seed, or a value is NaN.
    """
    present = frame.drop_nulls("value").with_columns(pl.col("value").cast(pl.Float64))
    ordered_values(present["value"], "value")
    if present.select("seed", "method").is_duplicated().any():
        raise ValueError("a method has more than one value on one seed")
    return present


def _whole_instances(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of the seeds on which all methods of a frame have a value."""
    present = present_values(frame)
    return present.filter(pl.len().over("seed") == frame["method"].n_unique())


def wins(frame: pl.DataFrame, descending: bool = False) -> pl.DataFrame:
    """On how many instances each method is the best, or ties with it (see `tied`).

    Nobody wins an instance on which no value is finite. Instances that not all methods have a value on are
    left out, as in `instance_ranks`.

    Args:
        frame, descending: see `instance_ranks`.

    Returns:
        Columns method, wins, count (instances), in the order of first appearance.

    Raises:
        ValueError: see `instance_ranks`.
    """
    whole, value = _whole_instances(frame), pl.col("value")
    best = whole.select((value.max() if descending else value.min()).over("seed")).to_series().to_numpy()
    won = pl.Series("wins", tied(whole["value"].to_numpy(), best) & np.isfinite(best), dtype=pl.Int64)
    by_method = whole.with_columns(won).group_by("method", maintain_order=True)
    return by_method.agg(pl.col("wins").sum(), count=pl.len().cast(pl.Int64))


def stratified_mean(
    strata: Sequence[ArrayLike], methods: Sequence[int], level: float = LEVEL
) -> tuple[float, float | None, float | None]:
    """The mean over strata of the mean rank inside each, with an approximate t interval.

    Assumes independent ranks inside a stratum and independent strata. The variance is sum(v_w / n_w) / W^2,
    the degrees of freedom are Satterthwaite's (Biometrics Bulletin 2, 1946). The interval holds two, after
    Agresti and Coull (The American Statistician 52, 1998), since few ranks may agree by chance while others
    would not, and those of a method that is nearly always best or worst are skewed:

    - about the mean, where v_w is the sample variance, but at least that of one rank step in two of n_w + 4
      instances, which is p (1 - p) with p = 2 / (n_w + 4);
    - about the mean with two ranks more in each stratum, a deviation (at least one step) better and worse
      than its mean, as far as there are ranks: at an edge that moves the middle inwards.

    Measured coverage: `docs/statistics.md`. Methods that never change places get too wide intervals.

    Args:
        strata: ranks, arrays of shape (n_w,), each with at least one.
        methods: of each stratum how many there are, the greatest rank.

    Returns:
        The mean and the ends of its interval, None where a stratum has fewer than 5 ranks.

    Raises:
        ValueError: without strata.
    """
    arrays = [np.asarray(stratum, dtype=float) for stratum in strata]
    if not arrays:
        raise ValueError("a stratified mean needs at least one stratum")
    mean = float(np.mean([array.mean() for array in arrays]))
    if any(len(array) < LEAST_SEEDS for array in arrays):
        return mean, None, None
    sizes = np.array([len(array) for array in arrays], dtype=float)
    added = [_with_edges(array, most) for array, most in zip(arrays, methods, strict=True)]
    moved = float(np.mean([array.mean() for array in added]))
    floors = 2 * (sizes + 2) / (sizes + 4) ** 2
    half = _half_width(np.maximum([array.var(ddof=1) for array in arrays], floors), sizes, level)
    other = _half_width(np.array([array.var(ddof=1) for array in added]), sizes, level)
    return mean, min(mean - half, moved - other), max(mean + half, moved + other)


def _with_edges(ranks: np.ndarray, most: int) -> np.ndarray:
    """The ranks of a stratum and two more, one on each side of their mean; shape (n + 2,)."""
    mean, step = ranks.mean(), max(1.0, float(ranks.std(ddof=1)))
    return np.append(ranks, [max(1.0, mean - step), min(float(most), mean + step)])


def _half_width(variances: np.ndarray, sizes: np.ndarray, level: float) -> float:
    """Half of the t interval of a stratified mean, from the variance and the number of values of strata."""
    from scipy.special import stdtrit  # the quantile of scipy.stats.t, without its checks

    parts = variances / sizes
    if not parts.any():  # a method alone
        return 0.0
    freedom = parts.sum() ** 2 / (parts**2 / (sizes - 1)).sum()
    return float(stdtrit(freedom, (1 + level) / 2) * np.sqrt(parts.sum()) / len(sizes))


def mean_ranks(ranks: pl.DataFrame, level: float = LEVEL) -> pl.DataFrame:
    """The mean rank of every method: over the seeds of a stratum first, then over strata, equally weighted.

    Args:
        ranks: what `instance_ranks` returns, stacked over workloads, which the column stratum names.

    Returns:
        Columns method, mean, low, high (within 1 and the mean number of methods), strata, seeds (the
        least of a stratum); those of the most strata first, best first among them.
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
