"""Recompute runs of a published set, and compare them: `curvebench sets check --rerun`.

Because of rounding, even a faithful repetition of a run differs from the published run, and a chaotic run may
amplify the difference to percents. Therefore the tolerance is measured. Each run is repeated together with
its *twins*, which are runs whose learning rates differ from the learning rate of the run in the last digits.
The distances of the twins from the repetition show the effect of rounding on the run.

A bundle is a group of runs that are computed together. A study compares methods (optimizers in a basis, that
is a change of coordinates of the parameters). Tuning runs choose the setting of a method, which is a value
for each tuned hyperparameter.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from curvebench.optimizers.bases import bases
from curvebench.precision import POLICIES
from curvebench.registry import find_rule, find_workload
from curvebench.reports.measures import study_tuning_outcome, tuning_source
from curvebench.results.provenance import provenance
from curvebench.results.reading import read, with_method
from curvebench.results.tuning import settings_of
from curvebench.spec.job import BasesSpec, JobSpec, RunsSpec, estimated_at
from curvebench.spec.method import BasisSpec, OptimizerSpec, WorkloadSpec
from curvebench.spec.plan import StudyPlan
from curvebench.spec.values import Option
from curvebench.stages.basis_jobs import estimate_bases
from curvebench.stages.job import Job
from curvebench.stages.run_jobs import run_lanes

# Differences between the learning rates of the twins and of the run, in units in the last place.
# docs/decisions/0021-sets-are-checked-by-re-execution.md explains these differences and the tolerances.
TWIN_ULPS = (-256, -64, -16, -4, 4, 16, 64, 256)
# The accepted difference between a published value and its repetition is the sum of three terms.
# The first term is ALLOWED_SPREADS times the largest distance of a twin from the repetition (see `excess`).
ALLOWED_SPREADS = 5.0
# The second term is a share of the value itself. The share depends on the precision of the run.
VALUE_SHARE = {"float64": 1e-7, "float32": 1e-4, "tf32": 1e-3, "mixed": 1e-2, "bfloat16": 1e-2}
# The third term of the tolerance is a share of the largest absolute value on the curve. It is for small
# values on a noisy curve.
# The share depends on the precision of the run.
CURVE_SHARE = {"float64": 1e-12, "float32": 1e-6, "tf32": 1e-4, "mixed": 1e-3, "bfloat16": 1e-3}
# The rounding errors of a curve are at most this number times its smallest absolute value above 0.
# This number limits the third term of the tolerance for a curve that falls to very small values.
NOISE = 1e3
# Share of the points of a curve at which the published absolute value may be too large.
# Such points are accepted because chaotic runs have spikes at other steps in each repetition.
MAX_SPIKES = 0.02
MAX_BUNDLE_BYTES = 2**31  # Memory limit of the bundle of a run and its twins
SUMMARIES = ("final", "best")
# Columns of the table of runs in which the repetition must have the published value.
# Rounding does not change values in these columns.
EXACT_COLUMNS = ("hyperparameters", "dtype", "basis_gradient_evaluations")
# Columns of the table of runs that rounding may change, for example the step at which a run stops.
# The function `_within` says which published values are accepted.
COUNT_COLUMNS = ("outcome", "outcome_step", "steps", "gradient_evaluations", "examples")


@dataclass(frozen=True)
class RunRecord:
    """A run as it is stored in tables.

    Args:
        row: row of the run in the table `runs`.
        values: values of metrics, by name of the metric and step. The texts "final" and "best" in place of
            the step stand for the final value and the best value in the row.
    """

    row: Mapping[str, Any]
    values: Mapping[tuple[str, int | str], float]


def record(row: Mapping[str, Any], curve: pl.DataFrame) -> RunRecord:
    """Return the record of a run.

    Args:
        row: row of the run in the table `runs`.
        curve: rows of the run in the table `curves`; empty for a tuning run, whose curve is not in the set.
    """
    values: dict[tuple[str, int | str], float] = {
        (item["name"], summary): item["value"] for summary in SUMMARIES for item in row[f"{summary}_metrics"]
    }
    values |= {(name, step): value for name, step, value in curve.select("metric", "step", "value").rows()}
    return RunRecord(row, values)


@dataclass(frozen=True)
class Reexecution:
    """The result of recomputing a run.

    Args:
        name: study, workload, method, backend, stage and seed of the run, in words.
        differences: a sentence for each value whose difference exceeds the tolerance, and for a wrong
            setting; empty if the run agrees.
        missing: why the run could not be computed; empty if the run was computed.
        largest: largest ratio of a value's difference to its tolerance; at most 1 if all values agree. None
            for instances of property checks.
    """

    name: str
    differences: tuple[str, ...] = ()
    missing: str = ""
    largest: float | None = None

    def __str__(self) -> str:
        of = (
            "" if self.largest is None else f", the largest difference is {self.largest:.2g} of its tolerance"
        )
        state = f"cannot be computed: {self.missing}" if self.missing else f"agrees{of}"
        return "\n  ".join([f"{self.name}: {'differs' if self.differences else state}", *self.differences])


def compute(study: StudyPlan, scale: str, row: Mapping[str, Any]) -> Reexecution:
    """Recompute one run of a study together with its twins, and compare it with the published run.

    If the computation raises an exception, the exception is stored in the field `missing` of the result. It
    is not counted as a difference, because it does not show that the published run is wrong.

    Args:
        study: the study of the run.
        scale: the scale of the set.
        row: the row of the run in the table `runs`.
    """
    basis = "" if row["basis"] == "identity" else f" @ {row['basis']}"
    name = (
        f"run {row['run']}, {study.name}: {row['optimizer']}{basis} on {row['workload']}, {row['backend']}, "
        f"{row['stage']}, learning rate {row['learning_rate']:g}, seed {row['seed']}"
    )
    curve = read(study.tables, "curves").filter(run=row["run"])
    wrong_setting = not_chosen(study, row)
    try:
        # Twins are needed only for a run that differs, which most runs do not.
        for ulps in ((0,), (0, *TWIN_ULPS)):
            with tempfile.TemporaryDirectory() as results:
                recomputed = run_cell(study, scale, row, Path(results), ulps)
            wrong_values, largest = differences(record(row, curve), recomputed)
            if not wrong_values:
                break
    except Exception as error:
        return Reexecution(name, missing=f"{type(error).__name__}: {error}")
    hints = defaults_taken(study, row) if wrong_values else []
    return Reexecution(name, (*wrong_setting, *wrong_values, *hints), largest=largest)


def not_chosen(study: StudyPlan, row: Mapping[str, Any]) -> list[str]:
    """Return a list with a sentence if a final run does not have the setting that tuning chooses.

    The setting is chosen from the tuning runs of the set. For a final run with this setting, and for a run of
    another stage, the list is empty.

    Args:
        study: the study of the run.
        row: the row of the run in the table `runs`.
    """
    runs = with_method(read(study.tables, "runs")).filter(workload=row["workload"])
    tuning, run = runs.filter(stage="tuning"), runs.filter(run=row["run"], stage="final")
    names = study.tuned_names(row["optimizer"])
    for method, setting in zip(run["method"], settings_of(run, names), strict=True):
        tuner, backend = tuning_source(study, method, row["backend"], tuning)
        tuned = study_tuning_outcome(study, row["optimizer"], tuning.filter(method=tuner, backend=backend))
        if tuned is not None and setting != tuned.chosen:
            return [f"{', '.join(names)} are {setting}, and the set's tuning runs choose {tuned.chosen}"]
    return []


def defaults_taken(study: StudyPlan, row: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each option or workload setting of a run that is not in the plan of the set.

    Most such options were added to the code after the set was published. The run is recomputed with their
    present defaults, which may explain a difference.

    Args:
        study: the study of the run.
        row: the row of the run in the table `runs`.
    """
    optimizer, basis, workload = _parts(study, row)
    kinds: dict[str, tuple[Mapping[str, Option], Mapping[str, Any]]] = {
        f"option of {optimizer.label}": (find_rule(optimizer.locator).options, optimizer.options),
        f"option of {basis.label}": (bases()[basis.name].options, basis.options),
        f"setting of {workload.name}": (find_workload(workload.locator).settings, workload.settings),
    }
    return [
        f"the plan names no {name}, {kind}: recomputed with its present default, {option.default!r}"
        for kind, (options, values) in kinds.items()
        for name, option in options.items()
        if name not in values
    ]


