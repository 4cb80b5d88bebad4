"""Paired comparisons of runs that may be censored: a run that stopped at a threshold would have gone further.

A pair consists of a run of the treated method and a run of the control with the same seed. The effect of a
pair is the ratio or the difference of the values of its two runs. If one of the runs is censored, the effect
is known only to lie between a lower and an upper bound. Such a pair is censored, too. This module computes
bounds of the median effect over pairs, and the texts with which pages and the terminal show the bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np
import polars as pl

from curvebench.reports.formatting import plain, ratio_writer, signed
from curvebench.reports.statistics.decisions import Question
from curvebench.reports.statistics.paired import Direction, Effect, effect_for, paired_values
from curvebench.reports.statistics.ranks import NEGLIGIBLE, tied
from curvebench.results.intervals import LEVEL, MedianInterval, median_interval
from curvebench.spec.plan import StudyPlan

# Relation for the sign test of whether gains are above 0, however small they are.
# The margin of a relation must be above 0.
# The smallest float suffices as margin, because pairs that tie have a gain of exactly 0.
ANY_GAIN = Question("better", float(np.finfo(float).tiny))


class Bounds(NamedTuple):
    """Lower and upper bounds of values of runs, or of effects of pairs.

    The two bounds of a known value are equal.

    Args:
        low, high: bounds, shape (count,), infinities allowed.
    """

    low: np.ndarray
    high: np.ndarray

    @property
    def unknown(self) -> int:
        """Number of entries of which nothing is known: their bounds are minus and plus infinity."""
        return int((np.isneginf(self.low) & np.isposinf(self.high)).sum())

    @property
    def bounded(self) -> int:
        """Number of censored entries, for which only a lower and an upper bound are known."""
        return int((self.low != self.high).sum())

    def at(self, indices: np.ndarray) -> Bounds:
        """Return the bounds of the entries at `indices`."""
        return Bounds(self.low[indices], self.high[indices])

    @property
    def negated(self) -> Bounds:
        """Bounds of the values multiplied by -1."""
        return Bounds(-self.high, -self.low)


def censored_at(values: np.ndarray, direction: Direction, stop: float | None) -> Bounds:
    """Return bounds of the values of runs that may have stopped at a threshold.

    A value equal to `stop` is censored: its run stopped at the threshold, and would have reached a value at
    least as good if it had continued. Every other value is known.

    Args:
        values: values of the metric, clipped at `stop`, shape (count,).
        direction: whether less or more of the metric is better.
        stop: threshold of the metric at which runs stop; None if runs do not stop.
    """
    if stop is None:
        return Bounds(values, values)
    low, high = ((-inf, stop), (stop, inf))[direction == "maximize"]
    censored = values == stop
    return Bounds(np.where(censored, low, values), np.where(censored, high, values))


def with_bounds(values: pl.DataFrame, direction: Direction, stop: float | None) -> pl.DataFrame:
    """Add columns `least` and `most`: the lower and upper bounds of the column `value`.

    The bounds differ only for runs that stopped at the threshold `stop` (`censored_at`).

    Args:
        values: runs with the values of a metric, clipped at `stop`, as column `value`.
        direction: whether less or more of the metric is better.
        stop: threshold of the metric at which runs stop; None if runs do not stop.
    """
    bounds = censored_at(values["value"].to_numpy(), direction, stop)
    return values.with_columns(least=pl.Series(bounds.low), most=pl.Series(bounds.high))


def paired_effects(treated: Bounds, control: Bounds, effect: Effect) -> Bounds:
    """Return bounds of the effect of each pair.

    The effect is log(treated / control) if `effect` is "ratio", and treated - control if `effect` is
    "difference". Two values that are known and equal have the effect 0, even if both are infinite or 0.

    Args:
        treated, control: bounds of the values of both methods, shape (pairs,).
        effect: whether pairs are compared by ratio or by difference.
    """
    ends = []
    for treated_end, control_end in ((treated.low, control.high), (treated.high, control.low)):
        with np.errstate(divide="ignore", invalid="ignore"):
            # Values that are compared by ratio are not negative, so that a bound of minus infinity means 0.
            if effect == "ratio":
                gap = np.log(np.maximum(treated_end, 0.0)) - np.log(np.maximum(control_end, 0.0))
            else:
                gap = treated_end - control_end
        ends.append(np.where(treated_end == control_end, 0.0, gap))
    return Bounds(*ends)


def paired_gains(
    treated: Bounds, control: Bounds, direction: Direction, effect: Effect, negligible: float
) -> Bounds:
    """Return bounds of the gain of each pair; a gain is above 0 where the treated method is better.

    A bound of the gain is computed from one bound of each value. If these two bounds tie, the bound of the
    gain is 0. If both values of a pair are known and tie, both bounds of its gain are therefore 0.

    Args:
        treated, control: bounds of the values of both methods, shape (pairs,).
        direction: whether less or more of the metric is better.
        effect: whether pairs are compared by ratio or by difference.
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
    """Median effect over pairs and its confidence interval, or bounds of both if pairs are censored.

    Args:
        effect: whether pairs are compared by ratio or by difference.
        floor: median and interval if each pair had its smallest possible effect.
        ceiling: median and interval if each pair had its largest possible effect.
        is_unknown: whether nothing is known of the effect of any pair.
        unknown_words: two texts that are shown if `is_unknown`, in place of the median and of the interval,
            such as ("both stopped", "at 10⁻⁸").
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
        """Median effect; None if only bounds of the median are known."""
        return self.floor.median if self.floor.median == self.ceiling.median else None

    @property
    def sort_value(self) -> float | None:
        """Number by which tables sort the effect: the median, or a bound if the median is not known exactly.

        The bound is the lower one if the upper one is infinite, otherwise the upper one. None if the median
        has no informative bound.
        """
        low, high = self.floor.median, self.ceiling.median
        if low == high:
            return low
        if self.is_unknown or (low == self._least and high == inf):
            return None
        return low if high == inf else high

    @property
    def level(self) -> float:
        """Coverage of the confidence interval, such as 0.95."""
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
        """Texts of the median effect and of its interval, for pages and the terminal.

        If only one bound of the median is known, the first text is this bound after ≤ or ≥. If two different
        bounds are known, it is "LOW to HIGH". If no bound is known, it is "open". If `is_unknown`, the texts
        are `unknown_words`.
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
        """Smallest effect that is possible: 0 for a ratio, minus infinity for a difference."""
        return 0.0 if self.effect == "ratio" else -inf


