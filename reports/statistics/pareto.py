"""Fronts of loss against cost: the methods that no other beats in one without losing in the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from reports.statistics.ranks import tied

RESAMPLES = 1000


def pareto_fronts(frame: pl.DataFrame, by: Sequence[str], loss: str, cost: str) -> pl.DataFrame:
    """Mark the rows of every group that no other row of it dominates.

    A row dominates another if it is no worse in loss and cost and better in one (Ehrgott, Multicriteria
    Optimization, 2nd ed., definition 2.1). Equal rows do not dominate each other: ties stay. A row whose loss
    or cost is infinite (diverged, out of memory) is on no front.

    Args:
        frame: columns `by`, `loss`, `cost`, both to be minimized.
        by: columns that name a group, such as the workload; none for one group.

    Returns:
        The frame in its order, with a column on_front.

    Raises:
        ValueError: for a loss or cost that is null or NaN.
    """
    _check(frame, loss, cost)
    numbered = frame.with_row_index("_row")
    groups = numbered.partition_by(list(by), maintain_order=True) if by else [numbered]
    marked = [
        group.select(
            "_row",
            on_front=_front(group[loss].cast(pl.Float64).to_numpy(), group[cost].cast(pl.Float64).to_numpy()),
        )
        for group in groups
    ]
    empty = numbered.select("_row", on_front=pl.lit(False)).clear()
    return numbered.join(pl.concat([empty, *marked]), on="_row", maintain_order="left").drop("_row")


def front_shares(
    frame: pl.DataFrame,
    by: Sequence[str],
    method: str,
    pair: Sequence[str],
    loss: str,
    cost: str,
    resamples: int = RESAMPLES,
    seed: int = 0,
    negligible: float = 0.0,
) -> pl.DataFrame:
    """The front of the medians over seeds, and how often each method would be on it with other seeds.

    Seeds are drawn with replacement, together for all methods of a group (they share their problem
    instances), and the front of the medians is taken again. The share says how firm the front is; it is not
    the probability that a method belongs to it (Efron and Tibshirani, An Introduction to the Bootstrap,
    1993, chapter 6). Assumes independent seeds; with few of them it says little.

    Args:
        frame: columns `by`, `method`, `pair`, `loss`, `cost`; one row for each method and seed of a group.
        by: columns that name a group; none for one group.
        pair: columns that name a problem instance, such as the seed; only those that all methods of the
            group have are used.
        resamples: at least 1.
        seed: of the draws.
        negligible: the relative difference up to which two losses, or two costs, are equal (see `tied`):
            rounding alone would put a method that costs more on the front.

    Returns:
        Columns `by`, `method`, `loss` and `cost` (medians), on_front, share (of the resamples), count
        (seeds), in the order of first appearance.

    Raises:
        ValueError: for a loss or cost that is null or NaN, a method with two rows on one instance, methods
            that share no instance, or no resamples.
    """
    _check(frame, loss, cost)
    if resamples < 1:
        raise ValueError(f"{resamples} resamples: there must be at least 1")
    if frame.select(*by, method, *pair).is_duplicated().any():
        raise ValueError(f"a {method} has more than one row on one instance ({', '.join(pair)})")
    rows = []
    for group in frame.partition_by(list(by), maintain_order=True) if by else [frame]:
        names = group[method].unique(maintain_order=True).to_list()
        losses, costs = (_shared(group, method, pair, column, names) for column in (loss, cost))
        count = losses.shape[1]
        if not count:
            raise ValueError(f"{', '.join(map(str, names))}: no instance ({', '.join(pair)}) that all have")
        drawn = np.random.default_rng(seed).integers(count, size=(resamples, count))
        drawn_losses, drawn_costs = (np.median(values[:, drawn], axis=-1).T for values in (losses, costs))
        shares = _front(drawn_losses, drawn_costs, negligible).mean(axis=0)
        middle = np.median(losses, axis=-1), np.median(costs, axis=-1)
        on_front = _front(*middle, negligible)
        key = group.select(by).row(0) if by else ()
        rows += [(*key, *row, count) for row in zip(names, *middle, on_front, shares, strict=True)]
    schema = {column: frame.schema[column] for column in [*by, method]} | {
        loss: pl.Float64(),
        cost: pl.Float64(),
        "on_front": pl.Boolean(),
        "share": pl.Float64(),
        "count": pl.Int64(),
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _check(frame: pl.DataFrame, *columns: str) -> None:
    for column in columns:
        values = frame[column].cast(pl.Float64)
        if values.has_nulls() or values.is_nan().any():
            raise ValueError(f"{column} is null or NaN: leave the run out, or say that it is infinite")


def _shared(
    group: pl.DataFrame, method: str, pair: Sequence[str], column: str, names: Sequence[str]
) -> np.ndarray:
    """Values of shape (methods, instances) on the instances that all methods have."""
    wide = group.pivot(on=method, index=list(pair), values=column, maintain_order=True)
    return wide.select(names).drop_nulls().cast(pl.Float64).to_numpy().T


def _front(losses: np.ndarray, costs: np.ndarray, negligible: float = 0.0) -> np.ndarray:
    """Whether nothing dominates an entry; all arrays are of shape (..., methods)."""
    no_worse = np.ones((), dtype=bool)
    better = np.zeros((), dtype=bool)
    for values in (losses, costs):
        one, other = values[..., :, None], values[..., None, :]
        equal = tied(one, other, negligible)
        no_worse, better = no_worse & ((one < other) | equal), better | ((one < other) & ~equal)
    dominated = (no_worse & better).any(axis=-2)
    front: np.ndarray = ~dominated & np.isfinite(losses) & np.isfinite(costs)
    return front
