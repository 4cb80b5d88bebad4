"""Synthetic tables that can be published, and sets published from them."""

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
# Cores of the synthetic machines.
CORES = {"m1": 2, "m2": 4}
# A commit, and whether files differ from it.
CODE = ("0123456789abcdef0123456789abcdef01234567", False)
Change = Callable[[pl.DataFrame], pl.DataFrame]


def write_report(
    folder: Path, shapes: Sequence[Shape] = SHAPES, checks: bool = True, **changes: Change
) -> Path:
    """Write a synthetic plan whose jobs have a clean commit, belong to every row, and are planned by the
    claims' rules.

    Args:
        folder: the folder of plan and tables.
        shapes: shape of each study.
        checks: whether the plan has property checks.
        changes: by table name, a function that is finally applied to the table of each study.

    Returns:
        The plan's file.
    """
    path = write_plan(folder, shapes, checks=checks)
    raw = json.loads(path.read_text())
    for study in raw["studies"]:
        del study["tuning"]["of"], study["tuning"]["coarse"]
        space = {"learning_rate": {"low": min(RATES), "high": max(RATES), "scale": "log"}}
        study["tuning"] |= {"protocol": "random_search", "budget_per_dimension": len(RATES), "space": space}
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
    """Return a table as if its jobs had a clean commit, on machines with different cores, named by their
    hardware.
    """
    if "dirty" in frame.columns:
        frame = frame.with_columns(dirty=pl.lit(False), cores=pl.col("machine").replace_strict(CORES))
    names = {name: machine("Toy CPU at 3 GHz", count, None) for name, count in CORES.items()}
    has_machine = "machine" in frame.columns
    return frame.with_columns(machine=pl.col("machine").replace(names)) if has_machine else frame


def write_set(
    folder: Path, name: str, shapes: Sequence[Shape] = SHAPES, checks: bool = True, **changes: Change
) -> Path:
    """Publish synthetic tables, as `write_report` writes them, below `folder`; return the set's folder."""
    plan = write_report(folder / f"{name}.tables", shapes, checks, **changes)
    return publish(read_plan(plan), name, folder, code=CODE)


def changed(given: Path, to: Path, table: str, change: Change) -> Path:
    """Copy a set, change one of its tables, and update the checksums.

    Args:
        given: folder of the set.
        to: folder of the copy.
        table: the table's path inside the set.
        change: function of the table.
    """
    shutil.copytree(given, to)
    path = to / table
    frame = change(pl.read_parquet(path))
    frame.write_parquet(path)
    seal(to)
    return to


def with_metric(frame: pl.DataFrame, name: str, value: pl.Expr) -> pl.Series:
    """Return the column `final_metrics` with one metric's value replaced."""
    element = pl.element().struct
    replaced = pl.when(element.field("name") == name).then(value).otherwise(element.field("value"))
    each = pl.struct(element.field("name"), replaced.alias("value"))
    return frame.select(pl.col("final_metrics").list.eval(each)).to_series()


def dirty(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs as if their code differed from its commit."""
    return jobs.with_columns(dirty=pl.lit(value=True))


def scaled(optimizer: str, factor: float) -> Change:
    """Return a function that multiplies the final training losses of an optimizer."""

    def change(runs: pl.DataFrame) -> pl.DataFrame:
        moved = with_metric(runs, "train_loss", pl.element().struct.field("value") * factor)
        chosen = pl.col("optimizer") == optimizer
        return runs.with_columns(final_metrics=pl.when(chosen).then(moved).otherwise(pl.col("final_metrics")))

    return change
