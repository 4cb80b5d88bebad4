"""Job specs: the work of a job, its sources, the jobs that it follows, and the paths of its files."""

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

# Raised when a change of the project changes the results of runs, so that all runs are repeated; a test
# compares stored trajectories (tests/curvebench/golden.json).
TRAJECTORY_VERSION = 2
NOT_HASHED = {"hash", "claim_rules"}
# Backend name of bases that are estimated once for all backends, by JAX in float64 and NumPy
HOST = "host"


class JobSpec(Document):
    """Keys that every job has. Jobs with equal hashes compute the same tables up to rounding.

    Args:
        stage: kind of the job, such as `bases` or `runs`; it selects the class of the spec.
        optimizers: optimizers that the job runs; for a checks job, the module of claims as a single entry,
            after which the job is named.
        upstream: hashes of the jobs whose tables this job reads, by their stage, such as `bases`.
        sources: SHA-256 of each source file of this project that affects the result, by path.
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
        """Compute the hash; a given value is replaced."""
        keys = under_first_names(self.model_dump(mode="json", exclude=NOT_HASHED))
        decisive = json.dumps(keys, sort_keys=True)
        digest = hashlib.sha256(decisive.encode()).hexdigest()[:16]
        # The usual assignment fails because the document is frozen.
        object.__setattr__(self, "hash", digest)
        return self

    @property
    def cells(self) -> int:
        """Number of combinations of a workload, a basis and a seed."""
        return len(self.workloads) * len(self.bases) * len(self.seeds)

    def changed(self, **changes: Any) -> Self:
        """Return another job of the same kind, with other values for some keys and its own hash."""
        return type(self).model_validate({**dict(self), **changes})

    def to_json(self) -> str:
        """Return the text of the spec file, with a line for each value, which diff can compare."""
        return self.model_dump_json(indent=1) + "\n"

    @property
    def description(self) -> str:
        """Name of the job in messages: its optimizer, or `all` for several."""
        return self.optimizers[0].label if len(self.optimizers) == 1 and self.stage != "timing" else "all"

    @property
    def name(self) -> str:
        """Last part of the job's paths: optimizer, backend and hash."""
        return f"{self.description}.{self.backend}.{self.hash}"


class BasesSpec(JobSpec):
    """A basis-estimation job. Its result depends on neither the training protocol nor the length of runs.

    On the backend `HOST`, gradients are taken in float64; on any other backend in the precision of the runs.

    Args:
        precision: precision of the runs that use the bases, in which they are stored; None for the precision
            of each workload.
    """

    stage: Literal["bases"]
    precision: Precision | None = None


class TrainingSpec(JobSpec):
    """A job that makes steps according to the training protocol of its study.

    Args:
        bundle_memory_bytes: memory that the lanes of one program may take, which bounds their number.
    """

    training: TrainingProtocol
    bundle_memory_bytes: int

    @property
    def precision(self) -> Precision | None:
        """Precision of all runs; None for the precision of each workload."""
        return self.training.precision

    def changed(self, **changes: Any) -> Self:
        """Return another job with other values for some keys, which may be keys of the training protocol."""
        keys = {name: changes.pop(name) for name in TrainingProtocol.model_fields if name in changes}
        return super().changed(training=self.training.model_copy(update=keys), **changes)


