"""Methods that no other method beats: the methods that may be the best, and the methods on a Pareto front.

An instance is a problem with one seed; two methods are compared on the instances on which both ran.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from curvebench.reports.statistics.paired import Direction, sign_p_value, ties_against
from curvebench.reports.statistics.ranks import present_values, tied


def least_p_value(frame: pl.DataFrame) -> float:
    """Return the smallest corrected p-value that `best_set` can reach with the seeds that methods share.

    The p-value is 1 if there is only one method.

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


def best_set(frame: pl.DataFrame, direction: Direction, alpha: float, negligible: float = 0) -> pl.DataFrame:
    """Return the methods that may be the best: a confidence set of level 1 - alpha.

    A method is excluded if another method is better by the one-sided sign test on their shared instances. The
    p-value is multiplied by the number of opponents (Bonferroni's correction, with which Holm's method
    begins). A best method is one that no other method beats. All null hypotheses of its own tests are true,
    so that it is excluded with a probability of at most alpha, whatever the dependence between its tests
    (subset selection: Gupta, Technometrics 7, 1965; comparisons with the best: Hsu, Annals of Statistics 9,
    1981). "Beats" refers to the median difference, whatever the distribution of the differences. Ties count
    for the method that may be excluded. The set says nothing about the order inside it.

    Args:
        frame: columns method, seed, value. A diverged run has the worst value, infinity or minus infinity; a
            row without a value counts as absent.
        direction: whether less or more is better.
        alpha: probability with which a best method may be excluded.
        negligible: relative difference up to which a pair is a tie.

    Returns:
        Columns method and kept, in the order of first appearance. A method without an instance is left out.

    Raises:
        ValueError: when a method has two values on one seed, or a value is NaN.
    """
    present = present_values(frame)
    methods = present["method"].unique(maintain_order=True).to_list()
    wide = present.pivot(on="method", index="seed", values="value")
    values = {name: wide[name].to_numpy() for name in methods}  # NaN if a method has no value on a seed
    sign = 1.0 if direction == "minimize" else -1.0
    rows = []
    for name in methods:
        p_values = []
        for opponent in methods:
            both = ~np.isnan(values[name]) & ~np.isnan(values[opponent])
            if opponent == name or not both.any():
                continue
            ours, theirs = values[name][both], values[opponent][both]
            with np.errstate(invalid="ignore"):
                differences = np.where(tied(theirs, ours, negligible), 0.0, sign * (theirs - ours))
            p_values.append(sign_p_value(ties_against(differences, 0.0)))
        tests = max(1, len(p_values))
        rows.append((name, tests * min(p_values, default=1.0) > alpha))
    schema = {"method": frame.schema["method"], "kept": pl.Boolean()}
    return pl.DataFrame(rows, schema=schema, orient="row")


def on_front(losses: ArrayLike, costs: ArrayLike, negligible: float = 0.0) -> np.ndarray:
    """Return whether each method is on the Pareto front: no other method dominates it.

    A method dominates another if it is no worse in loss and cost and better in one of them (Ehrgott,
    Multicriteria Optimization, 2nd ed., definition 2.1). A method whose loss or cost is infinite (diverged,
    out of memory) is on no front.

    Args:
        losses, costs: shape (methods,); less is better.
        negligible: relative difference up to which two losses, or two costs, count as equal (see `tied`).
            Without it, rounding alone would put a method with a higher cost on the front.

    Returns:
        Shape (methods,).
    """
    no_worse: np.ndarray = np.ones((), dtype=bool)
    better: np.ndarray = np.zeros((), dtype=bool)
    for values in (np.asarray(losses, dtype=float), np.asarray(costs, dtype=float)):
        less, equal = values[:, None] < values, tied(values[:, None], values, negligible)
        no_worse, better = no_worse & (less | equal), better | (less & ~equal)
    dominated = (no_worse & better).any(axis=0)
    front: np.ndarray = ~dominated & np.isfinite(losses) & np.isfinite(costs)
    return front
