"""The plan of a published set as whoever checks it needs it: what was asked, and so what must be there."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from results.set_names import NAME
from results.verdicts import Relation, Variant

Direction = Literal["minimize", "maximize"]
# as the harness has them, which this folder may not import (tests/results/test_checking.py compares)
FIRST_FINAL_SEED = 1000
LIBRARIES = {"torch": "torch", "optax": "jax"}  # the backend of each

OPEN = "…"  # in a quantity that plan.json asks for: what is put there for each instance


class Part(BaseModel):
    """Something that a plan names; keys that a check has no use for are left out."""

    model_config = ConfigDict(strict=True, frozen=True)


class Metric(Part):
    """Whether less of a metric is better."""

    direction: Direction


class Settings(Part):
    """Of a workload's settings the examples of a minibatch; None for the full batch."""

    batch_size: int | None = None


class Workload(Part):
    """A workload, its metrics by name, its settings and the precision of its runs, where the plan says it."""

    name: str
    metrics: dict[str, Metric]
    settings: Settings = Settings()
    dtype: str | None = None


class Backend(Part):
    """The backend whose runs chose the learning rates, and on how many seeds methods are judged."""

    tuned_on: str
    final_seeds: int = Field(ge=1)


class Seeds(Part):
    """On how many seeds settings were tried."""

    tuning: int = Field(ge=1)


class Tuning(Part):
    """How many settings each method may try, in which bases, and by what the best is chosen, for which."""

    trials: int = Field(ge=1)
    shared_across: str
    tried_in: list[str] | None = None
    metric: str
    which: Literal["final", "best"]
    direction: Direction
    names: list[str] = ["learning_rate"]

    def tries(self, basis: str) -> bool:
        """Whether settings are tried in a basis."""
        return self.tried_in is None or basis in self.tried_in


class Rule(Part):
    """Which update rule a label of the study stands for; the label itself where nothing is said.

    `space` has the tuned hyperparameters where they are not the study's.
    """

    rule: str | None = None
    space: dict[str, Any] = {}


class Basis(Part):
    """How many gradients a basis samples, such as 1000 or "2.0 d", and when it does so again."""

    samples: int | str | None = None
    every: str | None = Field(default=None, pattern="^[1-9][0-9]* (steps|epochs)$")


class Budget(Part):
    """How long a run goes on."""

    steps: int | None = None
    epochs: int | None = None


class PlannedStudy(Part):
    """A study: its cells are methods x workloads x backends x seeds.

    `precision` is that of all runs; None: each workload's own.
    """

    name: str
    methods: list[str]
    workloads: list[Workload]
    backends: dict[str, Backend]
    seeds: Seeds
    precision: str | None = None
    tuning: Tuning
    targets: dict[str, float] = {}
    stop: dict[str, float] = {}
    budget: Budget
    bases: dict[str, Basis] = {}
    optimizers: dict[str, Rule]
    needs_hessian: list[str] | None = None  # labels; plans that were written before do not say
    looks_ahead: list[str] = []
    tables: str

    def only_backend(self, optimizer: str) -> str | None:
        """The one backend that a method of another library runs on, and is tuned on; None for our own."""
        library, colon, _ = (self.optimizers.get(optimizer, Rule()).rule or optimizer).partition(":")
        return LIBRARIES.get(library) if colon else None

    def tuned_names(self, optimizer: str) -> list[str]:
        """The hyperparameters that are tuned, the learning rate first: the study's, or of its own space."""
        space = self.optimizers.get(optimizer, Rule()).space
        return ["learning_rate", *sorted(space.keys() - {"learning_rate"})] if space else self.tuning.names

    def targets_on(self, workload: Workload) -> dict[str, float]:
        """Threshold by metric, of the metrics that the workload has."""
        return {name: threshold for name, threshold in self.targets.items() if name in workload.metrics}


class Ask(Part):
    """A measure that a part of a claim may give, None where that is computed for each instance.

    The quantity has `OPEN` for what an instance puts there; `always` is whether every instance gives it.
    """

    quantity: str
    relation: Relation | None
    limit: float | None
    tolerance: float | None
    always: bool


class ClaimPart(Part):
    """A part of a claim, how many instances are drawn of it, and what it asks of them."""

    part: str
    variant: Variant
    source: str
    instances: int = Field(ge=1)
    asks: list[Ask]


class Claim(Part):
    """A claim that property checks decide.

    `missing` says what data it lacks, empty where it could be checked; plans that were written before its
    parts were named have None.
    """

    id: str
    missing: str = ""
    parts: list[ClaimPart] | None = None


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


class Skipped(Part):
    """A study that was not run, and why."""

    name: str
    reason: str


class SetPlan(Part):
    """The plan of a set."""

    scale: str
    published: str = Field(pattern=f"^{NAME.pattern}$")
    waived: list[str]
    studies: list[PlannedStudy]
    skipped: list[Skipped] = []
    parity: ParityPart | None = None
    checks: ChecksPart | None = None
    kernels: None = None
