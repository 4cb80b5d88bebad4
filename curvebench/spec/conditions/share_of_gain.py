"""Conditions on the fraction of a gain, of one method over another, that a third method keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from curvebench.spec.conditions.condition import ComparisonKey, Condition, Methods, refuse
from curvebench.spec.conditions.value import Floor
from curvebench.spec.document import Direction


class ShareOfGain(Condition):
    """Fraction of a gain that a method keeps, for each seed, on a logarithmic scale.

    The gain is the improvement of the reference method over the baseline method. The fraction is
    log(baseline / treated) / log(baseline / reference), where each name stands for the value of that method:
    1 if the treated method keeps the whole gain, 0 if the treated method keeps nothing.

    Args:
        compared_to: the fraction with which the fraction of each treated method is compared.
        baseline: for each treated method, the label of the method without the gain.
        reference: for each treated method, the label of the method with the whole gain.
        gain_metric: whether the gain is an improvement of the metric's value or of the number of steps until
            the metric met its target.
        floor: value below which a metric consists of rounding errors; None if there is no such value. A value
            of a run below the floor counts as censored: it is only known to be at most the floor.
    """

    quantity: Literal["share_of_gain"]
    better: Methods
    compared_to: Annotated[float, Field(gt=0.0)]
    baseline: Methods
    reference: Methods
    gain_metric: Literal["value", "steps_to_target"] = "value"
    floor: Floor | None = None

    direction = "maximize"

    @model_validator(mode="after")
    def _has_gains(self) -> ShareOfGain:
        methods, gains = self.methods, (self.baseline, self.reference)
        nothing = any(start == end for start, end in zip(*gains, strict=False))
        twice = "better: lists a method twice, with two gains; give each a condition of its own"
        best = "metric: steps_to_target is defined for the best value; write best"
        unequal = "baseline and reference: give as many as methods, one for each"
        in_steps = self.meets_targets
        refuse(
            (in_steps and self.which != "best", best),
            (set(map(len, gains)) != {len(methods)}, unequal),
            (nothing, "reference: a method gains nothing over itself; name another"),
            (len(set(methods)) < len(methods), twice),
            (in_steps and self.floor is not None, "floor: applies only to values; leave it out"),
        )
        return self

    def misfits(self, stop: float | None, has_target: bool, direction: Direction | None) -> Iterator[str]:
        """Yield a reason if the gain is in steps and the study has no target for the metric.

        Also yield a reason if the gain is in values and the metric is maximized, because the logarithm is
        defined for a metric that falls towards 0.
        """
        yield from super().misfits(stop, has_target, direction)
        if not self.meets_targets and direction == "maximize":
            yield f"quantity: {self.metric} has no logarithm to gain; take one that is minimized"

    @property
    def meets_targets(self) -> bool:
        """Whether the gain is an improvement of the number of steps until a target of the study is met."""
        return self.gain_metric == "steps_to_target"

    @property
    def named(self) -> tuple[str, ...]:
        """Labels of all methods in the condition: treated methods, baseline methods and reference methods."""
        return (*self.methods, *self.baseline, *self.reference)

    def arms(self, key: ComparisonKey) -> tuple[tuple[str, str], ...]:
        """Return the pairs (workload, method) whose runs a comparison uses.

        They are the treated method, the baseline method and the reference method, all on the same workload.
        """
        index = self.methods.index(key.treated)
        gains = (self.baseline[index], self.reference[index])
        return (*key.arms, *((key.workload, method) for method in gains))
