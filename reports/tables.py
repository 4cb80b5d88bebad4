"""Reading a study's tables for the report: final curves only, plain text columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from reports.measures import with_method
from results.reading import naming_damage, read, scan, table_files


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
        TableError: when a table is missing or damaged.
    """
    text = [pl.col("stage").cast(pl.String), pl.col("outcome").cast(pl.String)]
    runs = with_method(read(folder, "runs").with_columns(text))
    final = runs.filter(pl.col("stage") == "final").select("run").lazy()
    with naming_damage(table_files(folder, "curves")):
        curves = scan(folder, "curves").join(final, on="run", how="semi").collect()
    return Tables(runs, curves, with_method(read(folder, "timings")), read(folder, "jobs"))