def _parts(study: StudyPlan, row: Mapping[str, Any]) -> tuple[OptimizerSpec, BasisSpec, WorkloadSpec]:
    """Return the optimizer, the basis and the workload of a run, with the options in the plan of the set.

    Args:
        study: the study of the run, in the plan of the set.
        row: the row of the run in the table `runs`.
    """
    (basis,) = (basis for basis in study.bases if basis.label == row["basis"])
    (workload,) = (workload for workload in study.workloads if workload.name == row["workload"])
    return study.optimizer(row["optimizer"]), basis, workload.spec


# --- computing -----------------------------------------------------------------------------------


def run_cell(
    study: StudyPlan, scale: str, row: Mapping[str, Any], results: Path, ulps: Sequence[int]
) -> list[RunRecord]:
    """Recompute a run and its twins in one bundle, and return their records: first the run, then the twins.

    Tuned hyperparameters are taken from the row, all other values from the plan. If the published run was
    made with other fixed hyperparameters than the plan says, the repetition therefore differs from it.

    Args:
        study: the study of the run.
        scale: the scale of the set.
        row: the row of the run in the table `runs`.
        results: an empty folder for the tables of the jobs.
        ulps: differences of the learning rates from the learning rate of the run (`moved`).

    Raises:
        InputError, DataMissing: when code or data that the plan names are missing on this machine.
    """
    optimizer, basis, workload = _parts(study, row)
    definition = find_workload(workload.locator)
    workload = replace(workload, settings=definition.complete(workload.settings))
    basis = replace(basis, options=bases()[basis.name].complete(basis.options))
    recorded = {item["name"]: item["value"] for item in row["hyperparameters"] or []}
    recorded["learning_rate"] = row["learning_rate"]
    tuned = {name: recorded[name] for name in optimizer.space or study.tuning.names}
    rates = [moved(row["learning_rate"], moves, row["dtype"]) for moves in ulps]
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
        backend, device = estimated_at(definition.separate_jobs, study.backends[0], row["device"])
        precision = row["dtype"]
        bases_spec = BasesSpec(stage="bases", backend=backend, device=device, precision=precision, **shared)
        _run(bases_spec, results, estimate_bases)
        upstream = {"bases": (bases_spec.hash,)}
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
        bundle_memory_bytes=MAX_BUNDLE_BYTES,
        upstream=upstream,
        **shared,
    )
    job = _run(spec, results, run_lanes)
    runs, curves = (read([job.folder / f"{table}.parquet"], table) for table in ("runs", "curves"))
    return [record(lane, curves.filter(run=lane["run"])) for lane in runs.iter_rows(named=True)]


