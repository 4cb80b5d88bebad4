"""Rows of the runs and curves tables from the trajectories of a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from harness.execution import Bundle, Trajectories
from harness.job import Cell, Job, LoadedBasis, precision_of
from results import schema
from workloads.workload import Workload


@dataclass(frozen=True)
class Lane:
    """What one lane did: the checkpoints that it kept, and how it ended."""

    steps: np.ndarray  # (C,) kept checkpoints
    values: Mapping[str, np.ndarray]  # metric to (C,) values
    outcome: str
    outcome_step: int | None
    total_steps: int  # updates made
    gradients: int  # steps whose gradient was taken


def lane_of(
    trajectories: Trajectories, seed: int, setting: int, targets: Mapping[str, float], workload: Workload
) -> Lane:
    """The record of one lane: the curve up to its divergence or stop, and its outcome.

    A lane that stops at its t-th gradient has made t - 1 updates; the checkpoint after it, whose values are
    those of the stop, is recorded at that step.
    """
    steps = trajectories.steps
    values = {name: table[:, seed, setting] for name, table in trajectories.metrics.items()}
    total = int(steps[-1])
    diverged = int(trajectories.diverged_at[seed, setting])
    stopped = int(trajectories.stopped_at[seed, setting])
    if not diverged and not np.isfinite(values["train_loss"][-1]):
        diverged = total
    end = diverged or (stopped - 1 if stopped else total)
    kept = int(np.searchsorted(steps, end)) + 1
    steps = np.minimum(steps[:kept], end)
    values = {name: value[:kept] for name, value in values.items()}
    if diverged:
        return Lane(steps, values, "diverged", diverged, diverged, diverged)
    if stopped:
        return Lane(steps, values, "reached", end, end, stopped)
    reached = [
        steps_to(steps, values[metric], threshold, workload.metrics[metric].direction)
        for metric, threshold in targets.items()
        if metric in values
    ]
    met = [step for step in reached if step is not None]
    if met:
        return Lane(steps, values, "reached", min(met), total, total)
    return Lane(steps, values, "budget", None, total, total)


def steps_to(steps: np.ndarray, values: np.ndarray, threshold: float, direction: str) -> int | None:
    """The first checkpoint's step at which a target is met, or None."""
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


def rows(
    job: Job,
    cell: Cell,
    bundle: Bundle,
    trajectories: Trajectories,
    basis: LoadedBasis,
    first: int,
) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    """The rows of `runs`, numbered from `first`, and the frame of `curves` of one cell."""
    spec, workload = job.spec, cell.workload
    train = bundle.problems[0].splits["train"]
    batch = cell.workload_spec.settings.get("batch_size") or len(next(iter(train.values())))
    direction = {name: metric.direction for name, metric in workload.metrics.items()}
    runs: list[dict[str, Any]] = []
    curves: list[pl.DataFrame] = []
    for s, seed in enumerate(spec.seeds):
        for k in range(len(cell.settings)):
            lane = lane_of(trajectories, s, k, spec.targets, workload)
            run = f"{spec.hash[:12]}-{first + len(runs):04d}"
            gradients = int(bundle.evaluations_of(np.array(lane.gradients)))
            hyper = {name: float(values[k]) for name, values in bundle.hyperparameters.items()}
            bests = {name: best(lane.steps, values, direction[name]) for name, values in lane.values.items()}
            runs.append(
                {
                    "run": run,
                    "study": spec.study,
                    "scale": spec.scale,
                    "workload": workload.name,
                    "optimizer": cell.optimizer.label,
                    "basis": cell.basis.label,
                    "backend": spec.backend,
                    "device": spec.device,
                    "dtype": precision_of(spec, workload),
                    "stage": spec.stage,
                    "seed": seed,
                    "learning_rate": hyper.pop("learning_rate"),
                    "hyperparameters": _named(hyper),
                    "outcome": lane.outcome,
                    "outcome_step": lane.outcome_step,
                    "steps": lane.total_steps,
                    "gradient_evaluations": gradients,
                    "basis_gradient_evaluations": basis.gradient_evaluations,
                    "basis_seconds": basis.seconds[s] + float(trajectories.reestimation_seconds[s, k]),
                    "examples": gradients * batch,
                    "final_metrics": _named({name: float(v[-1]) for name, v in lane.values.items()}),
                    "best_metrics": [
                        {"name": name, "value": value, "step": step} for name, (value, step) in bests.items()
                    ],
                    "targets": [
                        {
                            "metric": metric,
                            "threshold": threshold,
                            "steps": steps_to(lane.steps, lane.values[metric], threshold, direction[metric]),
                            "seconds": None,
                            "seconds_kind": None,
                        }
                        for metric, threshold in spec.targets.items()
                        if metric in lane.values
                    ],
                    "seconds": None,
                    "state_bytes": trajectories.state_bytes,
                    "bundle_lanes": int(trajectories.lanes[s, k]),
                    "spec_hash": spec.hash,
                    "machine": job.machine,
                }
            )
            evaluations = bundle.evaluations_of(lane.steps)
            curves += [
                _curve(run, lane.steps, evaluations, batch, name, values)
                for name, values in lane.values.items()
            ]
    return runs, pl.concat(curves)


def _curve(
    run: str, steps: np.ndarray, evaluations: np.ndarray, batch: int, metric: str, values: np.ndarray
) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "run": [run] * len(steps),
            "step": steps,
            "gradient_evaluations": evaluations,
            "examples": evaluations * batch,
            "seconds": [None] * len(steps),
            "metric": [metric] * len(steps),
            "value": values,
        },
        schema=schema.CURVES,
    )
