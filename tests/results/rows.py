"""Small tables under the real schemas, for the tests of this folder."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl

from curvebench.results.schema import TABLES
from curvebench.results.writing import write_table

RUN = {
    "run": "aaaaaaaaaaaa-0000",
    "study": "toy",
    "scale": "quick",
    "workload": "quadratic",
    "optimizer": "adam",
    "basis": "identity",
    "backend": "jax",
    "device": "cpu",
    "dtype": "float64",
    "stage": "final",
    "seed": 0,
    "learning_rate": 0.1,
    "hyperparameters": [{"name": "beta1", "value": 0.9}],
    "outcome": "budget",
    "steps": 10,
    "gradient_evaluations": 10,
    "examples": 100,
    "final_metrics": [{"name": "train_loss", "value": 0.5}],
    "best_metrics": [{"name": "train_loss", "value": 0.25, "step": 8}],
    "targets": [],
    "bundle_lanes": 4,
    "spec_hash": "aaaaaaaaaaaaaaaa",
    "machine": "m1",
}
CURVE = {
    "run": "aaaaaaaaaaaa-0000",
    "step": 0,
    "gradient_evaluations": 0,
    "examples": 0,
    "metric": "train_loss",
    "value": 1.0,
}
TIMING = {
    "study": "toy",
    "scale": "quick",
    "workload": "quadratic",
    "optimizer": "adam",
    "basis": "identity",
    "backend": "jax",
    "device": "cpu",
    "phase": "step",
    "repetition": 0,
    "steps": 10,
    "seconds": 1.0,
    "spec_hash": "tttttttttttttttt",
    "machine": "m1",
}
JOB = {
    "spec_hash": "aaaaaaaaaaaaaaaa",
    "study": "toy",
    "scale": "quick",
    "stage": "final",
    "backend": "jax",
    "device": "cpu",
    "started": "2026-01-01T00:00:00+00:00",
    "machine": "m1",
    "cpu": "Toy CPU",
    "cores": 2,
    "threads": 1,
    "system": "Linux",
}
MEMORY = {
    **{key: value for key, value in TIMING.items() if key not in ("phase", "repetition", "steps", "seconds")},
    "host_baseline_bytes": 1000,
    "host_peak_bytes": 1500,
}
PARITY = {
    "optimizer": "adam",
    "problem": "quadratic, EGOP",
    "workload": "quadratic",
    "basis": "egop",
    "comparison": "torch against jax",
    "unit": "relative",
    "first_step": 1e-16,
    "difference": 2e-16,
    "judged": True,
    "tolerance": 1e-10,
    "holds": True,
    "steps": 20,
    "learning_rate": 0.01,
    "spec_hash": "pppppppppppppppp",
    "machine": "m1",
}
CHECK = {
    "claim": "toy.mean",
    "part": "it is below 1",
    "variant": "",
    "source": "none",
    "instance": 0,
    "quantity": "mean",
    "value": 0.5,
    "relation": "<=",
    "limit": 1.0,
    "tolerance": 0.0,
    "holds": True,
    "seconds": 0.01,
    "scale": "quick",
    "spec_hash": "cccccccccccccccc",
    "machine": "m1",
}
SERIES = {
    "claim": "toy.mean",
    "part": "it is below 1",
    "variant": "",
    "instance": 0,
    "figure": "000 Fig. 1",
    "panel": "",
    "label": "mean",
    "kind": "line",
    "x_name": "k",
    "y_name": "mean",
    "log": "y",
    "x": 1.0,
    "y": 0.5,
    "scale": "quick",
    "spec_hash": "cccccccccccccccc",
    "machine": "m1",
}
CLAIM = {
    "claim": "toy.better",
    "variant": "",
    "verdict": "reproduced",
    "reasons": [{"code": "supported", "count": 1, "of": 1, "value": None, "names": []}],
    "source": "none",
    "scale": "quick",
    "backend": "jax",
    "study": "toy",
    "estimate": 0.5,
    "low": 0.4,
    "high": 0.6,
    "p_value": 0.01,
    "seeds": 10,
    "rule": "1" * 16,
    "rule_of_runs": "1" * 16,
}
FINDING = {
    "claim": "toy.better",
    "backend": "jax",
    "workload": "quadratic",
    "metric": "train_loss",
    "which": "final",
    "relation": "better",
    "treated": "adam @ egop",
    "control": "adam",
    "effect": "ratio",
    "margin": 0.95,
    "estimate": 0.5,
    "seeds": 10,
    "finding": "supported",
}
BOARD = {
    "scale": "quick",
    "backend": "jax",
    "studies": "toy",
    "place": 1,
    "method": "adam",
    "basis": "identity",
    "score": 1.0,
    "workloads": [{"study": "toy", "workload": "quadratic", "value": math.inf}],
}
BASE: dict[str, dict[str, Any]] = {
    "runs": RUN,
    "curves": CURVE,
    "timings": TIMING,
    "memory": MEMORY,
    "jobs": JOB,
    "parity": PARITY,
    "checks": CHECK,
    "series": SERIES,
    "claims": CLAIM,
    "findings": FINDING,
    "leaderboard": BOARD,
}


def rows(table: str, *changes: dict[str, Any]) -> pl.DataFrame:
    """A table with one row for each of the changes to the base row; what is not named is null."""
    return pl.DataFrame([{**BASE[table], **change} for change in changes], schema=TABLES[table])


def write(folder: Path, **tables: pl.DataFrame) -> Path:
    """A job's folder with the given tables, and `jobs` with the base row where it is not given."""
    for table, frame in ({"jobs": rows("jobs", {})} | tables).items():
        write_table(folder / f"{table}.parquet", frame, TABLES[table])
    return folder


def target(**changes: Any) -> dict[str, Any]:
    """A target of a run, reached after 7 steps."""
    base = {"metric": "train_loss", "threshold": 0.1, "steps": 7, "seconds": None, "seconds_kind": None}
    return base | changes
