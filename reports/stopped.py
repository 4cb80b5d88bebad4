"""Paired comparisons of runs that may have stopped at a threshold: what is known of the effect, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np
import polars as pl

from reports.formatting import plain, ratio, ratio_writer, signed
from reports.plan import StudyPlan
from reports.statistics.decisions import Question
from reports.statistics.medians import MedianInterval, median_interval
from reports.statistics.paired import (
    Direction,
    Effect,
    PairedComparison,
    compare_pairs,
    effect_for,
    paired_values,
)
from reports.statistics.ranks import NEGLIGIBLE, tied

ANY_GAIN = Question("better", float(np.finfo(float).tiny))  # of gains whose ties are 0 already


class Between(NamedTuple):
    """Values of runs, or effects of pairs, each between two bounds; both are equal where it is known.

    Args:
        least, most: shape (count,), infinities allowed.
    """

    least: np.ndarray
    most: np.ndarray

    @property
    def unknown(self) -> int:
        """Of how many nothing is known: less or more than any number."""
        return int((np.isneginf(self.least) & np.isposinf(self.most)).sum())

    @property
    def bounded(self) -> int:
        """How many are known to bounds only."""
        return int((self.least != self.most).sum())

    @property
    def turned(self) -> Between:
        """Their negatives."""
        return Between(-self.most, -self.least)


def known_to_the_stop(values: np.ndarray, direction: Direction, stop: float | None) -> Between:
    """Values that are held at the stop, where nobody knows how far their runs would have got, as bounds.

    Args:
        stop: the threshold of the metric at which runs stop; None without.
    """
    if stop is None:
        return Between(values, values)
    least, most = ((-inf, stop), (stop, inf))[direction == "maximize"]
    at = values == stop
    return Between(np.where(at, least, values), np.where(at, most, values))


def with_bounds(values: pl.DataFrame, direction: Direction, stop: float | None) -> pl.DataFrame:
    """A frame with the column `value`, held at the stop, and with columns least and most, its bounds."""
    known = known_to_the_stop(values["value"].to_numpy(), direction, stop)
    return values.with_columns(least=pl.Series(known.least), most=pl.Series(known.most))


def effects_between(treated: Between, control: Between, effect: Effect) -> Between:
    """Between what the effect of each pair lies: of a ratio the logarithm of treated / control.

    Of two values that are known and equal it is 0, infinite or 0 too.
    """
    ends = []
    for left, right in ((treated.least, control.most), (treated.most, control.least)):
        with np.errstate(divide="ignore", invalid="ignore"):
            if effect == "ratio":  # what may be less than anything is not negative here
                gap = np.log(np.maximum(left, 0.0)) - np.log(np.maximum(right, 0.0))
            else:
                gap = left - right
        ends.append(np.where(left == right, 0.0, gap))
    return Between(*ends)


def gains_between(
    treated: Between, control: Between, direction: Direction, effect: Effect, negligible: float
) -> Between:
    """Between what the gain of each pair lies, above 0 where the treated method is better.

    An end at which the two values tie is 0, so that both ends of a tie that is known are.

    Args:
        direction: whether less is better.
        negligible: relative difference up to which two values tie.
    """
    least, most = effects_between(treated, control, effect)
    effects = Between(
        np.where(tied(treated.least, control.most, negligible), 0.0, least),
        np.where(tied(treated.most, control.least, negligible), 0.0, most),
    )
    return effects.turned if direction == "minimize" else effects


@dataclass(frozen=True)
class EffectBounds:
    """A median effect over pairs and its interval, and between what they lie where runs stopped.

    Args:
        effect: "ratio" or "difference".
        floor, ceiling: with the least and with the greatest effect that each pair may have.
        is_unknown: whether nothing is known of any pair.
        nothing: what is said then, and where that is: ("both stopped", "at 10⁻⁸").
    """

    effect: Effect
    floor: MedianInterval
    ceiling: MedianInterval
    is_unknown: bool
    nothing: tuple[str, str]

    @property
    def exact(self) -> bool:
        """Whether the median effect and its interval are known."""
        ends = ("median", "low", "high")
        return all(getattr(self.floor, end) == getattr(self.ceiling, end) for end in ends)

    @property
    def median(self) -> float | None:
        """The median effect; None where it is not known to a point."""
        return self.floor.median if self.floor.median == self.ceiling.median else None

    @property
    def low(self) -> float:
        """The lower end of the interval, with the least effects."""
        return self.floor.low

    @property
    def high(self) -> float:
        """The upper end of the interval, with the greatest effects."""
        return self.ceiling.high

    @property
    def shown(self) -> str:
        """The median effect, with ≤ or ≥ where it is a bound; "open" where it may be anything."""
        return self._shown(self._told)

    @property
    def range(self) -> str:
        """The interval of the median effect, as wide as stopped runs leave it; or where all pairs stopped."""
        return self._range(self._told)

    @property
    def words(self) -> tuple[str, str]:
        """The median effect and its interval as pages have them, all numbers with as many digits.

        Reasons of published claims quote `shown` and `range`, which therefore stay as they are.
        """
        told = (self.floor.median, self.ceiling.median, self.low, self.high)
        tell = ratio_writer(told) if self.effect == "ratio" else signed
        return self._shown(tell), self._range(tell)

    def _shown(self, tell: Callable[[float], str]) -> str:
        low, high = self.floor.median, self.ceiling.median
        if low == high:
            return tell(low)
        if self.is_unknown:
            return self.nothing[0]
        if low == self._least:
            return "open" if high == inf else f"≤ {tell(high)}"
        return f"≥ {tell(low)}" if high == inf else f"{tell(low)} to {tell(high)}"

    def _range(self, tell: Callable[[float], str]) -> str:
        return self.nothing[1] if self.is_unknown else f"[{tell(self.low)}, {tell(self.high)}]"

    @property
    def _least(self) -> float:
        """What no effect is below."""
        return 0.0 if self.effect == "ratio" else -inf

    def _told(self, value: float) -> str:
        return ratio(value) if self.effect == "ratio" else signed(value)


def exponential(logarithm: float) -> float:
    """The ratio of a logarithm, infinite where a float cannot hold it."""
    with np.errstate(over="ignore"):
        return float(np.exp(logarithm))


def bounds_of(
    effects: Between, effect: Effect, shown: Callable[[float], float], nothing: tuple[str, str]
) -> EffectBounds:
    """The median of effects that are known to bounds, with its interval.

    Args:
        effects: shape (pairs,), at least one.
        shown: an effect as readers see it, the greater the greater.
    """
    ends = (median_interval(values) for values in effects)
    floor, ceiling = (
        MedianInterval(shown(end.median), shown(end.low), shown(end.high), end.level, end.count)
        for end in ends
    )
    return EffectBounds(effect, floor, ceiling, effects.unknown == floor.count, nothing)


@dataclass(frozen=True)
class PairedEffect(EffectBounds):
    """Two methods compared seed by seed, and between what their effect lies.

    A run that stopped at its threshold would have got further, nobody knows how far. Where less is better,
    the effect of a pair is at most what its values say where the treated run stopped, at least that where
    the control's did, and unknown where both did.

    Args:
        comparison: median and interval with every such run at the threshold. Its wins are the pairs in which
            the treated method is better wherever between its bounds each value lies, and its p-value the
            largest that the values may have: ties and pairs that are open count against the treated method.
        losses: pairs in which the control is better, wherever the values lie.
        ties: pairs whose values are known and tie.
    """

    comparison: PairedComparison
    losses: int
    ties: int

    @property
    def open(self) -> int:
        """Pairs of which what is known leaves open whose value is better."""
        return self.comparison.count - self.comparison.wins - self.losses - self.ties


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
    left, right = (known_to_the_stop(values, direction, stop) for values in (treated, control))
    gains = gains_between(left, right, direction, effect, negligible)
    comparison = compare_pairs(treated, control, direction, effect)
    return effect_within(comparison, effects_between(left, right, effect), gains, both_stopped(stop))


def both_stopped(stop: float | None) -> tuple[str, str]:
    """What is said where all that is known of two runs is that they stopped, as `EffectBounds` has it."""
    return "both stopped", f"at {plain(stop)}" if stop is not None else ""


def effect_within(
    comparison: PairedComparison, effects: Between, gains: Between, nothing: tuple[str, str]
) -> PairedEffect:
    """A comparison of pairs with what is known of their effects, and of who is better.

    Args:
        comparison: of values; its wins and p-value are replaced.
        effects: of the same pairs, as `effects_between` gives them.
        gains: of the same pairs, as `gains_between` gives them.
        nothing: as `EffectBounds` has it.
    """
    shown = exponential if comparison.effect == "ratio" else float
    bounds = bounds_of(effects, comparison.effect, shown, nothing)
    return PairedEffect(
        **vars(bounds),
        comparison=replace(
            comparison, wins=int((gains.least > 0).sum()), p_value=ANY_GAIN.p_value(gains.least)
        ),
        losses=int((gains.most < 0).sum()),
        ties=int(((gains.least == 0) & (gains.most == 0)).sum()),
    )


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
