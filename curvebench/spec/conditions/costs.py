"""Costs of final runs, of which less is better: steps or gradients until a threshold is met, and seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from curvebench.spec.conditions.condition import Condition, Methods
from curvebench.spec.document import Direction

# A run counts as converged at this fraction of its best value (000 App. B, Fig. 16).
NEARLY_BEST = 0.995


class CostOfRuns(Condition):
    """Base class of costs of final runs, which are compared between methods, never with a number."""

    compared_to: Methods
    direction = "minimize"


class CostToStop(CostOfRuns):
    """Steps or gradient evaluations until a run stopped at a threshold.

    The cost of a run that did not stop is censored: it is at least the length of the run. Gradient
    evaluations include those of the basis.
    """

    quantity: Literal["steps_to_stop", "gradients_to_stop"]
    judges = "final"
    undecided = "neither stopped"

    def misfits(self, stop: float | None, has_target: bool, direction: Direction | None) -> Iterator[str]:
        """Yield a reason if runs of the study do not stop at a value of the metric."""
        if stop is None:
            yield f"quantity: runs do not stop at a {self.metric}; give it in stop"


class StepsToTarget(CostOfRuns):
    """Steps until an evaluation first met a target.

    The number of a run that never met it is censored: it is at least the length of the run.

    Args:
        target: threshold of the metric; None for the study's target.
    """

    quantity: Literal["steps_to_target"]
    target: float | None = None
    judges = "best"
    undecided = "neither reached it"

    @property
    def meets_targets(self) -> bool:
        """Whether the threshold is the study's target."""
        return self.target is None

    @property
    def of_curves(self) -> bool:
        """Whether curves are needed: for a threshold of the condition, since runs record only targets."""
        return not self.meets_targets


class SecondsToNearlyBest(CostOfRuns):
    """Seconds until a run is first near its own best value, with or without the seconds of the basis."""

    quantity: Literal["seconds_to_nearly_best", "training_seconds_to_nearly_best"]
    judges = "best"
    of_curves: ClassVar[bool] = True

    @property
    def charges_bases(self) -> bool:
        """Whether the seconds of estimating the basis are included."""
        return self.quantity == "seconds_to_nearly_best"


class RunSeconds(CostOfRuns):
    """Seconds that a run trained for."""

    quantity: Literal["run_seconds"]
    judges = "final"
