"""Which methods may be the best: those that no other method beats, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from reports.statistics.paired import Direction, sign_p_value, ties_against
from reports.statistics.ranks import tied
from reports.statistics.values import ordered_values


def best_set(
    frame: pl.DataFrame,
    pair: Sequence[str],
    method: str,
    value: str,
    direction: Direction,
    alpha: float,
    negligible: float = 0.0,
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
        frame: columns `pair`, `method`, `value`; a diverged run is infinite on the bad side; a row
            without a value counts as absent.
        pair: columns that name a problem instance, such as the seed.
        negligible: relative difference up to which a pair is a tie.

    Returns:
        Columns `method`, kept, p_value (corrected, the least over its opponents: that any beats it), by (the
        opponent of that p-value, null where there is none), least (the smallest p-value that the number of
        pairs permits), in the order of first appearance. A method without an instance is left out.

    Raises:
        ValueError: where a method has two values on one instance, or a value is NaN.
    """
    present = frame.drop_nulls(value)
    ordered_values(present[value], value)
    if present.select(*pair, method).is_duplicated().any():
        raise ValueError(f"a {method} has more than one value on one instance ({', '.join(pair)})")
    methods = present[method].unique(maintain_order=True).to_list()
    wide = present.pivot(on=method, index=list(pair), values=value)
    values = {name: wide[name].cast(pl.Float64).to_numpy() for name in methods}  # NaN where there is no pair
    worse = 1.0 if direction == "minimize" else -1.0
    rows = []
    for name in methods:
        found = [
            (
                sign_p_value(
                    ties_against(
                        _differences(values[other][both], values[name][both], worse, negligible), 0.0
                    )
                ),
                other,
                both.sum(),
            )
            for other in methods
            if other != name
            for both in [~np.isnan(values[name]) & ~np.isnan(values[other])]
            if both.any()
        ]
        p_value, by, _ = min(found, default=(1.0, None, 0))
        corrected = min(1.0, p_value * max(len(found), 1))
        pairs = max((count for *_, count in found), default=0)
        rows.append(
            {
                method: name,
                "kept": corrected > alpha,
                "p_value": corrected,
                "by": by,
                "least": min(1.0, max(len(found), 1) * 0.5**pairs),
            }
        )
    schema = {
        method: frame.schema[method],
        "kept": pl.Boolean(),
        "p_value": pl.Float64(),
        "by": pl.String(),
        "least": pl.Float64(),
    }
    return pl.DataFrame(rows, schema=schema)


def _differences(left: np.ndarray, right: np.ndarray, worse: float, negligible: float) -> np.ndarray:
    """Below zero where the left one is better; zero where the two tie."""
    with np.errstate(invalid="ignore"):
        return np.where(tied(left, right, negligible), 0.0, worse * (left - right))
