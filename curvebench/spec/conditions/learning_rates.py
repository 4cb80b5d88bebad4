"""Conditions that compare tuning runs: the best learning rate, and gains at several learning rates.

Tuning runs a method with several settings (values of the tuned hyperparameters) on the tuning seeds.
"""

from __future__ import annotations

from typing import Literal

from curvebench.spec.conditions.condition import Condition, Effect, Methods
from curvebench.spec.conditions.value import Floor
from curvebench.spec.document import Direction


class OverRates(Condition):
    """Base class of quantities that are computed from all learning rates that both methods tried.

    The quantity has a value for each tuning seed.

    Args:
        floor: value below which a metric consists of rounding errors; None if there is no such value.
            Learning rates at which the metric is below the floor tie.
    """

    compared_to: Methods
    control_workload: None = None
    floor: Floor | None = None

    direction = "maximize"
    of_tuning = True


class BestLearningRate(OverRates):
    """The learning rate at which a method reaches the best value of the metric."""

    quantity: Literal["best_learning_rate"]

    def effect_on(self, direction: Direction) -> Effect:
        """Return `ratio`, since learning rates are always compared by ratio."""
        return "ratio"


class GainOverRates(OverRates):
    """A summary of the gain of the treated method over the control at each learning rate.

    `trend` is the rank correlation (Kendall's tau-b) between the learning rate and the gain. `rates_won` is
    the fraction of learning rates at which the treated method is better than the control, minus the fraction
    of learning rates at which the treated method is worse.
    """

    quantity: Literal["trend", "rates_won"]
    better: Methods
