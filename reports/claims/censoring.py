"""Paired comparisons of runs that may be censored: a run that stopped at a threshold would have gone further.

The effect of a censored pair is known only to lie between a lower and an upper bound. This module computes
bounds of the median effect, and the words with which pages and the terminal show them.
"""

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

# A sign test for any gain above 0. The smallest positive margin is enough, because tied pairs have a gain of
# 0.
ANY_GAIN = Question("better", float(np.finfo(float).tiny))


class Bounds(NamedTuple):
    """Lower and upper bounds of values of runs, or of effects of pairs; equal where the value is known.

    Args:
        low, high: shape (count,), infinities allowed.
    """

    low: np.ndarray
    high: np.ndarray

    @property
    def unknown(self) -> int:
        """Number of entries of which nothing is known: they lie between minus and plus infinity."""
        return int((np.isneginf(self.low) & np.isposinf(self.high)).sum())

    @property
    def bounded(self) -> int:
        """Number of censored entries, for which only a lower and an upper bound are known."""
        return int((self.low != self.high).sum())

    def at(self, indices: np.ndarray) -> Bounds:
        """Return the entries at these indices."""
        return Bounds(self.low[indices], self.high[indices])

    @property
    def negated(self) -> Bounds:
        """Bounds of the negative values."""
        return Bounds(-self.high, -self.low)


def censored_at(values: np.ndarray, direction: Direction, stop: float | None) -> Bounds:
    """Return bounds of values that were clipped at the stop: a value equal to the stop is censored.

    Such a run stopped at the threshold. Its value without the stop would be at least as good.

    Args:
        values: shape (count,).
        stop: threshold of the metric at which runs stop; None if runs do not stop.
    """
    if stop is None:
        return Bounds(values, values)
    low, high = ((-inf, stop), (stop, inf))[direction == "maximize"]
    censored = values == stop
    return Bounds(np.where(censored, low, values), np.where(censored, high, values))


def with_bounds(values: pl.DataFrame, direction: Direction, stop: float | None) -> pl.DataFrame:
    """Add columns `least` and `most`, the bounds of the column `value`, which is clipped at the stop."""
    bounds = censored_at(values["value"].to_numpy(), direction, stop)
    return values.with_columns(least=pl.Series(bounds.low), most=pl.Series(bounds.high))


def paired_effects(treated: Bounds, control: Bounds, effect: Effect) -> Bounds:
    """Return bounds of the effect of each pair: the log of treated / control for a ratio, else the
    difference.

    Two values that are known and equal have the effect 0, even where both are infinite or 0.
    """
    ends = []
    for treated_end, control_end in ((treated.low, control.high), (treated.high, control.low)):
        with np.errstate(divide="ignore", invalid="ignore"):
            if effect == "ratio":  # values are not negative, so that a bound of minus infinity means 0
                gap = np.log(np.maximum(treated_end, 0.0)) - np.log(np.maximum(control_end, 0.0))
            else:
                gap = treated_end - control_end
        ends.append(np.where(treated_end == control_end, 0.0, gap))
    return Bounds(*ends)


def paired_gains(
    treated: Bounds, control: Bounds, direction: Direction, effect: Effect, negligible: float
) -> Bounds:
    """Return bounds of the gain of each pair, above 0 where the treated method is better.

    A bound at which the two values tie is 0. A tie of known values therefore has both bounds at 0.

    Args:
        direction: whether less of the metric is better.
        negligible: relative difference up to which two values tie.
    """
    low, high = paired_effects(treated, control, effect)
    effects = Bounds(
        np.where(tied(treated.low, control.high, negligible), 0.0, low),
        np.where(tied(treated.high, control.low, negligible), 0.0, high),
    )
    return effects.negated if direction == "minimize" else effects


