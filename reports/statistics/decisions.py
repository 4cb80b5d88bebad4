"""Whether paired gains bear out what a claim says, and how many pairs would decide it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from curvebench.reports.statistics.paired import ordered_values, sign_p_value, ties_against
from curvebench.reports.statistics.ranks import NEGLIGIBLE
from curvebench.results.intervals import median

ClaimRelation = Literal["better", "no_worse", "same"]
Finding = Literal["supported", "refuted", "inconclusive"]

ROUNDING = 1e-6  # of gains: what float32 leaves of equal accuracies
RESAMPLED = 200  # studies, for each number of seeds
POWER = 0.9
SEEDS = (5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, 300, 500, 1000)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values of a family after Holm's correction (Scandinavian Journal of Statistics 6, 1979).

    Whatever the dependence between the tests, the chance that any true null is rejected at
    `adjusted <= alpha` is at most alpha.

    Raises:
        ValueError: for NaN.
    """
    values = ordered_values(p_values, "p_values", "a test that could not be done counts with a p-value of 1")
    order = np.argsort(values, kind="stable")
    # The least is multiplied by their number, the next by one less; none may fall below the one before.
    adjusted = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    restored = np.empty_like(values)
    restored[order] = np.minimum(adjusted, 1.0)
    return restored.tolist()


@dataclass(frozen=True)
class Question:
    """What is asked of gains.

    Args:
        relation: "better": the gain is above 0, and no less than the margin; "no_worse": it is above minus
            the margin; "same": it lies between minus the margin and the margin.
        margin: the smallest gain that matters, in the unit of the gains, above 0.
    """

    relation: ClaimRelation
    margin: float

    @property
    def slack(self) -> float:
        """By how much a gain may miss the margin and lie on it: rounding in float32 decides nothing."""
        return ROUNDING * max(1.0, self.margin)

    def p_value(self, gains: ArrayLike, most: ArrayLike | None = None) -> float:
        """One-sided, for what the relation asserts; of "same" the larger of two tests (TOST).

        Gains that lie on the border, but for what is negligible or rounding, count against the relation: the
        null is about the median gain, which many ties hold at the border (`ties_against`). Of gains that are
        known to bounds it is the largest p-value that they may have.

        Args:
            gains: shape (pairs,), above 0 where the treated method is better; infinities allowed.
            most: what each may be at most, where `gains` is what it is at least; None where they are known.
        """
        ends = _ends(gains, most)
        if self.relation == "better":
            return sign_p_value(ties_against(-ends[0], min(NEGLIGIBLE, self.margin)))
        below = sign_p_value(ties_against(-ends[0] - self.margin, self.slack))
        if self.relation == "no_worse":
            return below
        return max(below, sign_p_value(ties_against(ends[-1] - self.margin, self.slack)))

    def refuting_p_value(self, gains: ArrayLike, most: ArrayLike | None = None) -> float:
        """One-sided, for a median gain that the relation does not allow; of "same" twice the smaller of two.

        Arguments as those of `p_value`. Gains at the margin, but for rounding, count for the relation.
        """
        ends = _ends(gains, most)
        required = self.margin if self.relation == "better" else -self.margin
        below = sign_p_value(ties_against(ends[-1] - required, self.slack))
        if self.relation != "same":
            return below
        return min(1.0, 2 * min(below, sign_p_value(ties_against(self.margin - ends[0], self.slack))))

    def excluded(self, low: float, high: float) -> bool:
        """Whether the relation allows no median gain from `low` to `high`."""
        least, most = self.margin - self.slack, self.margin + self.slack
        if self.relation == "better":
            return high < least
        return high < -most or (self.relation == "same" and low > most)

    def borne_out(self, median: float) -> bool:
        """Whether the median gain is one that the relation allows."""
        least, most = self.margin - self.slack, self.margin + self.slack
        if self.relation == "better":
            return median >= least
        return median >= -most and (self.relation == "no_worse" or median <= most)


def decide(
    question: Question, gains: ArrayLike, refuting_p_value: float, alpha: float, most: ArrayLike | None = None
) -> Finding:
    """What paired gains say of a relation.

    It is supported where the test rejects its null and the median gain is one that the relation allows, and
    refuted where the other test rejects the relation and the median gain is not allowed; else the gains are
    inconclusive. Gains that are known to bounds decide only what they decide wherever between them they lie.
    Where all relations of a claim must hold, the p-value for each is taken as it is (Berger, Technometrics
    24, 1982: an intersection-union test).

    Args:
        gains: shape (pairs,).
        refuting_p_value: `Question.refuting_p_value`, corrected for all relations of the claim, of which one
            refuted relation refutes the whole.
        most: what each may be at most, where `gains` is what it is at least; None where they are known.
    """
    medians = [median(end) for end in _ends(gains, most)]
    if all(map(question.borne_out, medians)):
        return "supported" if question.p_value(gains, most) <= alpha else "inconclusive"
    refuted = question.excluded(medians[0], medians[-1]) and refuting_p_value <= alpha
    return "refuted" if refuted else "inconclusive"


def tells_nothing(question: Question, gains: ArrayLike, most: ArrayLike) -> bool:
    """Whether no number of pairs like these would decide, as one end of what they may be bears out the
    relation and the other denies it.

    Args:
        gains, most: shape (pairs,), between what each gain lies.
    """
    low, high = (median(end) for end in _ends(gains, most))
    borne_out = question.borne_out(low) and question.borne_out(high)
    return not borne_out and not question.excluded(low, high)


def _ends(gains: ArrayLike, most: ArrayLike | None) -> tuple[np.ndarray, ...]:
    """The gains as they are known, or the least and the greatest that they may be."""
    least = np.asarray(gains, dtype=float)
    return (least,) if most is None else (least, np.asarray(most, dtype=float))


def seeds_needed(
    question: Question, gains: ArrayLike, relations: int, alpha: float, most: ArrayLike | None = None
) -> int | None:
    """About how many pairs would decide, if further ones were like those that are there.

    Studies of each size are drawn from the gains with replacement; the answer is the least size of `SEEDS` at
    which the rule decides at least `POWER` of them, the correction of refutations taken at its most severe
    (alpha over the number of relations). It is about the effect that was seen: few pairs may mislead it.

    Args:
        gains: shape (pairs,).
        relations: how many the claim has.
        most: as `decide` takes it.

    Returns:
        The number; None where even the largest of `SEEDS` would not do, or there is no pair.
    """
    ends = _ends(gains, most)
    count = len(ends[0])
    if not count or (most is not None and tells_nothing(question, gains, most)):
        return None
    random = np.random.default_rng(0)

    def is_decided(study: np.ndarray) -> bool:
        drawn = [end[study] for end in ends]
        refuting = relations * question.refuting_p_value(*drawn)
        return decide(question, drawn[0], refuting, alpha, *drawn[1:]) != "inconclusive"

    for size in SEEDS:
        if size <= count or 2.0**-size > alpha:
            continue
        if np.mean([is_decided(study) for study in random.choice(count, (RESAMPLED, size))]) >= POWER:
            return size
    return None
