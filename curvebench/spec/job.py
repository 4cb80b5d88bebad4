"""A job as resolved: what is run, from which sources, after which jobs, and where its files lie."""

from __future__ import annotations

import hashlib
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from curvebench.spec.document import Document
from curvebench.spec.errors import InputError
from curvebench.spec.method import BasisSpec, Method, OptimizerSpec, WorkloadSpec
from curvebench.spec.plan import StudyPlan
from curvebench.spec.study import TrainingProtocol
from curvebench.spec.tuning import REFINED_RATES, Tuning
from curvebench.spec.values import Precision

TRAJECTORY_VERSION = 2  # raised when the harness changes what a run computes (tests/curvebench/golden)
UNDECISIVE = {"hash", "claim_rules"}  # no part of a job's hash
HOST = "host"  # the backend of bases that are estimated once for all backends: JAX in float64, and NumPy


class JobSpec(Document):
    """What every job has. Two jobs with equal hashes compute the same tables to rounding.

    Args:
        optimizers: the contestants; of checks, the module of claims, by whose name the job goes.
        upstream: hash of the job by part: `bases`, `sweep`, `refine`, `final`; of several for timing.
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
        decisive = json.dumps(self.model_dump(mode="json", exclude=UNDECISIVE), sort_keys=True)
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
    def who(self) -> str:
        """What it is about, in words: its optimizer."""
        return self.optimizers[0].label if len(self.optimizers) == 1 and self.stage != "timing" else "all"

    @property
    def name(self) -> str:
        """The last part of its paths: optimizer, backend and hash."""
        return f"{self.who}.{self.backend}.{self.hash}"


class BasesSpec(JobSpec):
    """Estimates bases, which depend neither on protocol nor on budget.

    On `HOST` in float64; elsewhere gradients are taken in the precision of the runs.

    Args:
        precision: of the runs that use them, in which they are stored; None: each workload's own.
    """

    stage: Literal["bases"]
    precision: Precision | None = None


class TrainingSpec(JobSpec, TrainingProtocol):
    """Runs of methods.

    Args:
        bundle_memory_bytes: what the lanes that advance together may take; it decides how many they are.
    """

    bundle_memory_bytes: int


class RunsSpec(TrainingSpec):
    """Runs that tune a method, or those that it is judged by.

    Args:
        tuning: the protocol, with the optimizer's own search space where it has one.
        settings: the hyperparameter settings of a sweep (random and Halton search: all of them), or
            None where refine and final take them from the tables of `upstream`.
        alone: whether it is one run that is a job of its own (of finals: one seed's runs).
        setting: of such a run, which of the settings that its stage tries, from 0; None where it takes all.
        compared: labels of the bases in which claims compare the method: final runs are made there at all
            settings that may have been chosen (`curvebench.results.tuning.Tried.likely`).
        claim_rules: of final runs the hash of each claim's rule as it was when they were planned. A rule that
            is changed afterwards shows as changed and runs nothing anew.
    """

    stage: Literal["sweep", "refine", "final"]
    tuning: Tuning
    settings: tuple[dict[str, float], ...] | None = None
    alone: bool = False
    setting: int | None = None
    compared: tuple[str, ...] = ()
    claim_rules: dict[str, str] = Field(default={})

    @property
    def tried(self) -> int:
        """The number of settings that each cell tries, without those that other tuning seeds would choose."""
        tried = {"sweep": len(self.settings or ()), "refine": REFINED_RATES, "final": 1}
        return 1 if self.alone else tried[self.stage]

    @property
    def who(self) -> str:
        """What it is about, in words: its optimizer; of a run alone method, workload, setting and seed."""
        if not self.alone:
            return super().who
        said = [f"{Method(super().who, self.bases[0].label).label} on {self.workloads[0].name}"]
        if self.settings:
            said += [f"{name} {value:g}" for name, value in self.settings[0].items()]
        elif self.setting is not None:
            said += [f"setting {self.setting + 1}"]
        return ", ".join([*said, f"seed {self.seeds[0]}"])

    @property
    def name(self) -> str:
        """As of every job; of a run alone it tells workload, basis, setting and seed too."""
        if not self.alone:
            return super().name
        parts = [super().who, self.workloads[0].name, self.bases[0].label]
        parts += [f"setting{self.setting + 1}"] if self.setting is not None else []
        text = re.sub(r"[^\w-]", "_", "-".join([*parts, f"seed{self.seeds[0]}"]))  # a dot would end it
        return f"{text}.{self.backend}.{self.hash}"


class TimingSpec(TrainingSpec):
    """Steps of all methods of a backend, timed."""

    stage: Literal["timing"]


def training(study: StudyPlan) -> dict[str, Any]:
    """The fields of a job that are its study's, whatever it runs."""
    return {"study": study.name, **{name: getattr(study, name) for name in TrainingProtocol.model_fields}}


def runs_spec(study: StudyPlan, **own: Any) -> RunsSpec:
    """The job that runs methods of a study.

    Args:
        own: the other fields of the job, and those of the study's that it departs from.
    """
    given = training(study)
    if own["stage"] != "final" and study.tuning_epochs is not None:
        share = Fraction(study.tuning_epochs, study.budget["epochs"])
        given |= {"budget": {"epochs": study.tuning_epochs}, "evaluations": int(share * study.evaluations)}
    return RunsSpec(**{**given, **own})


class ParitySpec(JobSpec):
    """Compares the backends on some optimizers, for a number of steps."""

    stage: Literal["parity"]
    steps: int


class ChecksSpec(JobSpec):
    """Checks the claims of a module of benchmarks/claims; `claim_rules` are the hashes of their rules."""

    stage: Literal["checks"]
    claim_rules: dict[str, str] = Field(default={})


ANY = TypeAdapter[BasesSpec | RunsSpec | TimingSpec | ParitySpec | ChecksSpec](
    Annotated[BasesSpec | RunsSpec | TimingSpec | ParitySpec | ChecksSpec, Field(discriminator="stage")]
)


def read_spec(path: Path) -> JobSpec:
    """Read a spec file and check that its name still carries its hash.

    Raises:
        InputError: when the file is missing, damaged or edited.
    """
    try:
        spec = ANY.validate_json(path.read_bytes())
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
