"""A job as resolved: what is run, from which sources, after which jobs, and where its files lie."""

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

TRAJECTORY_VERSION = 2  # raised when the harness changes what a run computes (tests/curvebench/golden)
NOT_HASHED = {"hash", "claim_rules"}  # no part of a job's hash
HOST = "host"  # the backend of bases that are estimated once for all backends: JAX in float64, and NumPy


class JobSpec(Document):
    """What every job has. Two jobs with equal hashes compute the same tables to rounding.

    Args:
        optimizers: the contestants; of checks, the module of claims, by whose name the job goes.
        upstream: hashes of the jobs whose tables it reads, by their stage: `bases`, `runs`.
        sources: SHA-256 by file of everything first-party that decides the result.
        versions: versions of the backend's packages.
        hash: the first 16 hexadecimal digits of the SHA-256 of all else but `claim_rules`.
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
        """Fill in the hash, whatever is given."""
        decisive = json.dumps(
            under_first_names(self.model_dump(mode="json", exclude=NOT_HASHED)), sort_keys=True
        )
        found = hashlib.sha256(decisive.encode()).hexdigest()[:16]
        object.__setattr__(self, "hash", found)  # the document is frozen
        return self

    @property
    def cells(self) -> int:
        """The number of its cells: workloads times bases times seeds."""
        return len(self.workloads) * len(self.bases) * len(self.seeds)

    def changed(self, **changes: Any) -> Self:
        """Another job of the same kind, with a hash of its own."""
        return type(self).model_validate({**dict(self), **changes})

    def to_json(self) -> str:
        """The text of its file, a line for each value, so that jobs can be compared with diff."""
        return self.model_dump_json(indent=1) + "\n"

    @property
    def description(self) -> str:
        """What it is about, in words: its optimizer."""
        return self.optimizers[0].label if len(self.optimizers) == 1 and self.stage != "timing" else "all"

    @property
    def name(self) -> str:
        """The last part of its paths: optimizer, backend and hash."""
        return f"{self.description}.{self.backend}.{self.hash}"


class BasesSpec(JobSpec):
    """Estimates bases, which depend neither on protocol nor on budget.

    On `HOST` in float64; elsewhere gradients are taken in the precision of the runs.

    Args:
        precision: of the runs that use them, in which they are stored; None: each workload's own.
    """

    stage: Literal["bases"]
    precision: Precision | None = None


class TrainingSpec(JobSpec):
    """Runs of methods, by the training protocol of their study.

    Args:
        bundle_memory_bytes: what the lanes that advance together may take; it decides how many they are.
    """

    training: TrainingProtocol
    bundle_memory_bytes: int

    @property
    def precision(self) -> Precision | None:
        """The precision of all runs; None: each workload's own."""
        return self.training.precision

    def changed(self, **changes: Any) -> Self:
        """Another job, with keys of the training protocol changed in it."""
        keys = {name: changes.pop(name) for name in TrainingProtocol.model_fields if name in changes}
        return super().changed(training=self.training.model_copy(update=keys), **changes)


