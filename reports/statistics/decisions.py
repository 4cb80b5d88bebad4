"""Tests of whether paired gains support or refute the relation that a claim asserts, and sample sizes.

A pair consists of two runs with the same seed, one of the treated method and one of the control. Its gain is
above 0 if the treated method is better. A gain is censored if a run of the pair stopped at a threshold, so
that only bounds of the gain are known.
"""

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

ROUNDING = 1e-6  # differences of gains up to this size are rounding errors of float32
RESAMPLED = 200  # number of studies that are simulated for each number of seeds
POWER = 0.9  # share of the simulated studies that must be decided (supported or refuted)
# Numbers of seeds among which the sample-size calculation chooses.
SEEDS = (5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, 300, 500, 1000)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of several tests by Holm's method (Scandinavian Journal of Statistics 6, 1979).

    If all null hypotheses with a corrected p-value of at most alpha are rejected, the probability of
    rejecting at least one true null hypothesis is at most alpha, whatever the dependence between the tests.

    Args:
        p_values: p-value of each test.

    Returns:
        The corrected p-values, in the order of `p_values`.

    Raises:
        ValueError: for NaN.
    """
    values = ordered_values(p_values, "p_values", "a test that could not be done counts with a p-value of 1")
    order = np.argsort(values, kind="stable")
    # Holm's method multiplies the smallest of n p-values by n, the second smallest by n - 1, and so on.
    # A corrected p-value that is smaller than the preceding corrected p-value is raised to that p-value.
    # The order of the p-values therefore stays the same.
    adjusted = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    restored = np.empty_like(values)
    restored[order] = np.minimum(adjusted, 1.0)
    return restored.tolist()


@dataclass(frozen=True)
class Question:
    """A relation that a claim asserts of the median gain, with the tests that support or refute the relation.

    Args:
        relation: "better" requires a median gain of at least the margin; its test has to show that the median
            gain is above 0. "no_worse" requires a median gain above minus the margin. "same" requires a
            median gain between minus the margin and the margin.
        margin: smallest gain that matters, in the unit of the gains, above 0.
    """

    relation: ClaimRelation
    margin: float

    @property
    def slack(self) -> float:
        """Distance within which a gain counts as equal to the margin, because of rounding in float32."""
        return ROUNDING * max(1.0, self.margin)

    def p_value(self, gains: ArrayLike, most: ArrayLike | None = None) -> float:
        """Return the one-sided p-value for the relation: a small p-value supports the relation.

        The null hypothesis is that the median gain violates the relation. For "same" there are two null
        hypotheses, that the median gain is too small and that it is too large; the result is the larger of
        the two p-values (the TOST procedure). The border of a relation is a gain at which the relation begins
        or ceases to hold. It is 0 for "better", and minus the margin for "no_worse". The relation "same" has
        two borders, minus the margin and the margin. Gains that equal the border, up to rounding or a
        negligible difference, count against the relation, since many ties keep the median at the border
        (`ties_against`). For censored gains, the result is the largest p-value of all gains within the
        bounds.

        Args:
            gains: shape (pairs,), above 0 where the treated method is better; infinities allowed.
            most: upper bounds of the gains if some gains are censored; `gains` are then the lower bounds.
                None if all gains are known.
        """
        ends = _ends(gains, most)
        if self.relation == "better":
            return sign_p_value(ties_against(-ends[0], min(NEGLIGIBLE, self.margin)))
        below = sign_p_value(ties_against(-ends[0] - self.margin, self.slack))
        if self.relation == "no_worse":
            return below
        return max(below, sign_p_value(ties_against(ends[-1] - self.margin, self.slack)))

    def refuting_p_value(self, gains: ArrayLike, most: ArrayLike | None = None) -> float:
        """Return the one-sided p-value against the relation: a small p-value refutes the relation.

        The null hypothesis is that the median gain satisfies the relation. For "same" there are two tests, of
        whether the median gain is too small and of whether it is too large; the result is twice the smaller
        of the two p-values, and at most 1. The limit of a relation is the margin for "better", and minus the
        margin for "no_worse". The relation "same" has two limits, minus the margin and the margin. Gains that
        equal a limit up to rounding count for the relation.

        Args:
            gains: shape (pairs,), above 0 where the treated method is better; infinities allowed.
            most: upper bounds of the gains if some gains are censored; `gains` are then the lower bounds.
                None if all gains are known.
        """
        ends = _ends(gains, most)
        required = self.margin if self.relation == "better" else -self.margin
        below = sign_p_value(ties_against(ends[-1] - required, self.slack))
        if self.relation != "same":
            return below
        return min(1.0, 2 * min(below, sign_p_value(ties_against(self.margin - ends[0], self.slack))))

    def excluded(self, low: float, high: float) -> bool:
        """Return whether every median gain from `low` to `high` violates the relation."""
        smallest, largest = self.margin - self.slack, self.margin + self.slack
        if self.relation == "better":
            return high < smallest
        return high < -largest or (self.relation == "same" and low > largest)

    def satisfied_by(self, median: float) -> bool:
        """Return whether a median gain satisfies the relation."""
        smallest, largest = self.margin - self.slack, self.margin + self.slack
        if self.relation == "better":
            return median >= smallest
        return median >= -largest and (self.relation == "no_worse" or median <= largest)


def decide(
    question: Question, gains: ArrayLike, refuting_p_value: float, alpha: float, most: ArrayLike | None = None
) -> Finding:
    """Return the finding for paired gains: supported, refuted or inconclusive.

    The relation is supported if the median gain satisfies the relation and `Question.p_value` is at most
    alpha. It is refuted if the median gain violates the relation and `refuting_p_value` is at most alpha.
    Otherwise the finding is inconclusive. If gains are censored, the relation is supported or refuted only if
    all gains within the bounds lead to the same finding. If a claim requires several relations,
    `Question.p_value` is not corrected for their number, because all relations must be supported (an
    intersection-union test: Berger, Technometrics 24, 1982).

    Args:
        question: the relation.
        gains: shape (pairs,), above 0 where the treated method is better; infinities allowed.
        refuting_p_value: `Question.refuting_p_value`, corrected for the number of relations that the claim
            requires, because a single refuted relation refutes the claim.
        alpha: significance level of both tests.
        most: upper bounds of the gains if some gains are censored; `gains` are then the lower bounds. None if
            all gains are known.
    """
    medians = [median(end) for end in _ends(gains, most)]
    if all(map(question.satisfied_by, medians)):
        return "supported" if question.p_value(gains, most) <= alpha else "inconclusive"
    refuted = question.excluded(medians[0], medians[-1]) and refuting_p_value <= alpha
    return "refuted" if refuted else "inconclusive"


def tells_nothing(question: Question, gains: ArrayLike, most: ArrayLike) -> bool:
    """Return whether too many gains are censored for further pairs of this kind to lead to a finding.

    This is the case if some medians between the median of the lower bounds and the median of the upper bounds
    satisfy the relation, and others violate it.

    Args:
        gains, most: lower and upper bounds of the gains, shape (pairs,).
    """
    low, high = (median(end) for end in _ends(gains, most))
    satisfied_by = question.satisfied_by(low) and question.satisfied_by(high)
    return not satisfied_by and not question.excluded(low, high)


def _ends(gains: ArrayLike, most: ArrayLike | None) -> tuple[np.ndarray, ...]:
    """Return one array, the gains, if they are known; otherwise two, the lower and the upper bounds."""
    low = np.asarray(gains, dtype=float)
    return (low,) if most is None else (low, np.asarray(most, dtype=float))


def seeds_needed(
    question: Question, gains: ArrayLike, relations: int, alpha: float, most: ArrayLike | None = None
) -> int | None:
    """Return about how many pairs would support or refute the relation.

    For each number of pairs in `SEEDS` that is larger than the present number, `RESAMPLED` studies are
    simulated by drawing from the gains with replacement. The result is the smallest number with which at
    least the share `POWER` of the studies is decided. P-values against the relation are multiplied by the
    number of relations, which is the largest correction of Holm's method. The estimate assumes that the
    observed gains are representative, which may be wrong if there are few pairs.

    Args:
        question: the relation.
        gains: shape (pairs,), above 0 where the treated method is better; infinities allowed.
        relations: number of relations that the claim requires.
        alpha: significance level of the tests.
        most: upper bounds of the gains if some gains are censored; `gains` are then the lower bounds. None if
            all gains are known.

    Returns:
        The number of pairs. None if no number in `SEEDS` suffices, if censoring would leave the relation
        undecided with any number (`tells_nothing`), or if there is no pair.
    """
    ends = _ends(gains, most)
    count = len(ends[0])
    if not count or (most is not None and tells_nothing(question, gains, most)):
        return None
    random = np.random.default_rng(0)

    def is_decided(study: np.ndarray) -> bool:
        sampled = [end[study] for end in ends]
        refuting = relations * question.refuting_p_value(*sampled)
        return decide(question, sampled[0], refuting, alpha, *sampled[1:]) != "inconclusive"

    for size in SEEDS:
        if size <= count or 2.0**-size > alpha:
            continue
        if np.mean([is_decided(study) for study in random.choice(count, (RESAMPLED, size))]) >= POWER:
            return size
    return None
