"""Functions that merge the tables of a study's jobs, and that list the machines which made them."""

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
# Order in which merged tables are written. `runs` is the last one: if it exists, all other tables exist too.
ORDER = ("curves", "timings", "memory", "jobs", "runs")


def merge(jobs: Sequence[Path], out: Path) -> None:
    """Merge the tables in the folders of jobs, and add modelled seconds to the targets of runs.

    The folder of a job contains the table `jobs` and some of the other tables. The merged folder contains all
    tables; a table that no job has gets no rows. A row that occurs in several folders is kept once.

    Args:
        jobs: folders of jobs.
        out: folder of the merged tables.

    Raises:
        InputError: when a folder's job has not finished, a table cannot be read or written, or two rows with
            the same key differ.
    """
    for job in jobs:
        # A job writes the table `jobs` last, so that a job without the table has not finished.
        if not (job / "jobs.parquet").is_file():
            raise InputError(f"{job}: holds no jobs.parquet; run snakemake again, which finishes the job")
    files = {name: [file for job in jobs if (file := job / f"{name}.parquet").is_file()] for name in KEYS}
    frames = {table: without_repeats(scan(files[table], table), table, files[table]) for table in KEYS}
    with naming_damage([*files["runs"], *files["timings"]]):
        runs = model_seconds(frames["runs"].collect(), frames["timings"].collect())
    _write(out, {**frames, "runs": runs.lazy()}, files)


def without_repeats(frame: pl.LazyFrame, table: str, files: Sequence[Path]) -> pl.LazyFrame:
    """Return a table without repeated rows.

    Args:
        frame: the table.
        table: name of the table, which decides the columns that identify a row (its key).
        files: files from which the rows come, for error messages.

    Raises:
        InputError: when rows have the same key and differ otherwise.
    """
    key = KEYS[table]
    with naming_damage(files):
        # Count hashes of the keys, because counting the keys themselves would take five times as long.
        # The keys would also take twice the memory of their hashes.
        counts = frame.select(pl.len(), pl.struct(key).hash().n_unique().alias("distinct"))
        rows, distinct = counts.collect(engine="streaming").row(0)
        if rows == distinct:
            return frame
        unique = frame.unique(maintain_order=True)
        clashes = unique.filter(pl.struct(key).is_duplicated()).select(key).collect()
    if clashes.height:
        first = clashes.row(0, named=True)
        described = ", ".join(f"{name} {value}" for name, value in first.items())
        folders = " and ".join(str(file.parent) for file in _holding(files, table, first))
        raise InputError(
            f"table {table}: {described} differs between {folders}; leave one of the folders out, "
            "or delete it and run snakemake again"
        )
    return unique


def model_seconds(runs: pl.DataFrame, timings: pl.DataFrame) -> pl.DataFrame:
    """Return the runs with modelled seconds to targets (thresholds of metrics) that have no measured seconds.

    The modelled seconds are the number of steps to the target times the median seconds per step. The median
    is over the repetitions of a timing job with the same study, scale, workload, optimizer, basis, backend,
    device and machine. Targets that have measured seconds, were not reached, or have no timing stay the same.

    Args:
        runs: the table `runs`.
        timings: the table `timings`.
    """
    pace = (pl.col("seconds") / pl.col("steps")).median()
    paces = timings.filter(phase="step").group_by(CELL).agg(pace=pace)
    rows = runs.join(paces, on=CELL, how="left", maintain_order="left").with_row_index("row")
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
    joined = rows.join(targets, on="row", how="left", maintain_order="left")
    return joined.with_columns(targets=pl.coalesce("modelled", "targets")).select(runs.columns)


def machines(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the machines that ran jobs, each with its hardware and its number of jobs; the machine with most
    jobs is first.
    """
    hardware = ["machine", "cpu", "cores", "threads", "gpu", "driver", "system"]
    counted = jobs.group_by(hardware, maintain_order=True).agg(jobs=pl.len().cast(pl.Int64))
    return counted.sort("jobs", descending=True, maintain_order=True)


def several_machines(rows: pl.DataFrame) -> list[tuple[str, str, str, list[str]]]:
    """Return each combination of study, scale and backend whose rows come from several machines.

    Args:
        rows: rows of any table with the columns study, scale, backend and machine.

    Returns:
        Tuples of study, scale, backend, and the list of machines.
    """
    part, names = ["study", "scale", "backend"], pl.col("machine").fill_null("unknown").unique().sort()
    return rows.group_by(part).agg(names).filter(pl.col("machine").list.len() > 1).sort(part).rows()


def mixed_hardware(rows: pl.DataFrame) -> list[str]:
    """Return a sentence for each combination of study, scale and backend whose rows come from several
    machines.
    """
    return [
        f"{study} at {scale} scale on {backend}: runs of {len(names)} machines, {', '.join(names)}"
        for study, scale, backend, names in several_machines(rows)
    ]


def _write(out: Path, frames: Mapping[str, pl.LazyFrame], files: Mapping[str, Sequence[Path]]) -> None:
    """Write the merged tables; long tables are streamed from the files of the jobs.

    Args:
        out: folder of the merged tables.
        frames: merged tables, by name.
        files: files of the jobs' tables, by name of the table.
    """
    for table in ORDER:
        with naming_damage(files[table]):
            write_table(out / f"{table}.parquet", frames[table], TABLES[table])


def _holding(files: Sequence[Path], table: str, key: Mapping[str, object]) -> list[Path]:
    """Return the files that contain a row with the values of `key`, which are given by column."""
    same = [pl.col(name).eq_missing(pl.lit(value)) for name, value in key.items()]
    return [file for file in files if scan([file], table).filter(same).head(1).collect().height]
