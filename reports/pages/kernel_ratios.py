"""Steps beside those of other libraries, as `python -m benchmarks.kernels.ratios --out` measured them.

The table is kept with the code, so that the page of kernels has it where nothing was measured since.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import polars as pl

MEASURED = Path(__file__).parent.parent / "measured" / "step_ratios.csv"


def read_ratios(path: Path = MEASURED) -> pl.DataFrame:
    """The stored comparisons: a row each of our steps and each library that takes the same step.

    Columns: step, backend, precision, peer, ours_milliseconds, peer_milliseconds, ratio with low and high
    (ours over theirs, 95 %), same_low and same_high (ours over ours), measured, processor, versions.
    """
    return pl.read_csv(path, schema_overrides={"measured": pl.String})


def ratio_tables(stored: pl.DataFrame) -> list[dict[str, Any]]:
    """A table for each backend: a row a rule, a cell for each set of shapes, beside the fastest library.

    Returns:
        Dictionaries with `backend`, `shapes` (in the order stored), `rows` (`rule`, and `cells` by shapes),
        `worst` (a row of `stored`) and `mean` (geometric), which leaves out what is compared with another
        computation, as the step says behind its shapes ("beside bfloat16").
    """
    contest = ["step", "backend", "precision"]
    fastest = stored.filter(pl.col("ratio") == pl.col("ratio").max().over(contest)).unique(
        contest, keep="first", maintain_order=True
    )
    parts = pl.col("step").str.extract_groups(r"^step\.(?<rule>\w+)\.(?<shapes>\w+)(?<more>.*)$")
    named = fastest.with_columns(parts.alias("parts")).unnest("parts")
    named = named.with_columns(rule=pl.col("rule") + pl.col("more"))
    tables = []
    for (backend,), own in named.group_by("backend", maintain_order=True):
        cells = {(row["rule"], row["shapes"]): row for row in own.iter_rows(named=True)}
        same = own.filter(pl.col("more") == "")
        shapes = own["shapes"].unique(maintain_order=True).to_list()
        tables.append(
            {
                "backend": backend,
                "shapes": shapes,
                "mean": statistics.geometric_mean(same["ratio"]),
                "worst": own.sort("ratio").row(-1, named=True),
                "rows": [
                    {"rule": rule, "cells": [cells.get((rule, kind)) for kind in shapes]}
                    for rule in sorted({rule for rule, _ in cells})
                ],
            }
        )
    return sorted(tables, key=lambda table: str(table["backend"]))
