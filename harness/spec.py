"""The resolved description of one job: what is run, from which sources, after which jobs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from harness.errors import InputError

Stage = Literal["bases", "sweep", "refine", "final", "timing", "parity", "checks"]
Precision = Literal["float32", "float64"]
TRAJECTORY_VERSION = 2  # raised when the harness changes what a run computes (tests/harness/golden)


@dataclass(frozen=True)
class OptimizerSpec:
    """A contestant: a rule, the hyperparameters that its study fixes, and its options completed.

    Args:
        name: the rule's.
        label: what tables call it; the rule's name where none is given.
        factors: of hyperparameters, by their name, then by parameter name or kind.
        space: the axes of its own search space by hyperparameter; empty where it has the study's.
        locator: where the rule is found (harness.contestants); its name where none is given.
    """

    name: str
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    space: Mapping[str, Any] = field(default_factory=dict)
    locator: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.name)
        object.__setattr__(self, "locator", self.locator or self.name)


@dataclass(frozen=True)
class BasisSpec:
    """A basis under the label that tables use, with its options completed."""

    label: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload with its settings completed.

    Args:
        locator: where it is found (harness.contestants); its name where none is given.
    """

    name: str
    settings: Mapping[str, Any]
    locator: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "locator", self.locator or self.name)


@dataclass(frozen=True)
class JobSpec:
    """One job. Two jobs with equal hashes compute the same tables.

    Args:
        optimizers: the contestants; of checks, the module of claims, by whose name the job goes.
        settings: the hyperparameter settings of a sweep (random and Halton search: all of them), or
            None where refine and final take them from the tables of `upstream`.
        tuning: the tuning protocol of the study, resolved.
        budget: `{"epochs": n}` or `{"steps": n}`.
        evaluations: how many equal stretches the run is cut into; metrics are recorded after each, and
            before the first step.
        schedule: `{"name": shape, "warmup": share of the steps, "cooldown": likewise, "final": multiplier}`.
        stop: thresholds that end a run, `{"gradient_norm": 1e-8}`, or empty.
        targets: threshold by metric.
        bundle_memory_bytes: what the lanes that advance together may take; it decides how many they are.
        upstream: hash of the job by part: `bases`, `sweep`, `refine`, `final`; of several for timing.
        sources: SHA-256 by file of everything first-party that decides the result.
        versions: versions of the backend's packages.
        precision: of all runs; None: the workload's, and then no part of the job's hash.
        claim_rules: of final runs the hash of each claim's rule as it was when they were planned. No part of
            the job's hash: a rule that is changed afterwards shows as changed and runs nothing anew.
    """

    stage: Stage
    study: str
    scale: str
    backend: str
    device: str
    optimizers: tuple[OptimizerSpec, ...]
    workloads: tuple[WorkloadSpec, ...]
    bases: tuple[BasisSpec, ...]
    seeds: tuple[int, ...]
    settings: tuple[Mapping[str, float], ...] | None
    tuning: Mapping[str, Any]
    budget: Mapping[str, int]
    evaluations: int
    schedule: Mapping[str, Any]
    stop: Mapping[str, float]
    targets: Mapping[str, float]
    bundle_memory_bytes: int
    upstream: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, str]
    versions: Mapping[str, str]
    trajectory_version: int = TRAJECTORY_VERSION
    claim_rules: Mapping[str, str] = field(default_factory=dict)
    precision: Precision | None = None

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, a line for each key, so that specs can be compared with diff."""
        return "{\n" + ",\n".join(self._lines) + "\n}\n"

    @cached_property
    def _lines(self) -> tuple[str, ...]:
        given = {name: value for name, value in vars_of(self).items() if (name, value) != ("precision", None)}
        return tuple(f" {_compact(name)}: {_lined(value)}" for name, value in sorted(given.items()))

    @cached_property
    def hash(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the canonical JSON without `claim_rules`."""
        decisive = (line for line in self._lines if not line.startswith(' "claim_rules"'))
        return hashlib.sha256("\n".join(decisive).encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, text: str, origin: str = "spec") -> JobSpec:
        """Read what `to_json` wrote.

        Raises:
            InputError: when the text is not such a document.
        """
        try:
            raw = json.loads(text)
            raw["optimizers"] = tuple(OptimizerSpec(**item) for item in raw["optimizers"])
            raw["workloads"] = tuple(WorkloadSpec(**item) for item in raw["workloads"])
            raw["bases"] = tuple(BasisSpec(**item) for item in raw["bases"])
            raw["seeds"] = tuple(raw["seeds"])
            raw["settings"] = None if raw["settings"] is None else tuple(raw["settings"])
            raw["upstream"] = {part: tuple(hashes) for part, hashes in raw["upstream"].items()}
            return cls(**raw)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{origin}: not a job spec ({error}); delete it and run snakemake again"
            ) from error


def vars_of(spec: Any) -> dict[str, Any]:
    """The fields of a dataclass by name; `asdict` would copy them deeply."""
    return {field.name: getattr(spec, field.name) for field in fields(spec)}


def _lined(value: Any) -> str:
    """JSON of a mapping with a line for each key; of anything else on one line."""
    if not isinstance(value, Mapping) or not value:
        return _compact(value)
    return "{\n" + ",\n".join(f"  {_compact(key)}: {_compact(value[key])}" for key in sorted(value)) + "\n }"


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else vars_of(value)


def read_spec(path: Path) -> JobSpec:
    """Read a spec file and check that its name still carries its hash.

    Raises:
        InputError: when the file is missing, damaged or edited.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); run snakemake, which writes it"
        ) from error
    spec = JobSpec.from_json(text, str(path))
    if spec.hash not in path.name:
        raise InputError(
            f"{path}: its content has the hash {spec.hash}, which its name does not carry; "
            "delete the file and run snakemake again"
        )
    return spec
