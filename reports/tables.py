"""Reading a study's tables for the report: one machine a backend, final curves only, plain text columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from reports.figures.curves import checkpoints, with_step_evaluations
from reports.machines import one_machine
from results.merging import mixed_hardware
from results.reading import read, with_method


@dataclass(frozen=True)
class Tables:
    """The tables of one study, with `method` added; curves stay on disk (`reports.figures.curves`).

    `folder` is where they lie, `checkpoints` says at which steps metrics were recorded, `warnings` which
    machines were left out, and where those that stay differ in hardware. `runs` has `step_evaluations` too,
    the gradient evaluations that a step costs.
    """

    folder: Path
    runs: pl.DataFrame
    checkpoints: pl.DataFrame
    timings: pl.DataFrame
    memory: pl.DataFrame
    jobs: pl.DataFrame
    warnings: tuple[str, ...] = ()


def read_tables(folder: Path) -> Tables:
    """Read the merged tables of a study.

    Raises:
        InputError: when a table is missing or damaged.
    """
    text = [pl.col("stage").cast(pl.String), pl.col("outcome").cast(pl.String)]
    runs, timings, left_out = one_machine(
        with_method(read(folder, "runs").with_columns(text)), with_method(read(folder, "timings"))
    )
    measured = timings.select("backend", "machine").unique()
    memory = with_method(read(folder, "memory")).join(
        measured, on=measured.columns, how="semi", nulls_equal=True
    )
    mixed = [
        f"{sentence}; losses may be compared with care, seconds may not" for sentence in mixed_hardware(runs)
    ]
    runs = with_step_evaluations(folder, runs)
    jobs, recorded = read(folder, "jobs"), checkpoints(folder, runs)
    return Tables(folder, runs, recorded, timings, memory, jobs, (*left_out, *mixed))
