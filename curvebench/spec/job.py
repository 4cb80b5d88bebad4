"""Job specifications (specs): everything that a job computes and depends on, and the paths of its files.

A job is a process that Snakemake starts. A job of the stage `bases` estimates bases (changes of coordinates
of the parameters). A job of the stage `runs` makes the runs of a method (an optimizer in a basis): rounds
that tune the method, and a final round, in which the method is judged on other seeds. A setting is a value
for each tuned hyperparameter.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from curvebench.spec.document import Document, under_first_names
from curvebench.spec.errors import InputError
from curvebench.spec.method import BasisSpec, Method, OptimizerSpec, WorkloadSpec
from curvebench.spec.training import TrainingProtocol
from curvebench.spec.tuning import Tuning
from curvebench.spec.values import Precision

# This number is part of every job's hash.
# Increase the number when a change of the project changes the results of runs.
# After an increase, all runs are repeated.
# A test that compares with stored trajectories finds changes of results.
TRAJECTORY_VERSION = 2
NOT_HASHED = {"hash", "claim_rules"}
# Backend name of jobs that estimate bases once for all backends, with JAX in float64 and NumPy
HOST = "host"


class JobSpec(Document):
    """Base class of job specifications: the keys that every job has.

    Jobs with equal hashes compute the same tables up to rounding.

    Args:
        stage: kind of the job, such as `bases` or `runs`; it selects the class of the spec.
        optimizers: optimizers that the job runs; for a checks job, a single entry with the name of its module
            of claims.
        upstream: hashes of the jobs whose tables this job reads, grouped by the stage of the read jobs, such
            as `bases`.
        sources: a mapping from paths to the SHA-256 of each source file of this project that affects the
            result.
        versions: versions of the packages that the backend uses.
        hash: first 16 hexadecimal digits of the SHA-256 of all keys except `hash` and `claim_rules`.
    """

    stage: str
    study: str
    scale: str
    backend: str
    device: str = "cpu"
    optimizers: tuple[OptimizerSpec, ...] = ()
    workloads: tuple[WorkloadSpec, ...]
    bases: tuple[BasisSpec, ...] = ()
    seeds: tuple[int, ...] = (0,)
    upstream: dict[str, tuple[str, ...]] = Field(default={})
    sources: dict[str, str]
    versions: dict[str, str]
    trajectory_version: int = TRAJECTORY_VERSION
    hash: str = ""

    @model_validator(mode="after")
    def _hashed(self) -> Self:
        """Compute the hash of the job. The computed hash replaces any value of the key `hash` in the file."""
        keys = under_first_names(self.model_dump(mode="json", exclude=NOT_HASHED))
        decisive = json.dumps(keys, sort_keys=True)
        digest = hashlib.sha256(decisive.encode()).hexdigest()[:16]
        # The usual assignment fails because the document is frozen.
        object.__setattr__(self, "hash", digest)
        return self

    @property
    def combinations(self) -> int:
        """Number of workloads times number of bases times number of seeds of the job."""
        return len(self.workloads) * len(self.bases) * len(self.seeds)

    def changed(self, **changes: Any) -> Self:
        """Return a copy of the job with other values of the keys in `changes`, and with a new hash."""
        return type(self).model_validate({**dict(self), **changes})

    @property
    def description(self) -> str:
        """Name of the job in messages: the label of the job's optimizer, if there is exactly one.

        The name of a timing job, and of a job with several optimizers or none, is `all`.
        """
        return self.optimizers[0].label if len(self.optimizers) == 1 and self.stage != "timing" else "all"

    @property
    def name(self) -> str:
        """Last part of the paths of the job's files: optimizer, backend and hash."""
        return f"{self.description}.{self.backend}.{self.hash}"


class BasesSpec(JobSpec):
    """A basis-estimation job. The bases depend on neither the training protocol nor the length of runs.

    On the backend `HOST`, gradients are computed in float64; on any other backend in the precision of the
    runs.

    Args:
        precision: precision of the runs that use the bases, in which the bases are stored; None to use the
            default precision of each workload.
    """

    stage: Literal["bases"]
    precision: Precision | None = None


