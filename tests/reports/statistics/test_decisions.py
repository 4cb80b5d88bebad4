"""Decisions on paired gains: exact values, error rates by simulation, and numbers of seeds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.statistics.decisions import Question, decide, holm, seeds_needed, sign_p_value

ALPHA = 0.05


def test_the_sign_test_is_the_binomials_tail():
    assert sign_p_value([-1.0] * 5) == 2**-5
    assert sign_p_value([-1, -2, -3, 4]) == pytest.approx(5 / 16)
    assert sign_p_value([0.0, 0.0]) == 1.0


def test_holms_correction_on_an_example_by_hand():
    # sorted 0.01, 0.02, 0.04: times 3, 2, 1, never below the one before
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holms_correction_never_lowers_a_p_value_and_keeps_their_order(raw):
    adjusted = holm(raw)
    assert all(new >= old - 1e-15 for new, old in zip(adjusted, raw, strict=True))
    assert [adjusted[i] for i in np.argsort(raw)] == sorted(adjusted)
    assert max(adjusted) <= 1


@pytest.mark.parametrize(
    ("relation", "gains", "finding"),
    [
        ("better", np.linspace(0.08, 0.12, 10), "holds"),
        ("better", np.linspace(0.01, 0.02, 10), "fails"),  # surely above 0, and too small to matter
        ("better", np.linspace(-0.2, 0.3, 10), "open"),
        ("better", np.linspace(-0.3, -0.2, 10), "fails"),
        ("better", np.full(4, 0.2), "open"),  # 4 pairs cannot reach 0.05
        ("better", np.full(10, np.inf), "holds"),  # the control diverged every time
        ("better", np.zeros(10), "fails"),
        ("no_worse", np.linspace(-0.01, 0.01, 10), "holds"),
        ("no_worse", np.linspace(-0.2, -0.1, 10), "fails"),
        ("no_worse", np.linspace(-0.3, 0.3, 10), "open"),
        ("same", np.linspace(-0.01, 0.01, 10), "holds"),
        ("same", np.zeros(10), "holds"),
        ("same", np.linspace(0.1, 0.2, 10), "fails"),
        ("same", np.linspace(-0.2, -0.1, 10), "fails"),
        ("same", np.linspace(-0.3, 0.3, 10), "open"),
    ],
)
@pytest.mark.parametrize("test", ["wilcoxon", "sign"])
def test_what_gains_say_at_a_margin_of_5_percent(relation, gains, finding, test):
    question = Question(relation, 0.05, test)
    assert decide(question, gains, question.p_value(gains), ALPHA) == finding


@pytest.mark.parametrize("shape", ["normal", "skewed"])
@pytest.mark.parametrize("relation", ["better", "no_worse", "same"])
@pytest.mark.parametrize("size", [5, 10, 20])
def test_a_relation_that_does_not_hold_is_seldom_said_to(relation, size, shape):
    # the worst case: the median gain lies where the relation just begins to be false
    random = np.random.default_rng(size)
    edge = 0.0 if relation == "better" else -0.05
    draws = random.normal(size=(2000, size)) if shape == "normal" else _differences(random, (2000, size))
    question = Question(relation, 0.05, "wilcoxon")
    said = [decide(question, edge + 0.05 * row, question.p_value(edge + 0.05 * row), ALPHA) for row in draws]
    assert said.count("holds") / len(said) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(said))


def _differences(random, shape):
    """Of two skewed values that are equally distributed: symmetric, with heavy tails."""
    return random.exponential(size=shape) ** 2 - random.exponential(size=shape) ** 2


@pytest.mark.parametrize("size", [6, 10, 20])
def test_an_effect_that_matters_is_seldom_said_to_be_too_small(size):
    random = np.random.default_rng(size)
    question = Question("better", 0.05)
    said = []
    for _ in range(2000):
        gains = 0.05 + 0.03 * random.normal(size=size)
        said.append(decide(question, gains, question.p_value(gains), ALPHA))
    assert said.count("fails") / len(said) <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / len(said))


def test_so_many_seeds_do_decide():
    random = np.random.default_rng(1)
    question = Question("better", 0.05)
    gains = random.normal(0.1, 0.15, size=10)
    needed = seeds_needed(question, gains, family=4, alpha=ALPHA)
    assert needed is not None
    spread = gains.std(ddof=1)
    decided = 0
    for _ in range(200):
        study = random.normal(np.median(gains), spread, size=needed)
        decided += decide(question, study, question.p_value(study), ALPHA / 4) != "open"
    assert decided / 200 > 0.75  # asked: 0.9, from the gains themselves


def test_the_number_of_seeds_respects_the_least_p_value():
    question = Question("better", 0.05)
    gains = np.full(3, 1.0)
    assert seeds_needed(question, gains, family=1, alpha=ALPHA) == 5
    assert seeds_needed(question, gains, family=10, alpha=ALPHA) == 8
    assert seeds_needed(question, np.array([]), family=1, alpha=ALPHA) is None


def test_an_effect_at_the_margin_is_never_decided():
    gains = 0.05 + np.tile([-0.04, 0.04], 5)
    assert seeds_needed(Question("better", 0.05), gains, family=1, alpha=ALPHA) is None
