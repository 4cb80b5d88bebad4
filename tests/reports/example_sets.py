"""Made-up tables that nothing stands in the way of publishing, and sets published from them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from curvebench.reports.sets.files import STUDY_TABLES, seal
from curvebench.reports.sets.publish import publish
from curvebench.results.provenance import machine
from curvebench.results.schema import TABLES
from curvebench.results.writing import write_table
from curvebench.spec.plan import read_plan
from tests.reports.synthetic import CONVEX, RATES, Shape, write_plan

SHAPES = (Shape(), CONVEX)
CORES = {"m1": 2, "m2": 4}  # of the made-up machines
CODE = ("0123456789abcdef0123456789abcdef01234567", False)  # a commit, and no file that differs
Change = Callable[[pl.DataFrame], pl.DataFrame]


def write_report(
    folder: Path, shapes: Sequence[Shape] = SHAPES, checks: bool = True, **changes: Change
) -> Path:
    """Write a made-up plan whose jobs are clean, known to every row and planned by the claims' rules.

    Args:
        changes: what is done to each study's table of that name in the end.

    Returns:
        The plan's file.
    """
    path = write_plan(folder, shapes, checks=checks)
    raw = json.loads(path.read_text())
    for study in raw["studies"]:
        del study["tuning"]["of"], study["tuning"]["coarse"]
        space = {"learning_rate": {"low": min(RATES), "high": max(RATES), "scale": "log"}}
        study["tuning"] |= {"protocol": "random_search", "budget": len(RATES), "space": space}
    path.write_text(json.dumps(raw))
    for file in folder.rglob("*.parquet"):
        frame = _clean(pl.read_parquet(file))
        write_table(file, frame, TABLES[file.stem])
    for study in raw["studies"]:
        tables = Path(study["tables"])
        frames = {table: pl.read_parquet(tables / f"{table}.parquet") for table in STUDY_TABLES}
        for table, change in changes.items():
            frames[table] = change(frames[table])
        for table, frame in frames.items():
            write_table(tables / f"{table}.parquet", frame, TABLES[table])
    return path


def _clean(frame: pl.DataFrame) -> pl.DataFrame:
    """A table of jobs that a commit has, on machines that differ in cores and are named by their hardware."""
    if "dirty" in frame.columns:
        frame = frame.with_columns(dirty=pl.lit(False), cores=pl.col("machine").replace_strict(CORES))
    names = {name: machine("Toy CPU at 3 GHz", count, None) for name, count in CORES.items()}
    known = "machine" in frame.columns
    return frame.with_columns(machine=pl.col("machine").replace(names)) if known else frame


def write_set(
    folder: Path, name: str, shapes: Sequence[Shape] = SHAPES, checks: bool = True, **changes: Change
) -> Path:
    """Publish made-up tables, as `write_report` writes them, below `folder`; returns the set's folder."""
    plan = write_report(folder / f"{name}.tables", shapes, checks, **changes)
    return publish(read_plan(plan), name, folder, code=CODE)


def changed(given: Path, to: Path, table: str, change: Change) -> Path:
    """A copy of a set with one table changed and the checksums made anew.

    Args:
        table: its file inside the set.
    """
    shutil.copytree(given, to)
    path = to / table
    frame = change(pl.read_parquet(path))
    frame.write_parquet(path)
    seal(to)
    return to


def with_metric(frame: pl.DataFrame, name: str, value: pl.Expr) -> pl.Series:
    """The column `final_metrics` with one metric's value replaced."""
    element = pl.element().struct
    replaced = pl.when(element.field("name") == name).then(value).otherwise(element.field("value"))
    each = pl.struct(element.field("name"), replaced.alias("value"))
    return frame.select(pl.col("final_metrics").list.eval(each)).to_series()


def dirty(jobs: pl.DataFrame) -> pl.DataFrame:
    """The jobs as if their code differed from its commit."""
    return jobs.with_columns(dirty=pl.lit(value=True))


def scaled(optimizer: str, factor: float) -> Change:
    """What multiplies the final training losses of an optimizer."""

    def change(runs: pl.DataFrame) -> pl.DataFrame:
        moved = with_metric(runs, "train_loss", pl.element().struct.field("value") * factor)
        own = pl.col("optimizer") == optimizer
        return runs.with_columns(final_metrics=pl.when(own).then(moved).otherwise(pl.col("final_metrics")))

    return change
