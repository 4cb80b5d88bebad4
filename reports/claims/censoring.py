"""Paired comparisons of runs that may have stopped at a threshold: what is known of the effect, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
import polars as pl

from curvebench.reports.formatting import plain, ratio_writer, signed
from curvebench.reports.statistics.decisions import Question
from curvebench.reports.statistics.paired import Direction, Effect, effect_for, paired_values
from curvebench.reports.statistics.ranks import NEGLIGIBLE, tied
from curvebench.results.intervals import MedianInterval, median_interval
from curvebench.spec.plan import StudyPlan

ANY_GAIN = Question("better", float(np.finfo(float).tiny))  # of gains whose ties are 0 already


class Interval(NamedTuple):
    """Values of runs, or effects of pairs, each in an interval whose ends are equal where it is known.

    Args:
        low, high: shape (count,), infinities allowed.
    """

    low: np.ndarray
    high: np.ndarray

    @property
    def unknown(self) -> int:
        """Of how many nothing is known: less or more than any number."""
        return int((np.isneginf(self.low) & np.isposinf(self.high)).sum())

    @property
    def bounded(self) -> int:
        """How many are known to bounds only."""
        return int((self.low != self.high).sum())

    def at(self, places: np.ndarray) -> Interval:
        """Those at these places."""
        return Interval(self.low[places], self.high[places])

    @property
    def negated(self) -> Interval:
        """Their negatives."""
        return Interval(-self.high, -self.low)


def censored_at(values: np.ndarray, direction: Direction, stop: float | None) -> Interval:
    """Values that are held at the stop, where nobody knows how far their runs would have got, as intervals.

    Args:
        stop: the threshold of the metric at which runs stop; None without.
    """
    if stop is None:
        return Interval(values, values)
    low, high = ((-inf, stop), (stop, inf))[direction == "maximize"]
    at = values == stop
    return Interval(np.where(at, low, values), np.where(at, high, values))


def with_bounds(values: pl.DataFrame, direction: Direction, stop: float | None) -> pl.DataFrame:
    """A frame with the column `value`, held at the stop, and with columns least and most, its bounds."""
    known = censored_at(values["value"].to_numpy(), direction, stop)
    return values.with_columns(least=pl.Series(known.low), most=pl.Series(known.high))


def paired_effects(treated: Interval, control: Interval, effect: Effect) -> Interval:
    """Interval what the effect of each pair lies: of a ratio the logarithm of treated / control.

    Of two values that are known and equal it is 0, infinite or 0 too.
    """
    ends = []
    for left, right in ((treated.low, control.high), (treated.high, control.low)):
        with np.errstate(divide="ignore", invalid="ignore"):
            if effect == "ratio":  # what may be less than anything is not negative here
                gap = np.log(np.maximum(left, 0.0)) - np.log(np.maximum(right, 0.0))
            else:
                gap = left - right
        ends.append(np.where(left == right, 0.0, gap))
    return Interval(*ends)


def paired_gains(
    treated: Interval, control: Interval, direction: Direction, effect: Effect, negligible: float
) -> Interval:
    """Interval what the gain of each pair lies, above 0 where the treated method is better.

    An end at which the two values tie is 0, so that both ends of a tie that is known are.

    Args:
        direction: whether less is better.
        negligible: relative difference up to which two values tie.
    """
    low, high = paired_effects(treated, control, effect)
    effects = Interval(
        np.where(tied(treated.low, control.high, negligible), 0.0, low),
        np.where(tied(treated.high, control.low, negligible), 0.0, high),
    )
    return effects.negated if direction == "minimize" else effects


@dataclass(frozen=True)
class EffectBounds:
    """A median effect over pairs and its interval, and between what they lie where runs stopped.

    Args:
        effect: "ratio" or "difference".
        floor, ceiling: with the least and with the greatest effect that each pair may have.
        is_unknown: whether nothing is known of any pair.
        unknown_words: what is said then, and where that is: ("both stopped", "at 10⁻⁸").
    """

    effect: Effect
    floor: MedianInterval
    ceiling: MedianInterval
    is_unknown: bool
    unknown_words: tuple[str, str]

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
    def sort_value(self) -> float | None:
        """What a table sorts by: the median, or the bound of it that is known; None where there is none."""
        low, high = self.floor.median, self.ceiling.median
        if low == high:
            return low
        if self.is_unknown or (low == self._least and high == inf):
            return None
        return low if high == inf else high

    @property
    def level(self) -> float:
        """The coverage of the interval."""
        return self.floor.level

    @property
    def count(self) -> int:
        """The number of pairs."""
        return self.floor.count

    @property
    def low(self) -> float:
        """The lower end of the interval, with the least effects."""
        return self.floor.low

    @property
    def high(self) -> float:
        """The upper end of the interval, with the greatest effects."""
        return self.ceiling.high

    @property
    def words(self) -> tuple[str, str]:
        """The median effect and its interval in words, with as many digits each.

        A bound has ≤ or ≥; a median that may be anything is "open".
        """
        numbers = (self.floor.median, self.ceiling.median, self.low, self.high)
        write = ratio_writer(numbers) if self.effect == "ratio" else signed
        where = self.unknown_words[1] if self.is_unknown else f"[{write(self.low)}, {write(self.high)}]"
        return self._shown(write), where

    def _shown(self, write: Callable[[float], str]) -> str:
        low, high = self.floor.median, self.ceiling.median
        if low == high:
            return write(low)
        if self.is_unknown:
            return self.unknown_words[0]
        if low == self._least:
            return "open" if high == inf else f"≤ {write(high)}"
        return f"≥ {write(low)}" if high == inf else f"{write(low)} to {write(high)}"

    @property
    def _least(self) -> float:
        """What no effect is below."""
        return 0.0 if self.effect == "ratio" else -inf


def exponential(logarithm: float) -> float:
    """The ratio of a logarithm, infinite where a float cannot hold it."""
    with np.errstate(over="ignore"):
        return float(np.exp(logarithm))


def bounds_of(
    effects: Interval, effect: Effect, shown: Callable[[float], float], unknown_words: tuple[str, str]
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
    return EffectBounds(effect, floor, ceiling, effects.unknown == floor.count, unknown_words)


@dataclass(frozen=True)
class PairedEffect(EffectBounds):
    """Two methods compared seed by seed, and between what their effect lies.

    A run that stopped at its threshold would have got further, nobody knows how far. Where less is better,
    the effect of a pair is at most what its values say where the treated run stopped, at least that where
    the control's did, and unknown where both did.

    Args:
        wins: pairs in which the treated method is better, wherever the values lie.
        losses: pairs in which the control is.
        ties: pairs whose values are known and tie.
        p_value: one-sided by the sign test, the largest that the values may have: ties and pairs that are
            open count against the treated method.
    """

    wins: int
    losses: int
    ties: int
    p_value: float

    @property
    def open(self) -> int:
        """Pairs of which what is known leaves open whose value is better."""
        return self.count - self.wins - self.losses - self.ties


def paired_effect(
    treated: Interval,
    control: Interval,
    direction: Direction,
    effect: Effect,
    unknown_words: tuple[str, str],
    negligible: float = 0.0,
) -> PairedEffect:
    """Compare pairs of values, as far as these are known.

    Args:
        treated, control: of shape (pairs,), at least one.
        direction: whether less is better.
        effect: how a pair is compared.
        unknown_words: as `EffectBounds` has it.
        negligible: relative difference up to which a pair is a tie.
    """
    gains = paired_gains(treated, control, direction, effect, negligible)
    as_seen = exponential if effect == "ratio" else float
    return PairedEffect(
        **vars(bounds_of(paired_effects(treated, control, effect), effect, as_seen, unknown_words)),
        wins=int((gains.low > 0).sum()),
        losses=int((gains.high < 0).sum()),
        ties=int(((gains.low == 0) & (gains.high == 0)).sum()),
        p_value=ANY_GAIN.p_value(gains.low),
    )


def unknown_words(stop: float | None, undecided: str = "both stopped") -> tuple[str, str]:
    """Return the words for an effect of which nothing is known, as `EffectBounds` takes them."""
    return undecided, f"at {plain(stop)}" if stop is not None else ""


def effect_by_seed(study: StudyPlan, values: pl.DataFrame, treated: str, control: str) -> PairedEffect | None:
    """Two methods on a study's headline metric; None where they share no seed.

    Args:
        values: what `study_values` returns, of one workload on one backend.
    """
    pairs = paired_values(values, "value", treated, control)
    if not len(pairs):
        return None
    stop = study.training.stop.get(study.metric)
    left, right = (
        censored_at(pairs[side].to_numpy(), study.direction, stop) for side in ("treated", "control")
    )
    effect = effect_for(values["value"].to_numpy(), study.direction)  # one for all pairs of methods
    return paired_effect(left, right, study.direction, effect, unknown_words(stop), NEGLIGIBLE)