def moved(rate: float, ulps: int, dtype: str) -> float:
    """Return a learning rate that differs from `rate` in the last digits.

    Args:
        rate: learning rate of a run.
        ulps: difference of the returned rate from `rate`, in units in the last place in the precision
            `dtype`.
        dtype: precision of the run.
    """
    return rate * (1.0 + ulps * float(np.finfo(POLICIES[dtype].computed).eps))


def _run(spec: JobSpec, results: Path, stage: Callable[[Job], None]) -> Job:
    """Execute a job, and return the job.

    Args:
        spec: specification of the job.
        results: results folder.
        stage: function that does the computation of the job.

    Raises:
        RuntimeError: when a run or a basis of the job fails. The published run did not fail. Therefore this
            machine is taken for the cause, and the failure is not counted as a difference.
    """
    job = Job(spec, results, provenance(1)["machine"])
    job.folder.mkdir(parents=True, exist_ok=True)
    stage(job)
    for failure in job.failures:
        raise RuntimeError(f"{failure['what']}: {failure['outcome']}: {failure['reason']}")
    return job


# --- comparing -----------------------------------------------------------------------------------


def differences(published: RunRecord, recomputed: Sequence[RunRecord]) -> tuple[list[str], float]:
    """Compare a published run with its repetition.

    Args:
        published: the run as it is stored in the set.
        recomputed: the repetition first, then its twins.

    Returns:
        A list with a sentence for each difference above its tolerance, and the largest ratio of a value's
        difference to its tolerance.
    """
    lines, spikes = [], dict[str, list[str]]()
    for name in (*EXACT_COLUMNS, *COUNT_COLUMNS):
        lanes = [lane.row[name] for lane in (recomputed[:1] if name in EXACT_COLUMNS else recomputed)]
        if not _within(published.row[name], lanes):
            lines.append(f"{name} is {published.row[name]}, and recomputed {lanes[0]}")
    own, *others = (
        {(target["metric"], target["threshold"]): target["steps"] for target in run.row["targets"]}
        for run in (published, *recomputed)
    )
    if own.keys() != others[0].keys():
        lines.append(f"targets are {[*own]}, and recomputed {[*others[0]]}")
    for target in sorted(own.keys() & others[0].keys()):
        steps = [lane[target] for lane in others]
        if not _within(own[target], steps):
            lines.append(f"steps to the target of {target[0]} are {own[target]}, and recomputed {steps[0]}")
    scale, spreads = _spreads(recomputed)
    largest = 0.0
    summaries = (key for key in recomputed[0].values if key[1] in SUMMARIES)
    for metric, at in dict.fromkeys([*summaries, *published.values]):
        value, *values = (run.values.get((metric, at), math.nan) for run in (published, *recomputed))
        spread = spreads.get((metric, at), 0.0)
        share = excess(value, values, scale.get(metric, 0.0), spread, published.row["dtype"])
        label = f"{at} {metric}" if at in SUMMARIES else f"{metric} at step {at}"
        line = f"{label} is {value!r}, and recomputed {values[0]!r}: {share:.3g} of the tolerance"
        if share > 1.0 and at not in SUMMARIES and abs(value) > abs(values[0]):
            spikes.setdefault(metric, []).append(line)
            continue
        largest = max(largest, share)
        if not share <= 1.0:
            lines.append(line)
    points = Counter(metric for metric, at in published.values if at not in SUMMARIES)
    many = [metric for metric in spikes if len(spikes[metric]) > MAX_SPIKES * points[metric]]
    lines += [line for metric in many for line in spikes[metric]]
    return lines, largest


