"""The training protocol: everything that decides the result of a run, except the method.

It is one value. Study files write its keys flat, those that hold at every scale at the study and the others
at its scales; whatever comes after (a study at a scale, its plan, its jobs) contains the protocol whole. A
new key is a field of `StudyTraining` or `ScaleTraining`, and is read where it is executed; one that steps
execute is also a field of `curvebench.steps.program.StepProtocol`, which bundles and programs contain.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from curvebench.spec.document import Document, Positive, Targets
from curvebench.spec.errors import unknown
from curvebench.spec.values import Precision

GRADIENT_NORM = "gradient_norm"  # the only metric at which runs may stop


class Schedule(Document):
    """What multiplies the learning rate, for every method alike.

    Args:
        warmup, cooldown: shares of the steps.
        warmup_epochs: instead of `warmup`, in epochs; None where that is given.
    """

    name: str = "constant"
    warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    warmup_epochs: Annotated[float, Field(ge=0.0)] | None = None
    cooldown: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    final: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0

    @model_validator(mode="after")
    def _has_an_end(self) -> Schedule:
        if self.final and self.name == "constant" and not self.cooldown:
            raise ValueError(
                "final: a constant schedule has none; remove it, give a cooldown, or name another schedule"
            )
        if self.final and self.name in ("inverse_sqrt", "exponential"):
            raise ValueError(f"final: {self.name} has none; remove it, or name another schedule")
        if self.cooldown and self.name != "constant":
            raise ValueError(f"cooldown: it is of a constant schedule, and {self.name} falls by itself")
        if self.warmup and self.warmup_epochs is not None:
            raise ValueError(
                "warmup_epochs: warmup says the same as a share of the steps; give one of the two"
            )
        if self.warmup + self.cooldown > 1.0:
            raise ValueError("cooldown: warmup and cooldown are shares of the steps; together they exceed 1")
        return self


def _stopping(metric: str) -> str:
    if metric != GRADIENT_NORM:
        raise ValueError(unknown("stop", "key", metric, [GRADIENT_NORM]))
    return metric


class StudyTraining(Document):
    """Keys of the training protocol that hold at every scale of a study.

    Args:
        stop: thresholds that end a run, `{"gradient_norm": 1e-8}`, or empty.
        clip_gradient_norm: the norm to which a longer gradient is shortened for the rule; None: to none.
        precision: of all runs; None: each workload's own.
        targets: threshold by metric, or by metric and workload; a run goes on past a target.
    """

    schedule: Schedule = Schedule()
    stop: dict[Annotated[str, AfterValidator(_stopping)], Annotated[float, Field(gt=0.0)]] = Field(default={})
    clip_gradient_norm: Annotated[float, Field(gt=0.0)] | None = None
    precision: Precision | None = None
    targets: Targets = Field(default={})


class ScaleTraining(Document):
    """Keys of the training protocol that each scale of a study gives by itself.

    Args:
        evaluations: how many equal stretches the run is cut into; metrics are recorded after each, and
            before the first step.
        evaluated_splits: whose metrics these are; None: all that a workload has.
        gradient_accumulation: into how many equal parts a minibatch is cut, one evaluated after the other.
    """

    evaluations: Positive
    evaluated_splits: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None
    gradient_accumulation: Positive = 1


class TrainingProtocol(StudyTraining, ScaleTraining):
    """The training protocol of runs.

    Args:
        budget: the length of a run, `{"epochs": n}` or `{"steps": n}`.
    """

    budget: dict[str, int]

    @property
    def stop_gradient_norm(self) -> float | None:
        """The gradient norm below which a run stops; None where it does not."""
        return self.stop.get(GRADIENT_NORM)

    def shortened(self, share: Fraction) -> Self:
        """Return the protocol of runs of a share of the length, which has a whole number of evaluations."""
        budget = {unit: int(share * length) for unit, length in self.budget.items()}
        return self.model_copy(update={"budget": budget, "evaluations": int(share * self.evaluations)})

    def targets_on(self, workload: str) -> dict[str, float]:
        """Return the threshold of each metric that has a target on a workload, by the workload's name."""
        found = {name: at.get(workload) if isinstance(at, dict) else at for name, at in self.targets.items()}
        return {name: at for name, at in found.items() if at is not None}

    def with_half_the_memory(self, batch_size: int | None) -> str:
        """Return a sentence on the keys with which steps would hold half of a minibatch at a time."""
        if batch_size is None:
            return "all examples are one batch; a batch_size in the study would hold less at a time"
        parts = 2 * self.gradient_accumulation
        half = f"with gradient_accumulation {parts} in the study would hold half of it at a time"
        if batch_size % parts:
            smaller = f"a smaller batch_size than {batch_size} would hold less"
            return f"{smaller}, and one that {parts} divides {half}"
        return f"batch_size {batch_size} {half}"