class RunsSpec(TrainingSpec):
    """Runs of a method: the rounds that tune it, and the final round, in which it is judged.

    The `seeds` are those of the final round.

    Args:
        tuning: the protocol, with the optimizer's own search space where it has one.
        rounds: the numbers of the job's rounds, from 0. The final round follows the rounds of the protocol;
            rounds that are missing here are made by jobs of `upstream`.
        tuning_seeds: the seeds of the other rounds.
        settings: the hyperparameter settings of the job's only round; None where the protocol says them.
        alone: whether the job makes a single run (in the final round: the runs of a single seed).
        setting: of a single run in another round, the index of its setting among those of the round.
        compared: labels of the bases in which claims compare the method: final runs are made there at all
            settings that may have been chosen (`curvebench.results.tuning.TuningOutcome.candidate_settings`).
        claim_rules: of final runs the hash of each claim's rule as it was when they were planned. A rule that
            is changed afterwards shows as changed and runs nothing anew.
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
        """The number of the round that runs the final seeds."""
        return len(self.tuning.rounds)

    def in_round(self, number: int) -> Self:
        """Return the job as it is in one of its rounds: its seeds, bases and training protocol.

        The hash stays that of the whole job, whose tables the rows of all rounds go to.
        """
        changes: dict[str, Any] = {"rounds": (number,)}
        if number < self.final_round:
            bases = tuple(basis for basis in self.bases if self.tuning.tries(basis.label))
            training = self.training.shortened(self.tuning.shares[number])
            changes |= {"seeds": self.tuning_seeds, "bases": bases, "training": training}
        return self.model_copy(update=changes)

    @property
    def lanes(self) -> tuple[int, ...]:
        """The number of runs of each round, but for those at settings that other seeds would choose."""
        return tuple(self.in_round(number).cells * self.tries(number) for number in self.rounds)

    def tries(self, number: int) -> int:
        """Return the number of settings of each cell in a round, counting one in the final round."""
        return 1 if self.alone or number == self.final_round else self.tuning.rounds[number]

    @property
    def description(self) -> str:
        """What it is about, in words: its optimizer; a single run has method, workload, setting, seed."""
        if not self.alone:
            return super().description
        said = [f"{Method(super().description, self.bases[0].label).label} on {self.workloads[0].name}"]
        if self.setting is not None:
            said += [f"tuning round {self.rounds[0] + 1}, setting {self.setting + 1}"]
        return ", ".join([*said, f"seed {self._seed}"])

    @property
    def name(self) -> str:
        """The last part of its paths; of a single run with its workload, basis, round, setting and seed."""
        if not self.alone:
            return super().name
        parts = [super().description, self.workloads[0].name, self.bases[0].label]
        if self.setting is not None:
            parts += [f"round{self.rounds[0] + 1}", f"setting{self.setting + 1}"]
        text = re.sub(r"[^\w-]", "_", "-".join([*parts, f"seed{self._seed}"]))  # a dot would end it
        return f"{text}.{self.backend}.{self.hash}"

    @property
    def _seed(self) -> int:
        """The seed of a single run."""
        return (*self.seeds, *self.tuning_seeds)[0]


class TimingSpec(TrainingSpec):
    """Steps of all methods of a backend, timed."""

    stage: Literal["timing"]


class ParitySpec(JobSpec):
    """Compares the backends on some optimizers, for a number of steps."""

    stage: Literal["parity"]
    steps: int


class ChecksSpec(JobSpec):
    """Checks the claims of a module of benchmarks/claims; `claim_rules` are the hashes of their rules."""

    stage: Literal["checks"]
    claim_rules: dict[str, str] = Field(default={})


JOB_SPECS = TypeAdapter[BasesSpec | RunsSpec | TimingSpec | ParitySpec | ChecksSpec](
    Annotated[BasesSpec | RunsSpec | TimingSpec | ParitySpec | ChecksSpec, Field(discriminator="stage")]
)


def read_spec(path: Path) -> JobSpec:
    """Read a spec file and check that its name still carries its hash.

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
        said = "; ".join(one["msg"] for one in error.errors())
        raise InputError(f"{path}: not a job spec ({said}); delete it and run snakemake again") from error
    if spec.hash not in path.name:
        raise InputError(
            f"{path}: its content has the hash {spec.hash}, which its name does not carry; "
            "delete the file and run snakemake again"
        )
    return spec


def spec_file(results: Path, spec: JobSpec) -> Path:
    """The spec file of a job."""
    return results / "specs" / f"{spec.study}.{spec.scale}.{spec.stage}.{spec.name}.json"


def job_folder(results: Path, spec: JobSpec) -> Path:
    """The folder of a job's tables."""
    return results / "runs" / spec.study / spec.scale / spec.stage / spec.name


def upstream_folder(results: Path, spec: JobSpec, stage: str, hash_: str) -> Path:
    """The folder of a job of an earlier stage of the same study, by its hash.

    Raises:
        InputError: when it has not been run.
    """
    parent = results / "runs" / spec.study / spec.scale / stage
    found = sorted(parent.glob(f"*.{hash_}"))
    if not found:
        raise InputError(f"{parent}: no job with the hash {hash_}; run snakemake, which computes it first")
    return found[0]


def estimated_at(alone: bool, backend: str, device: str) -> tuple[str, str]:
    """Return the backend and device that estimate the bases of a workload.

    They are those of its runs where each run is a job `alone`, hours of a GPU; else the host estimates them.
    """
    return (backend, device) if alone and device != "cpu" else (HOST, "cpu")