class TrainingSpec(JobSpec):
    """A job that makes steps according to the training protocol of its study.

    Args:
        training: the training protocol.
        bundle_memory_bytes: memory in bytes that the lanes of one program may take. Lanes are runs that a
            program computes together; this memory limits the number of lanes.
    """

    training: TrainingProtocol
    bundle_memory_bytes: int

    @property
    def precision(self) -> Precision | None:
        """Precision of all runs; None if each workload uses its default precision."""
        return self.training.precision

    def changed(self, **changes: Any) -> Self:
        """Return a copy of the job with other values of the keys in `changes`, and with a new hash.

        A key may be a key of the job or of the training protocol in the job.
        """
        keys = {name: changes.pop(name) for name in TrainingProtocol.model_fields if name in changes}
        return super().changed(training=self.training.model_copy(update=keys), **changes)


class RunsSpec(TrainingSpec):
    """A runs job: rounds that tune a method, and the final round, in which the method is judged.

    `seeds` are the seeds of the final round.

    Args:
        tuning: the tuning protocol, with the optimizer's own search space if the optimizer has one.
        rounds: numbers of the rounds that the job makes. The first tuning round is round 0; the final round
            follows the last tuning round. Rounds that are not listed are made by upstream jobs.
        tuning_seeds: seeds of the tuning rounds.
        settings: hyperparameter settings of the job's only round; None for the settings of the protocol.
        single_run: whether the job makes a single tuning run, or the final runs of a single seed.
        setting_index: for a job that makes a single tuning run, index of the run's setting among the settings
            of the round; None for other jobs.
        compared_bases: labels of bases in which claims compare the method. In these bases, final runs are
            made at every setting that other tuning seeds may choose
            (`curvebench.results.tuning.TuningOutcome.candidate_settings`).
        claim_rules: hash of the decision rule of each claim when the final runs were planned. The job's hash
            does not depend on `claim_rules`: if a rule changes later, the report says so, but no run is
            repeated.
    """

    stage: Literal["runs"]
    tuning: Tuning
    rounds: tuple[int, ...]
    tuning_seeds: tuple[int, ...] = ()
    settings: tuple[dict[str, float], ...] | None = None
    single_run: bool = False
    setting_index: int | None = None
    compared_bases: tuple[str, ...] = ()
    claim_rules: dict[str, str] = Field(default={})

    @property
    def final_round(self) -> int:
        """Number of the final round, in which the method is judged."""
        return len(self.tuning.rounds)

    def in_round(self, number: int) -> Self:
        """Return the job restricted to one round, with the seeds, bases and training protocol of that round.

        The result has the same hash as the whole job, since the rows of all rounds go into the same tables.
        """
        changes: dict[str, Any] = {"rounds": (number,)}
        if number < self.final_round:
            bases = tuple(basis for basis in self.bases if self.tuning.tries(basis.label))
            training = self.training.shortened(self.tuning.shares[number])
            changes |= {"seeds": self.tuning_seeds, "bases": bases, "training": training}
        return self.model_copy(update=changes)

    @property
    def lanes(self) -> tuple[int, ...]:
        """Number of runs in each round of the job. Final runs count only if they have the chosen setting."""
        return tuple(self.in_round(number).combinations * self.tries(number) for number in self.rounds)

    def tries(self, number: int) -> int:
        """Return the number of settings with which a round runs each combination of workload, basis and seed.

        The number is 1 in the final round, and in a job with a single run.

        Args:
            number: number of the round, from 0.
        """
        return 1 if self.single_run or number == self.final_round else self.tuning.rounds[number]

    @property
    def description(self) -> str:
        """Name of the job in messages: the label of the job's optimizer.

        The name of a job that makes a single run consists of method, workload, setting and seed.
        """
        if not self.single_run:
            return super().description
        parts = [f"{Method(super().description, self.bases[0].label).label} on {self.workloads[0].name}"]
        if self.setting_index is not None:
            parts += [f"tuning round {self.rounds[0] + 1}, setting {self.setting_index + 1}"]
        return ", ".join([*parts, f"seed {self._seed}"])

    @property
    def name(self) -> str:
        """Last part of the paths of the job's files: optimizer, backend and hash.

        The name of a job that makes a single run also has workload, basis, round, setting and seed.
        """
        if not self.single_run:
            return super().name
        parts = [super().description, self.workloads[0].name, self.bases[0].label]
        if self.setting_index is not None:
            parts += [f"round{self.rounds[0] + 1}", f"setting{self.setting_index + 1}"]
        # Other code splits the name at its dots, so the first part must not contain a dot.
        text = re.sub(r"[^\w-]", "_", "-".join([*parts, f"seed{self._seed}"]))
        return f"{text}.{self.backend}.{self.hash}"

    @property
    def _seed(self) -> int:
        """Seed of the run, for a job that makes a single run."""
        return (*self.seeds, *self.tuning_seeds)[0]


