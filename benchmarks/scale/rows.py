"""A report's plan and made-up tables of its study, with as many curve rows as are asked for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, isqrt
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from harness.plan import make_plan, read_config
from results.merging import model_seconds
from results.methods import method_parts
from results.provenance import provenance
from results.schema import TABLES
from results.set_plan import FIRST_FINAL_SEED
from results.writing import write_table

STUDY, SCALE = "digits_mlp", "quick"
PLAN, SITE = "plan.json", "site"  # below the folder that is asked for
RATES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
TUNING_SEEDS = 3
LEAST_FINAL, MOST_CHECKPOINTS = 3, 2_000
STEPS_BETWEEN = 10  # checkpoints
BATCH = 300
BASIS_EVALUATIONS = 2_410
CHUNK = 500_000  # rows that are made at a time
REPETITIONS, TIMED_STEPS = 7, 20


@dataclass(frozen=True)
class Size:
    """How the rows come about: runs of a method on each backend, and their checkpoints."""

    checkpoints: int
    final_seeds: int


@dataclass(frozen=True)
class Cell:
    """The runs of one method, stage and backend: settings times seeds."""

    number: int
    method: str
    backend: str
    stage: str
    rates: tuple[float, ...]
    seeds: range

    @property
    def hash(self) -> str:
        """What stands for the hash of its job's spec."""
        return f"{self.number:016x}"


def write_report(out: Path, rows: int) -> str:
    """Write the plan and the tables of a report.

    Args:
        out: must not be there.
        rows: of `curves`, at least.

    Returns:
        What was written, as a sentence.

    Raises:
        FileExistsError: when `out` is there.
    """
    out.mkdir(parents=True)
    raw = {"studies": STUDY, "scale": SCALE, "results": str(out.resolve()), "site": str(out.resolve() / SITE)}
    plan = {**make_plan(read_config(raw)).report, "parity": None, "checks": None, "kernels": None}
    (study,) = plan["studies"]
    size = _size(rows, len(study["methods"]), len(study["backends"]), len(_metrics(study)))
    study["tuning"] |= {"trials": len(RATES), "coarse": list(RATES)}
    study["seeds"] = {"tuning": TUNING_SEEDS, "final": size.final_seeds}
    study["budget"] = {"steps": (size.checkpoints - 1) * STEPS_BETWEEN, "evaluations": size.checkpoints - 1}
    for backend in study["backends"].values():
        backend["final_seeds"] = size.final_seeds
    (out / PLAN).write_text(json.dumps(plan, indent=1, sort_keys=True))
    tables = Path(study["tables"])
    runs, curves = _write_tables(study, size, tables)
    return f"{out / PLAN}: {curves} curve rows of {runs} runs, {size.checkpoints} checkpoints each"


