"""How straight a metric falls on a logarithmic axis: 1 is linear convergence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from curvebench.spec.conditions.condition import Condition
from curvebench.spec.document import Direction


class LogLinearity(Condition):
    """The share of the variance of a curve's logarithm that a line over steps explains.

    Args:
        until: the value of the metric down to which curves are judged.
    """

    quantity: Literal["log_linearity"]
    until: Annotated[float, Field(gt=0.0)]

    direction = "maximize"
    judges = "final"
    of_curves: ClassVar[bool] = True

    def misfits(self, stop: float | None, has_target: bool, direction: Direction | None) -> Iterator[str]:
        """Yield that runs stop too early, that the metric rises, or that no curve is so straight."""
        number = self.number
        if stop is not None and stop >= self.until:
            yield f"until: runs stop at {stop:g} before they get there; give more than that"
        if direction == "maximize":
            yield f"quantity: {self.metric} does not fall to 0; take one that is minimized"
        if number is not None and not 0 < number < 1 - (self.smallest_effect or 0.0):
            problem = f"{number:g}, and better by the smallest effect, is no log-linearity to ask for"
            yield f"compared_to: {problem}; both are between 0 and 1, and so is their sum"
