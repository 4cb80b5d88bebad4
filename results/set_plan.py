"""The plan of a published set as whoever checks it needs it: what was asked, and so what must be there."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from results.set_names import NAME

# as the harness has them, which this folder may not import (tests/results/test_checking.py compares)
FIRST_FINAL_SEED = 1000
LIBRARIES = {"torch": "torch", "optax": "jax"}  # the backend of each


class Part(BaseModel):
    """Something that a plan names; keys that a check has no use for are left out."""

    model_config = ConfigDict(strict=True, frozen=True)


class Metric(Part):
    """Whether less of a metric is better."""

    direction: Literal["minimize", "maximize"]


class Workload(Part):
    """A workload and its metrics by name."""

    name: str
    metrics: dict[str, Metric]


class Backend(Part):
    """The backend whose runs chose the learning rates, and on how many seeds methods are judged."""

    tuned_on: str
    final_seeds: int = Field(ge=1)


class Seeds(Part):
    """On how many seeds settings were tried."""

    tuning: int = Field(ge=1)


class Tuning(Part):
    """How many settings each method may try, and whether the identity basis chooses for all."""

    trials: int = Field(ge=1)
    shared_across: str


class Rule(Part):
    """Which update rule a label of the study stands for; the label itself where nothing is said."""

    rule: str | None = None


class PlannedStudy(Part):
    """A study: its cells are methods x workloads x backends x seeds."""

    name: str
    methods: list[str]
    workloads: list[Workload]
    backends: dict[str, Backend]
    seeds: Seeds
    tuning: Tuning
    targets: dict[str, float] = {}
    optimizers: dict[str, Rule]
    tables: str

    def only_backend(self, optimizer: str) -> str | None:
        """The one backend that a method of another library runs on, and is tuned on; None for our own."""
        library, colon, _ = (self.optimizers.get(optimizer, Rule()).rule or optimizer).partition(":")
        return LIBRARIES.get(library) if colon else None

    def targets_on(self, workload: Workload) -> dict[str, float]:
        """Threshold by metric, of the metrics that the workload has."""
        return {name: threshold for name, threshold in self.targets.items() if name in workload.metrics}


class Claim(Part):
    """A claim that property checks decide, and what data it lacks; empty where it could be checked."""

    id: str
    missing: str = ""


class Problem(Part):
    """A small problem on which backends are compared, and what is known of its gradients."""

    label: str
    full_rank: bool
    free_of_noise: bool


class ParityPart(Part):
    """Where the comparison of backends lies, on what, over how many steps and with which tolerance."""

    tables: list[str]
    steps: int = Field(ge=1)
    tolerance: float = Field(gt=0)
    problems: list[Problem]


class ChecksPart(Part):
    """Where the checks of claims lie, and which claims they decide."""

    tables: list[str]
    claims: list[Claim]


class SetPlan(Part):
    """The plan of a set."""

    scale: str
    published: str = Field(pattern=f"^{NAME.pattern}$")
    waived: list[str]
    studies: list[PlannedStudy]
    parity: ParityPart | None = None
    checks: ChecksPart | None = None
    kernels: None = None
