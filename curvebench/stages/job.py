"""What the stages of a job share: its spec, its clock, its problems, engines and bases."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from traceback import print_exception
from typing import Any
from zipfile import BadZipFile

import numpy as np
import polars as pl
from numpy.typing import DTypeLike

from curvebench.basis_estimation.gradients import GradientSampling, Sampler, estimated
from curvebench.basis_estimation.reestimation import RenewalPlan
from curvebench.basis_estimation.transformed_inputs import with_changed_inputs
from curvebench.engine.bundle import Bundle
from curvebench.engine.clock import Clock
from curvebench.engine.schedules import multipliers
from curvebench.optimizers.bases import CHANGES, Change, Group, bases
from curvebench.optimizers.bases.estimators import Decomposition, by_numpy
from curvebench.paths import FAILED, basis_file
from curvebench.precision import POLICIES
from curvebench.registry import find_workload, rule_of
from curvebench.results import schema
from curvebench.results.writing import NotWritten, write_table
from curvebench.seeding import WorkloadRandom, batch_order
from curvebench.spec.errors import InputError
from curvebench.spec.job import BasesSpec, JobSpec, RunsSpec, TrainingSpec, job_folder, upstream_folder
from curvebench.spec.method import BasisSpec, OptimizerSpec, WorkloadSpec
from curvebench.spec.training import TrainingProtocol
from curvebench.spec.values import Precision
from curvebench.stages.supervision import FAULTS, Attendance, FailedBefore, Failure, failure_of
from curvebench.steps.engine import Engine
from curvebench.steps.program import StepProtocol
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
    machine: str = ""
    clock: Clock = field(default_factory=Clock)
    threads: int = 1
    attendance: Attendance = field(default_factory=Attendance)
    keep_failed: bool = False
    checkpoint_minutes: float | None = None
    failures: list[dict[str, str]] = field(default_factory=list)
    traced: set[str] = field(default_factory=set)
    engines: list[Engine] = field(default_factory=list)
    own_notes: list[str] = field(default_factory=list)

    def trace(self, error: BaseException) -> None:
        """Print the traceback of the first error of a type; those of other settings are mostly the same."""
        if type(error).__name__ not in self.traced:
            print_exception(error)
        self.traced.add(type(error).__name__)  # the error itself would keep the arrays of its frames

    def fail(self, what: str, failure: Failure | BaseException) -> None:
        """Record a failure, or an error as one, for the tables and the log."""
        if isinstance(failure, BaseException):
            self.trace(failure)
            failure = failure_of(failure)
        sys.stderr.write(f"{what}: {failure.outcome}: {failure.reason}\n")
        self.failures.append({"what": what, "outcome": failure.outcome, "reason": failure.reason})

    def attempt(self, what: str, compute: Callable[[], object], failure: Failure | None = None) -> bool:
        """Compute something; where it fails, record that and go on.

        Args:
            what: it is, in the failure.
            compute: does it.
            failure: how it has failed already; None where it has not.

        Returns:
            Whether it is done.
        """
        try:
            if failure is not None:
                raise FailedBefore(failure)
            compute()
        except NotWritten:
            raise
        except FAULTS as error:
            self.fail(what, error)
            return False
        return True

    def write(self, table: str, rows: pl.DataFrame | Sequence[Mapping[str, Any]] = ()) -> None:
        """Write a table of the job."""
        columns = schema.TABLES[table]
        write_table(self.folder / f"{table}.parquet", pl.DataFrame(rows, schema=columns), columns)

    @property
    def notes(self) -> list[str]:
        """What it and its engines note for the provenance."""
        return sorted({*self.own_notes, *(note for made in self.engines for note in made.notes)})

    @property
    def runs(self) -> RunsSpec:
        """The spec of a job that makes runs."""
        assert isinstance(self.spec, RunsSpec)
        return self.spec

    @property
    def training(self) -> TrainingProtocol:
        """The training protocol of a job that runs methods."""
        assert isinstance(self.spec, TrainingSpec)
        return self.spec.training

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
        self.engines.append(made)
        return made


@dataclass(frozen=True)
class Instance:
    """A workload's problem for one seed, with the generators it was drawn from."""

    workload: Workload
    settings: Mapping[str, Any]
    problem: Problem
    random: WorkloadRandom

    @property
    def examples(self) -> int:
        """The number of training examples."""
        return examples_in(self.problem.splits["train"])

    @property
    def batch_size(self) -> int:
        """The examples of a minibatch; all where there is none."""
        return self.settings.get("batch_size") or self.examples

    @property
    def epoch(self) -> int:
        """The steps of an epoch: the whole batches of the examples."""
        return self.examples // self.batch_size


