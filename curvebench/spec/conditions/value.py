"""The value of a metric at the end of runs or at their best, at equal steps or at another equal cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from curvebench.spec.conditions.condition import Condition, Effect, Methods, refuse
from curvebench.spec.document import Direction

Floor = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class Value(Condition):
    """The value of a metric: a ratio where it is minimized, otherwise a difference.

    Args:
        effect: given where pairs are compared by difference whatever the metric is.
        floor: the value of the metric that rounding leaves, beyond which runs are known to bounds only.
    """

    quantity: Literal["value"] = "value"
    effect: Literal["difference"] | None = None
    floor: Floor | None = None

    @model_validator(mode="after")
    def _is_within_reach(self) -> Value:
        number, floor = self.number, self.floor
        beyond = number is not None and floor is not None and number <= floor
        refuse((beyond, f"compared_to: {number} is beyond the floor, {floor}, which no run is known to pass"))
        return self

    def misfits(self, stop: float | None, has_target: bool, direction: Direction | None) -> Iterator[str]:
        """Yield that a ratio to a number needs a number above 0."""
        ratio = direction is not None and self.effect_on(direction) == "ratio"
        if ratio and self.number is not None and self.number <= 0:
            remedy = "give a positive number, or effect: difference"
            yield f"compared_to: a ratio to {self.number:g} says nothing; {remedy}"

    def effect_on(self, direction: Direction) -> Effect:
        """Return how a pair is compared: as the condition says, otherwise as usual."""
        return self.effect or super().effect_on(direction)


class ValueAtEqualCost(Value):
    """The value of a metric where the cheaper of two methods' runs ends; what bases cost is charged."""

    compared_to: Methods
    control_workload: None = None
    at_equal: Literal["gradients", "seconds"]  # type: ignore[assignment]  # of no other quantity

    charges_bases: ClassVar[bool] = True

    @property
    def of_curves(self) -> bool:
        """Whether whole curves are read: of final values at equal gradients it is one step a run.

        That step, the last that is paid for, is nearly the same of all seeds.
        """
        return self.at_equal == "seconds" or self.which == "best"
