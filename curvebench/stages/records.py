"""Rows of the tables `runs` and `curves`, made from the results of a bundle.

A bundle is a set of runs (lanes) that are computed together: one run for each combination of S seeds and K
settings. A cell is a method on a workload in one round of a job.
"""

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

# Metrics by which a divergence in the last step of a run is found.
# The first metric in this list that the workload evaluates is used.
LOSSES = ("train_loss", "validation_loss", "test_loss")


@dataclass(frozen=True)
class Lane:
    """Result of one lane (run), with C evaluations up to the end of the lane.

    Args:
        steps: number of steps before each evaluation, of shape (C,).
        values: a mapping from metric names to the values at the evaluations, of shape (C,).
        outcome: outcome of the run (`curvebench.results.outcomes`).
        outcome_step: number of steps after which the outcome was known, such as the step of a divergence;
            None if the run used all its steps without reaching a target.
        total_steps: number of updates of the parameters.
        gradients: number of steps whose gradient was computed.
        closure_gradients: number of additional gradients that an optimizer has computed with a closure before
            each evaluation, of shape (C,).
        reached: a mapping from each metric with a target to the step at which the lane reached the target;
            None for a target that the lane did not reach.
    """

    steps: np.ndarray
    values: Mapping[str, np.ndarray]
    outcome: str
    outcome_step: int | None
    total_steps: int
    gradients: int
    closure_gradients: np.ndarray
    reached: Mapping[str, int | None] = field(default_factory=dict)


