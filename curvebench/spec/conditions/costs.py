"""What final runs cost, of which less is better: steps or gradients to a threshold, and seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from curvebench.spec.conditions.condition import Condition, Methods
from curvebench.spec.document import Direction

NEARLY_BEST = 0.995  # of a run's best value, at which it counts as converged (000 App. B, Fig. 16)


class CostOfRuns(Condition):
    """A cost of final runs, which is compared between methods."""

    compared_to: Methods
    direction = "minimize"


class CostToStop(CostOfRuns):
    """The steps or gradients until runs stopped at a threshold; a run that did not would have cost more.

    The gradients are those of the basis too.
    """

    quantity: Literal["steps_to_stop", "gradients_to_stop"]
    judges = "final"
    undecided = "neither stopped"

    def misfits(self, stop: float | None, has_target: bool, direction: Direction | None) -> Iterator[str]:
        """Yield that the study's runs do not stop."""
        if stop is None:
            yield f"quantity: runs do not stop at a {self.metric}; give it in stop"


class StepsToTarget(CostOfRuns):
    """The steps until an evaluation met a target; a run that ended without it would have taken more.

    Args:
        target: the threshold of the metric; None for the study's.
    """

    quantity: Literal["steps_to_target"]
    target: float | None = None
    judges = "best"
    undecided = "neither reached it"

    @property
    def meets_targets(self) -> bool:
        """Whether the target is the study's."""
        return self.target is None

    @property
    def of_curves(self) -> bool:
        """Whether curves say when the target was met: runs record the study's targets alone."""
        return not self.meets_targets


class SecondsToNearlyBest(CostOfRuns):
    """The seconds until a run first has nearly its best value, with or without those of the basis."""

    quantity: Literal["seconds_to_nearly_best", "training_seconds_to_nearly_best"]
    judges = "best"
    of_curves: ClassVar[bool] = True

    @property
    def charges_bases(self) -> bool:
        """Whether the seconds are those of the basis too."""
        return self.quantity == "seconds_to_nearly_best"


class RunSeconds(CostOfRuns):
    """The seconds that a run trained for."""

    quantity: Literal["run_seconds"]
    judges = "final"