def instance(workload: Workload, settings: Mapping[str, Any], seed: int) -> Instance:
    """The problem of a seed."""
    random = WorkloadRandom(workload.streams or workload.name, seed)
    return Instance(workload, settings, workload.problem(settings, random), random)


@dataclass(frozen=True)
class LoadedBasis:
    """The basis of several seeds: V by group of parameters, (S, n, r), its form and its cost."""

    matrices: Mapping[tuple[str, ...], np.ndarray]
    gradient_evaluations: int
    seconds: Sequence[float]
    changes: Mapping[tuple[str, ...], Change] = field(default_factory=dict)

    @classmethod
    def of(cls, seeds: Sequence[Mapping[str, np.ndarray]], dtype: DTypeLike) -> LoadedBasis:
        """Return the bases of seeds, each as `estimate` gives it, in a precision."""
        groups = [tuple(group) for group in json.loads(str(seeds[0]["groups"]))]
        stacks = [np.stack([one[f"matrix{n}"] for one in seeds], dtype=dtype) for n in range(len(groups))]
        changes = [CHANGES[name] for name in json.loads(str(seeds[0]["changes"]))]
        return cls(
            matrices=dict(zip(groups, stacks, strict=True)),
            gradient_evaluations=int(seeds[0]["gradient_evaluations"]),
            seconds=[float(one["seconds"]) for one in seeds],
            changes=dict(zip(groups, changes, strict=True)),
        )


def estimate(
    basis: BasisSpec,
    one: Instance,
    sample: Sampler = lambda problem, random: iter(()),
    decompose: Decomposition = by_numpy,
) -> dict[str, np.ndarray]:
    """One basis as arrays: `groups` and `changes` (JSON), `matrix0`, `eigenvalues0`, ..., and what it cost.

    `seconds` covers sampling and decomposition; compilation, done once for all seeds, is apart. A basis that
    takes no gradients costs a method nothing.
    """
    start = time.perf_counter()
    kind, random = bases()[basis.name], one.random(BASIS_STREAM)
    groups = groups_of(basis, one)
    found, count = estimated(
        groups,
        lambda group: kind.estimator(basis.options, group, random, decompose),
        sample(one.problem, one.random),
    )
    arrays: dict[str, np.ndarray] = {}
    for number, (matrix, eigenvalues) in enumerate(found):
        arrays[f"matrix{number}"], arrays[f"eigenvalues{number}"] = matrix, eigenvalues
    arrays["groups"] = np.array(json.dumps([group.names for group in groups]))
    arrays["changes"] = np.array(json.dumps([group.change.name for group in groups]))
    arrays["gradient_evaluations"] = np.array(count)
    arrays["seconds"] = np.array(time.perf_counter() - start if count else 0.0)
    return arrays


def basis_of(job: Job, basis: BasisSpec, instances: Sequence[Instance]) -> LoadedBasis:
    """Return the matrices of some instances, which the bases job wrote; identity has none.

    Raises:
        FailedBefore: when its estimation failed, or its file is missing or damaged: then as
            interrupted, which does not count against the method.
    """
    stored = bases()[basis.name].stored
    seeds = [_read_basis(job, basis, one) if stored else estimate(basis, one) for one in instances]
    return LoadedBasis.of(seeds, dtype_of(job.spec, instances[0].workload))


def _read_basis(job: Job, basis: BasisSpec, one: Instance) -> dict[str, np.ndarray]:
    folders, workload = job.upstream("bases"), one.workload.name
    candidates = [basis_file(folder, workload, basis.label, one.random.seed) for folder in folders]
    found = next((path for path in candidates if path.exists()), candidates[0])
    if not found.exists() and (failure := _failure_before(folders, basis_name(basis, workload))):
        raise FailedBefore(failure)
    try:
        with found.open("rb") as file, np.load(file) as arrays:
            return dict(arrays)
    except (OSError, ValueError, BadZipFile) as error:
        where = " and ".join(map(str, [found.parent] if found.exists() else folders))
        said = (
            f"{found}: the basis cannot be read ({error}); delete {where} and run snakemake again, which "
            "computes it anew"
        )
        raise FailedBefore(Failure("interrupted", said)) from error


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


def groups_of(basis: BasisSpec, one: Instance) -> tuple[Group, ...]:
    """What a basis changes together in a workload."""
    return bases()[basis.name].groups(
        basis.options,
        {name: value.shape for name, value in one.problem.parameters.items()},
        {name: str(role.kind) for name, role in one.workload.roles(one.settings).items()},
    )


