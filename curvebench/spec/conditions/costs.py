"""Conditions that compare costs of final runs: steps or gradients until a threshold is met, and seconds.

A final run is a run with the tuned setting. A smaller cost is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from curvebench.spec.conditions.condition import Condition, Methods
from curvebench.spec.document import Direction

# A run is near its best value once the metric is within this factor of the best value.
# The metric is then at least 0.995 times a maximum, or at most 1 / 0.995 times a minimum.
# Source: EGOP paper, 000 App. B and Fig. 16.
NEARLY_BEST = 0.995


class CostOfRuns(Condition):
    """Base class of conditions that compare the costs of final runs of two methods.

    Other conditions may compare a method with a fixed number; these conditions may not.
    """

    compared_to: Methods
    direction = "minimize"


class CostToStop(CostOfRuns):
    """Steps or gradient evaluations until a run stopped at a threshold.

    The cost of a run that did not stop is censored: only a lower bound of the cost is known, the length of
    the run. Gradient evaluations include the evaluations from which the basis was estimated.
    """

    quantity: Literal["steps_to_stop", "gradients_to_stop"]
    judges = "final"
    undecided = "neither stopped"

    def misfits(self, stop: float | None, has_target: bool, direction: Direction | None) -> Iterator[str]:
        """Yield the reason why the study cannot decide the condition if runs do not stop at a threshold."""
        if stop is None:
            yield f"quantity: runs do not stop at a {self.metric}; give it in stop"


class StepsToTarget(CostOfRuns):
    """Steps until an evaluation first met a target, a threshold of the metric.

    For a run that never met the target, the number of steps is censored: only a lower bound of the number is
    known, the length of the run.

    Args:
        target: the threshold; None to use the target that the study gives for the metric.
    """

    quantity: Literal["steps_to_target"]
    target: float | None = None
    judges = "best"
    undecided = "neither reached it"

    @property
    def meets_targets(self) -> bool:
        """Whether the threshold is the target that the study gives for the metric."""
        return self.target is None

    @property
    def of_curves(self) -> bool:
        """Whether the quantity is computed from the values of the metric at every evaluation.

        Runs record the step at which they first met a target of the study. For a threshold that only the
        condition gives, the step has to be found in the values at every evaluation.
        """
        return not self.meets_targets


class SecondsToNearlyBest(CostOfRuns):
    """Seconds until a run first comes near its own best value (`NEARLY_BEST`).

    `seconds_to_nearly_best` includes the seconds in which the basis was estimated;
    `training_seconds_to_nearly_best` does not.
    """

    quantity: Literal["seconds_to_nearly_best", "training_seconds_to_nearly_best"]
    judges = "best"
    of_curves: ClassVar[bool] = True

    @property
    def charges_bases(self) -> bool:
        """Whether the quantity includes the seconds in which the basis was estimated."""
        return self.quantity == "seconds_to_nearly_best"


class RunSeconds(CostOfRuns):
    """Seconds of training in a run."""

    quantity: Literal["run_seconds"]
    judges = "final"