def _size(rows: int, methods: int, backends: int, metrics: int) -> Size:
    """The more rows, the more checkpoints and the more seeds."""
    checkpoints = min(MOST_CHECKPOINTS, max(LEAST_FINAL, isqrt(rows) // 10))
    tuning = methods * len(RATES) * TUNING_SEEDS
    final = rows / (metrics * checkpoints) - tuning
    return Size(checkpoints, max(LEAST_FINAL, ceil(final / (methods * backends))))


def _metrics(study: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    (workload,) = study["workloads"]
    metrics: Mapping[str, Mapping[str, Any]] = workload["metrics"]
    return metrics


def _cells(study: Mapping[str, Any], size: Size) -> Iterator[Cell]:
    """Tuning on the backends that tune, final seeds on all."""
    final = range(FIRST_FINAL_SEED, FIRST_FINAL_SEED + size.final_seeds)
    tuners = {backend["tuned_on"] for backend in study["backends"].values()}
    number = 0
    for method in study["methods"]:
        for backend in study["backends"]:
            if backend in tuners:
                yield Cell(number, method, backend, "sweep", RATES, range(TUNING_SEEDS))
                number += 1
            yield Cell(number, method, backend, "final", (RATES[2],), final)
            number += 1


def _write_tables(study: Mapping[str, Any], size: Size, tables: Path) -> tuple[int, int]:
    """Write all tables; returns how many runs and curve rows there are."""
    about = provenance(threads=1)
    cells = list(_cells(study, size))
    parts = tables / "parts"
    runs: list[pl.DataFrame] = []
    files: list[Path] = []
    for cell in cells:
        for first, chunk in _chunks(cell, size, len(_metrics(study))):
            made, curves = _runs(study, cell, size, first, chunk, about["machine"])
            runs.append(made)
            files.append(parts / f"{len(files):06d}" / "curves.parquet")
            write_table(files[-1], curves, TABLES["curves"])
    timings = _timings(study, about["machine"])
    together = pl.concat(runs)
    write_table(tables / "curves.parquet", pl.scan_parquet(files), TABLES["curves"])
    shutil.rmtree(parts)
    write_table(tables / "timings.parquet", timings, TABLES["timings"])
    write_table(tables / "memory.parquet", _memory(timings), TABLES["memory"])
    write_table(tables / "jobs.parquet", _jobs(study, cells, about), TABLES["jobs"])
    write_table(tables / "runs.parquet", model_seconds(together, timings), TABLES["runs"])
    rows = pl.scan_parquet(tables / "curves.parquet").select(pl.len()).collect().item()
    return len(together), rows


Lane = tuple[float, int]  # learning rate and seed


def _chunks(cell: Cell, size: Size, metrics: int) -> Iterator[tuple[int, list[Lane]]]:
    """The runs of a cell, some at a time, with the number of the first."""
    lanes = [(rate, seed) for rate in cell.rates for seed in cell.seeds]
    step = max(1, CHUNK // (metrics * size.checkpoints))
    for first in range(0, len(lanes), step):
        yield first, lanes[first : first + step]


# --- runs and their curves -----------------------------------------------------------------------


def _values(
    metrics: Mapping[str, Mapping[str, Any]], cell: Cell, lanes: list[Lane], count: int
) -> np.ndarray:
    """Losses that decay and accuracies that rise, shape (metrics, runs, checkpoints)."""
    speed = 1 + cell.number % 7
    rates, seeds = (np.array(each) for each in zip(*lanes, strict=True))
    noise = np.stack([np.random.default_rng(int(seed)).normal(0, 0.1, count) for seed in seeds])
    pace = speed * np.exp(-(np.log10(rates / RATES[2]) ** 2))
    loss = 2.3 * np.exp(-pace[:, None] * np.linspace(0, 1, count) + noise)
    kinds = [metric["direction"] == "minimize" for metric in metrics.values()]
    return np.stack(
        [loss * (1 + 0.01 * k) if less else 1 - 0.4 * np.minimum(loss, 2) for k, less in enumerate(kinds)]
    )


def _runs(
    study: Mapping[str, Any], cell: Cell, size: Size, first: int, lanes: list[Lane], machine: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of `runs` and `curves` of some runs."""
    metrics = _metrics(study)
    names = [f"{cell.hash[-12:]}-{first + k:06d}" for k in range(len(lanes))]
    steps = np.arange(size.checkpoints) * STEPS_BETWEEN
    values = _values(metrics, cell, lanes, size.checkpoints)
    signs = np.array([1 if metric["direction"] == "minimize" else -1 for metric in metrics.values()])
    best = np.argmin(signs[:, None, None] * values, axis=2)
    optimizer, basis = method_parts(cell.method)
    total = int(steps[-1])
    rows = [
        {
            "run": name,
            "study": STUDY,
            "scale": SCALE,
            "workload": study["workloads"][0]["name"],
            "optimizer": optimizer,
            "basis": basis,
            "backend": cell.backend,
            "device": "cpu",
            "dtype": "float32",
            "stage": cell.stage,
            "seed": seed,
            "learning_rate": rate,
            "hyperparameters": [],
            "steps": total,
            "gradient_evaluations": total,
            "basis_gradient_evaluations": BASIS_EVALUATIONS * (basis != "identity"),
            "basis_seconds": 1.0 * (basis != "identity"),
            "examples": total * BATCH,
            "final_metrics": [{"name": each, "value": values[m, k, -1]} for m, each in enumerate(metrics)],
            "best_metrics": [
                {"name": each, "value": values[m, k, best[m, k]], "step": int(steps[best[m, k]])}
                for m, each in enumerate(metrics)
            ],
            "targets": [
                {
                    "metric": each,
                    "threshold": threshold,
                    "steps": _reached(signs[m] * values[m, k], signs[m] * threshold, steps),
                    "seconds": None,
                    "seconds_kind": None,
                }
                for m, each in enumerate(metrics)
                if (threshold := study["targets"].get(each)) is not None
            ],
            "seconds": None,
            "state_bytes": 4 * BASIS_EVALUATIONS,
            "bundle_lanes": len(cell.rates) * len(cell.seeds),
            "spec_hash": cell.hash,
            "machine": machine,
        }
        for k, (name, (rate, seed)) in enumerate(zip(names, lanes, strict=True))
    ]
    along = np.tile(steps, len(names) * len(metrics))
    curves = pl.DataFrame(
        {
            "run": np.repeat(names, len(metrics) * len(steps)),
            "step": along,
            "gradient_evaluations": along,
            "examples": along * BATCH,
            "metric": np.tile(np.repeat(list(metrics), len(steps)), len(names)),
            "value": values.transpose(1, 0, 2).ravel(),
        }
    ).with_columns(seconds=pl.lit(None, dtype=pl.Float64))
    met = pl.col("targets").list.eval(pl.element().struct.field("steps")).list.min()
    runs = pl.DataFrame(rows, schema=TABLES["runs"]).with_columns(
        outcome=pl.when(met.is_null()).then(pl.lit("budget")).otherwise(pl.lit("reached")),
        outcome_step=met,
    )
    return runs.cast({"outcome": TABLES["runs"]["outcome"]}), curves.select(TABLES["curves"].names())


def _reached(values: np.ndarray, threshold: float, steps: np.ndarray) -> int | None:
    met = np.flatnonzero(values <= threshold)
    return int(steps[met[0]]) if len(met) else None


# --- timings, memory and jobs --------------------------------------------------------------------


def _timings(study: Mapping[str, Any], machine: str) -> pl.DataFrame:
    random = np.random.default_rng(0)
    methods = [("null", "identity"), *map(method_parts, study["methods"])]
    rows = [
        {
            "study": STUDY,
            "scale": SCALE,
            "workload": study["workloads"][0]["name"],
            "optimizer": optimizer,
            "basis": basis,
            "backend": backend,
            "device": "cpu",
            "phase": "null_step" if optimizer == "null" else "step",
            "repetition": repetition,
            "steps": TIMED_STEPS,
            "seconds": (0.01 + 0.002 * number) * random.uniform(0.95, 1.05),
            "spec_hash": f"{0xFFFF - place:016x}",
            "machine": machine,
        }
        for place, backend in enumerate(study["backends"])
        for number, (optimizer, basis) in enumerate(methods)
        for repetition in range(REPETITIONS)
    ]
    return pl.DataFrame(rows, schema=TABLES["timings"])


def _memory(timings: pl.DataFrame) -> pl.DataFrame:
    peaks = {"host_baseline_bytes": 300 * 2**20, "host_peak_bytes": 320 * 2**20, "device_peak_bytes": 2**20}
    methods = timings.filter(pl.col("repetition") == 0, pl.col("optimizer") != "null")
    return methods.with_columns(pl.lit(value).alias(name) for name, value in peaks.items()).select(
        TABLES["memory"].names()
    )


def _jobs(study: Mapping[str, Any], cells: list[Cell], about: Mapping[str, Any]) -> pl.DataFrame:
    """One job a cell, and one of timing a backend."""
    rules = [{"claim": claim["id"], "rule": claim["rule"]} for claim in study["claims"]]
    phases = ("import", "compile", "data", "step", "evaluation", "other")
    seconds = {f"{phase}_seconds": 1.0 for phase in phases} | {"total_seconds": float(len(phases))}
    own: list[tuple[str, str, str | None, str]] = [
        (cell.hash, cell.stage, method_parts(cell.method)[0], cell.backend) for cell in cells
    ]
    own += [
        (f"{0xFFFF - place:016x}", "timing", None, backend) for place, backend in enumerate(study["backends"])
    ]
    rows = [
        {
            "spec_hash": hash_,
            "study": STUDY,
            "scale": SCALE,
            "stage": stage,
            "optimizer": optimizer,
            "backend": backend,
            "device": "cpu",
            **seconds,
            "peak_memory_bytes": 512 * 2**20,
            **about,
            "claim_rules": rules if stage == "final" else [],
            "notes": ["made up by benchmarks.scale"],
        }
        for hash_, stage, optimizer, backend in own
    ]
    return pl.DataFrame(rows, schema=TABLES["jobs"])