def exponential(logarithm: float) -> float:
    """Return exp(logarithm), or infinity if the result is too large for a float."""
    with np.errstate(over="ignore"):
        return float(np.exp(logarithm))


def bounds_of(
    effects: Bounds,
    effect: Effect,
    as_seen: Callable[[float], float],
    unknown_words: tuple[str, str],
    level: float = LEVEL,
) -> EffectBounds:
    """Return bounds of the median effect over pairs, and of its confidence interval.

    Args:
        effects: bounds of the effect of each pair, shape (pairs,), at least one pair.
        effect: whether pairs are compared by ratio or by difference.
        as_seen: increasing function that converts an effect to the number that readers see, such as `exp`
            for logarithms of ratios.
        unknown_words: two texts that are shown if nothing is known of any effect, in place of the median and
            of the interval.
        level: nominal coverage of the interval.
    """
    ends = (median_interval(values, level) for values in effects)
    floor, ceiling = (
        MedianInterval(as_seen(end.median), as_seen(end.low), as_seen(end.high), end.level, end.count)
        for end in ends
    )
    return EffectBounds(effect, floor, ceiling, effects.unknown == floor.count, unknown_words)


@dataclass(frozen=True)
class PairedEffect(EffectBounds):
    """Comparison of two methods seed by seed, with bounds of the effect where runs are censored.

    A run that stopped at its threshold would have gone further by an unknown distance. If less of the metric
    is better, a pair gives an upper bound of its effect if the treated run stopped, a lower bound if the
    control's run stopped, and no bound if both runs stopped.

    Args:
        wins: number of pairs in which the treated method is better for all values within the bounds.
        losses: number of pairs in which the control is better for all values within the bounds.
        ties: number of pairs whose two values are known and tie.
        p_value: one-sided p-value of the sign test that the treated method is better. Ties count against the
            treated method. So do pairs whose winner is unknown, so that this is the largest p-value that is
            possible within the bounds.
        gains: bounds of the gain of each pair, as `paired_gains` returns them.
    """

    wins: int
    losses: int
    ties: int
    p_value: float
    gains: Bounds = field(repr=False, compare=False)

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
    level: float = LEVEL,
) -> PairedEffect:
    """Compare the values of two methods pair by pair; some values may be known only by bounds.

    Args:
        treated, control: bounds of the values of both methods, shape (pairs,), at least one pair.
        direction: whether less or more of the metric is better.
        effect: whether pairs are compared by ratio or by difference.
        unknown_words: two texts that are shown if nothing is known of any effect, in place of the median and
            of the interval.
        negligible: relative difference up to which the two values of a pair tie.
        level: nominal coverage of the interval.
    """
    gains = paired_gains(treated, control, direction, effect, negligible)
    as_seen = exponential if effect == "ratio" else float
    return PairedEffect(
        **vars(bounds_of(paired_effects(treated, control, effect), effect, as_seen, unknown_words, level)),
        wins=int((gains.low > 0).sum()),
        losses=int((gains.high < 0).sum()),
        ties=int(((gains.low == 0) & (gains.high == 0)).sum()),
        p_value=ANY_GAIN.p_value(gains.low),
        gains=gains,
    )


def unknown_words(stop: float | None, undecided: str = "both stopped") -> tuple[str, str]:
    """Return two texts that are shown in place of the median and the interval of an unknown effect.

    Args:
        stop: threshold at which the runs stopped, which the second text names. If it is None, the second text
            is empty.
        undecided: the first text.
    """
    return undecided, f"at {plain(stop)}" if stop is not None else ""


def effect_by_seed(
    study: StudyPlan, values: pl.DataFrame, treated: str, control: str, level: float = LEVEL
) -> PairedEffect | None:
    """Compare two methods seed by seed on the headline metric of a study.

    Args:
        values: runs on one workload and backend with the column `value` that `study_values` adds.
        treated, control: labels of the two methods.
        level: nominal coverage of the interval.

    Returns:
        The comparison, or None if the methods share no seed.
    """
    pairs = paired_values(values, "value", treated, control)
    if not len(pairs):
        return None
    stop = study.training.stop.get(study.metric)
    first, second = (censored_at(pairs[arm].to_numpy(), study.direction, stop) for arm in pairs.columns[1:])
    # The values of all methods in `values` decide whether pairs are compared by ratio or by difference.
    # If only the two compared methods decided, some comparisons of a study would be by ratio, others not.
    effect = effect_for(values["value"].to_numpy(), study.direction)
    return paired_effect(first, second, study.direction, effect, unknown_words(stop), NEGLIGIBLE, level)
