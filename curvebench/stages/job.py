"""Objects that the stages of jobs share: the job, its problems, bases, cells and bundles.

A cell is a method (an optimizer in a basis) on a workload in one round: a tuning round or the final round.
The runs of a cell have S seeds and several settings of the hyperparameters. All runs of a cell are computed
together, as one or several bundles. A basis is a change of coordinates, given by a matrix V of shape (n, r)
for each block of parameters and each seed.
"""

from __future__ import annotations

import gc
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
from curvebench.optimizers.bases.basis import ROTATION_NUMBER
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
from curvebench.stages.supervision import FAULTS, FailedBefore, Failure, Supervision, failure_of
from curvebench.steps.engine import Engine
from curvebench.steps.program import StepProtocol
from curvebench.workloads.workload import Problem, Workload, examples_in

# Name of the random stream from which bases are drawn. With another name, random bases would be different.
BASIS_STREAM = "egop basis"
# Name of the subfolder that contains the tables of finished runs until all runs of the job are finished.
PARTS = "parts"


@dataclass(frozen=True)
class Job:
    """A job in progress.

    Args:
        spec: definition of the job.
        results: the results folder.
        machine: identifier of this machine, which is written to tables.
        clock: seconds of the job by phase.
        threads: number of CPU threads that the job may use.
        supervision: information from the supervisor process.
        keep_failed: whether to keep failures that an earlier call has recorded, and to compute nothing.
        checkpoint_minutes: minutes between two checkpoints of a run; None for the default.
        failures: failures so far, each with the name of the failed computation, its outcome and the reason.
        traced: types of exceptions whose traceback was printed.
        engines: engines that the job has made. The notes of each engine are part of the provenance.
        own_notes: notes for the provenance in addition to the notes of the engines.
    """

    spec: JobSpec
    results: Path
    machine: str = ""
    clock: Clock = field(default_factory=Clock)
    threads: int = 1
    supervision: Supervision = field(default_factory=Supervision)
    keep_failed: bool = False
    checkpoint_minutes: float | None = None
    failures: list[dict[str, str]] = field(default_factory=list)
    traced: set[str] = field(default_factory=set)
    engines: list[Engine] = field(default_factory=list)
    own_notes: list[str] = field(default_factory=list)

    def trace(self, error: BaseException) -> None:
        """Print the traceback of an error, unless the job has printed the traceback of an error of its type.

        If a method fails with several settings, the reason is mostly the same.
        """
        if type(error).__name__ not in self.traced:
            print_exception(error)
        # Store only the name of the error's type.
        # The error itself would keep the arrays of its stack frames in memory.
        self.traced.add(type(error).__name__)

    def fail(self, name: str, failure: Failure | BaseException) -> None:
        """Record a failure for the tables, and print it to the log.

        Args:
            name: name of the failed computation, such as a basis or the runs of a method.
            failure: the failure, or an exception.
        """
        if isinstance(failure, BaseException):
            self.trace(failure)
            failure = failure_of(failure)
        sys.stderr.write(f"{name}: {failure.outcome}: {failure.reason}\n")
        self.failures.append({"what": name, "outcome": failure.outcome, "reason": failure.reason})

    def attempt(self, name: str, compute: Callable[[], object], failure: Failure | None = None) -> bool:
        """Call a function. If the function raises an exception, record the exception as a failure of the job.

        Args:
            name: name of the computation, for the failure.
            compute: the function.
            failure: a failure in an earlier process. The job records it again instead of calling the
                function. None to call the function.

        Returns:
            Whether the function was called and succeeded.

        Raises:
            NotWritten: if a table cannot be written, which ends the job.
        """
        try:
            if failure is not None:
                raise FailedBefore(failure)
            compute()
        except NotWritten:
            raise
        except FAULTS as error:
            self.fail(name, error)
            return False
        return True

    def write(self, table: str, rows: pl.DataFrame | Sequence[Mapping[str, Any]] = ()) -> None:
        """Write a table to the folder of the job. Without `rows`, write an empty table.

        Args:
            table: name of the table, a key of `curvebench.results.schema.TABLES`.
            rows: rows of the table; missing columns become null.
        """
        columns = schema.TABLES[table]
        write_table(self.folder / f"{table}.parquet", pl.DataFrame(rows, schema=columns), columns)

    @property
    def notes(self) -> list[str]:
        """Notes of the job and its engines for the provenance."""
        return sorted({*self.own_notes, *(note for engine in self.engines for note in engine.notes)})

    @property
    def runs(self) -> RunsSpec:
        """The spec of this job, which must be a runs job."""
        assert isinstance(self.spec, RunsSpec)
        return self.spec

    @property
    def training(self) -> TrainingProtocol:
        """The training protocol of this job, which must be a runs job or a timing job."""
        assert isinstance(self.spec, TrainingSpec)
        return self.spec.training

    @property
    def folder(self) -> Path:
        """Folder of the job's tables."""
        return job_folder(self.results, self.spec)

    def columns(self, workload: str, optimizer: str, basis: str) -> dict[str, str]:
        """Return the values of the table columns that identify this job, and a method on a workload.

        Args:
            workload: label of the workload.
            optimizer: label of the optimizer.
            basis: label of the basis.
        """
        spec = self.spec
        study = {name: getattr(spec, name) for name in ("study", "scale", "backend", "device")}
        job = {"spec_hash": spec.hash, "machine": self.machine}
        return {**study, "workload": workload, "optimizer": optimizer, "basis": basis, **job}

    def upstream(self, *stages: str) -> list[Path]:
        """Return the folders of the jobs of the given stages whose tables this job reads."""
        return [
            upstream_folder(self.results, self.spec, stage, hash_)
            for stage in stages
            for hash_ in self.spec.upstream.get(stage, ())
        ]

    def engine(self, precision: str, backend: str | None = None, device: str | None = None) -> Engine:
        """Make an engine for the job. The seconds are added to the phase `import` of the job's clock.

        Args:
            precision: precision of the engine.
            backend: name of the backend; None for the backend in the spec.
            device: name of the device; None for the device in the spec.
        """
        with self.clock.phase("import"):
            from curvebench.backends.engine import engine

            job_engine = engine(backend or self.spec.backend, precision, device or self.spec.device)
            job_engine.limit_threads(self.threads)
        if not self.engines:
            # Exclude the objects of imported libraries from garbage collections, which are then faster.
            gc.freeze()
        self.engines.append(job_engine)
        return job_engine


