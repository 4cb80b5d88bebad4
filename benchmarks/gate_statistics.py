"""Slower, faster, equal or undecided: ratios with an interval, and what the noise lets one see."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

Outcome = Literal["slower", "faster", "equal", "undecided"]

LEVEL = 0.995  # of a gate's intervals together
POWER = 0.9  # with which a sample that counts as large enough shows the effect asked for
# The interval below is a little wider than Student's where noise is normal: the root of pi / 3.
SIGNED_RANK_WIDTH = math.sqrt(math.pi / 3)
# A scale from the quantile of absolute values at which 20 % are left out: those that something disturbed. The
# median would leave out half, and with it the tails that make the interval wide.
CORE = 0.8
NORMAL_DEVIATION = 1 / special.ndtri((1 + CORE) / 2)  # a normal distribution's deviation over its quantile


@dataclass(frozen=True)
class Verdict:
    """What pairs say about head / base.

    Args:
        outcome: `equal` means within the effect asked for.
        ratio, low, high: the estimate of head / base and its interval.
        effect: the relative change asked for.
        level: nominal coverage of the interval.
        noise: the standard deviation of a round's log ratio where nothing changed.
        rounds: how many independent comparisons there are.
        rounds_needed: how many would show the effect asked for with this noise, 9 times of 10.
    """

    outcome: Outcome
    ratio: float
    low: float
    high: float
    effect: float
    level: float
    noise: float
    rounds: int
    rounds_needed: int

    def __str__(self) -> str:
        """One sentence for people."""
        change = (
            f"{100 * (self.ratio - 1):+.1f} % [{100 * (self.low - 1):+.1f}, {100 * (self.high - 1):+.1f}]"
        )
        if self.outcome == "equal":
            return f"equal within {100 * self.effect:g} %: {change}"
        if self.outcome == "undecided":
            return f"undecided: {change} of {self.rounds} rounds; {self.rounds_needed} would do"
        return f"{self.outcome}: {change}"


@cache
def rank_sum_tail(count: int, level: float) -> int:
    """The largest k with 2 P(W < k) <= 1 - level, W the signed-rank sum; 0 if there is none."""
    chances = np.zeros(count * (count + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, count + 1):
        shifted = np.concatenate([np.zeros(rank), chances[:-rank]])
        chances = (chances + shifted) / 2
    below = 2 * np.concatenate([[0.0], np.cumsum(chances)])
    return int(np.searchsorted(below, (1 - level) * (1 + 1e-12), side="right") - 1)


def signed_rank_interval(differences: ArrayLike, level: float) -> tuple[float, float, float]:
    """The Hodges-Lehmann estimate of a shift and its interval from Wilcoxon's signed ranks.

    Assumes independent differences that are symmetric about the shift; for A/A pairs whose order in time
    alternates that holds whatever the noise. Exact for continuous values, conservative for ties (Hollander,
    Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed., sections 3.2 and 3.3).

    Args:
        differences: shape (pairs,), finite.
        level: nominal coverage.

    Returns:
        Estimate, low, high; infinite bounds where so few pairs cannot reach the level.
    """
    values = np.asarray(differences, dtype=float)
    rows, columns = np.triu_indices(len(values))
    means = np.sort((values[rows] + values[columns]) / 2)
    tail = rank_sum_tail(len(values), level)
    if tail == 0:
        return float(np.median(means)), -math.inf, math.inf
    return float(np.median(means)), float(means[tail - 1]), float(means[-tail])


def least_rounds(level: float) -> int:
    """The number of rounds from which on the interval is finite: 2 / 2^n <= 1 - level."""
    return math.ceil(1 - math.log2(1 - level) - 1e-9)


def shown_by(rounds: int, noise: float, level: float) -> float:
    """The shift of log ratios that so many rounds show with power 0.9, where noise is about normal."""
    reach = special.stdtrit(rounds - 1, (1 + level) / 2) + special.ndtri(POWER)
    return SIGNED_RANK_WIDTH * reach * noise / math.sqrt(rounds)


def rounds_for(effect: float, noise: float, level: float) -> int:
    """The least number of rounds that show a relative change of `effect`, at least `least_rounds`."""
    shift = math.log1p(effect)
    # a normal quantile instead of Student's shows the shift with as many rounds or fewer
    reach = special.ndtri((1 + level) / 2) + special.ndtri(POWER)
    rounds = max(least_rounds(level), math.ceil((SIGNED_RANK_WIDTH * reach * noise / shift) ** 2))
    while shown_by(rounds, noise, level) > shift:
        rounds += 1
    return rounds


def log_ratios(base: ArrayLike, head: ArrayLike) -> np.ndarray:
    """The log ratio head / base of each round.

    Blocks that were timed next to each other are compared with each other, so that the load of the
    machine cancels; the median over blocks leaves out those that something disturbed.

    Args:
        base, head: shape (rounds, processes, blocks).

    Returns:
        Shape (rounds,).
    """
    difference = np.log(head).mean(axis=1) - np.log(base).mean(axis=1)
    return np.median(difference, axis=1)


def within_side_noise(base: ArrayLike, head: ArrayLike) -> float:
    """The noise of a round's log ratio, from the two processes of each side, between which nothing changed.

    With processes A1 A2 and B1 B2 the contrasts (A1 - A2 + B1 - B2) / 2 and (A1 - A2 - B1 + B2) / 2 are
    distributed as (B1 + B2 - A1 - A2) / 2 is where the sides are equal, blocks treated alike: A/A
    comparisons of the same size, made at the same time. The noise is the standard deviation that their
    absolute values show, were they normal.

    Args:
        base, head: shape (rounds, 2, blocks).
    """
    left, right = (side[:, 0] - side[:, 1] for side in (np.log(base), np.log(head)))
    contrasts = np.median(np.stack([left + right, left - right]) / 2, axis=-1)
    return float(NORMAL_DEVIATION * np.quantile(np.abs(contrasts), CORE))


def decide(base: ArrayLike, head: ArrayLike, effect: float, level: float = LEVEL) -> Verdict:
    """Compare positive measurements of two sides, of which less is better.

    First the noise where nothing changed says whether so many rounds could show the effect: they must
    show it 9 times of 10. If not, the verdict is `undecided`, unless the whole interval lies beyond the
    effect. Otherwise `equal` needs the interval inside +-effect (two one-sided tests, Schuirmann,
    Journal of Pharmacokinetics and Biopharmaceutics 15, 1987, at a stricter level), and `slower` or
    `faster` need it beyond 0. A change that is sure but smaller than the effect is `equal`.

    Assumes independent rounds, and log ratios that are symmetric about their centre, as they are where
    equal sides could change places. Then equal sides are called slower or faster with probability at most
    1 - level.

    Args:
        base, head: shape (rounds, 2, blocks), two processes a side; `within_side_noise` is the noise.
        effect: the smallest relative change that matters, 0.05 for 5 %.
        level: coverage of the interval.
    """
    ratios, noise = log_ratios(base, head), within_side_noise(base, head)
    ratio, low, high = signed_rank_interval(ratios, level)
    limit, count, needed = math.log1p(effect), len(ratios), rounds_for(effect, noise, level)
    outcome: Outcome = "undecided"
    if count >= least_rounds(level):
        if low > limit:
            outcome = "slower"
        elif high < -limit:
            outcome = "faster"
        elif count >= needed:
            if -limit < low and high < limit:
                outcome = "equal"
            elif low > 0:
                outcome = "slower"
            elif high < 0:
                outcome = "faster"
    if outcome == "undecided" and count >= needed:
        # The sides' own noise looked small enough: let the interval say how many rounds would do.
        needed = max(count + 1, math.ceil(count * ((high - low) / 2 / limit) ** 2))
    return Verdict(
        outcome=outcome,
        ratio=math.exp(ratio),
        low=math.exp(low),
        high=math.exp(high),
        effect=effect,
        level=level,
        noise=noise,
        rounds=count,
        rounds_needed=needed,
    )


def rounds_to_add(verdict: Verdict, most: int) -> int:
    """How many more rounds the noise asks for, of `most` in all.

    The noise is that within the sides: whether a sample is enlarged must not depend on how far the sides
    differ in it, or equal sides would be called different more often than the level says.
    """
    return max(0, min(rounds_for(verdict.effect, verdict.noise, verdict.level), most) - verdict.rounds)