def lane_of(
    trajectories: Trajectories, seed: int, setting: int, targets: Mapping[str, float], workload: Workload
) -> Lane:
    """Extract one lane of a bundle: the curve up to the lane's divergence or stop, and the lane's outcome.

    A lane that stops at the gradient of step t has made t - 1 updates. The parameters of the lane do not
    change afterwards, so the next evaluation is recorded at step t - 1.

    Args:
        trajectories: results of the bundle.
        seed: index of the lane's seed in the bundle.
        setting: index of the lane's setting in the bundle.
        targets: a mapping from names of metrics that have a target to the thresholds.
        workload: the workload, which declares whether each metric is minimized or maximized.
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
    count = int(np.searchsorted(steps, end)) + 1
    steps = np.minimum(steps[:count], end)
    values = {name: value[:count] for name, value in values.items()}
    closure_gradients = trajectories.closure_gradients[:count]
    reached = {
        metric: steps_to(steps, values[metric], threshold, workload.metrics[metric].direction)
        for metric, threshold in targets.items()
        if metric in values
    }
    target_steps = [step for step in reached.values() if step is not None]
    outcome, at, updates, gradients = "budget", None, total, total
    if diverged:
        outcome, at, updates, gradients = "diverged", diverged, diverged, diverged
    elif stopped:
        outcome, at, updates, gradients = "reached", end, end, stopped
    elif target_steps:
        outcome, at = "reached", min(target_steps)
    return Lane(steps, values, outcome, at, updates, gradients, closure_gradients, reached)


def steps_to(steps: np.ndarray, values: np.ndarray, threshold: float, direction: str) -> int | None:
    """Return the step of the first evaluation at which a target is reached; None if there is no such step.

    Args:
        steps: number of steps before each evaluation.
        values: values of the metric at the evaluations.
        threshold: the target.
        direction: `minimize` or `maximize`.
    """
    is_reached = values <= threshold if direction == "minimize" else values >= threshold
    return int(steps[np.argmax(is_reached)]) if is_reached.any() else None


def best(steps: np.ndarray, values: np.ndarray, direction: str) -> tuple[float, int]:
    """Return the best value of a curve, and the step at which the curve has this value.

    If all values are NaN, return NaN and the first step.

    Args:
        steps: number of steps before each evaluation.
        values: values of the metric at the evaluations.
        direction: `minimize` or `maximize`.
    """
    if np.isnan(values).all():
        return float("nan"), int(steps[0])
    index = int(np.nanargmin(values) if direction == "minimize" else np.nanargmax(values))
    return float(values[index]), int(steps[index])


def _named(values: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


class RunTables(NamedTuple):
    """Rows of the tables `curves` and `runs`, in the order in which the tables are stored.

    The table `runs` is stored last. Therefore the curve of each run in a stored table `runs` is stored, too.
    """

    curves: pl.DataFrame
    runs: pl.DataFrame


def rows(
    job: Job, cell: Cell, bundle: Bundle, trajectories: Trajectories, basis: LoadedBasis, lanes: Lanes
) -> RunTables:
    """Return the rows of all runs of a bundle.

    Args:
        job: the job.
        cell: the cell of the job to which the bundle belongs.
        bundle: the bundle, which has been run.
        trajectories: results of the bundle.
        basis: basis of the bundle. The cost of the basis is recorded in the rows.
        lanes: the seeds and settings of the cell that the bundle contains, as two ranges.
    """
    runs: list[dict[str, Any]] = []
    by_run: list[Lane] = []
    targets = job.training.targets_on(cell.workload.name)
    for s, k in np.ndindex(*bundle.lanes):
        lane = lane_of(trajectories, s, k, targets, cell.workload)
        indices = (lanes.cell, lanes.first_seed + s, lanes.first_setting + k)
        run = _row(job, cell, indices, lane, (bundle, basis), math.prod(bundle.lanes))
        run["basis_seconds"] += float(trajectories.reestimation_seconds[s, k])
        runs.append({**run, "state_bytes": trajectories.state_bytes})
        by_run.append(lane)
    curves = _curves([run["run"] for run in runs], by_run, bundle)
    return RunTables(curves, pl.DataFrame(runs, schema=schema.RUNS))


def failed_rows(
    job: Job,
    cell: Cell,
    number: int,
    lanes: Sequence[tuple[int, int]],
    failure: Failure,
    built: tuple[Bundle, LoadedBasis] | None = None,
) -> RunTables:
    """Return the rows of runs that failed. Failed runs have no curves, and reach no targets.

    Args:
        job: the job.
        cell: the cell of the job to which the runs belong.
        number: index of the cell in the job.
        lanes: a pair for each run: index of the seed, and index of the setting.
        failure: the failure of the runs.
        built: bundle and basis of the whole cell, from which the cost of the runs is computed. None if bundle
            and basis could not be built; then the cost is recorded as 0.
    """
    steps = failure.step or 0
    lane = Lane(np.empty(0), {}, failure.outcome, failure.step, steps, steps, np.empty(0, np.int64))
    records = (_row(job, cell, (number, *pair), lane, built, len(lanes)) for pair in lanes)
    runs = [{**record, "reason": failure.reason} for record in records]
    return RunTables(pl.DataFrame(schema=schema.CURVES), pl.DataFrame(runs, schema=schema.RUNS))


def _row(
    job: Job,
    cell: Cell,
    indices: tuple[int, int, int],
    lane: Lane,
    built: tuple[Bundle, LoadedBasis] | None,
    bundle_lanes: int,
) -> dict[str, Any]:
    """Return a lane's row of the table `runs` (`curvebench.results.schema.RUNS`).

    Columns that are missing in the result will be null in the table.

    Args:
        job: the job.
        cell: the cell of the job to which the lane belongs.
        indices: index of the cell in the job, of the seed in the cell, and of the setting in the cell.
        lane: the result of the lane.
        built: bundle and basis of the cell; None if bundle and basis could not be built.
        bundle_lanes: number of runs that were computed together with this run, including this run.
    """
    direction = {name: metric.direction for name, metric in cell.workload.metrics.items()}
    gradients = int(built[0].evaluations_of(np.array(lane.gradients))) if built else 0
    gradients += int(lane.closure_gradients[-1]) if len(lane.closure_gradients) else 0
    bests = {name: best(lane.steps, values, direction[name]) for name, values in lane.values.items()}
    spec, (number, seed, setting) = job.runs, indices
    (round_number,) = spec.rounds
    rule = rule_of(cell.optimizer, job.training.schedule.name)
    hyper = rule.complete({**cell.optimizer.hyperparameters, **cell.settings[setting]})
    return {
        "run": f"{spec.hash[:12]}-{number:02d}-{seed:03d}-{setting:03d}",
        **job.columns(cell.workload.name, cell.optimizer.label, cell.basis.label),
        "dtype": precision_of(job.spec, cell.workload),
        "stage": "tuning" if round_number < spec.final_round else "alternative" if setting else "final",
        "round": round_number,
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
        "bundle_lanes": bundle_lanes,
    }


def _curves(runs: Sequence[str], lanes: Sequence[Lane], bundle: Bundle) -> pl.DataFrame:
    """Return the rows of the table `curves` for all runs of a bundle. To save time, they are made at once.

    Args:
        runs: name of each run.
        lanes: result of each run.
        bundle: the bundle that the runs belong to.
    """
    steps = np.concatenate([lane.steps for lane in lanes])
    evaluations = bundle.evaluations_of(steps) + np.concatenate([lane.closure_gradients for lane in lanes])
    keys = {
        "run": np.repeat(runs, [len(lane.steps) for lane in lanes]),
        "step": steps,
        "gradient_evaluations": evaluations,
        "examples": evaluations * bundle.batch_size,
    }
    values = {name: np.concatenate([lane.values[name] for lane in lanes]) for name in lanes[0].values}
    wide = pl.DataFrame({**keys, **values})
    long = wide.unpivot(index=[*keys], variable_name="metric", value_name="value")
    return long.with_columns(seconds=pl.lit(None, pl.Float64)).select(schema.CURVES.names())
