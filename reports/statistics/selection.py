"""Which methods no other beats: those that may be the best, seed by seed, and those on a front."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from curvebench.reports.statistics.paired import Direction, sign_p_value, ties_against
from curvebench.reports.statistics.ranks import present_values, tied


def least_p_value(frame: pl.DataFrame) -> float:
    """The smallest corrected p-value of `best_set` that shared seeds permit; 1 where there is one method.

    Args:
        frame: columns method, seed, value; a row without a value counts as absent.
    """
    present = present_values(frame).select("method", "seed", there=1)
    if present.is_empty():
        return 1.0
    wide = present.pivot(on="method", index="seed", values="there").drop("seed").fill_null(0).to_numpy()
    shared = wide.T @ wide - np.diag(wide.sum(axis=0))
    corrected = (shared > 0).sum(axis=1) * 0.5 ** shared.max(axis=1)
    return float(np.min(np.where(shared.any(axis=1), corrected, 1.0), initial=1.0))


def best_set(
    frame: pl.DataFrame, direction: Direction, alpha: float, negligible: float = 0.0
) -> pl.DataFrame:
    """The methods that may be the best: a confidence set of level 1 - alpha.

    A method leaves the set where another is better than it by the one-sided sign test on their shared
    instances, the p-value multiplied by the number of its opponents (Bonferroni's correction; Holm's begins
    with it). A best method is one that no other beats, so all nulls of its own tests are true and it leaves
    with a chance of at most alpha, however its tests depend on each other (subset selection: Gupta,
    Technometrics 7, 1965; comparisons with the best: Hsu, Annals of Statistics 9, 1981). "Beats" is about the
    median difference, whatever the differences' shape; ties count for the method that may leave. Nothing is
    said of the order inside the set.

    Args:
        frame: columns method, seed, value; a diverged run is infinite on the bad side; a row without a value
            counts as absent.
        negligible: relative difference up to which a pair is a tie.

    Returns:
        Columns method and kept, in the order of first appearance. A method without an instance is left out.

    Raises:
        ValueError: where a method has two values on one seed, or a value is NaN.
    """
    present = present_values(frame)
    methods = present["method"].unique(maintain_order=True).to_list()
    wide = present.pivot(on="method", index="seed", values="value")
    values = {name: wide[name].to_numpy() for name in methods}  # NaN where there is no pair
    sign = 1.0 if direction == "minimize" else -1.0
    rows = []
    for name in methods:
        p_values = []
        for other in methods:
            both = ~np.isnan(values[name]) & ~np.isnan(values[other])
            if other == name or not both.any():
                continue
            own, rival = values[name][both], values[other][both]
            with np.errstate(invalid="ignore"):
                differences = np.where(tied(rival, own, negligible), 0.0, sign * (rival - own))
            p_values.append(sign_p_value(ties_against(differences, 0.0)))
        opponents = max(1, len(p_values))
        rows.append((name, opponents * min(p_values, default=1.0) > alpha))
    schema = {"method": frame.schema["method"], "kept": pl.Boolean()}
    return pl.DataFrame(rows, schema=schema, orient="row")


def on_front(losses: ArrayLike, costs: ArrayLike, negligible: float = 0.0) -> np.ndarray:
    """Which methods no other dominates.

    A method dominates another if it is no worse in loss and cost and better in one (Ehrgott, Multicriteria
    Optimization, 2nd ed., definition 2.1); of equal ones neither does. One whose loss or cost is infinite
    (diverged, out of memory) is on no front.

    Args:
        losses, costs: shape (methods,); less is better.
        negligible: the relative difference up to which two losses, or two costs, are equal (see `tied`):
            rounding alone would put a method that costs more on the front.

    Returns:
        Shape (methods,), whether a method is on the front.
    """
    no_worse: np.ndarray = np.ones((), dtype=bool)
    better: np.ndarray = np.zeros((), dtype=bool)
    for values in (np.asarray(losses, dtype=float), np.asarray(costs, dtype=float)):
        less, equal = values[:, None] < values, tied(values[:, None], values, negligible)
        no_worse, better = no_worse & (less | equal), better | (less & ~equal)
    dominated = (no_worse & better).any(axis=0)
    front: np.ndarray = ~dominated & np.isfinite(losses) & np.isfinite(costs)
    return front
