"""Rows of the runs and curves tables from the trajectories of a bundle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from curvebench.engine.bundle import Bundle, Trajectories
from curvebench.registry import rule_of
from curvebench.results import schema
from curvebench.stages.job import Cell, Job, LoadedBasis, precision_of
from curvebench.stages.supervision import Failure, Lanes
from curvebench.workloads.workload import Workload

LOSSES = ("train_loss", "validation_loss", "test_loss")  # the first that is evaluated shows a divergence


@dataclass(frozen=True)
class Lane:
    """What one lane did: what its evaluations gave up to its end, and how it ended."""

    steps: np.ndarray  # (C,) of the evaluations up to its end
    values: Mapping[str, np.ndarray]  # metric to (C,) values
    outcome: str
    outcome_step: int | None
    total_steps: int  # updates made
    gradients: int  # steps whose gradient was taken
    closure_gradients: np.ndarray  # (C,) gradients that closures have taken
    reached: Mapping[str, int | None] = field(default_factory=dict)  # the step of each target, or None


def lane_of(
    trajectories: Trajectories, seed: int, setting: int, targets: Mapping[str, float], workload: Workload
) -> Lane:
    """The record of one lane: the curve up to its divergence or stop, and its outcome.

    A lane that stops at its t-th gradient has made t - 1 updates; the evaluation after it, whose values are
    those of the stop, is recorded at that step.
    """
    steps = trajectories.steps
    values = {name: table[:, seed, setting] for name, table in trajectories.metrics.items()}
    total = int(steps[-1])
    diverged = int(trajectories.diverged_at[seed, setting])
    stopped = int(trajectories.stopped_at[seed, setting])
    losses = [values[name] for name in LOSSES if name in values]
    if not diverged and losses and not np.isfinite(losses[0][-1]):
        diverged = total
    end = diverged or (stopped - 1 if stopped else total)
    kept = int(np.searchsorted(steps, end)) + 1
    steps = np.minimum(steps[:kept], end)
    values = {name: value[:kept] for name, value in values.items()}
    closure_gradients = trajectories.closure_gradients[:kept]
    reached = {
        metric: steps_to(steps, values[metric], threshold, workload.metrics[metric].direction)
        for metric, threshold in targets.items()
        if metric in values
    }
    met = [step for step in reached.values() if step is not None]
    outcome, at, updates, gradients = "budget", None, total, total
    if diverged:
        outcome, at, updates, gradients = "diverged", diverged, diverged, diverged
    elif stopped:
        outcome, at, updates, gradients = "reached", end, end, stopped
    elif met:
        outcome, at = "reached", min(met)
    return Lane(steps, values, outcome, at, updates, gradients, closure_gradients, reached)


def steps_to(steps: np.ndarray, values: np.ndarray, threshold: float, direction: str) -> int | None:
    """The step of the first evaluation at which a target is met, or None."""
    met = values <= threshold if direction == "minimize" else values >= threshold
    return int(steps[np.argmax(met)]) if met.any() else None


def best(steps: np.ndarray, values: np.ndarray, direction: str) -> tuple[float, int]:
    """The best value of a curve and its step; NaN and the first step where no value is a number."""
    if np.isnan(values).all():
        return float("nan"), int(steps[0])
    index = int(np.nanargmin(values) if direction == "minimize" else np.nanargmax(values))
    return float(values[index]), int(steps[index])


def _named(values: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


class RunTables(NamedTuple):
    """Rows of the tables of runs, and of their curves."""

    curves: pl.DataFrame
    runs: pl.DataFrame  # stored last: where they are, the curves are


def rows(
    job: Job, cell: Cell, bundle: Bundle, trajectories: Trajectories, basis: LoadedBasis, lanes: Lanes
) -> RunTables:
    """The rows of lanes that were run together."""
    runs: list[dict[str, Any]] = []
    done: list[Lane] = []
    targets = job.training.targets_on(cell.workload.name)
    for s, k in np.ndindex(*bundle.lanes):
        lane = lane_of(trajectories, s, k, targets, cell.workload)
        place = (lanes.cell, lanes.first_seed + s, lanes.first_setting + k)
        run = _row(job, cell, place, lane, (bundle, basis), math.prod(bundle.lanes))
        run["basis_seconds"] += float(trajectories.reestimation_seconds[s, k])
        runs.append({**run, "state_bytes": trajectories.state_bytes})
        done.append(lane)
    curves = _curves([run["run"] for run in runs], done, bundle)
    return RunTables(curves, pl.DataFrame(runs, schema=schema.RUNS))


def failed_rows(
    job: Job,
    cell: Cell,
    number: int,
    lanes: Sequence[tuple[int, int]],
    failure: Failure,
    built: tuple[Bundle, LoadedBasis] | None = None,
) -> RunTables:
    """The rows of lanes (seed, setting) that failed: without curves, their targets not reached.

    What they cost is that of their steps and of their basis, where the cell's bundle and basis were `built`.
    """
    steps = failure.step or 0
    lane = Lane(np.empty(0), {}, failure.outcome, failure.step, steps, steps, np.empty(0, np.int64))
    runs = [
        {**_row(job, cell, (number, *one), lane, built, len(lanes)), "reason": failure.reason}
        for one in lanes
    ]
    return RunTables(pl.DataFrame(schema=schema.CURVES), pl.DataFrame(runs, schema=schema.RUNS))


def _row(
    job: Job,
    cell: Cell,
    place: tuple[int, int, int],
    lane: Lane,
    built: tuple[Bundle, LoadedBasis] | None,
    together: int,
) -> dict[str, Any]:
    """A lane's row, by the numbers of its cell, seed and setting; `built` where its cell was built.

    Columns of `curvebench.results.schema.RUNS` that the row leaves out are null.
    """
    direction = {name: metric.direction for name, metric in cell.workload.metrics.items()}
    gradients = int(built[0].evaluations_of(np.array(lane.gradients))) if built else 0
    gradients += int(lane.closure_gradients[-1]) if len(lane.closure_gradients) else 0
    bests = {name: best(lane.steps, values, direction[name]) for name, values in lane.values.items()}
    spec, (number, seed, setting) = job.runs, place
    (in_round,) = spec.rounds
    rule = rule_of(cell.optimizer, job.training.schedule.name)
    hyper = rule.complete({**cell.optimizer.hyperparameters, **cell.settings[setting]})
    return {
        "run": f"{spec.hash[:12]}-{number:02d}-{seed:03d}-{setting:03d}",
        **job.columns(cell.workload.name, cell.optimizer.label, cell.basis.label),
        "dtype": precision_of(job.spec, cell.workload),
        "stage": "tuning" if in_round < spec.final_round else "alternative" if setting else "final",
        "round": in_round,
        "seed": spec.seeds[seed],
        "learning_rate": float(hyper["learning_rate"]),
        "hyperparameters": _named({name: float(v) for name, v in hyper.items() if name != "learning_rate"}),
        "outcome": lane.outcome,
        "outcome_step": lane.outcome_step,
        "steps": lane.total_steps,
        "gradient_evaluations": gradients,
        "basis_gradient_evaluations": built[1].gradient_evaluations if built else 0,
        "basis_seconds": built[1].seconds[seed] if built else 0.0,
        "examples": gradients * built[0].batch_size if built else 0,
        "final_metrics": _named({name: float(values[-1]) for name, values in lane.values.items()}),
        "best_metrics": [
            {"name": name, "value": value, "step": step} for name, (value, step) in bests.items()
        ],
        "targets": [
            {"metric": metric, "threshold": at, "steps": lane.reached.get(metric)}
            for metric, at in job.training.targets_on(cell.workload.name).items()
            if metric in cell.workload.metrics
        ],
        "bundle_lanes": together,
    }


def _curves(runs: Sequence[str], lanes: Sequence[Lane], bundle: Bundle) -> pl.DataFrame:
    """Return the curves of the named runs, all in one frame: a frame for each run takes a millisecond."""
    steps = np.concatenate([lane.steps for lane in lanes])
    evaluations = bundle.evaluations_of(steps) + np.concatenate([lane.closure_gradients for lane in lanes])
    about = {
        "run": np.repeat(runs, [len(lane.steps) for lane in lanes]),
        "step": steps,
        "gradient_evaluations": evaluations,
        "examples": evaluations * bundle.batch_size,
    }
    values = {name: np.concatenate([lane.values[name] for lane in lanes]) for name in lanes[0].values}
    wide = pl.DataFrame({**about, **values})
    long = wide.unpivot(index=[*about], variable_name="metric", value_name="value")
    return long.with_columns(seconds=pl.lit(None, pl.Float64)).select(schema.CURVES.names())
