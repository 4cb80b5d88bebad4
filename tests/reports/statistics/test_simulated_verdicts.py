"""Simulations: how often false claims are supported and true ones refuted, and when verdicts decide."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from curvebench.reports.claims.censoring import censored_at, paired_effects
from curvebench.reports.claims.findings import decided
from curvebench.reports.claims.verdicts import combined
from curvebench.reports.statistics.decisions import ClaimRelation, Finding, Question, decide, holm
from curvebench.results.verdicts import ALPHA, Verdict
from tests.reports.statistics.simulated import DIFFERENCES, SIZES, Draw, assert_rare
from tests.reports.synthetic import compared

MARGIN = 0.05
# Share of the control's runs that diverge: less than half, so that the median gain stays below 0.
DIVERGED = 0.45
RELATIONS = (1, 10)  # comparisons that a claim rests on
JUST_FALSE: dict[ClaimRelation, float] = {"better": 0.0, "no_worse": -MARGIN, "same": -MARGIN}
CLEAR: dict[ClaimRelation, float] = {"better": 100 * MARGIN, "no_worse": 100 * MARGIN, "same": 0.0}
JUST_TRUE: dict[ClaimRelation, float] = {"better": MARGIN, "no_worse": -MARGIN, "same": -MARGIN}


def diverging(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Infinitely better where the control diverges, and worse on all other seeds: the median is below 0."""
    return np.where(random.random(shape) < DIVERGED, np.inf, -np.abs(random.normal(size=shape)))


# Gains in units of the margin, around their median.
GAINS: dict[str, Draw] = {**DIFFERENCES, "control diverges": diverging}


def findings_of(question: Question, least: np.ndarray, most: np.ndarray) -> list[Finding]:
    """Return the findings of all comparisons of a claim, which have the same question.

    Args:
        least, most: bounds of the gains, (comparisons, pairs).
    """
    ends = list(zip(least, most, strict=True))
    refuting = holm([question.refuting_p_value(low, high) for low, high in ends])
    return [
        decide(question, low, against, ALPHA, high)
        for (low, high), against in zip(ends, refuting, strict=True)
    ]


def verdict_of(question: Question, least: np.ndarray, most: np.ndarray) -> Verdict:
    """Return the verdict on a claim, whose gains have these bounds."""
    return combined(findings_of(question, least, most))


def stopped(random: np.random.Generator, gains: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Between what gains are known to lie where that share of the control's runs stops at a threshold.

    Problems are unlike each other: where a run would have ended spreads by ten margins. Less is better.
    """
    control = 10 * MARGIN * random.normal(size=gains.shape)
    threshold = 10 * MARGIN * NormalDist().inv_cdf(share)
    ends = (np.maximum(values, threshold) for values in (control - gains, control))
    treated, other = (censored_at(values, "minimize", threshold) for values in ends)
    least, most = paired_effects(treated, other, "difference").negated
    return least, most


def simulated(
    question: Question, medians: np.ndarray, draw: Draw, spread: float, size: int, trials: int
) -> list[Verdict]:
    """Return the verdicts on simulated claims, one per trial.

    Args:
        medians: true median gain of each comparison of a claim.
        draw: distribution of gains around the median.
        spread: scale of the distribution in units of MARGIN.
        size: number of pairs of a comparison.
    """
    random = np.random.default_rng(size)
    gains = medians[:, None] + MARGIN * spread * draw(random, (trials, len(medians), size))
    return [verdict_of(question, claim, claim) for claim in gains]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_the_simulated_findings_are_those_of_the_engine(share: float):
    random = np.random.default_rng(3)
    gains = 0.1 * random.normal(size=(3, 3, 12)) + np.array([-0.2, 0.05, 0.3])[:, None]
    for claim in gains:
        least, most = stopped(random, claim, share) if share else (claim, claim)
        assert ((least <= claim + 1e-12) & (claim <= most + 1e-12)).all()
        asked = [
            compared(low, effect="difference", sign=1.0, smallest_effect=MARGIN, most=high)
            for low, high in zip(least, most, strict=True)
        ]
        assert findings_of(Question("better", MARGIN), least, most) == decided(asked)["finding"].to_list()


@pytest.mark.parametrize("draw", GAINS)
@pytest.mark.parametrize("relation", JUST_FALSE)
def test_claims_that_are_false_in_one_comparison_are_seldom_reproduced(relation: ClaimRelation, draw: str):
    """It is false by as little as can be, and the others are clearly true."""
    question = Question(relation, MARGIN)
    for relations in RELATIONS:
        medians = np.array([JUST_FALSE[relation], *[CLEAR[relation]] * (relations - 1)])
        for spread in (1, 20) if relation == "better" else (1,):
            for size in SIZES:
                found = simulated(question, medians, GAINS[draw], spread, size, 400 // relations)
                assert_rare([verdict == "reproduced" for verdict in found])


@pytest.mark.parametrize("draw", DIFFERENCES)
@pytest.mark.parametrize("relation", JUST_TRUE)
def test_claims_that_are_just_true_are_seldom_refuted(relation: ClaimRelation, draw: str):
    """All of their comparisons are at the margin."""
    for relations in RELATIONS:
        for size in SIZES:
            medians = np.full(relations, JUST_TRUE[relation])
            found = simulated(
                Question(relation, MARGIN), medians, DIFFERENCES[draw], 1, size, 1000 // relations
            )
            assert_rare([verdict == "not reproduced" for verdict in found])


@pytest.mark.long
@pytest.mark.parametrize("draw", DIFFERENCES)
@pytest.mark.parametrize("relation", JUST_FALSE)
def test_where_runs_stop_both_errors_stay_rare(relation: ClaimRelation, draw: str):
    random, question = np.random.default_rng(0), Question(relation, MARGIN)
    for share in (0.3, 0.6, 0.9):
        for size in SIZES:
            for median, wrong in ((JUST_FALSE, "reproduced"), (JUST_TRUE, "not reproduced")):
                gains = median[relation] + MARGIN * DIFFERENCES[draw](random, (400, 1, size))
                bounds = zip(*stopped(random, gains, share), strict=True)
                assert_rare([verdict_of(question, *claim) == wrong for claim in bounds])
