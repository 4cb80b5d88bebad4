"""Which methods may be the best: those that no other method beats, seed by seed."""

from __future__ import annotations

import numpy as np
import polars as pl

from reports.statistics.paired import Direction, sign_p_value, ties_against
from reports.statistics.ranks import present_values, tied


def least_p_value(pairs: int, methods: int) -> float:
    """The smallest p-value that so many pairs permit a method that is tested against all others; 1 of one."""
    return min(1.0, (methods - 1) * 0.5**pairs) if methods > 1 else 1.0


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
        Columns method, kept, least (the smallest corrected p-value that the number of pairs permits), in the
        order of first appearance. A method without an instance is left out.

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
        p_values, pairs = [], [0]
        for other in methods:
            both = ~np.isnan(values[name]) & ~np.isnan(values[other])
            if other == name or not both.any():
                continue
            own, rival = values[name][both], values[other][both]
            with np.errstate(invalid="ignore"):
                differences = np.where(tied(rival, own, negligible), 0.0, sign * (rival - own))
            p_values.append(sign_p_value(ties_against(differences, 0.0)))
            pairs.append(len(own))
        opponents = max(1, len(p_values))
        least = least_p_value(max(pairs), len(p_values) + 1)
        rows.append((name, opponents * min(p_values, default=1.0) > alpha, least))
    schema = {"method": frame.schema["method"], "kept": pl.Boolean(), "least": pl.Float64()}
    return pl.DataFrame(rows, schema=schema, orient="row")