@dataclass(frozen=True)
class Instance:
    """The problem of a workload for one seed.

    Args:
        workload: the workload.
        settings: settings of the workload.
        problem: data and initial parameters.
        random: the random streams of the seed.
    """

    workload: Workload
    settings: Mapping[str, Any]
    problem: Problem
    random: WorkloadRandom

    @property
    def examples(self) -> int:
        """Number of training examples."""
        return examples_in(self.problem.splits["train"])

    @property
    def batch_size(self) -> int:
        """Number of examples in a minibatch, or number of training examples if steps use the full batch."""
        return self.settings.get("batch_size") or self.examples

    @property
    def epoch(self) -> int:
        """Number of steps in an epoch: the number of full minibatches in the training examples."""
        return self.examples // self.batch_size


def instance(workload: Workload, settings: Mapping[str, Any], seed: int) -> Instance:
    """Draw the problem of a workload for a seed."""
    random = WorkloadRandom(workload.streams or workload.name, seed)
    return Instance(workload, settings, workload.problem(settings, random), random)


@dataclass(frozen=True)
class LoadedBasis:
    """The basis of several seeds, with its cost.

    Args:
        matrices: matrices V of all seeds, of shape (S, n, r), for each block. The key is the tuple of the
            names of the block's parameters.
        gradient_evaluations: number of gradients that were sampled for each seed.
        seconds: time of sampling gradients and computing eigenvectors, for each seed.
        changes: kind of the change of coordinates that is made from the matrix V, for each block. The keys
            are the same as in `matrices`.
    """

    matrices: Mapping[tuple[str, ...], np.ndarray]
    gradient_evaluations: int
    seconds: Sequence[float]
    changes: Mapping[tuple[str, ...], Change] = field(default_factory=dict)

    @classmethod
    def of(cls, seeds: Sequence[Mapping[str, np.ndarray]], dtype: DTypeLike) -> LoadedBasis:
        """Combine the results of `estimate` for several seeds.

        Args:
            seeds: the result of `estimate` for each seed.
            dtype: precision of the matrices.
        """
        groups = [tuple(group) for group in json.loads(str(seeds[0]["groups"]))]
        stacks = [np.stack([seed[f"matrix{n}"] for seed in seeds], dtype=dtype) for n in range(len(groups))]
        changes = [CHANGES[name] for name in json.loads(str(seeds[0]["changes"]))]
        return cls(
            matrices=dict(zip(groups, stacks, strict=True)),
            gradient_evaluations=int(seeds[0]["gradient_evaluations"]),
            seconds=[float(seed["seconds"]) for seed in seeds],
            changes=dict(zip(groups, changes, strict=True)),
        )


