"""Effect sizes without a unit: rank-biserial correlation, standardized mean difference, Cliff's delta."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from reports.statistics.improvement import superiority, superiority_interval
from reports.statistics.medians import LEVEL
from reports.statistics.ranks import average_ranks
from reports.statistics.values import UNDECIDED, ordered_values


@dataclass(frozen=True)
class EffectSize:
    """An effect size and its interval (null where there are too few values), and its number of values."""

    effect: float
    low: float | None
    high: float | None
    level: float
    count: int


def rank_biserial(differences: ArrayLike, level: float = LEVEL) -> EffectSize:
    """The matched-pairs rank-biserial correlation: from -1 (all differences below 0) to 1 (all above).

    It is (W+ - W-) / (W+ + W-) of Wilcoxon's signed ranks, zeros left out (Kerby, Comprehensive Psychology 3,
    2014). Were sizes and signs independent, W+ / (W+ + W-) would vary as a share of 3 n (n + 1) / (4 n + 2)
    trials does; the interval is Wilson's with that number (Journal of the American Statistical Association
    22, 1927). Assumes independent pairs.

    Args:
        differences: shape (pairs,), infinite ones take the highest ranks.

    Returns:
        0 from -1 to 1 where no difference is left.

    Raises:
        ValueError: for NaN.
    """
    values = ordered_values(differences, "differences", UNDECIDED)
    count = len(values)
    values = values[values != 0]
    if not len(values):
        return EffectSize(0.0, -1.0, 1.0, level, count)
    ranks = average_ranks(np.abs(values))
    share = float(ranks[values > 0].sum() / ranks.sum())
    left = len(values)
    low, high = _wilson(share, 3 * left * (left + 1) / (4 * left + 2), level)
    return EffectSize(2 * share - 1, 2 * low - 1, 2 * high - 1, level, count)


def _wilson(share: float, trials: float, level: float) -> tuple[float, float]:
    """Wilson's score interval of a share of so many trials."""
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    middle = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def standardized_mean(differences: ArrayLike, level: float = LEVEL) -> EffectSize:
    """Cohen's d_z of paired differences, mean over standard deviation, with Hedges' correction of its bias.

    The correction is that of Hedges (Journal of Educational Statistics 6, 1981); the interval inverts the
    noncentral t distribution and is about the uncorrected parameter (Cumming and Finch, Educational and
    Psychological Measurement 61, 2001). Assumes independent normal differences: of skewed ones the interval
    covers too seldom (`docs/statistics.md`), and `rank_biserial` is the one to take.

    Args:
        differences: shape (pairs,), finite.

    Returns:
        No interval, and 0 or an infinite effect, where all differences are equal.

    Raises:
        ValueError: of fewer than 2 differences, or where one is not finite.
    """
    values = np.asarray(differences, dtype=float)
    if len(values) < 2 or not np.isfinite(values).all():
        raise ValueError("a standardized mean needs at least 2 differences, all finite")
    count, mean, scale = len(values), float(values.mean()), float(values.std(ddof=1))
    if scale <= 1e-12 * abs(mean):
        return EffectSize(float(np.copysign(np.inf, mean)) if mean else 0.0, None, None, level, count)
    from scipy.special import gammaln, nctdtrinc

    freedom = count - 1
    correction = float(np.sqrt(2 / freedom) * np.exp(gammaln(freedom / 2) - gammaln((freedom - 1) / 2)))
    statistic, tail = np.sqrt(count) * mean / scale, (1 - level) / 2
    low, high = (float(nctdtrinc(freedom, p, statistic) / np.sqrt(count)) for p in (1 - tail, tail))
    return EffectSize(correction * mean / scale, low, high, level, count)


def cliffs_delta(left: ArrayLike, right: ArrayLike, level: float = LEVEL) -> EffectSize:
    """Cliff's delta: the chance that a left value is larger than a right one, minus that it is smaller.

    2 p - 1 with p of `superiority` (Cliff, Psychological Bulletin 114, 1993), the interval from p's. Assumes
    independent values, and two independent samples: of pairs take `rank_biserial`.

    Args:
        left, right: shapes (m,) and (n,), infinities allowed.

    Raises:
        ValueError: for NaN, or no values.
    """
    sizes, estimate = (np.size(left), np.size(right)), superiority(left, right)
    low, high = superiority_interval(estimate, [sizes], level)
    return EffectSize(2 * estimate - 1, 2 * low - 1, 2 * high - 1, level, min(sizes))


def effect_sizes(pairs: pl.DataFrame, by: Sequence[str], level: float = LEVEL) -> pl.DataFrame:
    """The effect sizes of every group of paired values.

    Args:
        pairs: what `paired_values` returns: columns `by`, treated, control, difference.

    Returns:
        Columns `by`, measure (rank_biserial; standardized_mean where there are at least two differences, all
        finite; cliffs_delta), effect, low, high, level, count.
    """
    rows = []
    for key, group in pairs.group_by(by, maintain_order=True):
        differences = group["difference"].to_numpy()
        found = {"rank_biserial": rank_biserial(differences, level)}
        if len(differences) > 1 and np.isfinite(differences).all():
            found["standardized_mean"] = standardized_mean(differences, level)
        found["cliffs_delta"] = cliffs_delta(group["treated"], group["control"], level)
        rows += [
            dict(zip(by, key, strict=True)) | {"measure": measure} | vars(size)
            for measure, size in found.items()
        ]
    schema = {column: pairs.schema[column] for column in by} | {
        "measure": pl.String(),
        "effect": pl.Float64(),
        "low": pl.Float64(),
        "high": pl.Float64(),
        "level": pl.Float64(),
        "count": pl.Int64(),
    }
    return pl.DataFrame(rows, schema=schema)
