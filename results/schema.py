"""The typed tables: runs, curves, timings, memory and jobs of studies, the parity of backends, and checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

OUTCOMES = ("reached", "budget", "diverged", "out_of_memory", "interrupted", "error")
STAGES = ("sweep", "refine", "final")
COMPARISONS = (
    "torch against jax",
    "numpy against torch",
    "float32 against float64 on jax",
    "float32 against float64 on torch",
)

RELATIONS = ("<=", ">=", "==")
VARIANTS = ("", "as printed", "as corrected")

NamedValues = pl.List(pl.Struct({"name": pl.String, "value": pl.Float64}))
Target = pl.Struct(
    {
        "metric": pl.String,
        "threshold": pl.Float64,
        "steps": pl.Int64,  # null: not reached
        "seconds": pl.Float64,  # null: not reached, or not known
        "seconds_kind": pl.String,  # modelled or measured
    }
)


def _schema(columns: Mapping[str, Any]) -> pl.Schema:
    """A schema from data types and their classes, which polars takes and its annotations do not."""
    return pl.Schema(columns)


RUNS = _schema(
    {
        "run": pl.String,  # <first 12 of the spec hash>-<number>
        "study": pl.String,
        "scale": pl.String,
        "workload": pl.String,
        "optimizer": pl.String,
        "basis": pl.String,
        "backend": pl.String,
        "device": pl.String,
        "dtype": pl.String,
        "stage": pl.Enum(STAGES),
        "seed": pl.Int64,
        "learning_rate": pl.Float64,
        "hyperparameters": NamedValues,  # the others
        "outcome": pl.Enum(OUTCOMES),
        "outcome_step": pl.Int64,  # the step that reached, stopped or diverged; null otherwise
        "steps": pl.Int64,
        "gradient_evaluations": pl.Int64,  # of the run alone
        "basis_gradient_evaluations": pl.Int64,  # charged to every run that uses the basis
        "basis_seconds": pl.Float64,  # sampling and decomposition, charged likewise
        "examples": pl.Int64,
        "final_metrics": NamedValues,
        "best_metrics": pl.List(pl.Struct({"name": pl.String, "value": pl.Float64, "step": pl.Int64})),
        "targets": pl.List(Target),
        "seconds": pl.Float64,  # null for a lane of a bundle
        "state_bytes": pl.Int64,
        "bundle_lanes": pl.Int64,
        "spec_hash": pl.String,
        "machine": pl.String,  # short hash of CPU, cores and GPU: two machines stay apart
    }
)

CURVES = _schema(
    {
        "run": pl.String,
        "step": pl.Int64,
        "gradient_evaluations": pl.Int64,
        "examples": pl.Int64,
        "seconds": pl.Float64,  # null for a lane of a bundle
        "metric": pl.String,
        "value": pl.Float64,  # NaN is a value, never the same as missing
    }
)

TIMINGS = _schema(
    {
        "study": pl.String,
        "scale": pl.String,
        "workload": pl.String,
        "optimizer": pl.String,
        "basis": pl.String,
        "backend": pl.String,
        "device": pl.String,
        "phase": pl.String,  # data, compile, warm_up, step, null_step, evaluation
        "repetition": pl.Int64,
        "steps": pl.Int64,  # how many steps the seconds cover
        "seconds": pl.Float64,
        "spec_hash": pl.String,
        "machine": pl.String,
    }
)

MEMORY = _schema(
    {
        "study": pl.String,
        "scale": pl.String,
        "workload": pl.String,
        "optimizer": pl.String,
        "basis": pl.String,
        "backend": pl.String,
        "device": pl.String,
        "host_baseline_bytes": pl.Int64,  # resident before the method's arrays were loaded; null: not known
        "host_peak_bytes": pl.Int64,  # the most resident while its steps ran; null: cannot be reset
        "device_peak_bytes": pl.Int64,  # the most bytes of arrays; null where nobody counts them
        "spec_hash": pl.String,
        "machine": pl.String,
    }
)

JOBS = _schema(
    {
        "spec_hash": pl.String,
        "study": pl.String,
        "scale": pl.String,
        "stage": pl.String,  # bases, sweep, refine, final, timing, parity, checks
        "optimizer": pl.String,  # null where a job holds several; of checks the module of claims
        "backend": pl.String,
        "device": pl.String,
        "import_seconds": pl.Float64,
        "compile_seconds": pl.Float64,
        "data_seconds": pl.Float64,
        "step_seconds": pl.Float64,
        "evaluation_seconds": pl.Float64,
        "other_seconds": pl.Float64,
        "total_seconds": pl.Float64,
        "peak_memory_bytes": pl.Int64,
        "started": pl.String,  # UTC, ISO 8601
        "machine": pl.String,
        "cpu": pl.String,
        "cores": pl.Int64,
        "threads": pl.Int64,
        "gpu": pl.String,
        "driver": pl.String,
        "system": pl.String,
        "python": pl.String,
        "packages": pl.List(pl.Struct({"name": pl.String, "version": pl.String})),
        "environment_hash": pl.String,
        "commit": pl.String,
        "dirty": pl.Boolean,
        "notes": pl.List(pl.String),  # named fallbacks, lanes that ran apart, and the like
    }
)

PARITY = _schema(
    {
        "optimizer": pl.String,
        "problem": pl.String,  # the label of a small problem (harness/parity_problems.py)
        "workload": pl.String,
        "basis": pl.String,
        "comparison": pl.Enum(COMPARISONS),
        "unit": pl.Enum(("relative", "ulps")),
        "first_step": pl.Float64,  # largest difference after one step
        "difference": pl.Float64,  # largest difference over all steps
        "judged": pl.Boolean,  # whether the tolerance applies
        "tolerance": pl.Float64,  # null where it does not
        "holds": pl.Boolean,  # true where no tolerance applies
        "steps": pl.Int64,
        "learning_rate": pl.Float64,
        "spec_hash": pl.String,
        "machine": pl.String,
    }
)

CHECKS = _schema(
    {
        "claim": pl.String,
        "part": pl.String,
        "variant": pl.Enum(VARIANTS),  # empty where the source is printed well
        "source": pl.String,  # of the part
        "instance": pl.Int64,
        "quantity": pl.String,
        "value": pl.Float64,  # NaN is a value, and never holds
        "relation": pl.Enum(RELATIONS),
        "limit": pl.Float64,
        "tolerance": pl.Float64,
        "holds": pl.Boolean,
        "seconds": pl.Float64,  # of the instance, with all its measures
        "scale": pl.String,
        "spec_hash": pl.String,
        "machine": pl.String,
    }
)

# failure.parquet, one row beside the tables of a job that failed; never merged, never an output of a rule
FAILURES = _schema(
    {
        "spec_hash": pl.String,
        "study": pl.String,
        "scale": pl.String,
        "stage": pl.String,
        "optimizer": pl.String,  # null where a job holds several
        "backend": pl.String,
        "device": pl.String,
        "outcome": pl.Enum(("out_of_memory", "interrupted", "error")),
        "reason": pl.String,
        "total_seconds": pl.Float64,
        "started": pl.String,  # UTC, ISO 8601
        "machine": pl.String,
    }
)

TABLES = {
    "runs": RUNS,
    "curves": CURVES,
    "timings": TIMINGS,
    "memory": MEMORY,
    "jobs": JOBS,
    "parity": PARITY,
    "checks": CHECKS,
}