def sampling_of(basis: BasisSpec, one: Instance) -> GradientSampling:
    """What a basis samples up front: how many gradients, and at which parameters."""
    kind = bases()[basis.name]
    dimension = sum(value.size for value in one.problem.parameters.values())
    distribution = kind.sampling(basis.options)
    return GradientSampling(
        one.workload,
        one.settings,
        kind.samples(basis.options, dimension),
        distribution.scale if distribution.kind == "normal" else None,
        distribution.around_start,
    )


def reestimation_of(basis: BasisSpec, one: Instance, steps: int) -> RenewalPlan | None:
    """When and how a run of so many steps estimates its basis anew; None where it does not."""
    kind = bases()[basis.name]
    chosen = kind.reestimation(basis.options)
    if chosen is None:
        return None
    every = chosen.count * (one.epoch if chosen.unit == "epochs" else 1)
    return RenewalPlan(
        points=tuple(range(every, steps, every)),
        sampling=replace(sampling_of(basis, one), around_start=True),
        groups=groups_of(basis, one),
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


def precision_of(spec: JobSpec, workload: Workload) -> Precision:
    """The precision of a workload's runs: what the study asks for, else the workload's own."""
    assert isinstance(spec, BasesSpec | TrainingSpec)
    return spec.precision or workload.dtype


def dtype_of(spec: JobSpec, workload: Workload) -> np.dtype[Any]:
    """What a workload's runs compute in, but for products of the model; bases are held in it."""
    return np.dtype(POLICIES[precision_of(spec, workload)].computed)


def steps_of(spec: TrainingSpec, one: Instance) -> int:
    """The steps of a run: as budgeted, or whole batches of an epoch times the epochs.

    Raises:
        InputError: when a batch is larger than the data.
    """
    if one.batch_size > one.examples:
        raise InputError(
            f"study {spec.study}: batch_size = {one.batch_size} is larger than the {one.examples} training "
            "examples; give a smaller batch_size, or null for the full batch"
        )
    ((unit, length),) = spec.training.budget.items()
    return length * (one.epoch if unit == "epochs" else 1)


def schedule_of(spec: TrainingSpec, one: Instance) -> np.ndarray:
    """The multiplier of each step of a run, (steps,).

    Raises:
        InputError: when a warm-up in epochs is longer than the run, or a batch larger than the data.
    """
    try:
        return multipliers(spec.training.schedule.model_dump(), steps_of(spec, one), one.epoch)
    except ValueError as error:
        raise InputError(f"study {spec.study}: schedule.{error}") from error


def orders_of(instances: Sequence[Instance], steps: int) -> np.ndarray | None:
    """The minibatches of several seeds, (steps, S, batch_size) indices, or None for the full batch."""
    if instances[0].settings.get("batch_size") is None:
        return None
    batch_size = instances[0].batch_size
    orders = np.empty((steps, len(instances), batch_size), np.int32)
    for seed, one in enumerate(instances):  # one seed's twice at a time, not all seeds'
        orders[:, seed] = batch_order(one.random, one.examples, batch_size, steps)
    return orders


def bundle_of(job: Job, cell: Cell, instances: Sequence[Instance], basis: LoadedBasis) -> Bundle:
    """The bundle of all lanes of a cell."""
    spec, training = job.spec, job.training
    assert isinstance(spec, TrainingSpec)
    there = instances[0].problem.splits
    if lacking := sorted(set(cell.workload.evaluated_splits) - set(there)):
        raise InputError(
            f"study {spec.study}: evaluated_splits: {cell.workload.name} has no {', '.join(lacking)} here; "
            f"name those that it has in the scale ({', '.join(there)})"
        )
    rule = rule_of(cell.optimizer, training.schedule.name)
    complete = [rule.complete({**cell.optimizer.hyperparameters, **setting}) for setting in cell.settings]
    schedule = schedule_of(spec, instances[0])
    steps = len(schedule)
    workload, problems, matrices = with_changed_inputs(
        cell.workload, [one.problem for one in instances], basis.matrices, basis.changes
    )
    return Bundle(
        workload=workload,
        rule=rule,
        problems=problems,
        orders=orders_of(instances, steps),
        hyperparameters={name: np.array([values[name] for values in complete]) for name in complete[0]},
        schedule=schedule,
        evaluations=training.evaluations,
        protocol=StepProtocol.of(training),
        matrices=matrices,
        changes=basis.changes,
        settings=cell.workload_spec.settings,
        randoms=[one.random for one in instances],
        reestimation=reestimation_of(cell.basis, instances[0], steps),
    )
