"""Conditions that compare tuning runs: the best learning rate, and gains at several learning rates.

Tuning runs a method with several settings (values of the tuned hyperparameters) on the tuning seeds.
"""

from __future__ import annotations

from typing import Literal

from curvebench.spec.conditions.condition import Condition, Effect, Methods
from curvebench.spec.conditions.value import Floor
from curvebench.spec.document import Direction


class OverRates(Condition):
    """Base class of quantities that are computed, for each tuning seed, from the learning rates that both
    methods tried.

    Args:
        floor: value below which a metric consists of rounding errors; learning rates whose values are below
            it tie. None if there is no such value.
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
        """Return `ratio`, since learning rates are always compared by ratio."""
        return "ratio"


class GainOverRates(OverRates):
    """The gain over the control as a function of the learning rate: its trend, or how often it is positive.

    `trend` is Kendall's tau-b of the learning rate and the gain at it. `rates_won` is the fraction of
    learning rates at which the method is better minus the fraction at which it is worse.
    """

    quantity: Literal["trend", "rates_won"]
    better: Methods
