"""Synthetic tables and plans from formulas: several methods and seeds, a divergence, a name with HTML."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike
from ruamel.yaml import YAML

from curvebench.reports.claims.censoring import Bounds
from curvebench.reports.claims.comparison import ClaimComparison
from curvebench.reports.statistics.decisions import ClaimRelation
from curvebench.reports.statistics.paired import Effect
from curvebench.results.schema import COMPARISONS, TABLES
from curvebench.results.verdicts import rule_hash
from curvebench.results.writing import write_table
from curvebench.spec.claim import Claim
from curvebench.spec.conditions.condition import ComparisonKey
from curvebench.spec.conditions.value import Value
from curvebench.spec.method import Method
from curvebench.spec.study import FIRST_FINAL_SEED
from tests.results.rows import BASE

HOSTILE = "<script>alert(1)</script>"
MADE_UP: dict[str, Any] = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml"))
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
CHOSEN = 0.1
STEPS = (0, 5, 10, 20, 40, 60, 80, 100)
BASIS_EVALUATIONS = 60
# The first final seed of this optimizer diverges at step 40.
DIVERGING = "sgd"


@dataclass(frozen=True)
class Shape:
    """Dimensions of a synthetic study."""

    name: str = "digits_mlp"
    workloads: tuple[str, ...] = ("digits_mlp",)
    optimizers: tuple[str, ...] = ("sgd", "adagrad", "adam")
    bases: tuple[str, ...] = ("identity", "egop")
    backends: tuple[str, ...] = ("jax", "torch")
    seeds: tuple[int, ...] = tuple(range(FIRST_FINAL_SEED, FIRST_FINAL_SEED + 10))
    tuning_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    machines: tuple[str, ...] = ("m1",)


CONVEX = Shape(
    name="convex",
    workloads=("log_sum_exp", "least_squares"),
    optimizers=("sgd", "adam", HOSTILE),
    backends=("jax",),
    tuning_seeds=(995, 996, 997, 998, 999),
)


def write_rows(folder: Path, table: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Write a table into a folder and return it."""
    frame = pl.DataFrame(rows, schema=TABLES[table])
    write_table(folder / f"{table}.parquet", frame, TABLES[table])
    return frame


def write_study(folder: Path, shape: Shape) -> dict[str, Any]:
    """Write the tables of a synthetic study and return its entry in the plan."""
    runs, curves, jobs = [], [], list(_jobs(shape))
    hashes = {(job["stage"], job["backend"], job["optimizer"]): job["spec_hash"] for job in jobs}
    for number, (cell, stage, seed, rate) in enumerate(_runs(shape)):
        run, curve = _run(shape, f"run-{number:05d}", cell, stage, seed, rate)
        runs.append(run | {"spec_hash": hashes["runs", cell[1], cell[2]]})
        curves += curve
    tables = folder / "tables" / shape.name
    timed = {"timings": _timings(shape), "memory": _memory(shape)}
    for name, rows in timed.items():
        write_rows(
            tables, name, [row | {"spec_hash": hashes["timing", row["backend"], None]} for row in rows]
        )
    for name, frame in {"runs": runs, "curves": curves, "jobs": jobs}.items():
        write_rows(tables, name, frame)
    backends = {
        name: {"device": "cpu", "tuned_on": name, "final_seeds": max(1, len(final_seeds(shape, name)))}
        for name in shape.backends
    }
    return deepcopy(MADE_UP["study"]) | {
        "name": shape.name,
        "workloads": [
            {"name": name, "description": f"{name}: a made-up problem", "metrics": MADE_UP["metrics"]}
            for name in shape.workloads
        ],
        "optimizers": [{"name": name} for name in shape.optimizers],
        "bases": [
            {"label": basis, "name": basis, "options": {} if basis == "identity" else {"samples": "1.0 d"}}
            for basis in shape.bases
        ],
        "runs_on": backends,
        "seeds": {"tuning": max(1, len(shape.tuning_seeds)), "final": max(1, len(shape.seeds))},
        "first_tuning_seed": min(shape.tuning_seeds, default=0),
        "claims": [claim_of(shape)],
        "rules": rules_of(shape),
        "training": {**MADE_UP["training"], "budget": {"steps": STEPS[-1]}},
        "tables": str(tables),
        "figures": str(folder / "figures" / shape.name),
    }


def rules_of(shape: Shape) -> dict[str, str]:
    """Return the hash of the decision rule of a study's claim, by claim id."""
    claim = Claim.model_validate_json(json.dumps(claim_of(shape)))
    return {claim.id: rule_hash(claim.written_rule, "")}