@dataclass(frozen=True)
class EffectBounds:
    """Median effect over pairs with its interval, and bounds of both where pairs are censored.

    Args:
        effect: whether pairs are compared by ratio or by difference.
        floor: median and interval if each pair had its smallest possible effect.
        ceiling: median and interval if each pair had its largest possible effect.
        is_unknown: whether nothing is known of any pair.
        unknown_words: text shown in place of median and interval in this case: ("both stopped", "at 10⁻⁸").
    """

    effect: Effect
    floor: MedianInterval
    ceiling: MedianInterval
    is_unknown: bool
    unknown_words: tuple[str, str]

    @property
    def exact(self) -> bool:
        """Whether the median effect and its interval are known exactly."""
        ends = ("median", "low", "high")
        return all(getattr(self.floor, end) == getattr(self.ceiling, end) for end in ends)

    @property
    def median(self) -> float | None:
        """Median effect; None where only bounds of it are known."""
        return self.floor.median if self.floor.median == self.ceiling.median else None

    @property
    def sort_value(self) -> float | None:
        """Sort key for tables: the median or its known bound; None where the median may be anything."""
        low, high = self.floor.median, self.ceiling.median
        if low == high:
            return low
        if self.is_unknown or (low == self._least and high == inf):
            return None
        return low if high == inf else high

    @property
    def level(self) -> float:
        """Coverage of the interval."""
        return self.floor.level

    @property
    def count(self) -> int:
        """Number of pairs."""
        return self.floor.count

    @property
    def low(self) -> float:
        """Lower end of the interval if each pair had its smallest possible effect."""
        return self.floor.low

    @property
    def high(self) -> float:
        """Upper end of the interval if each pair had its largest possible effect."""
        return self.ceiling.high

    @property
    def words(self) -> tuple[str, str]:
        """Median effect and interval as text, all numbers with the same number of digits.

        A bound of the median has ≤ or ≥; a median that may be anything is "open".
        """
        numbers = (self.floor.median, self.ceiling.median, self.low, self.high)
        write = ratio_writer(numbers) if self.effect == "ratio" else signed
        interval = self.unknown_words[1] if self.is_unknown else f"[{write(self.low)}, {write(self.high)}]"
        return self._shown(write), interval

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
        """Minimum that an effect can have."""
        return 0.0 if self.effect == "ratio" else -inf


def exponential(logarithm: float) -> float:
    """Return the ratio of a logarithm, infinite where a float cannot hold it."""
    with np.errstate(over="ignore"):
        return float(np.exp(logarithm))


def bounds_of(
    effects: Bounds, effect: Effect, as_seen: Callable[[float], float], unknown_words: tuple[str, str]
) -> EffectBounds:
    """Return the median of effects with bounds, its interval, and the bounds of both.

    Args:
        effects: bounds of the effect of each pair, shape (pairs,), at least one pair.
        as_seen: increasing function that converts an effect to the effect that readers see.
        unknown_words: see `EffectBounds`.
    """
    ends = (median_interval(values) for values in effects)
    floor, ceiling = (
        MedianInterval(as_seen(end.median), as_seen(end.low), as_seen(end.high), end.level, end.count)
        for end in ends
    )
    return EffectBounds(effect, floor, ceiling, effects.unknown == floor.count, unknown_words)


@dataclass(frozen=True)
class PairedEffect(EffectBounds):
    """Comparison of two methods seed by seed, with bounds of the effect where runs are censored.

    A run that stopped at its threshold would have gone further by an unknown distance. Where less is better,
    its values give an upper bound of the pair's effect if the treated run stopped, a lower bound if the
    control stopped, and no bound if both stopped.

    Args:
        wins: pairs in which the treated method is better wherever the values lie within their bounds.
        losses: pairs in which the control is better wherever the values lie.
        ties: pairs whose values are known and tie.
        p_value: one-sided p-value of the sign test, the largest that the values may have: ties and pairs with
            unknown winner count against the treated method.
    """

    wins: int
    losses: int
    ties: int
    p_value: float

    @property
    def open(self) -> int:
        """Number of pairs whose winner is not known because of censoring."""
        return self.count - self.wins - self.losses - self.ties


def paired_effect(
    treated: Bounds,
    control: Bounds,
    direction: Direction,
    effect: Effect,
    unknown_words: tuple[str, str],
    negligible: float = 0.0,
) -> PairedEffect:
    """Compare pairs of values, of which some may be known only by bounds.

    Args:
        treated, control: bounds of the values, shape (pairs,), at least one pair.
        direction: whether less of the metric is better.
        effect: whether pairs are compared by ratio or by difference.
        unknown_words: see `EffectBounds`.
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
    """Return the two texts shown for an effect of which nothing is known; see `EffectBounds`."""
    return undecided, f"at {plain(stop)}" if stop is not None else ""


def effect_by_seed(study: StudyPlan, values: pl.DataFrame, treated: str, control: str) -> PairedEffect | None:
    """Compare two methods seed by seed on the headline metric of a study.

    Args:
        values: runs on one workload and backend with the column `value` that `study_values` adds.

    Returns:
        None where the methods share no seed.
    """
    pairs = paired_values(values, "value", treated, control)
    if not len(pairs):
        return None
    stop = study.training.stop.get(study.metric)
    first, second = (censored_at(pairs[arm].to_numpy(), study.direction, stop) for arm in pairs.columns[1:])
    # The values of all methods decide between ratio and difference, so that all pairs of methods are compared
    # alike.
    effect = effect_for(values["value"].to_numpy(), study.direction)
    return paired_effect(first, second, study.direction, effect, unknown_words(stop), NEGLIGIBLE)
