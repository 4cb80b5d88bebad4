"""The hierarchical bootstrap: seeds drawn again inside workloads, for any statistic of a frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from reports.statistics.medians import LEVEL

Kind = Literal["percentile", "basic", "bca"]

LEAST_SEEDS = 20  # of each workload; below, resamples are too much like the few runs there are
RESAMPLES = 1999
ROWS_AT_ONCE = 4_000_000  # of resampled frames, so that memory stays below some hundred MB


@dataclass(frozen=True)
class Statistic:
    """What is estimated: first of the rows of each workload, then over workloads.

    Args:
        within: an aggregation of a workload's rows, such as `pl.col("value").mean()`; of one method among
            several by `pl.col("value").filter(pl.col("method") == "adam").mean()`.
        across: an aggregation of the column "within", of one row a workload.
    """

    within: pl.Expr
    across: pl.Expr = pl.col("within").mean()  # noqa: RUF009 - an expression is never changed


@dataclass(frozen=True)
class BootstrapInterval:
    """An estimate and its interval.

    Args:
        kind: how the interval was made: a bootstrap's, or "t" where there are too few seeds for one.
        seeds: the least number of seeds of a workload.
    """

    estimate: float
    low: float
    high: float
    level: float
    kind: Literal["percentile", "basic", "bca", "t"]
    workloads: int
    seeds: int


def bootstrap_interval(
    frame: pl.DataFrame,
    statistic: Statistic,
    generator: np.random.Generator,
    kind: Kind = "bca",
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    draw_workloads: bool = False,
) -> BootstrapInterval:
    """An interval of a statistic by drawing the seeds of each workload again, with replacement.

    All rows of a workload and seed stay together, so that methods stay paired. Without `draw_workloads` the
    interval is about these workloads and further seeds; with it, about further workloads too.

    "percentile" takes quantiles of the resampled statistics, "basic" mirrors them at the estimate, "bca"
    corrects for bias and skewness (Efron, Journal of the American Statistical Association 82, 1987). A
    bootstrap of n values is too narrow by sqrt((n - 1) / n) and knows no t quantile: the tails are widened
    for both (Hesterberg, The American Statistician 69, 2015).

    With fewer than 20 seeds on a workload, or fewer than 20 workloads where these are drawn, it is a t
    interval instead, with the jackknife's standard error (Efron and Tibshirani, An Introduction to the
    Bootstrap, chapter 11), which asks for a statistic that is smooth: of a median take `medians`.

    Assumes independent seeds inside a workload, and independent workloads where they are drawn.

    Args:
        frame: columns workload, seed and those that the statistic reads; any number of rows a seed.
        statistic: what is estimated.
        generator: the source of resamples: the same one gives the same interval.

    Raises:
        ValueError: for a frame without rows, a unit that can be drawn only once, or a statistic that is not a
            finite number.
    """
    resampling = _Resampling.of(frame)
    units, seeds = resampling.units(draw_workloads), int(resampling.sizes.min())
    if min(units) < 2:
        raise ValueError("an interval needs two seeds on each workload, or two workloads to draw from")
    whole = resampling.rows(resampling.starts[None], resampling.counts[None])
    estimate = float(_evaluated(statistic, whole)[0])
    if not np.isfinite(estimate):
        raise ValueError(f"the statistic is {estimate}: a bootstrap needs a finite one; take medians")
    jackknife = [_evaluated(statistic, part) for part in resampling.without_each(draw_workloads)]
    freedom, narrow = _freedom(jackknife, units)
    from scipy.special import ndtr, stdtrit

    quantile = float(stdtrit(freedom, (1 + level) / 2))
    made: Literal["percentile", "basic", "bca", "t"] = kind
    if min([seeds, *units]) < LEAST_SEEDS:
        half = quantile * float(np.sqrt(sum(_variance(values) for values in jackknife)))
        made, low, high = "t", estimate - half, estimate + half
    else:
        at_once = max(1, ROWS_AT_ONCE // len(frame))
        replicates = np.concatenate(
            [
                _evaluated(
                    statistic, resampling.drawn(generator, min(at_once, resamples - done), draw_workloads)
                )
                for done in range(0, resamples, at_once)
            ]
        )
        tail = float(ndtr(-quantile / narrow))
        tails = _corrected(replicates, estimate, jackknife, tail) if kind == "bca" else (tail, 1 - tail)
        low, high = (float(end) for end in np.quantile(replicates, tails))
        if kind == "basic":
            low, high = 2 * estimate - high, 2 * estimate - low
    return BootstrapInterval(estimate, low, high, level, made, len(resampling.sizes), seeds)


@dataclass(frozen=True)
class _Resampling:
    """A frame sorted by workload and seed, and where the rows of each seed lie.

    Args:
        frame: the rows.
        sizes: shape (workloads,): the number of seeds of each.
        starts, counts: shape (workloads, most seeds): the first row of a seed and its number of rows, 0
            behind a workload's last.
    """

    frame: pl.DataFrame
    sizes: np.ndarray
    starts: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, frame: pl.DataFrame) -> _Resampling:
        if frame.is_empty():
            raise ValueError("a bootstrap needs rows")
        ordered = frame.sort("workload", "seed")
        seeds = ordered.group_by("workload", "seed", maintain_order=True).len()
        seeds = seeds.with_columns(start=pl.col("len").cum_sum() - pl.col("len"))
        groups = seeds.partition_by("workload", maintain_order=True)
        sizes = np.array([len(group) for group in groups])
        starts, counts = np.zeros((2, len(groups), sizes.max()), dtype=np.int64)
        for workload, group in enumerate(groups):
            starts[workload, : len(group)] = group["start"].to_numpy()
            counts[workload, : len(group)] = group["len"].to_numpy()
        return cls(ordered.drop("workload"), sizes, starts, counts)

    def units(self, workloads: bool) -> list[int]:
        """How many are drawn at a time: workloads, or seeds of each workload."""
        return [len(self.sizes)] if workloads else self.sizes.tolist()

    def drawn(self, generator: np.random.Generator, number: int, workloads: bool) -> pl.DataFrame:
        """So many resamples with replacement: of seeds, and of workloads first if asked."""
        shape = (number, *self.starts.shape)
        chosen = generator.integers(0, shape[1], shape[:2]) if workloads else np.arange(shape[1])[None, :]
        sizes = self.sizes[chosen][:, :, None]
        seeds = (generator.random(shape) * sizes).astype(np.int64)
        behind = np.arange(shape[2]) >= sizes
        counts = np.where(behind, 0, self.counts[chosen[:, :, None], seeds])
        return self.rows(self.starts[chosen[:, :, None], seeds], counts)

    def without_each(self, workloads: bool) -> list[pl.DataFrame]:
        """The rows without each workload, or for each workload those without each of its seeds."""
        if workloads:
            places = [[(workload, slice(None)) for workload in range(len(self.sizes))]]
        else:
            places = [
                [(workload, slice(seed, seed + 1)) for seed in range(size)]
                for workload, size in enumerate(self.sizes)
            ]
        frames = []
        for among in places:
            counts = np.repeat(self.counts[None], len(among), axis=0)
            for number, place in enumerate(among):
                counts[number][place] = 0
            frames.append(self.rows(np.broadcast_to(self.starts, counts.shape), counts))
        return frames

    def rows(self, starts: np.ndarray, counts: np.ndarray) -> pl.DataFrame:
        """The rows of resamples, numbered by columns resample and workload.

        Args:
            starts, counts: shape (resamples, workloads, seeds).
        """
        flat = counts.ravel()
        ends = np.cumsum(flat)
        picked = np.arange(ends[-1]) + np.repeat(starts.ravel() - (ends - flat), flat)
        workloads, seeds = counts.shape[1:]
        cell = np.repeat(np.arange(counts.size) // seeds, flat)
        return self.frame[picked].with_columns(
            resample=pl.Series(cell // workloads), workload=pl.Series(cell % workloads)
        )


def _evaluated(statistic: Statistic, resampled: pl.DataFrame) -> np.ndarray:
    """The statistic of every resample, shape (resamples,)."""
    within = resampled.group_by("resample", "workload").agg(statistic.within.alias("within"))
    across = within.group_by("resample").agg(statistic.across.alias("across")).sort("resample")
    values: np.ndarray = across["across"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    return values


def _variance(without: np.ndarray) -> float:
    """The jackknife's variance of an estimate, from its values without each unit of a stratum."""
    count = len(without)
    return float((count - 1) / count * ((without - without.mean()) ** 2).sum())


