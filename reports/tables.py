"""Reading a study's tables for the report: one machine a backend, final curves only, plain text columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from reports.machines import one_machine
from reports.measures import with_method
from results.merging import mixed_hardware
from results.reading import naming_damage, read, scan, table_files


@dataclass(frozen=True)
class Tables:
    """The tables of one study, with `method` added; `curves` holds the final runs only.

    `warnings` says which machines were left out, and where those that stay differ in hardware.
    """

    runs: pl.DataFrame
    curves: pl.DataFrame
    timings: pl.DataFrame
    memory: pl.DataFrame
    jobs: pl.DataFrame
    warnings: tuple[str, ...] = ()


def read_tables(folder: Path) -> Tables:
    """Read the merged tables of a study.

    Raises:
        TableError: when a table is missing or damaged.
    """
    text = [pl.col("stage").cast(pl.String), pl.col("outcome").cast(pl.String)]
    runs, timings, left_out = one_machine(
        with_method(read(folder, "runs").with_columns(text)), with_method(read(folder, "timings"))
    )
    measured = timings.select("backend", "machine").unique()
    memory = with_method(read(folder, "memory")).join(
        measured, on=measured.columns, how="semi", nulls_equal=True
    )
    final = runs.filter(pl.col("stage") == "final").select("run").lazy()
    with naming_damage(table_files(folder, "curves")):
        curves = scan(folder, "curves").join(final, on="run", how="semi").collect()
    mixed = [
        f"{sentence}; losses may be compared with care, seconds may not" for sentence in mixed_hardware(runs)
    ]
    return Tables(runs, curves, timings, memory, read(folder, "jobs"), (*left_out, *mixed))
