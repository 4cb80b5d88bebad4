"""Paired comparisons of runs that may have stopped at a threshold: what is known of the effect, in words."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
import polars as pl

from reports.formatting import plain, ratio, signed
from reports.plan import StudyPlan
from reports.statistics.paired import (
    Direction,
    Effect,
    PairedComparison,
    compare_pairs,
    effect_for,
    paired_values,
)
from reports.statistics.ranks import NEGLIGIBLE


@dataclass(frozen=True)
class PairedEffect:
    """Two methods compared seed by seed, and between what their effect lies.

    A run that stopped at its threshold would have got further, nobody knows how far. Where less is better,
    the effect of a pair is at most what its values say where the treated run stopped, at least that where
    the control's did, and unknown where both did.

    Args:
        comparison: with every such run at the threshold, so that its test counts two of them as a tie.
        floor, ceiling: with the least and with the greatest effect that each pair may have.
        stop: the threshold; None where runs stop at none.
    """

    comparison: PairedComparison
    floor: PairedComparison
    ceiling: PairedComparison
    stop: float | None

    @property
    def exact(self) -> bool:
        """Whether the median effect and its interval are known."""
        ends = ("median", "low", "high")
        return all(getattr(self.floor, end) == getattr(self.ceiling, end) for end in ends)

    @property
    def shown(self) -> str:
        """The median effect, with ≤ or ≥ where it is a bound."""
        low, high = self.floor.median, self.ceiling.median
        if low == high:
            return self._told(low)
        if low == self._least and high == inf:
            return "both stopped"
        if low == self._least:
            return f"≤ {self._told(high)}"
        return f"≥ {self._told(low)}" if high == inf else f"{self._told(low)} to {self._told(high)}"

    @property
    def range(self) -> str:
        """The interval of the median effect, as wide as stopped runs leave it; or where both stopped."""
        if self.shown == "both stopped":
            return f"at {plain(self.stop)}"
        low = "0" if self.floor.low == self._least == 0.0 else self._told(self.floor.low)
        return f"[{low}, {self._told(self.ceiling.high)}]"

    @property
    def _least(self) -> float:
        """What no effect is below."""
        return 0.0 if self.comparison.effect == "ratio" else -inf

    def _told(self, value: float) -> str:
        return ratio(value) if self.comparison.effect == "ratio" else signed(value)


def paired_effect(
    treated: np.ndarray,
    control: np.ndarray,
    direction: Direction,
    effect: Effect,
    stop: float | None,
    negligible: float = 0.0,
) -> PairedEffect:
    """Compare pairs of values, those at the stop as bounds.

    Args:
        treated, control: shape (pairs,), held at the stop.
        effect: how a pair is compared.
        stop: the threshold of the metric at which runs stop; None without.
        negligible: relative difference up to which a pair is a tie in the test.
    """
    beyond = 0.0 if effect == "ratio" else -inf if direction == "minimize" else inf

    def further(values: np.ndarray) -> np.ndarray:
        return values if stop is None else np.where(values == stop, beyond, values)

    sides = [
        compare_pairs(left, right, direction, effect, negligible)
        for left, right in (
            (treated, control), (further(treated), control), (treated, further(control)),
        )
    ]  # fmt: skip
    floor, ceiling = sides[1:] if direction == "minimize" else reversed(sides[1:])
    return PairedEffect(sides[0], floor, ceiling, stop)


def effect_by_seed(study: StudyPlan, values: pl.DataFrame, treated: str, control: str) -> PairedEffect | None:
    """Two methods on a study's headline metric; None where they share no seed.

    Args:
        values: what `study_values` returns, of one workload on one backend.
    """
    pairs = paired_values(values, [], ["seed"], "method", "value", treated, control)
    if not len(pairs):
        return None
    return paired_effect(
        pairs["treated"].to_numpy(),
        pairs["control"].to_numpy(),
        study.direction,
        effect_for(values["value"].to_numpy(), study.direction),  # one for all pairs of methods
        study.stop.get(study.metric),
        NEGLIGIBLE,
    )
