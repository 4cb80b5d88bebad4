"""Small tables with the real schemas, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from ruamel.yaml import YAML

from curvebench.results.schema import TABLES
from curvebench.results.tuning import Judge
from curvebench.results.writing import write_table
from curvebench.spec.document import Direction
from curvebench.spec.tuning import TwoStageSweep

BASE: dict[str, dict[str, Any]] = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml"))  # by table


def rows(table: str, *changes: dict[str, Any]) -> pl.DataFrame:
    """Return a table with one row per change to the base row; missing columns are null."""
    return pl.DataFrame([{**BASE[table], **change} for change in changes], schema=TABLES[table])


def write(folder: Path, **tables: pl.DataFrame) -> Path:
    """Write a job's folder with the given tables, and by default `jobs` with the base row."""
    for table, frame in ({"jobs": rows("jobs", {})} | tables).items():
        write_table(folder / f"{table}.parquet", frame, TABLES[table])
    return folder


def target(**changes: Any) -> dict[str, Any]:
    """Return a target of a run, reached after 7 steps."""
    base = {"metric": "train_loss", "threshold": 0.1, "steps": 7, "seconds": None, "seconds_kind": None}
    return base | changes


def tuning_run(name: str, final: float, rate: float = 0.1, **changes: Any) -> dict[str, Any]:
    """Return the changes of the base row that make it a tuning run of the first round with final loss
    `final`.
    """
    metrics = [{"name": "train_loss", "value": final}]
    about = {"run": name, "stage": "tuning", "round": 0, "learning_rate": rate}
    return {**about, "final_metrics": metrics, **changes}


def judge(direction: Direction = "minimize", stop: float | None = None, **changes: Any) -> Judge:
    """Return a judge of training losses in a two-stage sweep, with changes of the protocol."""
    settings = {
        "protocol": "two_stage_sweep", "of": "learning_rate", "coarse": [0.01, 1.0],
        "choose": "median final train_loss", "shared_across": "none",
    }  # fmt: skip
    protocol = TwoStageSweep.model_validate({**settings, **changes})
    return Judge(protocol, lambda metric: direction, {} if stop is None else {"train_loss": stop})
