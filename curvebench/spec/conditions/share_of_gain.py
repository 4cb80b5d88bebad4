"""What share of the gain of one method over another a third method keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from curvebench.spec.conditions.condition import ComparisonKey, Condition, Methods, refuse
from curvebench.spec.conditions.value import Floor
from curvebench.spec.document import Direction


class ShareOfGain(Condition):
    """The share of a logarithmic gain that a method keeps, seed by seed: log(from / method) / log(from / to).

    Args:
        compared_to: the share that is held against.
        baseline, reference: for each method those between which the gain lies.
        gain_metric: the gain is in the metric's value, or in the steps to its target.
        floor: the value of the metric that rounding leaves, beyond which runs are known to bounds only.
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
        twice = "better: a method stands here twice, of two gains; give each a condition of its own"
        in_steps = self.meets_targets
        refuse(
            (in_steps and self.which != "best", "metric: steps_to_target is of the best value; say best"),
            (
                set(map(len, gains)) != {len(methods)},
                "baseline and reference: give as many as methods, one for each",
            ),
            (nothing, "reference: a method gains nothing over itself; name another"),
            (len(set(methods)) < len(methods), twice),
            (in_steps and self.floor is not None, "floor: it bounds values alone; leave it out"),
        )
        return self

    def misfits(self, stop: float | None, has_target: bool, direction: Direction | None) -> Iterator[str]:
        """Yield that there is no target, or no logarithm."""
        yield from super().misfits(stop, has_target, direction)
        if not self.meets_targets and direction == "maximize":
            yield f"quantity: {self.metric} has no logarithm to gain; take one that is minimized"

    @property
    def meets_targets(self) -> bool:
        """Whether the gain is in steps to a target."""
        return self.gain_metric == "steps_to_target"

    @property
    def named(self) -> tuple[str, ...]:
        """All methods that the condition names."""
        return (*self.methods, *self.baseline, *self.reference)

    def arms(self, key: ComparisonKey) -> tuple[tuple[str, str], ...]:
        """Workload and method of all runs that one of the comparisons is of."""
        place = self.methods.index(key.treated)
        gains = (self.baseline[place], self.reference[place])
        return (*key.arms, *((key.workload, method) for method in gains))
