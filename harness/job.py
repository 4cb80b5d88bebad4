"""What the stages of a job share: its spec, its clock, its problems, engines and bases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from harness.backends.engine import Engine
from harness.contestants import find_workload
from harness.errors import InputError
from harness.execution import Bundle, Clock
from harness.paths import basis_file, job_folder, upstream_folder
from harness.schedules import multipliers
from harness.seeding import WorkloadRandom, batch_order
from harness.spec import BasisSpec, JobSpec, OptimizerSpec, WorkloadSpec
from harness.studies import rule_of
from optimizers.bases import CHANGES, Change, bases
from workloads.workload import Problem, Workload


@dataclass(frozen=True)
class Job:
    """A spec, where results lie, the clock of this process, and the threads it may use."""

    spec: JobSpec
    results: Path
    clock: Clock
    threads: int
    machine: str

    @property
    def folder(self) -> Path:
        """Where this job's tables go."""
        return job_folder(self.results, self.spec)

    def upstream(self, *stages: str) -> list[Path]:
        """The folders of the jobs of these stages that this one builds on."""
        return [
            upstream_folder(self.results, self.spec, stage, hash_)
            for stage in stages
            for hash_ in self.spec.upstream.get(stage, ())
        ]

    def engine(self, dtype: str, backend: str | None = None, device: str | None = None) -> Engine:
        """The spec's engine, or another; its import is timed apart."""
        with self.clock.phase("import"):
            from harness.backends.engine import engine

            made = engine(backend or self.spec.backend, dtype, device or self.spec.device)
            made.limit_threads(self.threads)
        return made


@dataclass(frozen=True)
class Instance:
    """A workload's problem for one seed, with the generators it was drawn from."""

    problem: Problem
    random: WorkloadRandom

    @property
    def examples(self) -> int:
        """The number of training examples."""
        return len(next(iter(self.problem.splits["train"].values())))


def instance(workload: Workload, settings: Mapping[str, Any], seed: int) -> Instance:
    """The problem of a seed."""
    random = WorkloadRandom(workload.name, seed)
    return Instance(workload.problem(settings, random), random)


@dataclass(frozen=True)
class LoadedBasis:
    """The basis of several seeds: V by group of parameters, (S, n, r), its form and its cost."""

    matrices: Mapping[tuple[str, ...], np.ndarray]
    gradient_evaluations: int
    seconds: Sequence[float]
    changes: Mapping[tuple[str, ...], Change] = field(default_factory=dict)


def load_basis(job: Job, workload: str, basis: BasisSpec, seeds: Sequence[int], dtype: str) -> LoadedBasis:
    """Read the matrices that the bases job wrote.

    Raises:
        InputError: when one is missing or damaged.
    """
    if not bases()[basis.name].needs_gradients:
        return LoadedBasis({}, 0, [0.0] * len(seeds))
    folders = job.upstream("bases")
    stacks: dict[tuple[str, ...], list[np.ndarray]] = {}
    changes: dict[tuple[str, ...], Change] = {}
    evaluations, seconds = 0, []
    for seed in seeds:
        candidates = [basis_file(folder, workload, basis.label, seed) for folder in folders]
        found = next((path for path in candidates if path.exists()), candidates[0])
        try:
            with found.open("rb") as file, np.load(file) as arrays:
                groups = [tuple(group) for group in json.loads(str(arrays["groups"]))]
                for number, group in enumerate(groups):
                    stacks.setdefault(group, []).append(arrays[f"matrix{number}"].astype(dtype))
                names = json.loads(str(arrays["changes"]))
                changes = {group: CHANGES[name] for group, name in zip(groups, names, strict=True)}
                evaluations = int(arrays["gradient_evaluations"])
                seconds.append(float(arrays["seconds"]))
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise InputError(
                f"{found}: the basis cannot be read ({error}); delete the folder {found.parent} and run "
                "snakemake again, which computes it anew"
            ) from error
    matrices = {group: np.stack(stack) for group, stack in stacks.items()}
    return LoadedBasis(matrices, evaluations, seconds, changes)


@dataclass(frozen=True)
class Cell:
    """One workload, optimizer and basis of a job, with the settings that its lanes take."""

    workload: Workload
    workload_spec: WorkloadSpec
    optimizer: OptimizerSpec
    basis: BasisSpec
    settings: Sequence[Mapping[str, float]]


def workload_of(spec: WorkloadSpec) -> Workload:
    """The workload that a spec names."""
    return find_workload(spec.locator)


def steps_of(spec: JobSpec, settings: Mapping[str, Any], examples: int) -> int:
    """The steps of a run: as budgeted, or whole batches of an epoch times the epochs.

    Raises:
        InputError: when a batch is larger than the data.
    """
    batch_size = settings.get("batch_size") or examples
    if batch_size > examples:
        raise InputError(
            f"study {spec.study}: batch_size = {batch_size} is larger than the {examples} training examples; "
            "give a smaller batch_size, or null for the full batch"
        )
    if "steps" in spec.budget:
        return spec.budget["steps"]
    return spec.budget["epochs"] * (examples // batch_size)


def orders_of(instances: Sequence[Instance], settings: Mapping[str, Any], steps: int) -> np.ndarray | None:
    """The minibatches of several seeds, (steps, S, batch_size) indices, or None for the full batch."""
    batch_size = settings.get("batch_size")
    if batch_size is None:
        return None
    return np.stack([batch_order(one.random, one.examples, batch_size, steps) for one in instances], axis=1)


def bundle_of(job: Job, cell: Cell, instances: Sequence[Instance], basis: LoadedBasis) -> Bundle:
    """The bundle of all lanes of a cell."""
    spec, settings = job.spec, cell.workload_spec.settings
    rule = rule_of(cell.optimizer)
    complete = [rule.complete({**cell.optimizer.hyperparameters, **setting}) for setting in cell.settings]
    examples = instances[0].examples
    steps = steps_of(spec, settings, examples)
    return Bundle(
        workload=cell.workload,
        rule=rule,
        problems=[one.problem for one in instances],
        orders=orders_of(instances, settings, steps),
        hyperparameters={name: np.array([values[name] for values in complete]) for name in complete[0]},
        schedule=multipliers(spec.schedule, steps),
        evaluations=spec.evaluations,
        matrices=basis.matrices,
        changes=basis.changes,
        stop_gradient_norm=spec.stop.get("gradient_norm"),
        settings=settings,
        randoms=[one.random for one in instances],
        learning_rate_factors=cell.optimizer.learning_rate_factors,
    )