class RunsSpec(TrainingSpec):
    """A runs job: rounds that tune a method, and the final round, in which the method is judged.

    `seeds` are the seeds of the final round.

    Args:
        tuning: the tuning protocol, with the optimizer's own search space if it has one.
        rounds: numbers of the rounds that the job makes, from 0. The final round has the number after the
            last tuning round. Earlier rounds that are missing here are made by upstream jobs.
        tuning_seeds: seeds of the tuning rounds.
        settings: hyperparameter settings of the job's only round; None for the settings of the protocol.
        alone: whether the job makes a single run; in the final round, the runs of a single seed.
        setting: index of the setting of a single tuning run among the settings of its round; None otherwise.
        compared: labels of bases in which claims compare the method. There, final runs are made at every
            setting that other tuning seeds may choose
            (`curvebench.results.tuning.TuningOutcome.candidate_settings`).
        claim_rules: hash of the decision rule of each claim when the final runs were planned. It is no part
            of the job's hash: a rule that changes afterwards is reported as changed and repeats no run.
    """

    stage: Literal["runs"]
    tuning: Tuning
    rounds: tuple[int, ...]
    tuning_seeds: tuple[int, ...] = ()
    settings: tuple[dict[str, float], ...] | None = None
    alone: bool = False
    setting: int | None = None
    compared: tuple[str, ...] = ()
    claim_rules: dict[str, str] = Field(default={})

    @property
    def final_round(self) -> int:
        """Number of the round that runs the final seeds."""
        return len(self.tuning.rounds)

    def in_round(self, number: int) -> Self:
        """Return the job restricted to one round, with the seeds, bases and training protocol of that round.

        The hash remains that of the whole job, since the rows of all rounds go into the same tables.
        """
        changes: dict[str, Any] = {"rounds": (number,)}
        if number < self.final_round:
            bases = tuple(basis for basis in self.bases if self.tuning.tries(basis.label))
            training = self.training.shortened(self.tuning.shares[number])
            changes |= {"seeds": self.tuning_seeds, "bases": bases, "training": training}
        return self.model_copy(update=changes)

    @property
    def lanes(self) -> tuple[int, ...]:
        """Number of runs of each round. Final runs at alternative settings are not counted."""
        return tuple(self.in_round(number).cells * self.tries(number) for number in self.rounds)

    def tries(self, number: int) -> int:
        """Return the number of settings of each cell in a round; it is 1 in the final round."""
        return 1 if self.alone or number == self.final_round else self.tuning.rounds[number]

    @property
    def description(self) -> str:
        """Name of the job in messages: its optimizer; for a single run method, workload, setting and seed."""
        if not self.alone:
            return super().description
        parts = [f"{Method(super().description, self.bases[0].label).label} on {self.workloads[0].name}"]
        if self.setting is not None:
            parts += [f"tuning round {self.rounds[0] + 1}, setting {self.setting + 1}"]
        return ", ".join([*parts, f"seed {self._seed}"])

    @property
    def name(self) -> str:
        """Last part of the job's paths; a single run has workload, basis, round, setting and seed in it."""
        if not self.alone:
            return super().name
        parts = [super().description, self.workloads[0].name, self.bases[0].label]
        if self.setting is not None:
            parts += [f"round{self.rounds[0] + 1}", f"setting{self.setting + 1}"]
        # Names are split at dots, so that a label must not add one.
        text = re.sub(r"[^\w-]", "_", "-".join([*parts, f"seed{self._seed}"]))
        return f"{text}.{self.backend}.{self.hash}"

    @property
    def _seed(self) -> int:
        """The seed of a single run."""
        return (*self.seeds, *self.tuning_seeds)[0]


class TimingSpec(TrainingSpec):
    """A timing job, which measures step times of all methods of a backend."""

    stage: Literal["timing"]


class ParitySpec(JobSpec):
    """A parity job, which compares the backends on some optimizers for a number of steps."""

    stage: Literal["parity"]
    steps: int


class ChecksSpec(JobSpec):
    """A checks job for the claims of a module of benchmarks/claims.

    Args:
        claim_rules: hash of the checks of each claim, by claim id.
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
    """Find the tables of an earlier job of the same study by its hash.

    Raises:
        InputError: when the job has not been run.
    """
    parent = results / "runs" / spec.study / spec.scale / stage
    folders = sorted(parent.glob(f"*.{hash_}"))
    if not folders:
        raise InputError(f"{parent}: no job with the hash {hash_}; run snakemake, which computes it first")
    return folders[0]


def estimated_at(alone: bool, backend: str, device: str) -> tuple[str, str]:
    """Return the backend and device on which the bases of a workload are estimated.

    If each run of the workload is a job of its own (`alone`) and takes a GPU for hours, they are estimated on
    the backend and device of the runs. Otherwise they are estimated once for all backends, on the host.
    """
    return (backend, device) if alone and device != "cpu" else (HOST, "cpu")
