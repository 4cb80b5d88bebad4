"""What tuning runs say of learning rates."""

from __future__ import annotations

from typing import Literal

from curvebench.spec.conditions.condition import Condition, Effect, Methods
from curvebench.spec.conditions.value import Floor
from curvebench.spec.document import Direction


class OverRates(Condition):
    """A quantity of the learning rates that both methods tried, tuning seed by tuning seed.

    Args:
        floor: the value of the metric that rounding leaves: learning rates beyond it tie.
    """

    compared_to: Methods
    control_workload: None = None
    floor: Floor | None = None

    direction = "maximize"
    of_tuning = True


class BestLearningRate(OverRates):
    """The learning rate at which a method has its best value."""

    quantity: Literal["best_learning_rate"]

    def effect_on(self, direction: Direction) -> Effect:
        """Return that rates are compared by ratio."""
        return "ratio"


class GainOverRates(OverRates):
    """A gain over learning rates: their trend, or the share of them at which a method is ahead.

    `trend` is Kendall's tau-b of the learning rate and the gain at it, `rates_won` the share of rates that a
    method wins less the share that it loses.
    """

    quantity: Literal["trend", "rates_won"]
    better: Methods