def claim_of(shape: Shape) -> dict[str, Any]:
    """Return a claim about the last optimizer in the last basis, against the identity."""
    method, control = Method(shape.optimizers[-1], shape.bases[-1]).label, shape.optimizers[-1]
    condition = MADE_UP["condition"] | {"better": [method], "compared_to": [control]}
    return {
        "id": f"egop.{shape.name}",
        "sentence": f"{method} ends <i>lower</i> than {control}.",
        "source": "000 Fig. 1 right",
        "supported_if": [condition],
    }


def compared(
    gains: ArrayLike,
    relation: ClaimRelation = "better",
    effect: Effect = "ratio",
    sign: float = -1.0,
    smallest_effect: float = 0.05,
    most: ArrayLike | None = None,
    workload: str = "digits_mlp",
    control: str = "adam",
    treated: str = "adam @ egop",
) -> ClaimComparison:
    """Return the comparison of two methods in a claim with a single condition.

    Args:
        gains: gains, or their lower bounds.
        relation, effect, sign, smallest_effect: of the condition.
        most: upper bounds of the gains; None if they are known exactly.
        workload, control, treated: names.
    """
    least = np.asarray(gains, dtype=float)
    condition = Value.model_validate(
        {
            "metric": "final train_loss",
            relation: ["adam @ egop"],
            "compared_to": ["adam"],
            "smallest_effect": f"{100 * smallest_effect:g} %",
            "effect": None if effect == "ratio" else effect,
        }
    )
    return ClaimComparison(
        key=ComparisonKey("claim", 0, workload, treated, control, workload),
        study="study",
        backend="jax",
        condition=condition,
        effect=effect,
        sign=sign,
        gains=least,
        gain_bounds=Bounds(least, least if most is None else np.asarray(most, dtype=float)),
    )


def write_plan(folder: Path, shapes: Sequence[Shape], checks: bool = False) -> Path:
    """Write synthetic studies and the plan that names them, optionally with property checks."""
    fashion = Shape("fashion")
    plan = {
        "scale": "quick",
        "studies": [write_study(folder, shape) for shape in shapes],
        "skipped": [MADE_UP["skipped"] | {"claims": [claim_of(fashion)], "rules": rules_of(fashion)}],
        "parity": write_parity(folder) if shapes else None,
        "checks": write_checks(folder) if checks else None,
    }
    path = folder / "plan.json"
    path.write_text(json.dumps(plan))
    return path


PROBLEMS = {
    problem["label"]: problem["full_rank"] for problem in MADE_UP["parity"]["problems"]
}  # is it judged
# This optimizer differs between JAX and PyTorch on the bowl.
DIFFERENT = "momentum"


def write_parity(folder: Path) -> dict[str, Any]:
    """Write synthetic comparisons of backends, one job per optimizer, and return their entry in the plan."""
    tables = []
    for number, optimizer in enumerate(("adam", DIFFERENT, HOSTILE)):
        job = folder / "parity" / str(number)
        of_job = {"spec_hash": f"{number:016x}"}
        write_rows(job, "parity", [row | of_job for row in _parity(optimizer)])
        row = next(_jobs(Shape())) | {"stage": "parity", "study": "parity", "optimizer": optimizer}
        write_rows(job, "jobs", [row | of_job | {"notes": []}])
        tables.append(str(job))
    return MADE_UP["parity"] | {"tables": tables}


def _parity(optimizer: str) -> Iterator[dict[str, Any]]:
    for problem, judgeable in PROBLEMS.items():
        for comparison in COMPARISONS:
            in_ulps = "float32" in comparison
            judged = judgeable and not in_ulps
            fails = optimizer == DIFFERENT and comparison == "torch against jax"
            difference = 2.5 if in_ulps else 3e-5 if fails or not judged else 4e-16
            yield BASE["parity"] | {
                "optimizer": optimizer, "problem": problem, "basis": "identity", "comparison": comparison,
                "unit": "ulps" if in_ulps else "relative", "first_step": difference / 5,
                "difference": difference, "judged": judged, "tolerance": 1e-10 if judged else None,
                "holds": not judged or difference <= 1e-10,
            }  # fmt: skip


# Their verdicts are: reproduced, not reproduced as printed, not reproduced.
CLAIMS = ("notes.regret", "notes.misprint", HOSTILE)
INSTANCES = 200