def estimate(
    basis: BasisSpec,
    instance: Instance,
    sample: Sampler = lambda problem, random: iter(()),
    decompose: Decomposition = by_numpy,
) -> dict[str, np.ndarray]:
    """Estimate or draw a basis for one seed.

    Args:
        basis: the basis with its options.
        instance: the problem of the seed.
        sample: function that samples gradients. The default is for bases that need no gradients.
        decompose: function that computes eigenvectors from gradients.

    Returns:
        A mapping from names to arrays.

        - `matrix0`, `matrix1`, ...: the matrix V of each block of parameters.
        - `eigenvalues0`, `eigenvalues1`, ...: the eigenvalues of each block.
        - `groups`: the names of the parameters of each block, in JSON.
        - `changes`: the name of the change of coordinates of each block, in JSON.
        - `gradient_evaluations`: the number of gradients that were sampled.
        - `seconds`: the time of sampling gradients and computing eigenvectors. Compilation is not included,
          because it is done once for all seeds. The time is 0 for a basis that samples no gradients.
    """
    start = time.perf_counter()
    number = basis.options.get(ROTATION_NUMBER)
    stream = f"{BASIS_STREAM} {number}" if number else BASIS_STREAM
    kind, random = bases()[basis.name], instance.random(stream)
    groups = groups_of(basis, instance)
    decompositions, count = estimated(
        groups,
        lambda group: kind.estimator(basis.options, group, random, decompose),
        sample(instance.problem, instance.random),
    )
    arrays: dict[str, np.ndarray] = {}
    for number, (matrix, eigenvalues) in enumerate(decompositions):
        arrays[f"matrix{number}"], arrays[f"eigenvalues{number}"] = matrix, eigenvalues
    arrays["groups"] = np.array(json.dumps([group.names for group in groups]))
    arrays["changes"] = np.array(json.dumps([group.change.name for group in groups]))
    arrays["gradient_evaluations"] = np.array(count)
    arrays["seconds"] = np.array(time.perf_counter() - start if count else 0.0)
    return arrays


def basis_of(job: Job, basis: BasisSpec, instances: Sequence[Instance]) -> LoadedBasis:
    """Return the basis of some instances, which are the problems of a workload for several seeds.

    The basis is read from the files of the basis-estimation job. A basis without files, such as the identity,
    is computed by this function.

    Raises:
        FailedBefore: if the estimation failed. If a file is missing or damaged, the failure is an
            interruption, which does not count against the method.
    """
    stored = bases()[basis.name].stored
    seeds = [_read_basis(job, basis, seed) if stored else estimate(basis, seed) for seed in instances]
    return LoadedBasis.of(seeds, dtype_of(job.spec, instances[0].workload))