class TimingSpec(TrainingSpec):
    """A timing job, which measures the seconds per step of all methods on a backend."""

    stage: Literal["timing"]


class ParitySpec(JobSpec):
    """A parity job, which checks that all backends make equal steps with the job's optimizers.

    Args:
        steps: number of steps that are compared between backends.
    """

    stage: Literal["parity"]
    steps: int


class ChecksSpec(JobSpec):
    """A checks job, which runs the property checks of a module of benchmarks/claims.

    Args:
        claim_rules: a mapping from ids of claims to hashes of the source code of their checks.
    """

    stage: Literal["checks"]
    claim_rules: dict[str, str] = Field(default={})


JOB_SPECS = TypeAdapter[BasesSpec | RunsSpec | TimingSpec | ParitySpec | ChecksSpec](
    Annotated[BasesSpec | RunsSpec | TimingSpec | ParitySpec | ChecksSpec, Field(discriminator="stage")]
)


def read_spec(path: Path) -> JobSpec:
    """Read a spec file and check that the name of the file contains the hash of its content.

    Raises:
        InputError: when the file is missing, damaged or edited.
    """
    try:
        spec = JOB_SPECS.validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); run snakemake, which writes it"
        ) from error
    except ValidationError as error:
        messages = "; ".join(detail["msg"] for detail in error.errors())
        raise InputError(f"{path}: not a job spec ({messages}); delete it and run snakemake again") from error
    if spec.hash not in path.name:
        raise InputError(
            f"{path}: its content has the hash {spec.hash}, which its name does not carry; "
            "delete the file and run snakemake again"
        )
    return spec


def spec_file(results: Path, spec: JobSpec) -> Path:
    """Return the path of a job's spec file."""
    return results / "specs" / f"{spec.study}.{spec.scale}.{spec.stage}.{spec.name}.json"


def job_folder(results: Path, spec: JobSpec) -> Path:
    """Return the folder of a job's tables."""
    return results / "runs" / spec.study / spec.scale / spec.stage / spec.name


def upstream_folder(results: Path, spec: JobSpec, stage: str, hash_: str) -> Path:
    """Return the folder of the tables of an upstream job.

    Args:
        results: results folder.
        spec: the job that reads the tables.
        stage: stage of the upstream job, such as `bases`.
        hash_: hash of the upstream job.

    Raises:
        InputError: when the job has not been run.
    """
    parent = results / "runs" / spec.study / spec.scale / stage
    folders = sorted(parent.glob(f"*.{hash_}"))
    if not folders:
        raise InputError(f"{parent}: no job with the hash {hash_}; run snakemake, which computes it first")
    return folders[0]


def estimated_at(separate_jobs: bool, backend: str, device: str) -> tuple[str, str]:
    """Return the backend and device on which the bases of a workload are estimated.

    Bases are usually estimated once for all backends, on the host: the backend `HOST` and the device `cpu`.
    If each run of the workload is a job of its own (`separate_jobs`) and the runs are on a GPU, the bases are
    estimated on the backend and device of the runs, because such a workload takes a GPU for hours.

    Args:
        separate_jobs: whether each run of the workload is a job of its own.
        backend, device: backend and device of the runs.
    """
    return (backend, device) if separate_jobs and device != "cpu" else (HOST, "cpu")
