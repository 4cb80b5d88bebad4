"""Simulations: how often verdicts call false claims reproduced, or true ones not, and when they decide."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pytest

from reports.claims.censoring import censored_at, paired_effects
from reports.claims.verdicts import combined, decided
from reports.statistics.decisions import ClaimRelation, Question, decide, holm
from results.verdicts import ALPHA, Verdict
from tests.reports.statistics.simulated import DIFFERENCES, SIZES, Draw, assert_documented, assert_rare
from tests.reports.synthetic import compared

MARGIN = 0.05
DIVERGED = 0.45  # of the control's runs: less than half, so that the median gain stays below 0
JUST_FALSE: dict[ClaimRelation, float] = {"better": 0.0, "no_worse": -MARGIN, "same": -MARGIN}


def diverging(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Infinitely better where the control diverges, and worse on all other seeds: the median is below 0."""
    return np.where(random.random(shape) < DIVERGED, np.inf, -np.abs(random.normal(size=shape)))


GAINS: dict[str, Draw] = {**DIFFERENCES, "control diverges": diverging}  # in margins, about their median


def verdicts_of(question: Question, least: np.ndarray, most: np.ndarray) -> list[Verdict]:
    """The verdicts of a family of claims of one comparison each; gains (family, pairs) between bounds."""
    ends = list(zip(least, most, strict=True))
    adjusted = holm([question.p_value(low, high) for low, high in ends])
    findings = [decide(question, low, p, ALPHA, high) for (low, high), p in zip(ends, adjusted, strict=True)]
    return [combined([finding]) for finding in findings]


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


def studies(
    question: Question, median: float, draw: Draw, spread: int, family: int, size: int, trials: int
) -> list[list[Verdict]]:
    """The verdicts of simulated studies; gains spread by so many margins."""
    random = np.random.default_rng(size)
    gains = median + MARGIN * spread * draw(random, (trials, family, size))
    return [verdicts_of(question, study, study) for study in gains]


def shares_of(verdict: Verdict, found: Sequence[Sequence[Verdict]]) -> list[bool]:
    """Whether each claim has the verdict."""
    return [each == verdict for study in found for each in study]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_the_simulated_verdicts_are_those_of_the_engine(share: float):
    random = np.random.default_rng(3)
    gains = 0.1 * random.normal(size=(3, 3, 12)) + np.array([-0.2, 0.05, 0.3])[:, None]
    for study in gains:
        least, most = stopped(random, study, share) if share else (study, study)
        assert ((least <= study + 1e-12) & (study <= most + 1e-12)).all()
        asked = [
            compared(low, effect="difference", sign=1.0, smallest_effect=MARGIN, most=high)
            for low, high in zip(least, most, strict=True)
        ]
        expected = [combined([finding]) for finding in decided(asked)["finding"]]
        assert verdicts_of(Question("better", MARGIN), least, most) == expected


@pytest.mark.long
@pytest.mark.parametrize("draw", GAINS)
@pytest.mark.parametrize("relation", JUST_FALSE)
def test_false_claims_are_seldom_reproduced(relation: ClaimRelation, draw: str):
    """Claims that are false by as little as can be, alone and any of ten."""
    question = Question(relation, MARGIN)
    for family in (1, 10):
        for spread in (1, 5, 20) if relation == "better" else (1,):
            for size in SIZES:
                trials = 1000 // family
                found = studies(question, JUST_FALSE[relation], GAINS[draw], spread, family, size, trials)
                assert_rare(["reproduced" in study for study in found])


@pytest.mark.long
@pytest.mark.parametrize("draw", DIFFERENCES)
@pytest.mark.parametrize("relation", JUST_FALSE)
def test_false_claims_are_seldom_reproduced_where_runs_stop(relation: ClaimRelation, draw: str):
    random, question = np.random.default_rng(0), Question(relation, MARGIN)
    for share in (0.3, 0.6, 0.9):
        for size in SIZES:
            gains = JUST_FALSE[relation] + MARGIN * DIFFERENCES[draw](random, (400, 1, size))
            bounds = zip(*stopped(random, gains, share), strict=True)
            assert_rare(["reproduced" in verdicts_of(question, *study) for study in bounds])


@pytest.mark.long
@pytest.mark.parametrize(
    ("draw", "spread", "family", "share"),
    [
        ("normal", 20, 10, 0.043),
        ("skewed", 20, 1, 0.272),
        ("skewed", 20, 10, 0.522),
        ("control diverges", 1, 1, 0.282),
    ],
)
def test_the_signed_rank_test_is_misled_by_skewness_and_not_else(
    draw: str, spread: int, family: int, share: float
):
    question = Question("better", MARGIN, "wilcoxon")
    found = studies(question, 0.0, GAINS[draw], spread, family, 50, 500)
    assert_documented(share, ["reproduced" in study for study in found])


@pytest.mark.long
@pytest.mark.parametrize("draw", DIFFERENCES)
def test_true_claims_at_the_margin_are_seldom_not_reproduced(draw: str):
    for size in SIZES:
        found = studies(Question("better", MARGIN), MARGIN, DIFFERENCES[draw], 1, 1, size, 2000)
        assert_rare(shares_of("not reproduced", found))


@pytest.mark.long
@pytest.mark.parametrize(
    ("margins", "draw", "spread", "family", "verdict", "shares"),
    [
        (0.5, "normal", 1, 1, "reproduced", (0.061, 0.028, 0.029, 0.003)),
        (0.9, "skewed", 1, 1, "reproduced", (0.421, 0.376, 0.332, 0.244)),
        (0.9, "skewed", 5, 10, "reproduced", (0.000, 0.005, 0.014, 0.082)),
        (2, "normal", 5, 1, "reproduced", (0.119, 0.089, 0.264, 0.636)),
        (2, "long tails", 5, 1, "reproduced", (0.091, 0.066, 0.192, 0.493)),
        (2, "skewed", 5, 1, "reproduced", (0.222, 0.228, 0.558, 0.931)),
        (3, "normal", 5, 10, "reproduced", (0.000, 0.041, 0.228, 0.873)),
        (0, "normal", 1, 1, "not reproduced", (0.421, 0.498, 0.915, 0.999)),
        (0, "long tails", 5, 1, "not reproduced", (0.064, 0.032, 0.076, 0.126)),
    ],
)
def test_power_of_verdicts(
    margins: float, draw: str, spread: int, family: int, verdict: Verdict, shares: tuple[float, ...]
):
    """The gain is real and below the margin, clear, or none."""
    for size, share in zip(SIZES, shares, strict=True):
        found = studies(
            Question("better", MARGIN),
            margins * MARGIN,
            DIFFERENCES[draw],
            spread,
            family,
            size,
            1000 // family,
        )
        assert_documented(share, shares_of(verdict, found))
