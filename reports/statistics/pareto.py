"""Fronts of loss against cost: the methods that no other beats in one without losing in the other."""

from __future__ import annotations

import numpy as np
import polars as pl

from reports.statistics.ranks import tied

RESAMPLES = 1000


def front_shares(
    frame: pl.DataFrame,
    cost: str,
    resamples: int = RESAMPLES,
    seed: int = 0,
    negligible: float = 0.0,
) -> pl.DataFrame:
    """The front of the medians over seeds, and how often each method would be on it with other seeds.

    A method dominates another if it is no worse in loss and cost and better in one (Ehrgott, Multicriteria
    Optimization, 2nd ed., definition 2.1); of equal ones neither does. One whose loss or cost is infinite
    (diverged, out of memory) is on no front.

    Seeds are drawn with replacement, together for all methods (they share their problem instances), and the
    front of the medians is taken again. The share says how firm the front is; it is not the probability that
    a method belongs to it (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 6). Assumes
    independent seeds; with few of them it says little.

    Args:
        frame: columns method, seed, loss and `cost`; one row a method and seed; only seeds that all methods
            have are used.
        resamples: at least 1.
        seed: of the draws.
        negligible: the relative difference up to which two losses, or two costs, are equal (see `tied`):
            rounding alone would put a method that costs more on the front.

    Returns:
        Columns method, loss and `cost` (medians), on_front, share (of the resamples), count (seeds), in the
        order of first appearance.

    Raises:
        ValueError: for a loss or cost that is null or NaN, a method with two rows on one seed, methods that
            share no seed, or no resamples.
    """
    for column in ("loss", cost):
        values = frame[column].cast(pl.Float64)
        if values.has_nulls() or values.is_nan().any():
            raise ValueError(f"{column} is null or NaN: leave the run out, or say that it is infinite")
    if resamples < 1:
        raise ValueError(f"{resamples} resamples: there must be at least 1")
    if frame.select("method", "seed").is_duplicated().any():
        raise ValueError("a method has more than one row on one seed")
    names = frame["method"].unique(maintain_order=True).to_list()
    losses, costs = (
        frame.pivot(on="method", index="seed", values=column, maintain_order=True)
        .select(names)
        .drop_nulls()
        .cast(pl.Float64)
        .to_numpy()
        .T
        for column in ("loss", cost)
    )
    count = losses.shape[1]
    if not count:
        raise ValueError(f"{', '.join(names)}: no seed that all have")
    drawn = np.random.default_rng(seed).integers(count, size=(resamples, count))
    drawn_losses, drawn_costs = (np.median(values[:, drawn], axis=-1).T for values in (losses, costs))
    middle = np.median(losses, axis=-1), np.median(costs, axis=-1)
    return pl.DataFrame(
        {
            "method": names,
            "loss": middle[0],
            cost: middle[1],
            "on_front": _front(*middle, negligible),
            "share": _front(drawn_losses, drawn_costs, negligible).mean(axis=0),
            "count": count,
        }
    )


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