def _read_basis(job: Job, basis: BasisSpec, instance: Instance) -> dict[str, np.ndarray]:
    folders, workload = job.upstream("bases"), instance.workload.name
    candidates = [basis_file(folder, workload, basis.label, instance.random.seed) for folder in folders]
    path = next((path for path in candidates if path.exists()), candidates[0])
    if not path.exists() and (failure := _failure_before(folders, basis_name(basis, workload))):
        raise FailedBefore(failure)
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            return dict(arrays)
    except (OSError, ValueError, BadZipFile) as error:
        damaged = " and ".join(map(str, [path.parent] if path.exists() else folders))
        reason = (
            f"{path}: the basis cannot be read ({error}); delete {damaged} and run snakemake again, which "
            "computes it anew"
        )
        raise FailedBefore(Failure("interrupted", reason)) from error


def basis_name(basis: BasisSpec, workload: str) -> str:
    """Return the name that a basis on a workload has in records of failures."""
    return f"basis {basis.label} on {workload}"


def _failure_before(folders: Sequence[Path], name: str) -> Failure | None:
    """Return the recorded failure that explains why a result of an upstream job is missing.

    Args:
        folders: the folders of the upstream jobs.
        name: name of the missing result in the records of failures of the upstream jobs.

    Returns:
        An interruption if the upstream job was interrupted, and otherwise an error; None if no failure is
        recorded.
    """
    markers = [folder / FAILED for folder in folders if (folder / FAILED).exists()]
    failures = [failure for marker in markers for failure in json.loads(marker.read_text())]
    causes = (item for item in failures if item["what"] == name or item["outcome"] == "interrupted")
    if (cause := next(causes, None)) is None:
        return None
    outcome = "interrupted" if cause["outcome"] == "interrupted" else "error"
    return Failure(outcome, f"{cause['what']}: {cause['outcome']}: {cause['reason']}")


def groups_of(basis: BasisSpec, instance: Instance) -> tuple[Group, ...]:
    """Return the groups of parameters that a basis transforms together (its blocks)."""
    return bases()[basis.name].groups(
        basis.options,
        {name: value.shape for name, value in instance.problem.parameters.items()},
        {name: str(role.kind) for name, role in instance.workload.roles(instance.settings).items()},
    )


def sampling_of(basis: BasisSpec, instance: Instance) -> GradientSampling:
    """Return how many gradients a basis samples before runs, and at which random parameters."""
    kind = bases()[basis.name]
    dimension = sum(value.size for value in instance.problem.parameters.values())
    distribution = kind.sampling(basis.options)
    return GradientSampling(
        instance.workload,
        instance.settings,
        kind.samples(basis.options, dimension),
        distribution.scale if distribution.kind == "normal" else None,
        distribution.around_start,
    )


def reestimation_of(basis: BasisSpec, instance: Instance, steps: int) -> RenewalPlan | None:
    """Return when and how a run estimates its basis again; None if the run never does.

    Args:
        basis: the basis with its options.
        instance: the problem of a seed.
        steps: number of steps of the run.
    """
    kind = bases()[basis.name]
    period = kind.reestimation(basis.options)
    if period is None:
        return None
    every = period.count * (instance.epoch if period.unit == "epochs" else 1)
    return RenewalPlan(
        points=tuple(range(every, steps, every)),
        sampling=replace(sampling_of(basis, instance), around_start=True),
        groups=groups_of(basis, instance),
        estimator=partial(kind.estimator, basis.options),
    )


@dataclass(frozen=True)
class Cell:
    """A cell: a method (an optimizer in a basis) on a workload in one round, with the settings of the runs.

    Args:
        workload: the workload.
        workload_spec: name and settings of the workload.
        optimizer: the optimizer.
        basis: the basis.
        settings: the settings of the runs. Each is a mapping from tuned hyperparameters to values.
    """

    workload: Workload
    workload_spec: WorkloadSpec
    optimizer: OptimizerSpec
    basis: BasisSpec
    settings: Sequence[Mapping[str, float]]


