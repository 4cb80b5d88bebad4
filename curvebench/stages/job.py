"""What the stages of a job share: its spec, its clock, its problems, engines and bases."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from traceback import print_exception
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import DTypeLike

from curvebench.backends.engine import Engine
from curvebench.basis_estimation.gradients import GradientSampling
from curvebench.basis_estimation.reestimation import RenewalPlan
from curvebench.basis_estimation.transformed_inputs import with_changed_inputs
from curvebench.engine.execution import Bundle, Clock
from curvebench.engine.schedules import multipliers
from curvebench.optimizers.bases import CHANGES, Change, Group, bases
from curvebench.paths import basis_file
from curvebench.planning.studies import rule_of
from curvebench.precision import POLICIES
from curvebench.registry import find_workload
from curvebench.seeding import WorkloadRandom, batch_order
from curvebench.spec.errors import InputError
from curvebench.spec.job import HOST, BasesSpec, JobSpec, TrainingSpec, job_folder, upstream_folder
from curvebench.spec.method import BasisSpec, OptimizerSpec, WorkloadSpec
from curvebench.spec.values import Precision
from curvebench.stages.supervision import FAILED, Attendance, FailedBefore, Failure
from curvebench.workloads.workload import Problem, Workload, examples_in

BASIS_STREAM = "egop basis"  # of random numbers
PARTS = "parts"  # in a job's folder: the tables of lanes that are done, as long as others are not


@dataclass(frozen=True)
class Job:
    """A spec, where results lie, the clock of this process, the threads it may use, and what failed.

    Args:
        keep_failed, checkpoint_minutes: as those of `run_job`.
    """

    spec: JobSpec
    results: Path
    clock: Clock
    threads: int
    machine: str
    attendance: Attendance = field(default_factory=Attendance)
    keep_failed: bool = False
    checkpoint_minutes: float | None = None
    failures: list[dict[str, str]] = field(default_factory=list)
    traced: list[str] = field(default_factory=list)

    def trace(self, error: BaseException) -> None:
        """Print the traceback of the job's first error; those of other settings are mostly the same."""
        if not self.traced:
            print_exception(error)
        self.traced.append(type(error).__name__)  # the error itself would keep the arrays of its frames

    def fail(self, what: str, failure: Failure) -> None:
        """Record a failure, for the tables and the log."""
        sys.stderr.write(f"{what}: {failure.outcome}: {failure.reason}\n")
        self.failures.append({"what": what, "outcome": failure.outcome, "reason": failure.reason})

    @property
    def training(self) -> TrainingSpec:
        """The spec of a job that runs methods."""
        assert isinstance(self.spec, TrainingSpec)
        return self.spec

    @property
    def folder(self) -> Path:
        """Where this job's tables go."""
        return job_folder(self.results, self.spec)

    def columns(self, workload: str, optimizer: str, basis: str) -> dict[str, str]:
        """Return the columns by which tables name a method on a workload, and this job."""
        spec = self.spec
        about = {name: getattr(spec, name) for name in ("study", "scale", "backend", "device")}
        job = {"spec_hash": spec.hash, "machine": self.machine}
        return {**about, "workload": workload, "optimizer": optimizer, "basis": basis, **job}

    def upstream(self, *stages: str) -> list[Path]:
        """The folders of the jobs of these stages that this one builds on."""
        return [
            upstream_folder(self.results, self.spec, stage, hash_)
            for stage in stages
            for hash_ in self.spec.upstream.get(stage, ())
        ]

    def engine(self, precision: str, backend: str | None = None, device: str | None = None) -> Engine:
        """The spec's engine, or another; its import is timed apart."""
        with self.clock.phase("import"):
            from curvebench.backends.engine import engine

            made = engine(backend or self.spec.backend, precision, device or self.spec.device)
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
        return examples_in(self.problem.splits["train"])


def instance(workload: Workload, settings: Mapping[str, Any], seed: int) -> Instance:
    """The problem of a seed."""
    random = WorkloadRandom(workload.streams or workload.name, seed)
    return Instance(workload.problem(settings, random), random)


@dataclass(frozen=True)
class LoadedBasis:
    """The basis of several seeds: V by group of parameters, (S, n, r), its form and its cost."""

    matrices: Mapping[tuple[str, ...], np.ndarray]
    gradient_evaluations: int
    seconds: Sequence[float]
    changes: Mapping[tuple[str, ...], Change] = field(default_factory=dict)


