"""A random sample of a published set's runs, computed anew and compared: `curvebench sets check --rerun`."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from curvebench.optimizers.bases import bases
from curvebench.precision import POLICIES
from curvebench.registry import find_rule, find_workload
from curvebench.reports.measures import settings_tried, tuned_as
from curvebench.reports.sets.derived import read_set
from curvebench.results.outcomes import FINISHED
from curvebench.results.provenance import provenance
from curvebench.results.reading import read, with_method
from curvebench.results.tuning import settings_of
from curvebench.spec.errors import InputError
from curvebench.spec.job import BasesSpec, JobSpec, RunsSpec, estimated_at
from curvebench.spec.method import BasisSpec, OptimizerSpec, WorkloadSpec
from curvebench.spec.plan import ReportPlan, StudyPlan
from curvebench.spec.values import Option
from curvebench.stages.basis_jobs import estimate_bases
from curvebench.stages.job import Job
from curvebench.stages.run_jobs import run_lanes

# What rounding does to a run is measured beside it: lanes whose learning rate is off by so many units in the
# last place. Allowed are so many times their largest relative spread up to a recorded step, and a share of
# the value; how these were chosen: docs/decisions/0021-sets-are-checked-by-re-execution.md.
TWINS = (-256, -64, -16, -4, 4, 16, 64, 256)
SPREADS = 5.0
SHARE = {"float64": 1e-9, "float32": 1e-4, "tf32": 1e-3, "mixed": 1e-2, "bfloat16": 1e-2}  # of a value
# of the largest value on the curve
FLOOR = {"float64": 1e-12, "float32": 1e-6, "tf32": 1e-4, "mixed": 1e-3, "bfloat16": 1e-3}
CONFIDENCE = 0.95
MEMORY = 2**31  # bytes that the lanes of a cell may take together
ENDS = ("final", "best")
EXACT = ("hyperparameters", "dtype", "basis_gradient_evaluations")  # of a run, whatever rounding does
COUNTS = ("outcome", "outcome_step", "steps", "gradient_evaluations", "examples")


@dataclass(frozen=True)
class RunRecord:
    """A run as tables have it: its row of `runs`, and its values by metric and step, "final" or "best"."""

    row: Mapping[str, Any]
    values: Mapping[tuple[str, int | str], float]


def record(row: Mapping[str, Any], curve: pl.DataFrame) -> RunRecord:
    """The record of a run from its row and what a set keeps of its rows of `curves`, which may be none."""
    values: dict[tuple[str, int | str], float] = {
        (item["name"], which): item["value"] for which in ENDS for item in row[f"{which}_metrics"]
    }
    values |= {
        (metric, step): value for metric, step, value in curve.select("metric", "step", "value").rows()
    }
    return RunRecord(row, values)


@dataclass(frozen=True)
class Reexecution:
    """A run that was computed anew.

    Args:
        name: study, workload, method, backend, stage and seed, in words.
        found: what differs, in sentences; empty where all agrees.
        missing: why it could not be computed; empty where it was.
        largest: the largest difference over what was allowed; at most 1 where all agrees.
    """

    name: str
    found: tuple[str, ...] = ()
    missing: str = ""
    largest: float = 0.0


def share_found(count: int) -> float:
    """The share of invented runs of which a sample of so many finds one at least, with `CONFIDENCE`.

    None of `count` independent draws hits a share p with probability (1 - p)^count: 29 runs find 10 %.
    """
    return 1.0 if count < 1 else 1.0 - (1.0 - CONFIDENCE) ** (1.0 / count)


def rerun(folder: Path, count: int, seed: int, say: Callable[[str], None]) -> list[Reexecution]:
    """Compute some runs of a set anew, tuning runs among them, and compare them with what it has.

    Args:
        folder: a set that `curvebench.reports.sets.checking.check` accepts.
        count: how many; all where it has fewer.
        seed: of the draw.
        say: takes a line on each run when it is done.

    Raises:
        InputError: when the set cannot be read or has no runs.
    """
    plan = read_set(folder)
    drawn = sample(plan, count, seed)
    cells = []
    for number, (study, row) in enumerate(drawn, start=1):
        cell = compute(study, plan.scale, row)
        cells.append(cell)
        state = f"agrees, {cell.largest:.2g} of what is allowed"
        if cell.missing or cell.found:
            state = f"cannot be computed: {cell.missing}" if cell.missing else "differs"
        say(f"{number} of {len(drawn)}: {cell.name}: {state}")
        for difference in cell.found:
            say(f"  {difference}")
    return cells


def sample(plan: ReportPlan, count: int, seed: int) -> list[tuple[StudyPlan, dict[str, Any]]]:
    """Runs of a set, drawn without replacement from all of its studies; those that did not end are left out.

    Raises:
        InputError: when there is none.
    """
    ended = pl.col("outcome").is_in([*FINISHED, "diverged"])
    tables = [(study, read(study.tables, "runs").filter(ended)) for study in plan.studies]
    places = [(study, runs, number) for study, runs in tables for number in range(len(runs))]
    if not places:
        raise InputError(f"{plan.path}: has no runs to compute anew; leave --rerun out")
    chosen = random.Random(seed).sample(places, min(count, len(places)))
    return [(study, runs.row(number, named=True)) for study, runs, number in chosen]


def compute(study: StudyPlan, scale: str, row: Mapping[str, Any]) -> Reexecution:
    """Compute one run of a study anew, with its twins, and compare it with its row and its curve."""
    basis = "" if row["basis"] == "identity" else f" @ {row['basis']}"
    name = (
        f"run {row['run']}, {study.name}: {row['optimizer']}{basis} on {row['workload']}, {row['backend']}, "
        f"{row['stage']}, learning rate {row['learning_rate']:g}, seed {row['seed']}"
    )
    curve = read(study.tables, "curves").filter(run=row["run"])
    otherwise = not_chosen(study, row)
    try:
        with tempfile.TemporaryDirectory() as results:
            anew = run_cell(study, scale, row, Path(results))
    except Exception as error:
        return Reexecution(name, missing=f"{type(error).__name__}: {error}")
    found, largest = differences(record(row, curve), anew)
    found = [*otherwise, *found, *(defaults_taken(study, row) if found else ())]
    return Reexecution(name, tuple(found), largest=largest)


def not_chosen(study: StudyPlan, row: Mapping[str, Any]) -> list[str]:
    """Say that a final run has another setting than the one which the set's tuning runs choose."""
    runs = with_method(read(study.tables, "runs")).filter(workload=row["workload"])
    tuning, run = runs.filter(stage="tuning"), runs.filter(run=row["run"], stage="final")
    names = study.tuned_names(row["optimizer"])
    for method, setting in zip(run["method"], settings_of(run, names), strict=True):
        tuner, backend = tuned_as(study, method, row["backend"], tuning)
        tuned = settings_tried(study, row["optimizer"], tuning.filter(method=tuner, backend=backend))
        if tuned is not None and setting != tuned.chosen:
            return [f"{', '.join(names)} are {setting}, and the set's tuning runs choose {tuned.chosen}"]
    return []