def _within(value: Any, values: Sequence[Any]) -> bool:
    """Return whether `value` equals one of `values` or, for numbers, is near the first number in `values`.

    The largest accepted distance is `ALLOWED_SPREADS` times the largest distance of the first number from
    another number in `values`.
    """
    if value in values:
        return True
    numbers = [number for number in values if isinstance(number, int)]
    if not isinstance(value, int) or not numbers:
        return False
    return abs(value - numbers[0]) <= ALLOWED_SPREADS * max(abs(number - numbers[0]) for number in numbers)


def _spreads(recomputed: Sequence[RunRecord]) -> tuple[dict[str, float], dict[tuple[str, int | str], float]]:
    """Measure the effect of rounding on a run.

    Args:
        recomputed: the repetition first, then its twins.

    Returns:
        Two mappings. The first has the scale of each metric: the largest absolute value on the curve of the
        repetition. The scale is at most `NOISE` / `CURVE_SHARE` times the smallest absolute value above 0 on
        the curve. The second mapping has, by metric and step, the largest relative distance between the
        repetition and a twin at this step or an earlier step. Earlier steps are included because the distance
        at a single step may be small by chance.
    """
    scale: dict[str, float] = {}
    spreads: dict[tuple[str, int | str], float] = {}
    steps = sorted((metric, at) for metric, at in recomputed[0].values if isinstance(at, int))
    for metric, step in steps:
        value, *twins = (lane.values.get((metric, step), math.nan) for lane in recomputed)
        largest = spreads.get((metric, "final"), 0.0)
        if math.isfinite(value):
            scale[metric] = max(scale.get(metric, 0.0), abs(value))
            distance = max((abs(twin - value) for twin in twins if math.isfinite(twin)), default=0.0)
            largest = max(largest, distance / abs(value) if value else 0.0)
        spreads |= dict.fromkeys([(metric, step), (metric, "final"), (metric, "best")], largest)
    values = recomputed[0].values.items()
    for metric, largest in scale.items():
        sizes = [abs(value) for (name, _), value in values if name == metric and value]
        smallest = min(filter(math.isfinite, sizes), default=math.inf)
        scale[metric] = min(largest, NOISE * smallest / CURVE_SHARE[recomputed[0].row["dtype"]])
    return scale, spreads


def excess(published: float, values: Sequence[float], scale: float, spread: float, dtype: str) -> float:
    """Return the difference of a published number from its repetition, divided by the tolerance.

    A result of at most 1 means that the numbers agree. The tolerance is `ALLOWED_SPREADS` times the largest
    distance of a twin from the repetition, plus `VALUE_SHARE` times the number, plus `CURVE_SHARE` times
    `scale`. If the published number is not finite, the result is 0 if the repetition or a twin has the same
    number, and otherwise infinite.

    Args:
        published: the number in the set.
        values: the number of the repetition, followed by the numbers of the twins.
        scale: the largest absolute value on the curve of the repetition.
        spread: the largest relative distance of a twin from the repetition, at the step of the number and at
            earlier steps.
        dtype: the precision of the run.
    """
    if not math.isfinite(published):
        same = any(value == published or (math.isnan(value) and math.isnan(published)) for value in values)
        return 0.0 if same else math.inf
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.inf
    recomputed = finite[0]
    if published == recomputed:
        return 0.0
    distance = max(spread * abs(recomputed), *(abs(value - recomputed) for value in finite))
    allowed = ALLOWED_SPREADS * distance + VALUE_SHARE[dtype] * abs(recomputed) + CURVE_SHARE[dtype] * scale
    return abs(published - recomputed) / allowed if allowed else math.inf
