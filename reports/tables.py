"""Reading a study's tables for the report: final curves only, plain text columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from reports.measures import with_method


@dataclass(frozen=True)
class Tables:
    """The tables of one study, with `method` added; `curves` holds the final runs only."""

    runs: pl.DataFrame
    curves: pl.DataFrame
    timings: pl.DataFrame
    jobs: pl.DataFrame


def read_tables(folder: Path) -> Tables:
    """Read the merged tables of a study.

    Raises:
        ResultsError: when a table is missing or damaged (see results.reading).
    """
    from results.reading import scan

    text = [pl.col("stage").cast(pl.String), pl.col("outcome").cast(pl.String)]
    runs = with_method(scan(folder, "runs").with_columns(text).collect())
    final = runs.filter(pl.col("stage") == "final").select("run").lazy()
    return Tables(
        runs=runs,
        curves=scan(folder, "curves").join(final, on="run", how="semi").collect(),
        timings=with_method(scan(folder, "timings").collect()),
        jobs=scan(folder, "jobs").collect(),
    )
