"""Log-linearity: how close the curve of a metric on a logarithmic axis is to a straight line.

The log-linearity is 1 for linear convergence, in which each step multiplies the metric by the same factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from curvebench.spec.conditions.condition import Condition
from curvebench.spec.document import Direction


class LogLinearity(Condition):
    """Coefficient of determination of a straight line fitted to the logarithm of a metric over steps.

    Args:
        until: value of the metric at which the fitted curve ends. Evaluations after the metric has fallen to
            this value are ignored.
    """

    quantity: Literal["log_linearity"]
    until: Annotated[float, Field(gt=0.0)]

    direction = "maximize"
    judges = "final"
    of_curves: ClassVar[bool] = True

    def misfits(self, stop: float | None, has_target: bool, direction: Direction | None) -> Iterator[str]:
        """Yield a reason for each of three cases in which the study cannot decide the condition.

        In the first case, runs stop before the metric falls to `until`. In the second case, the metric is
        maximized. In the third case, no log-linearity can be better than the number in `compared_to` by the
        smallest effect.
        """
        number = self.number
        if stop is not None and stop >= self.until:
            yield f"until: runs stop at {stop:g} before they reach it; give a larger value"
        if direction == "maximize":
            yield f"quantity: {self.metric} does not fall to 0; take one that is minimized"
        if number is not None and not 0 < number < 1 - (self.smallest_effect or 0.0):
            problem = f"no log-linearity is better than {number:g} by the smallest effect"
            yield f"compared_to: {problem}; the number and its sum with the effect must be between 0 and 1"