def _freedom(jackknife: list[np.ndarray], units: list[int]) -> tuple[float, float]:
    """Satterthwaite's degrees of freedom, and by how much a bootstrap's standard error is too small."""
    variances = np.array([_variance(values) for values in jackknife])
    sizes = np.array(units, dtype=float)
    if variances.sum() == 0:
        return float((sizes - 1).sum()), 1.0
    freedom = variances.sum() ** 2 / (variances**2 / (sizes - 1)).sum()
    return float(freedom), float(np.sqrt((variances * (sizes - 1) / sizes).sum() / variances.sum()))


def _corrected(
    replicates: np.ndarray, estimate: float, jackknife: list[np.ndarray], tail: float
) -> tuple[float, float]:
    """The tails of BCa in place of `tail` and 1 - `tail`."""
    from scipy.special import ndtr, ndtri

    count = len(replicates)
    below = ((replicates < estimate).sum() + (replicates == estimate).sum() / 2) / count
    bias = float(ndtri(np.clip(below, 1 / count, 1 - 1 / count)))
    influence = np.concatenate(
        [(values.mean() - values) * (len(values) - 1) / len(values) for values in jackknife]
    )
    scale = float((influence**2).sum()) ** 1.5
    acceleration = float((influence**3).sum()) / (6 * scale) if scale else 0.0

    def shifted(z: float) -> float:
        return float(ndtr(bias + (bias + z) / (1 - acceleration * (bias + z))))

    z = float(ndtri(tail))
    return shifted(z), shifted(-z)