def defaults_taken(study: StudyPlan, row: Mapping[str, Any]) -> list[str]:
    """What the plan does not name of a run, mostly options and settings that came later, in sentences."""
    optimizer, basis, workload = _parts(study, row)
    kinds: dict[str, tuple[Mapping[str, Option], Mapping[str, Any]]] = {
        f"option of {optimizer.label}": (find_rule(optimizer.locator).options, optimizer.options),
        f"option of {basis.label}": (bases()[basis.name].options, basis.options),
        f"setting of {workload.name}": (find_workload(workload.locator).settings, workload.settings),
    }
    return [
        f"the plan names no {name}, {kind}: computed anew with its default of today, {about.default!r}"
        for kind, (known, given) in kinds.items()
        for name, about in known.items()
        if name not in given
    ]


def _parts(study: StudyPlan, row: Mapping[str, Any]) -> tuple[OptimizerSpec, BasisSpec, WorkloadSpec]:
    """The optimizer, the basis and the workload of a run, as the plan has them."""
    (basis,) = (one for one in study.bases if one.label == row["basis"])
    (workload,) = (one for one in study.workloads if one.name == row["workload"])
    return study.optimizer(row["optimizer"]), basis, workload.spec


# --- computing -----------------------------------------------------------------------------------


def run_cell(study: StudyPlan, scale: str, row: Mapping[str, Any], results: Path) -> list[RunRecord]:
    """A run computed anew, and after it its twins, in one bundle.

    What was tuned is as the row has it, all else as the plan has it: what is fixed is checked so.

    Args:
        results: an empty folder.

    Raises:
        InputError, DataMissing: when something that the plan names is not here.
    """
    optimizer, basis, workload = _parts(study, row)
    found = find_workload(workload.locator)
    workload = replace(workload, settings=found.complete(workload.settings))
    basis = replace(basis, options=bases()[basis.name].complete(basis.options))
    recorded = {item["name"]: item["value"] for item in row["hyperparameters"] or []}
    recorded["learning_rate"] = row["learning_rate"]
    tuned = {name: recorded[name] for name in optimizer.space or study.tuning.names}
    rates = [moved(row["learning_rate"], ulps, row["dtype"]) for ulps in (0, *TWINS)]
    shared: dict[str, Any] = {
        "study": study.name,
        "scale": scale,
        "workloads": (workload,),
        "bases": (basis,),
        "seeds": (row["seed"],),
        "sources": {},
        "versions": {},
    }
    upstream: dict[str, tuple[str, ...]] = {}
    if bases()[basis.name].stored:
        backend, device = estimated_at(found.alone, study.backends[0], row["device"])
        precision = row["dtype"]
        first = BasesSpec(stage="bases", backend=backend, device=device, precision=precision, **shared)
        _run(first, results, estimate_bases)
        upstream = {"bases": (first.hash,)}
    spec = RunsSpec(
        stage="runs",
        rounds=(row["round"],),
        tuning_seeds=(row["seed"],),
        backend=row["backend"],
        device=row["device"],
        optimizers=(optimizer,),
        tuning=study.tuning,
        training=study.training.model_copy(update={"precision": row["dtype"]}),
        settings=tuple({**tuned, "learning_rate": rate} for rate in rates),
        bundle_memory_bytes=MEMORY,
        upstream=upstream,
        **shared,
    )
    job = _run(spec, results, run_lanes)
    runs, curves = (read([job.folder / f"{table}.parquet"], table) for table in ("runs", "curves"))
    return [record(one, curves.filter(run=one["run"])) for one in runs.iter_rows(named=True)]


