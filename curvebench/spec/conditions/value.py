"""Conditions that compare values of a metric, final or best, at equal steps or at another equal cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from curvebench.spec.conditions.condition import Condition, Effect, Methods, refuse
from curvebench.spec.document import Direction

Floor = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class Value(Condition):
    """The value of a metric, compared by ratio if the metric is minimized, otherwise by difference.

    Args:
        effect: `difference` to compare by difference even if the metric is minimized; None for the usual
            comparison.
        floor: value below which a metric consists of rounding errors; None if there is no such value. A value
            of a run below the floor counts as censored: it is only known to be at most the floor.
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
        """Yield a reason if the condition requires a ratio to a number that is not above 0.

        The study cannot decide such a condition, because the ratio is undefined. The number is the value of
        `compared_to`.
        """
        ratio = direction is not None and self.effect_on(direction) == "ratio"
        if ratio and self.number is not None and self.number <= 0:
            remedy = "give a positive number, or effect: difference"
            yield f"compared_to: a ratio to {self.number:g} is not defined; {remedy}"

    def effect_on(self, direction: Direction) -> Effect:
        """Return `effect` if the condition gives it; otherwise ratio if less is better, else difference."""
        return self.effect or super().effect_on(direction)


class ValueAtEqualCost(Value):
    """The value of a metric at equal cost: the total cost of the cheaper of the two runs.

    The cost is counted in gradient evaluations or in seconds, and includes the cost of estimating bases.
    """

    compared_to: Methods
    control_workload: None = None
    at_equal: Literal["gradients", "seconds"]  # type: ignore[assignment]  # narrower than in the base class

    charges_bases: ClassVar[bool] = True

    @property
    def of_curves(self) -> bool:
        """Whether the quantity is computed from the values of the metric at every evaluation.

        The final value after an equal number of gradients needs a single evaluation of each run: the last
        evaluation within the cost of the cheaper run. A published set contains this evaluation, even if it
        does not contain the whole curve (`curvebench.reports.sets.contents.steps_of_claims`).
        """
        return self.at_equal == "seconds" or self.which == "best"
