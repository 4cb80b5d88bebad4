"""Reading a study's tables for the report: final curves only, plain text columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from curvebench.reports.failures import blame_workloads
from curvebench.reports.figures.curves import recorded_steps, with_step_evaluations
from curvebench.results.merging import mixed_hardware
from curvebench.results.reading import read, table_files, with_method
from curvebench.spec.plan import StudyPlan


@dataclass(frozen=True)
class Tables:
    """The tables of one study, with `method` added; curves stay on disk
    (`curvebench.reports.figures.curves`).

    `curves` are the files of that table, `recorded_steps` says at which steps metrics were recorded,
    `warnings` where runs come from several machines. `runs` has `step_evaluations` too, the gradient
    evaluations that a step costs.
    """

    curves: tuple[Path, ...]
    runs: pl.DataFrame
    recorded_steps: pl.DataFrame
    timings: pl.DataFrame
    memory: pl.DataFrame
    jobs: pl.DataFrame
    warnings: tuple[str, ...] = ()


def tables_of(study: StudyPlan) -> Tables:
    """The tables of a study with those of the studies that join it; workloads at fault are marked.

    Their runs count on the study's first backend, whose instances are the same; their seconds do not count.

    Raises:
        InputError: when a table is missing or damaged.
    """
    own = read_tables(study.tables)
    joined = [read_tables(one.tables) for one in study.joining]
    on_it = pl.lit(study.backends[0]).alias("backend")
    return replace(
        own,
        curves=tuple(file for one in (own, *joined) for file in one.curves),
        runs=blame_workloads(pl.concat([own.runs, *(one.runs.with_columns(on_it) for one in joined)])),
        recorded_steps=pl.concat(
            [own.recorded_steps, *(one.recorded_steps.with_columns(on_it) for one in joined)]
        ),
        jobs=pl.concat([own.jobs, *(one.jobs for one in joined)]),
        warnings=(*own.warnings, *(said for one in joined for said in one.warnings)),
    )


def read_tables(folder: Path) -> Tables:
    """Read the merged tables of a study.

    Raises:
        InputError: when a table is missing or damaged.
    """
    text = [pl.col("stage").cast(pl.String), pl.col("outcome").cast(pl.String)]
    runs = with_method(read(folder, "runs").with_columns(text))
    timings, memory = (with_method(read(folder, table)) for table in ("timings", "memory"))
    mixed = [
        f"{sentence}; losses may be compared with care, seconds may not" for sentence in mixed_hardware(runs)
    ]
    runs = with_step_evaluations(folder, runs)
    jobs, recorded = read(folder, "jobs"), recorded_steps(folder, runs)
    return Tables(tuple(table_files(folder, "curves")), runs, recorded, timings, memory, jobs, tuple(mixed))
