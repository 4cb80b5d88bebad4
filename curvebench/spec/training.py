"""The training protocol: everything that decides the result of a run, except the method.

In a study file, the keys of the protocol do not stand together under one key. Keys that are the same at every
scale (size of the study) are keys of the study. All other keys are keys of each scale. The plan of a study at
a scale, and the jobs of the study, contain the protocol as one object. To add a key, add a field to
`StudyTraining` or `ScaleTraining`, and read the field in the code that executes the protocol. If the steps of
a run use the key, add the field to `curvebench.steps.program.StepProtocol` too.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from curvebench.spec.document import Document, Positive, Targets
from curvebench.spec.errors import check_known
from curvebench.spec.values import Precision

# The only metric for which a study can give a threshold at which runs stop
GRADIENT_NORM = "gradient_norm"


class Schedule(Document):
    """Factor of the learning rate as a function of the step, the same for every method.

    Args:
        name: shape after the warm-up, such as `cosine`.
        warmup: fraction of the steps, at the beginning of a run, during which the factor rises from 0 to 1.
        warmup_epochs: length of the warm-up in epochs, which replaces `warmup`; None to use `warmup`.
        cooldown: fraction of the steps, at the end of a run, during which the factor falls from 1 to `final`.
        final: factor that a falling schedule or a cool-down would reach one step after the last step.
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
            raise ValueError(f"cooldown: only a constant schedule has one, since {self.name} falls anyway")
        if self.warmup and self.warmup_epochs is not None:
            raise ValueError(
                "warmup_epochs: warmup says the same as a share of the steps; give one of the two"
            )
        if self.warmup + self.cooldown > 1.0:
            raise ValueError("cooldown: warmup and cooldown are shares of the steps; together they exceed 1")
        return self


def _stopping(metric: str) -> str:
    check_known("stop", "key", [metric], [GRADIENT_NORM])
    return metric


class StudyTraining(Document):
    """Keys of the training protocol that are the same at every scale of a study.

    Args:
        stop: thresholds at which a run ends, such as `{"gradient_norm": 1e-8}`; empty to run the full length.
        clip_gradient_norm: maximum norm of the gradient that the update rule gets; None for no limit.
        precision: precision of all runs; None to use the default precision of each workload.
        targets: thresholds by metric: a number for all workloads, or a number for each workload by its label.
            A run records the first step at which a metric meets its threshold, and continues.
    """

    schedule: Schedule = Schedule()
    stop: dict[Annotated[str, AfterValidator(_stopping)], Annotated[float, Field(gt=0.0)]] = Field(default={})
    clip_gradient_norm: Annotated[float, Field(gt=0.0)] | None = None
    precision: Precision | None = None
    targets: Targets = Field(default={})


class ScaleTraining(Document):
    """Keys of the training protocol that each scale of a study has.

    Args:
        evaluations: number of equal evaluation intervals of a run. Metrics are recorded before the first step
            and after each interval.
        evaluated_splits: splits of the data on which metrics are computed; None for all splits of the
            workload.
        gradient_accumulation: number of equal parts into which each minibatch is divided. Gradients of the
            parts are computed one after the other to save memory.
    """

    evaluations: Positive
    evaluated_splits: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None
    gradient_accumulation: Positive = 1


class TrainingProtocol(StudyTraining, ScaleTraining):
    """The training protocol of the runs of a study at a scale.

    Args:
        budget: the length of a run, `{"epochs": n}` or `{"steps": n}`.
    """

    budget: dict[str, int]

    @property
    def stop_gradient_norm(self) -> float | None:
        """Gradient norm below which a run stops; None if runs always have their full length."""
        return self.stop.get(GRADIENT_NORM)

    def shortened(self, share: Fraction) -> Self:
        """Return the protocol of shorter runs, with the same number of evaluations per epoch.

        Args:
            share: length of the shorter runs as a fraction of the length in `budget`. Both share times length
                and share times number of evaluations must be whole numbers.
        """
        budget = {unit: int(share * length) for unit, length in self.budget.items()}
        return self.model_copy(update={"budget": budget, "evaluations": int(share * self.evaluations)})

    def targets_on(self, workload: str) -> dict[str, float]:
        """Return the threshold of each metric that has a target on a workload.

        Args:
            workload: label of the workload.
        """
        values = {name: at.get(workload) if isinstance(at, dict) else at for name, at in self.targets.items()}
        return {name: at for name, at in values.items() if at is not None}

    def with_half_the_memory(self, batch_size: int | None) -> str:
        """Return advice for the author of a study: how to halve the examples that are in memory at a time.

        Args:
            batch_size: number of examples in a minibatch; None if all examples are one batch.
        """
        if batch_size is None:
            return "all examples are one batch; a batch_size in the study would hold less at a time"
        parts = 2 * self.gradient_accumulation
        half = f"with gradient_accumulation {parts} in the study would hold half of it at a time"
        if batch_size % parts:
            smaller = f"a smaller batch_size than {batch_size} would hold less"
            return f"{smaller}, and one that {parts} divides {half}"
        return f"batch_size {batch_size} {half}"