def basis_of(
    job: Job, workload: WorkloadSpec, basis: BasisSpec, instances: Sequence[Instance], dtype: DTypeLike
) -> LoadedBasis:
    """The matrices of some instances: those that the bases job wrote, or drawn anew.

    Raises:
        FailedBefore: when its estimation failed, or its file is missing or damaged: then as
            interrupted, which does not count against the method.
    """
    if bases()[basis.name].estimated:
        return _read_basis(job, workload.name, basis, [one.random.seed for one in instances], dtype)
    stacks: dict[Group, list[np.ndarray]] = {}
    for one in instances:
        random = one.random(BASIS_STREAM)
        for group in groups_of(basis, workload, one):
            matrix, _ = bases()[basis.name].estimator(basis.options, group, random).result()
            stacks.setdefault(group, []).append(matrix.astype(dtype))
    matrices = {group.names: np.stack(stack) for group, stack in stacks.items()}
    return LoadedBasis(matrices, 0, [0.0] * len(instances), {group.names: group.change for group in stacks})


def _read_basis(
    job: Job, workload: str, basis: BasisSpec, seeds: Sequence[int], dtype: DTypeLike
) -> LoadedBasis:
    folders = job.upstream("bases")
    stacks: dict[tuple[str, ...], list[np.ndarray]] = {}
    changes: dict[tuple[str, ...], Change] = {}
    evaluations, seconds = 0, []
    for seed in seeds:
        candidates = [basis_file(folder, workload, basis.label, seed) for folder in folders]
        found = next((path for path in candidates if path.exists()), candidates[0])
        if not found.exists() and (failure := _failure_before(folders, basis_name(basis, workload))):
            raise FailedBefore(failure)
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
            where = " and ".join(map(str, [found.parent] if found.exists() else folders))
            said = (
                f"{found}: the basis cannot be read ({error}); delete {where} and run snakemake again, which "
                "computes it anew"
            )
            raise FailedBefore(Failure("interrupted", said)) from error
    matrices = {group: np.stack(stack) for group, stack in stacks.items()}
    return LoadedBasis(matrices, evaluations, seconds, changes)


def basis_name(basis: BasisSpec, workload: str) -> str:
    """What a failure calls a basis."""
    return f"basis {basis.label} on {workload}"


def _failure_before(folders: Sequence[Path], what: str) -> Failure | None:
    """Why the jobs of these folders have not what this one needs: interrupted as they were, else an error."""
    markers = [folder / FAILED for folder in folders if (folder / FAILED).exists()]
    failures = [one for marker in markers for one in json.loads(marker.read_text())]
    own = (one for one in failures if one["what"] == what or one["outcome"] == "interrupted")
    if (found := next(own, None)) is None:
        return None
    outcome = "interrupted" if found["outcome"] == "interrupted" else "error"
    return Failure(outcome, f"{found['what']}: {found['outcome']}: {found['reason']}")


def groups_of(basis: BasisSpec, workload: WorkloadSpec, one: Instance) -> tuple[Group, ...]:
    """What a basis changes together in a workload."""
    roles = workload_of(workload).roles(workload.settings)
    return bases()[basis.name].groups(
        basis.options,
        {name: value.shape for name, value in one.problem.parameters.items()},
        {name: str(role.kind) for name, role in roles.items()},
    )


def sampling_of(basis: BasisSpec, workload: WorkloadSpec, one: Instance) -> GradientSampling:
    """What a basis samples up front: how many gradients, and at which parameters."""
    kind = bases()[basis.name]
    dimension = sum(value.size for value in one.problem.parameters.values())
    distribution = kind.sampling(basis.options)
    return GradientSampling(
        workload_of(workload),
        workload.settings,
        kind.samples(basis.options, dimension),
        distribution.scale if distribution.kind == "normal" else None,
        distribution.around_start,
    )


def estimated_at(workload: Workload, backend: str, device: str) -> tuple[str, str]:
    """Backend and device that estimate a workload's bases: of its runs where these take hours of a GPU."""
    return (backend, device) if workload.alone and device != "cpu" else (HOST, "cpu")


def reestimation_of(
    basis: BasisSpec, workload: WorkloadSpec, one: Instance, steps: int
) -> RenewalPlan | None:
    """When and how a run of so many steps estimates its basis anew; None where it does not."""
    kind = bases()[basis.name]
    chosen = kind.reestimation(basis.options)
    if chosen is None:
        return None
    every = chosen.count * (epoch_of(workload.settings, one.examples) if chosen.unit == "epochs" else 1)
    return RenewalPlan(
        points=tuple(range(every, steps, every)),
        sampling=replace(sampling_of(basis, workload, one), around_start=True),
        groups=groups_of(basis, workload, one),
        estimator=partial(kind.estimator, basis.options),
    )