def workload_of(spec: WorkloadSpec, splits: Collection[str] | None = None) -> Workload:
    """Return the workload of a spec, with the name that it has in tables.

    The random streams of the workload keep the original name, so that variants of a workload with different
    labels draw the same problems.

    Args:
        spec: name and settings of the workload.
        splits: names of the splits to evaluate; None for all splits.
    """
    workload = find_workload(spec.locator).at(spec.settings).evaluated_on(splits)
    return replace(workload, name=spec.name, streams=workload.name)


def precision_of(spec: JobSpec, workload: Workload) -> Precision:
    """Return the precision that the study gives, or else the default precision of the workload."""
    assert isinstance(spec, BasesSpec | TrainingSpec)
    return spec.precision or workload.dtype


def dtype_of(spec: JobSpec, workload: Workload) -> np.dtype[Any]:
    """Return the data type in which a workload's runs compute, and in which the bases of the runs are stored.

    Matrix products of a model may be computed in a lower precision.
    """
    return np.dtype(POLICIES[precision_of(spec, workload)].computed)


def steps_of(spec: TrainingSpec, instance: Instance) -> int:
    """Return the number of steps of a run. A length in epochs is multiplied by the number of steps per epoch.

    Raises:
        InputError: if a minibatch is larger than the data.
    """
    if instance.batch_size > instance.examples:
        raise InputError(
            f"study {spec.study}: batch_size = {instance.batch_size} is larger than the {instance.examples} "
            "training examples; give a smaller batch_size, or null for the full batch"
        )
    ((unit, length),) = spec.training.budget.items()
    return length * (instance.epoch if unit == "epochs" else 1)


def schedule_of(spec: TrainingSpec, instance: Instance) -> np.ndarray:
    """Return the multiplier of the learning rate at each step of a run, of shape (steps,).

    Raises:
        InputError: if a warm-up in epochs is longer than the run, or a minibatch is larger than the data.
    """
    try:
        return multipliers(spec.training.schedule.model_dump(), steps_of(spec, instance), instance.epoch)
    except ValueError as error:
        raise InputError(f"study {spec.study}: schedule.{error}") from error


def orders_of(instances: Sequence[Instance], steps: int) -> np.ndarray | None:
    """Return the indices of the examples in all minibatches; None for the full batch.

    Args:
        instances: the problem of each of S seeds.
        steps: number of steps of a run.

    Returns:
        Indices of training examples, of shape (steps, S, batch_size).
    """
    if instances[0].settings.get("batch_size") is None:
        return None
    batch_size = instances[0].batch_size
    orders = np.empty((steps, len(instances), batch_size), np.int32)
    # Copy the order of each seed before the order of the next seed is made.
    # Then only the order of one seed is in memory twice.
    for seed, instance in enumerate(instances):
        orders[:, seed] = batch_order(instance.random, instance.examples, batch_size, steps)
    return orders


def bundle_of(job: Job, cell: Cell, instances: Sequence[Instance], basis: LoadedBasis) -> Bundle:
    """Return the bundle of all runs of a cell.

    Args:
        job, cell: the job, and a cell of the job.
        instances: the problem of each seed.
        basis: the basis of all seeds.

    Raises:
        InputError: if the workload lacks a split that the study evaluates, or the schedule is invalid
            (`schedule_of`).
    """
    spec, training = job.spec, job.training
    assert isinstance(spec, TrainingSpec)
    splits = instances[0].problem.splits
    if missing := sorted(set(cell.workload.evaluated_splits) - set(splits)):
        raise InputError(
            f"study {spec.study}: evaluated_splits: {cell.workload.name} has no {', '.join(missing)} here; "
            f"name those that it has in the scale ({', '.join(splits)})"
        )
    rule = rule_of(cell.optimizer, training.schedule.name)
    complete = [rule.complete({**cell.optimizer.hyperparameters, **setting}) for setting in cell.settings]
    schedule = schedule_of(spec, instances[0])
    steps = len(schedule)
    workload, problems, matrices = with_changed_inputs(
        cell.workload, [instance.problem for instance in instances], basis.matrices, basis.changes
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
        randoms=[instance.random for instance in instances],
        reestimation=reestimation_of(cell.basis, instances[0], steps),
    )
