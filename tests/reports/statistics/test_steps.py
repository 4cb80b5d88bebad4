"""Steps of a history: few marks without a step, steps found where they are, and their sizes."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench.reports.statistics.steps import MIN_VALUES, find_steps


def noise(kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Independent noise of unit scale: normal, with heavy tails, or with one commit of 20 disturbed."""
    generator = np.random.default_rng(1)
    if kind == "heavy tails":
        return generator.standard_t(3, shape) / np.sqrt(3)
    normal = generator.standard_normal(shape)
    if kind == "outliers":
        normal += (generator.random(shape) < 0.05) * generator.exponential(5, shape)
    return normal


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "outliers"])
@pytest.mark.parametrize("commits", [10, 20, 50])
def test_few_histories_without_a_step_are_given_one(commits: int, kind: str):
    histories = np.exp(0.02 * noise(kind, (1000, commits)))
    assert np.mean([bool(find_steps(each)) for each in histories]) <= 0.017  # 1 %, and two standard errors


@pytest.mark.parametrize(
    ("commits", "ratio", "least"), [(10, 1.1, 0.93), (20, 1 / 1.1, 0.97), (50, 1.05, 0.85)]
)
def test_steps_are_found_where_they_are_with_an_interval(commits: int, ratio: float, least: float):
    at = 2 * commits // 5
    histories = np.exp(0.02 * noise("normal", (300, commits)))
    histories[:, at:] *= ratio
    found = [[step for step in find_steps(each) if abs(step.at - at) <= 1] for each in histories]
    assert np.mean([len(each) == 1 for each in found]) >= least
    assert np.mean([each[0].low <= ratio <= each[0].high for each in found if each]) >= 0.9


def test_several_steps_are_told_apart_and_levels_are_exact():
    levels = np.repeat([1.0, 1.5, 1.2], 5)
    first, second = find_steps(levels.tolist())
    assert (first.at, second.at) == (5, 10)
    assert [first.ratio, second.ratio] == pytest.approx([1.5, 0.8])


def test_what_has_no_level_to_compare_has_no_step():
    assert find_steps([]) == []
    assert find_steps([1.0, 1.0, 2.0, 2.0, 2.0]) == []  # fewer than MIN_VALUES on a side
    assert find_steps([1.0] * 20) == []
    noisier = np.exp(np.concatenate([np.zeros(20), np.tile([-0.2, 0.2], 10)]))
    assert find_steps(noisier) == [], "noise changed, and no level"
    assert MIN_VALUES == 3