@dataclass(frozen=True)
class Cell:
    """One workload, optimizer and basis of a job, with the settings that its lanes take."""

    workload: Workload
    workload_spec: WorkloadSpec
    optimizer: OptimizerSpec
    basis: BasisSpec
    settings: Sequence[Mapping[str, float]]


def workload_of(spec: WorkloadSpec, splits: Collection[str] | None = None) -> Workload:
    """The workload that a spec names, under its label, by which tables know it.

    Random streams know it by its own name, so that those that differ in a setting draw the same problems.

    Args:
        splits: that are evaluated; None: all that it has.
    """
    found = find_workload(spec.locator).evaluated_on(splits)
    return replace(found, name=spec.name, streams=found.name)


def precision_of(spec: BasesSpec | TrainingSpec, workload: Workload) -> Precision:
    """The precision of a workload's runs: what the study asks for, else the workload's own."""
    return spec.precision or workload.dtype


def dtype_of(spec: BasesSpec | TrainingSpec, workload: Workload) -> np.dtype[Any]:
    """What a workload's runs compute in, but for products of the model; bases are held in it."""
    return np.dtype(POLICIES[precision_of(spec, workload)].computed)


def epoch_of(settings: Mapping[str, Any], examples: int) -> int:
    """The steps of an epoch: the whole batches of the examples."""
    return examples // (settings.get("batch_size") or examples)


def steps_of(spec: TrainingSpec, settings: Mapping[str, Any], examples: int) -> int:
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
    return spec.budget["epochs"] * epoch_of(settings, examples)


def schedule_of(spec: TrainingSpec, settings: Mapping[str, Any], examples: int) -> np.ndarray:
    """The multiplier of each step of a run, (steps,).

    Raises:
        InputError: when a warm-up in epochs is longer than the run, or a batch larger than the data.
    """
    steps = steps_of(spec, settings, examples)
    try:
        return multipliers(spec.schedule.model_dump(), steps, epoch_of(settings, examples))
    except ValueError as error:
        raise InputError(f"study {spec.study}: schedule.{error}") from error


def orders_of(instances: Sequence[Instance], settings: Mapping[str, Any], steps: int) -> np.ndarray | None:
    """The minibatches of several seeds, (steps, S, batch_size) indices, or None for the full batch."""
    batch_size = settings.get("batch_size")
    if batch_size is None:
        return None
    orders = np.empty((steps, len(instances), batch_size), np.int32)
    for seed, one in enumerate(instances):  # one seed's twice at a time, not all seeds'
        orders[:, seed] = batch_order(one.random, one.examples, batch_size, steps)
    return orders


def bundle_of(job: Job, cell: Cell, instances: Sequence[Instance], basis: LoadedBasis) -> Bundle:
    """The bundle of all lanes of a cell."""
    spec, settings = job.training, cell.workload_spec.settings
    there = instances[0].problem.splits
    if lacking := sorted(set(cell.workload.evaluated_splits) - set(there)):
        raise InputError(
            f"study {spec.study}: evaluated_splits: {cell.workload.name} has no {', '.join(lacking)} here; "
            f"name those that it has in the scale ({', '.join(there)})"
        )
    rule = rule_of(cell.optimizer, spec.schedule.name)
    complete = [rule.complete({**cell.optimizer.hyperparameters, **setting}) for setting in cell.settings]
    schedule = schedule_of(spec, settings, instances[0].examples)
    steps = len(schedule)
    workload, problems, matrices = with_changed_inputs(
        cell.workload, [one.problem for one in instances], basis.matrices, basis.changes
    )
    return Bundle(
        workload=workload,
        rule=rule,
        problems=problems,
        orders=orders_of(instances, settings, steps),
        hyperparameters={name: np.array([values[name] for values in complete]) for name in complete[0]},
        schedule=schedule,
        evaluations=spec.evaluations,
        matrices=matrices,
        changes=basis.changes,
        stop_gradient_norm=spec.stop.get("gradient_norm"),
        clip_gradient_norm=spec.clip_gradient_norm,
        gradient_accumulation=spec.gradient_accumulation,
        settings=settings,
        randoms=[one.random for one in instances],
        reestimation=reestimation_of(cell.basis, cell.workload_spec, instances[0], steps),
    )
