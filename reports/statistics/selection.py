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
    """Return the smallest p-value that any test of `best_set` could have with the seeds in a frame.

    A method has the smallest possible p-value if an opponent is better on all seeds that both methods ran:
    0.5^(number of these seeds), multiplied by the number of opponents (Bonferroni's correction). The result
    is 1 if no two methods share a seed.

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
    """Return which methods may be the best: the kept methods form a confidence set of level 1 - alpha.

    A method is excluded if an opponent is better by the one-sided sign test on the instances that both ran.
    The p-value of the test is multiplied by the number of opponents (Bonferroni's correction). A method is a
    best method if no opponent beats it, that is, if no median difference is in favour of an opponent. All
    null hypotheses of the tests of a best method are true, so that a best method is excluded with a
    probability of at most alpha, whatever the dependence between the tests (subset selection: Gupta,
    Technometrics 7, 1965; comparisons with the best: Hsu, Annals of Statistics 9, 1981). Nothing is assumed
    about the distribution of the differences. Ties count in favour of keeping a method. The set does not
    order the methods in it.

    Args:
        frame: columns method, seed, value. A diverged run has the worst value, infinity or minus infinity; a
            row without a value counts as absent.
        direction: whether less or more of the value is better.
        alpha: largest probability with which a best method may be excluded.
        negligible: relative difference up to which two values tie.

    Returns:
        Columns method and kept (whether the method may be the best), in the order in which methods first
        appear. A method without a value is left out.

    Raises:
        ValueError: when a method has two values on one seed, or a value is NaN.
    """
    present = present_values(frame)
    methods = present["method"].unique(maintain_order=True).to_list()
    wide = present.pivot(on="method", index="seed", values="value")
    # The value is NaN on a seed on which the method has none.
    values = {name: wide[name].to_numpy() for name in methods}
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
    """Return whether each method is on the Pareto front of loss and cost.

    A method is on the front if no other method dominates it. One method dominates another if neither its loss
    nor its cost is larger, and at least one of the two is smaller (Ehrgott, Multicriteria Optimization, 2nd
    ed., definition 2.1). A method whose loss or cost is infinite (diverged, out of memory) is not on the
    front.

    Args:
        losses, costs: loss and cost of each method, shape (methods,); less is better.
        negligible: relative difference up to which two losses, or two costs, count as equal (see `tied`). If
            it is 0, a loss that is smaller only by rounding may put a method with a higher cost on the front.

    Returns:
        A boolean for each method, shape (methods,).
    """
    no_worse: np.ndarray = np.ones((), dtype=bool)
    better: np.ndarray = np.zeros((), dtype=bool)
    for values in (np.asarray(losses, dtype=float), np.asarray(costs, dtype=float)):
        less, equal = values[:, None] < values, tied(values[:, None], values, negligible)
        no_worse, better = no_worse & (less | equal), better | (less & ~equal)
    dominated = (no_worse & better).any(axis=0)
    front: np.ndarray = ~dominated & np.isfinite(losses) & np.isfinite(costs)
    return front
