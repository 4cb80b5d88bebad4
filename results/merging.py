"""Putting the tables of a study's jobs together, and which machines measured them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from curvebench.results import schema
from curvebench.results.reading import naming_damage, scan
from curvebench.results.schema import TABLES, Target
from curvebench.results.writing import write_table
from curvebench.spec.errors import InputError

CELL = [*schema.CELL, "machine"]
KEYS = {
    "runs": ["run"],
    "curves": ["run", "step", "metric"],
    "timings": [*CELL, "spec_hash", "phase", "repetition"],
    "memory": [*CELL, "spec_hash"],
    "jobs": ["spec_hash", "machine", "started"],
}
ORDER = ("curves", "timings", "memory", "jobs", "runs")  # runs last: where it lies, the others do


def merge(jobs: Sequence[Path], out: Path) -> None:
    """Merge the tables in the folders of jobs, and fill in the modelled seconds to target.

    Each folder holds `jobs` and some other tables; the merged folder holds all of them, if need be without
    rows. A row that occurs twice is kept once.

    Raises:
        InputError: when a folder's job has not finished, a table cannot be read or written, or two different
            rows claim to be the same.
    """
    for folder in jobs:
        if not (folder / "jobs.parquet").is_file():  # the last that a job writes
            raise InputError(f"{folder}: holds no jobs.parquet; run snakemake again, which finishes the job")
    files = {
        table: [file for folder in jobs if (file := folder / f"{table}.parquet").is_file()] for table in KEYS
    }
    frames = {table: once(scan(files[table], table), table, files[table]) for table in KEYS}
    with naming_damage([*files["runs"], *files["timings"]]):
        runs = model_seconds(frames["runs"].collect(), frames["timings"].collect())
    _write(out, {**frames, "runs": runs.lazy()}, files)


def once(frame: pl.LazyFrame, table: str, files: Sequence[Path]) -> pl.LazyFrame:
    """The table with repeated rows kept once.

    Args:
        files: where the rows come from, for messages.

    Raises:
        InputError: when rows agree in what names them and differ in the rest.
    """
    key = KEYS[table]
    with naming_damage(files):
        # hashes take a fifth of the time and half of the memory of the keys themselves
        counts = frame.select(pl.len(), pl.struct(key).hash().n_unique().alias("distinct"))
        rows, distinct = counts.collect(engine="streaming").row(0)
        if rows == distinct:
            return frame
        unique = frame.unique(maintain_order=True)
        clashes = (
            unique.group_by(key, maintain_order=True).len().filter(pl.col("len") > 1).drop("len").collect()
        )
    if clashes.height:
        first = clashes.row(0, named=True)
        what = ", ".join(f"{name} {value}" for name, value in first.items())
        folders = " and ".join(str(file.parent) for file in _holding(files, table, first))
        raise InputError(
            f"table {table}: {what} differs between {folders}; leave one of the folders out, "
            "or delete it and run snakemake again"
        )
    return unique


def model_seconds(runs: pl.DataFrame, timings: pl.DataFrame) -> pl.DataFrame:
    """The runs with the seconds to their targets modelled where they were not measured.

    Modelled are steps to the target times the median seconds of a step, over the repetitions that the
    timing job of the same cell (study, scale, workload, optimizer, basis, backend, device and machine)
    took. Targets that were measured, were not reached or have no timing stay as they are.
    """
    pace = (
        timings.filter(phase="step")
        .group_by(CELL)
        .agg((pl.col("seconds") / pl.col("steps")).median().alias("pace"))
    )
    rows = runs.join(pace, on=CELL, how="left", maintain_order="left").with_row_index("row")
    measured = pl.col("seconds_kind").eq_missing("measured")
    keep = measured | pl.col("pace").is_null() | pl.col("steps").is_null()
    targets = (
        rows.select("row", "pace", "targets")
        .filter(pl.col("targets").list.len() > 0)
        .explode("targets")
        .unnest("targets")
        .with_columns(
            seconds=pl.when(keep).then("seconds").otherwise(pl.col("steps") * pl.col("pace")),
            seconds_kind=pl.when(keep).then("seconds_kind").otherwise(pl.lit("modelled")),
        )
        .group_by("row", maintain_order=True)
        .agg(pl.struct(field.name for field in Target.fields).alias("modelled"))
    )
    return (
        rows.join(targets, on="row", how="left", maintain_order="left")
        .with_columns(targets=pl.coalesce("modelled", "targets"))
        .select(runs.columns)
    )


def machines(jobs: pl.DataFrame) -> pl.DataFrame:
    """The machines that jobs ran on, with the hardware of each and its number of jobs, most jobs first."""
    hardware = ["machine", "cpu", "cores", "threads", "gpu", "driver", "system"]
    return (
        jobs.group_by(hardware, maintain_order=True)
        .agg(pl.len().cast(pl.Int64).alias("jobs"))
        .sort("jobs", descending=True, maintain_order=True)
    )


def several_machines(rows: pl.DataFrame) -> list[tuple[str, str, str, list[str]]]:
    """Return study, scale, backend and machines wherever rows come from more than one machine."""
    return (
        rows.group_by("study", "scale", "backend")
        .agg(pl.col("machine").fill_null("unknown").unique().sort())
        .filter(pl.col("machine").list.len() > 1)
        .sort("study", "scale", "backend")
        .rows()
    )


def mixed_hardware(rows: pl.DataFrame) -> list[str]:
    """Say of each study, scale and backend whose rows come from more than one machine, and which."""
    return [
        f"{study} at {scale} scale on {backend}: runs of {len(names)} machines, {', '.join(names)}"
        for study, scale, backend, names in several_machines(rows)
    ]


def _write(out: Path, frames: Mapping[str, pl.LazyFrame], files: Mapping[str, Sequence[Path]]) -> None:
    """Write the tables, the long ones streamed from their files."""
    for table in ORDER:
        with naming_damage(files[table]):
            write_table(out / f"{table}.parquet", frames[table], TABLES[table])


def _holding(files: Sequence[Path], table: str, key: Mapping[str, object]) -> list[Path]:
    """The files that hold a row with this key."""
    same = [pl.col(name).eq_missing(pl.lit(value)) for name, value in key.items()]
    return [file for file in files if scan([file], table).filter(same).head(1).collect().height]
