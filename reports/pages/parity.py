"""The page of parity: optimizers by problems, one table for each comparison of backends."""

from __future__ import annotations

from typing import Any

import polars as pl

from curvebench.results import schema
from curvebench.results.reading import read
from curvebench.spec.plan import ParityPlan


def parity_rows(plan: ParityPlan) -> pl.DataFrame:
    """The comparisons of all jobs.

    Raises:
        InputError: when a table is missing or damaged.
    """
    text = pl.col("comparison", "unit").cast(pl.String)
    return read([folder / "parity.parquet" for folder in plan.tables], "parity").with_columns(text)


def parity_page(plan: ParityPlan, rows: pl.DataFrame) -> dict[str, Any]:
    """Everything on the page: a matrix for each comparison, and what failed.

    Args:
        plan: what was compared.
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
    """One comparison: a row an optimizer, a cell a problem in the plan's order (None: not compared)."""
    here = rows.filter(pl.col("comparison") == comparison)
    cells = {(row["optimizer"], row["problem"]): row for row in here.iter_rows(named=True)}
    optimizers = here["optimizer"].unique(maintain_order=True)
    return {
        "comparison": comparison,
        "in_ulps": "ulps" in here["unit"],
        "rows": [
            {
                "optimizer": optimizer,
                "cells": [cells.get((optimizer, problem.label)) for problem in plan.problems],
            }
            for optimizer in optimizers
        ],
    }