def write_checks(folder: Path) -> dict[str, Any]:
    """Write synthetic checks of claims, in one job, and return their entry in the plan."""
    job = folder / "checks"
    checks = write_rows(job, "checks", list(_checks())).with_columns(pl.col("variant").cast(pl.String))
    parts = checks.group_by("claim", "part", "variant", maintain_order=True)
    counts = parts.agg(instances=pl.col("instance").n_unique()).partition_by(
        "claim", as_dict=True, include_key=False
    )
    write_rows(job, "series", list(_series()))
    row = next(_jobs(Shape())) | {"stage": "checks", "study": "claims", "optimizer": "notes_toy"}
    write_rows(job, "jobs", [row | {"spec_hash": BASE["checks"]["spec_hash"], "notes": []}])
    return {
        "claims": [
            MADE_UP["check"] | {"id": claim, "sentence": f"What {claim} says <b>is so</b>.", "parts": parts}
            for claim in CLAIMS
            for parts in [counts[claim,].to_dicts()]
        ],
        "tables": [str(job)],
        "figures": str(folder / "figures" / "claims"),
    }


def _checks() -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(0)
    holds = {
        "<=": lambda excess, tolerance: excess <= tolerance,
        ">=": lambda excess, tolerance: excess >= -tolerance,
        "==": lambda excess, tolerance: abs(excess) <= tolerance,
    }
    for number, drawn in enumerate(random.uniform(0, 1, (INSTANCES, 6))):
        values = (
            *(0.9 * drawn[0], 1 - 1e-6 * drawn[1], drawn[1], 1e-15 * drawn[2], 1.1 * drawn[3], drawn[3]),
            *(drawn[4] if number else np.nan, drawn[5]),
        )
        for measure, value in zip(MADE_UP["measures"], values, strict=True):
            held = holds[measure["relation"]](value - measure["limit"], measure["tolerance"])
            yield BASE["checks"] | measure | {"instance": number, "value": value, "holds": bool(held)}


def _series() -> Iterator[dict[str, Any]]:
    """Yield the points of figures: a decay with its law for the first claim, a landscape for the last."""
    regret, _, hostile = CLAIMS
    decay = {"claim": regret, "part": "gradient descent", "figure": "000 Fig. 3", "log": "y"}
    decay |= {"x_name": "index k", "y_name": "ratio <b>r</b>", "panel": ""}
    land = {"claim": hostile, "part": "an inequality", "figure": f"000 {HOSTILE}", "log": ""}
    land |= {"x_name": "first", "y_name": "second"}
    places = np.arange(1.0, 501)
    turns = np.linspace(0, 2 * np.pi, 61)
    lines: list[tuple[dict[str, Any], str, str, int, np.ndarray, np.ndarray]] = [
        *((decay, "EGOP", "line", one, places, 10.0 ** (-places / (20 + one))) for one in range(3)),
        (decay, "law", "fit", 0, places, 10.0 ** (-places / 21)),
        (decay, "1 / d", "reference", 0, places[[0, -1]], np.full(2, 0.002)),
    ]
    for panel, method, stretch in (("original", "adagrad", 1.0), ("EGOP", "adagrad @ egop", 2.0)):
        common = land | {"panel": panel}
        steps = np.exp(-np.arange(200.0))
        lines += [
            (common, "minimum + 1", "contour", 0, np.cos(turns), stretch * np.sin(turns)),
            (common, method, "path", 0, 3 * steps, stretch * steps),
        ]
    for about, label, kind, instance, x, y in lines:
        for at, height in zip(x, y, strict=True):
            point: dict[str, Any] = {"instance": instance, "label": label, "kind": kind, "x": at, "y": height}
            yield BASE["series"] | about | point


Cell = tuple[str, str, str, str]  # workload, backend, optimizer, basis


def _cells(shape: Shape) -> Iterator[Cell]:
    return product(shape.workloads, shape.backends, shape.optimizers, shape.bases)


def _about(shape: Shape, cell: Cell) -> dict[str, Any]:
    return {"study": shape.name} | dict(zip(("workload", "backend", "optimizer", "basis"), cell, strict=True))


def final_seeds(shape: Shape, backend: str) -> tuple[int, ...]:
    """Return the seeds on which methods are compared; PyTorch has fewer."""
    return shape.seeds[: None if backend == "jax" else 5]


def _runs(shape: Shape) -> Iterator[tuple[Cell, str, int, float]]:
    for cell in _cells(shape):
        for rate, seed in product(RATES, shape.tuning_seeds):
            yield cell, "tuning", seed, rate
        for seed in final_seeds(shape, cell[1]):
            yield cell, "final", seed, CHOSEN


