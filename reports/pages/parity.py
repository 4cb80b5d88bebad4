"""Page of parity: a table with optimizers and problems for each comparison of two backends or precisions.

Parity jobs run an optimizer on a problem on two backends, or in two precisions on one backend, and record how
much the results differ.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from curvebench.results import schema
from curvebench.results.reading import read
from curvebench.spec.plan import ParityPlan


def parity_rows(plan: ParityPlan) -> pl.DataFrame:
    """Read the comparisons of all parity jobs.

    Raises:
        InputError: when a table is missing or damaged.
    """
    text = pl.col("comparison", "unit").cast(pl.String)
    return read([folder / "parity.parquet" for folder in plan.tables], "parity").with_columns(text)


def parity_page(plan: ParityPlan, rows: pl.DataFrame) -> dict[str, Any]:
    """Return the context of the page: a table for each of `COMPARISONS`, and the rows above tolerance.

    Args:
        plan: the problems and optimizers that were compared.
        rows: the table `parity`.
    """
    judged = rows.filter(pl.col("judged"))
    return {
        "matrices": [matrix(plan, rows, comparison) for comparison in schema.COMPARISONS],
        "judged": len(judged),
        "measured": len(rows.filter((pl.col("unit") == "relative") & ~pl.col("judged"))),
        "worst": judged["difference"].max(),
        "failed": judged.filter(~pl.col("holds")).to_dicts(),
        "learning_rates": rows["learning_rate"].unique().sort().to_list(),
        "machines": rows["machine"].unique().sort().to_list(),
    }


def matrix(plan: ParityPlan, rows: pl.DataFrame, comparison: str) -> dict[str, Any]:
    """Return the table of one comparison of two backends or precisions.

    Returns:
        A dictionary with the comparison, whether its differences are in ulps (units in the last place of a
        floating-point number), and one row per optimizer. The cells of a row are in the order of the plan's
        problems; a cell is None if the optimizer was not compared on the problem.
    """
    selected = rows.filter(pl.col("comparison") == comparison)
    cells = {(row["optimizer"], row["problem"]): row for row in selected.iter_rows(named=True)}
    labels = [problem.label for problem in plan.problems]
    return {
        "comparison": comparison,
        "in_ulps": "ulps" in selected["unit"],
        "rows": [
            {"optimizer": optimizer, "cells": [cells.get((optimizer, label)) for label in labels]}
            for optimizer in selected["optimizer"].unique(maintain_order=True)
        ],
    }