def moved(rate: float, ulps: int, dtype: str) -> float:
    """A learning rate so many units in the last place of a precision away."""
    return rate * (1.0 + ulps * float(np.finfo(POLICIES[dtype].computed).eps))


def _run(spec: JobSpec, results: Path, stage: Callable[[Job], None]) -> Job:
    """The job, done; one that fails is no difference, since no run that is drawn has failed."""
    job = Job(spec, results, provenance(1)["machine"])
    job.folder.mkdir(parents=True, exist_ok=True)
    stage(job)
    for failure in job.failures:
        raise RuntimeError(f"{failure['what']}: {failure['outcome']}: {failure['reason']}")
    return job


# --- comparing -----------------------------------------------------------------------------------


def differences(published: RunRecord, anew: Sequence[RunRecord]) -> tuple[list[str], float]:
    """What a run says otherwise than it and its twins did anew, and the largest difference over the allowed.

    Args:
        published: the run as a set has it.
        anew: the same run first, then its twins.
    """
    found = []
    for name in (*EXACT, *COUNTS):
        lanes = [lane.row[name] for lane in (anew[:1] if name in EXACT else anew)]
        if not _among(published.row[name], lanes):
            found.append(f"{name} is {published.row[name]}, and computed anew {lanes[0]}")
    scale, growth = _spreads(anew)
    largest = 0.0
    for metric, at in dict.fromkeys([*(key for key in anew[0].values if key[1] in ENDS), *published.values]):
        value, *values = (one.values.get((metric, at), math.nan) for one in (published, *anew))
        most = growth.get((metric, at), 0.0)
        share = excess(value, values, scale.get(metric, 0.0), most, published.row["dtype"])
        largest = max(largest, share)
        if not share <= 1.0:
            what = f"{at} {metric}" if at in ENDS else f"{metric} at step {at}"
            found.append(
                f"{what} is {value!r}, and computed anew {values[0]!r}: {share:.3g} of what is allowed"
            )
    return found, largest


def _among(value: Any, values: Sequence[Any]) -> bool:
    """Whether a count or word is one of those computed, or a number between them."""
    if value in values:
        return True
    numbers = [each for each in values if isinstance(each, int)]
    return isinstance(value, int) and bool(numbers) and min(numbers) <= value <= max(numbers)


def _spreads(anew: Sequence[RunRecord]) -> tuple[dict[str, float], dict[tuple[str, int | str], float]]:
    """The largest value by metric; and the largest relative spread of the twins up to each recorded step."""
    scale: dict[str, float] = {}
    growth: dict[tuple[str, int | str], float] = {}
    steps = sorted((metric, at) for metric, at in anew[0].values if isinstance(at, int))
    for metric, step in steps:
        value, *values = (lane.values.get((metric, step), math.nan) for lane in anew)
        most = growth.get((metric, "final"), 0.0)
        if math.isfinite(value):
            scale[metric] = max(scale.get(metric, 0.0), abs(value))
            spread = max((abs(one - value) for one in values if math.isfinite(one)), default=0.0)
            most = max(most, spread / abs(value) if value else 0.0)
        growth |= dict.fromkeys([(metric, step), (metric, "final"), (metric, "best")], most)
    return scale, growth


def excess(published: float, values: Sequence[float], scale: float, growth: float, dtype: str) -> float:
    """How far a number lies from the one computed anew, over what is allowed: 1 is just allowed.

    Allowed are `SPREADS` times the spread of the twins, `SHARE` of the value and `FLOOR` of the scale.
    A number that is not finite is right where one of those computed is the same.

    Args:
        published: the number as a set has it.
        values: computed, the run itself first.
        scale: the largest value on the run's curve.
        growth: the largest spread of the twins so far, relative to the value.
        dtype: the run's precision.
    """
    if not math.isfinite(published):
        same = any(value == published or (math.isnan(value) and math.isnan(published)) for value in values)
        return 0.0 if same else math.inf
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.inf
    anew = finite[0]
    if published == anew:
        return 0.0
    spread = max(growth * abs(anew), *(abs(value - anew) for value in finite))
    allowed = SPREADS * spread + SHARE[dtype] * abs(anew) + FLOOR[dtype] * scale
    return abs(published - anew) / allowed if allowed else math.inf