def _run(
    shape: Shape, name: str, cell: Cell, stage: str, seed: int, rate: float
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    workload, backend, optimizer, basis = cell
    index, drawn = shape.optimizers.index(optimizer), seed % 900
    # A seed gives the same noise to every method and backend, since comparisons are paired.
    noise = np.random.default_rng([drawn, len(workload)]).normal(0, 0.15)
    own = np.random.default_rng([drawn, index, len(basis)]).normal(0, 0.05)
    speed = 0.03 * (1 + index) * (1.6 if basis != "identity" and index else 1.0)
    speed *= np.exp(-(np.log10(rate / CHOSEN) ** 2))
    dies = stage == "tuning" and rate > 0.2 and (seed + index) % 2 == 0
    dies = dies or (stage == "final" and optimizer == DIVERGING and seed == shape.seeds[0])
    steps = [step for step in STEPS if not dies or step <= 40]
    loss = 2.3 * np.exp(-speed * np.array(steps) + noise + own + (1e-7 if backend == "torch" else 0.0))
    accuracy = np.clip(1 - 0.3 * loss, 0.1, 0.99)
    if dies:
        loss[-1] = accuracy[-1] = np.nan
    values = {"train_loss": loss, "validation_accuracy": accuracy}
    best = {"train_loss": np.nanargmin(loss), "validation_accuracy": np.nanargmax(accuracy)}
    met = np.flatnonzero(accuracy >= 0.9)
    hit = steps[met[0]] if len(met) else None
    outcome = "diverged" if dies else "reached" if hit else "budget"
    evaluations = 0 if basis == "identity" else BASIS_EVALUATIONS
    target = {"metric": "validation_accuracy", "threshold": 0.9, "steps": hit}
    target |= {"seconds": hit and hit * 0.001, "seconds_kind": hit and "modelled"}
    run = BASE["runs"] | MADE_UP["run"] | _about(shape, cell) | {
        "run": name, "stage": stage, "round": 0 if stage == "tuning" else 2, "seed": seed,
        "learning_rate": rate, "outcome": outcome, "outcome_step": 40 if dies else hit, "steps": steps[-1],
        "gradient_evaluations": steps[-1], "basis_gradient_evaluations": evaluations,
        "basis_seconds": evaluations * (0.01 + 0.0001 * drawn), "examples": steps[-1] * 30,
        "final_metrics": [{"name": key, "value": float(each[-1])} for key, each in values.items()],
        "best_metrics": [
            {"name": key, "value": float(values[key][at]), "step": steps[at]} for key, at in best.items()
        ],
        "targets": [target], "state_bytes": 1000 * (1 + index),
        "machine": shape.machines[seed % len(shape.machines)],
    }  # fmt: skip
    curve = [
        {"run": name, "step": step, "gradient_evaluations": step, "examples": step * 30, "metric": key,
         "value": float(value)}
        for key, each in values.items()
        for step, value in zip(steps, each, strict=True)
    ]  # fmt: skip
    return run, curve


def _timings(shape: Shape) -> Iterator[dict[str, Any]]:
    for workload, backend, repetition in product(shape.workloads, shape.backends, range(7)):
        wobble = 1 + 0.05 * np.sin(repetition)
        row = BASE["timings"] | {"study": shape.name, "workload": workload, "backend": backend}
        row |= {"repetition": repetition, "steps": 20}
        yield row | {"optimizer": "null", "phase": "null_step", "seconds": 0.02 * wobble}
        for (index, optimizer), basis in product(enumerate(shape.optimizers), shape.bases):
            seconds = (0.02 + 0.004 * index * (2 if basis != "identity" else 1)) * wobble
            # This optimizer is as fast as the gradient alone.
            if index == 0:
                seconds += 1e-4 * (-1) ** repetition
            yield row | {"optimizer": optimizer, "basis": basis, "phase": "step", "seconds": seconds}


def _memory(shape: Shape) -> Iterator[dict[str, Any]]:
    for cell in _cells(shape):
        index = shape.optimizers.index(cell[2])
        peak = (302 + index + (17 if cell[3] != "identity" else 0)) * 2**20
        device = None if cell[1] == "torch" else (1 + index) * 2**20
        bytes_ = {"host_baseline_bytes": 300 * 2**20, "host_peak_bytes": peak, "device_peak_bytes": device}
        yield BASE["memory"] | _about(shape, cell) | bytes_


def _jobs(shape: Shape) -> Iterator[dict[str, Any]]:
    number, rules = 0, [{"claim": claim, "rule": rule} for claim, rule in rules_of(shape).items()]
    for stage in ("bases", "runs", "timing"):
        for backend in shape.backends if stage != "bases" else ("host",):
            for optimizer in shape.optimizers if stage == "runs" else (None,):
                number += 1
                notes = ["no C++ compiler: torch runs without torch.compile"] if backend == "torch" else []
                yield BASE["jobs"] | MADE_UP["job"] | {
                    "spec_hash": f"{number:016x}", "study": shape.name, "stage": stage,
                    "optimizer": optimizer, "backend": backend,
                    "started": f"2026-01-02T03:{number:02d}:00+00:00",
                    "machine": shape.machines[number % len(shape.machines)], "dirty": number == 1,
                    "claim_rules": rules if stage == "runs" else [], "notes": notes,
                }  # fmt: skip
