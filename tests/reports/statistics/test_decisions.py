"""Decisions on paired gains: exact values, error rates by simulation, and numbers of seeds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.reports.statistics.decisions import (
    Finding,
    Question,
    decide,
    holm,
    seeds_needed,
    tells_nothing,
)

ALPHA = 0.05


def finding_of(question: Question, gains: np.ndarray, most: np.ndarray | None = None) -> Finding:
    """Return the finding of a claim's only relation, given the gains of pairs."""
    return decide(question, gains, question.refuting_p_value(gains, most), ALPHA, most)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holms_correction_never_lowers_a_p_value_and_keeps_their_order(raw):
    adjusted = holm(raw)
    assert all(new >= old - 1e-15 for new, old in zip(adjusted, raw, strict=True))
    assert [adjusted[i] for i in np.argsort(raw)] == sorted(adjusted)
    assert max(adjusted) <= 1


@pytest.mark.parametrize(
    ("relation", "gains", "finding"),
    [
        ("better", np.linspace(0.08, 0.12, 10), "supported"),
        ("better", np.linspace(0.01, 0.02, 10), "refuted"),  # surely above 0, and too small to matter
        ("better", np.linspace(-0.2, 0.3, 10), "inconclusive"),
        ("better", np.linspace(-0.3, -0.2, 10), "refuted"),
        ("better", np.full(4, 0.2), "inconclusive"),  # 4 pairs cannot reach 0.05
        ("better", np.full(10, np.inf), "supported"),  # the control diverged every time
        ("better", np.zeros(10), "refuted"),
        ("no_worse", np.linspace(-0.01, 0.01, 10), "supported"),
        ("no_worse", np.linspace(-0.2, -0.1, 10), "refuted"),
        ("no_worse", np.linspace(-0.3, 0.3, 10), "inconclusive"),
        ("same", np.linspace(-0.01, 0.01, 10), "supported"),
        ("same", np.zeros(10), "supported"),
        ("same", np.linspace(0.1, 0.2, 10), "refuted"),
        ("same", np.linspace(-0.2, -0.1, 10), "refuted"),
        ("same", np.linspace(-0.3, 0.3, 10), "inconclusive"),
    ],
)
def test_what_gains_say_at_a_margin_of_5_percent(relation, gains, finding):
    assert finding_of(Question(relation, 0.05), gains) == finding


RELATIONS = ("better", "no_worse", "same")
GAINS = st.sampled_from([-np.inf, -0.2, -0.05, 0.0, 0.02, 0.05, 0.2, np.inf])


@given(
    relation=st.sampled_from(RELATIONS),
    triples=st.lists(st.tuples(GAINS, GAINS, GAINS).map(sorted), min_size=5, max_size=12),
)
def test_what_bounds_decide_is_so_wherever_between_them_the_gains_lie(relation, triples):
    least, within, most = np.array(triples).T
    question = Question(relation, 0.05)
    assert question.p_value(within) <= question.p_value(least, most)
    found = finding_of(question, least, most)
    if found == "refuted":
        assert finding_of(question, within) == "refuted"
    if found == "supported":
        assert question.satisfied_by(np.median(within))


@pytest.mark.parametrize("relation", RELATIONS)
def test_where_most_pairs_are_unknown_no_number_of_seeds_would_decide(relation):
    unknown = np.full(7, np.inf)
    least, most = np.append(-unknown, [0.2] * 3), np.append(unknown, [0.2] * 3)
    question = Question(relation, 0.05)
    assert finding_of(question, least, most) == "inconclusive"
    assert tells_nothing(question, least, most)
    assert seeds_needed(question, least, 1, ALPHA, most) is None


def test_a_gain_that_is_at_least_so_much_holds_for_better_and_never_for_the_same():
    least, most = np.full(10, 0.2), np.full(10, np.inf)
    better, same = Question("better", 0.05), Question("same", 0.05)
    assert finding_of(better, least, most) == "supported"
    assert finding_of(same, least, most) == "refuted"
    inside = np.full(10, 0.02)
    assert finding_of(same, inside, most) == "inconclusive"
    assert tells_nothing(same, inside, most)


def test_a_relation_holds_only_where_the_least_and_the_greatest_median_are_allowed():
    """The least gains are above 0 and below the margin, so that the test rejects and their median denies."""
    least, most = np.full(10, 0.02), np.full(10, 0.2)
    better = Question("better", 0.05)
    p_value = better.p_value(least, most)
    assert p_value == 2**-10
    assert finding_of(better, least, most) == "inconclusive"
    assert finding_of(better, most) == "supported"
    assert finding_of(better, least) == "refuted"


@pytest.mark.parametrize("relation", ["no_worse", "same"])
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_rounding_at_the_margin_decides_nothing(relation, precision):
    accuracies = np.array([0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.93, 0.92, 0.91, 0.9], dtype=precision)
    worse = np.array([0.98, 0.97, 0.96, 0.95, 0.94, 0.93, 0.92, 0.91, 0.9, 0.89], dtype=precision)
    gains = worse.astype(float) - accuracies.astype(float)
    question = Question(relation, 0.01)
    assert finding_of(question, gains) == "inconclusive"


def test_so_many_seeds_do_decide():
    random = np.random.default_rng(1)
    question = Question("better", 0.05)
    gains = random.normal(0.1, 0.15, size=10)
    needed = seeds_needed(question, gains, relations=4, alpha=ALPHA)
    assert needed is not None
    spread = gains.std(ddof=1)
    decided = 0
    for _ in range(200):
        study = random.normal(np.median(gains), spread, size=needed)
        decided += decide(question, study, 4 * question.refuting_p_value(study), ALPHA) != "inconclusive"
    assert decided / 200 > 0.75  # asked: 0.9, from the gains themselves


def test_the_number_of_seeds_respects_the_least_p_value():
    question = Question("better", 0.05)
    gains = np.full(3, 1.0)
    assert seeds_needed(question, gains, relations=1, alpha=ALPHA) == 5
    assert seeds_needed(question, gains, relations=10, alpha=ALPHA) == 5
    assert seeds_needed(question, np.array([]), relations=1, alpha=ALPHA) is None


@pytest.mark.parametrize(("relation", "border"), [("better", 0.0), ("no_worse", -0.1), ("same", 0.1)])
def test_ties_on_the_border_count_against_a_relation(relation, border):
    """Most pairs tie there, the rest are on the good side: the median gain is the border, as in the null."""
    question = Question(relation, 0.1)
    good = {"better": 1.0, "no_worse": 1.0, "same": 0.0}[relation]
    gains = [border] * 11 + [good] * 9
    assert question.p_value(gains) > 0.7
    assert question.p_value([good] * 20) < 0.001
