"""The convex trio: the paper's sizes, its matrices, its formulas and its minima."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads.convex import LEAST_SQUARES, LOG_SUM_EXP, LOGISTIC_REGRESSION, WORKLOADS
from tests.workloads.cases import random_of

EXPECTED = {
    "log_sum_exp": (100, 100, 1.5),
    "least_squares": (100, 100, 2.0),
    "logistic_regression": (100, 3, 2.0),
}


def _instance(workload, seed=0, **settings):
    return workload.problem(workload.complete(settings), random_of(seed))


def _value(workload, theta, split):
    return float(workload.loss(numpy_ops(), {"theta": theta}, {}, split, {})[0])


def _truth(workload, seed=0, **settings):
    """Return the theta* behind an instance, drawn as the workload draws it."""
    complete = workload.complete(settings)
    generator = random_of(seed)("data")
    n, d = complete["n"], complete["d"]
    generator.normal(size=(n, min(n, d)))
    generator.normal(size=(d, min(n, d)))
    return generator.normal(size=d)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_the_defaults_are_those_of_the_paper(workload):
    n, d, alpha = EXPECTED[workload.name]
    problem = _instance(workload)
    features = problem.splits["train"]["features"]
    assert features.shape == (n, d)
    assert problem.splits["train"]["targets"].shape == (n,)
    assert problem.parameters["theta"].shape == (d,)
    assert workload.dtype == "float64"
    np.testing.assert_allclose(
        np.linalg.svd(features, compute_uv=False), np.arange(1.0, d + 1) ** -alpha, atol=1e-12
    )


@pytest.mark.parametrize("workload", [LOG_SUM_EXP, LEAST_SQUARES], ids=lambda workload: workload.name)
def test_targets_are_what_the_true_parameters_give(workload):
    split = _instance(workload, seed=2).splits["train"]
    np.testing.assert_allclose(split["features"] @ _truth(workload, seed=2), split["targets"], atol=1e-14)


def _logistic(pairs):
    powers = [(math.exp(-score), y) for score, y in pairs]
    return -sum(
        y * math.log(1 / (1 + power)) + (1 - y) * math.log(power / (1 + power)) for power, y in powers
    )


# Terms of the losses, from <a_i, theta> and y_i.
FORMULAS = {
    LOG_SUM_EXP.name: lambda pairs: math.log(sum(math.exp((score - y) ** 2) for score, y in pairs)),
    LEAST_SQUARES.name: lambda pairs: 0.5 * math.fsum((score - y) ** 2 for score, y in pairs),
    LOGISTIC_REGRESSION.name: _logistic,
}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
@given(st.integers(0, 20))
def test_values_are_those_of_the_formula(workload, seed):
    problem = _instance(workload, seed, n=9, d=6)
    split, theta = problem.splits["train"], problem.parameters["theta"]
    scores = [sum(a * t for a, t in zip(row, theta, strict=True)) for row in split["features"]]
    expected = FORMULAS[workload.name](list(zip(scores, split["targets"], strict=True)))
    assert _value(workload, theta, split) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_values_stay_finite_far_from_the_minimum(workload):
    problem = _instance(workload)
    value = _value(workload, 1e4 * problem.parameters["theta"], problem.splits["train"])
    assert math.isfinite(value)
    assert value > _value(workload, problem.parameters["theta"], problem.splits["train"])


@given(st.integers(0, 20), st.integers(2, 12), st.integers(1, 12))
def test_log_sum_exp_is_least_at_the_true_parameters_where_it_is_log_n(seed, n, d):
    problem = _instance(LOG_SUM_EXP, seed, n=n, d=d)
    split, truth = problem.splits["train"], _truth(LOG_SUM_EXP, seed, n=n, d=d)
    assert _value(LOG_SUM_EXP, truth, split) == pytest.approx(math.log(n), abs=1e-14)
    assert problem.facts["minimum"] == math.log(n)
    assert _value(LOG_SUM_EXP, problem.parameters["theta"], split) > math.log(n)


@pytest.mark.parametrize("workload", [LOG_SUM_EXP, LEAST_SQUARES], ids=lambda workload: workload.name)
def test_suboptimality_is_the_distance_to_the_minimum(workload):
    problem = _instance(workload)
    split = problem.splits["train"]
    at_start = workload.evaluate(numpy_ops(), problem.parameters, {}, split)
    at_truth = workload.evaluate(numpy_ops(), {"theta": _truth(workload)}, {}, split)
    assert at_start["suboptimality"] == at_start["loss"] - problem.facts["minimum"]
    assert at_start["suboptimality"] > 0.0
    assert at_truth["suboptimality"] == pytest.approx(0.0, abs=1e-14)


def test_labels_follow_their_law():
    """At least 2,000 labels in each fifth of the probabilities: their shares are the mean probabilities."""
    instances = [(seed, _instance(LOGISTIC_REGRESSION, seed, n=20, alpha=0.5)) for seed in range(600)]
    labels = np.concatenate([problem.splits["train"]["targets"] for _, problem in instances])
    scores = np.concatenate(
        [
            problem.splits["train"]["features"] @ _truth(LOGISTIC_REGRESSION, seed, n=20, alpha=0.5)
            for seed, problem in instances
        ]
    )
    probabilities = 1 / (1 + np.exp(-scores))
    assert set(labels) == {0.0, 1.0}
    for part in np.array_split(np.argsort(probabilities), 5):
        expected, spread = probabilities[part].mean(), 4 * np.sqrt(0.25 / len(part))
        assert labels[part].mean() == pytest.approx(expected, abs=spread)
    assert labels @ scores > 0.0  # the sign of <a, theta*>


def test_starts_are_standard_normal_times_their_scale():
    starts = np.concatenate([_instance(LEAST_SQUARES, seed).parameters["theta"] for seed in range(100)])
    assert abs(starts.mean()) < 5 / np.sqrt(starts.size)
    assert starts.std() == pytest.approx(1.0, abs=5 / np.sqrt(2 * starts.size))
    near, far = (_instance(LOG_SUM_EXP, start_scale=scale).parameters["theta"] for scale in (1.0, 45.0))
    assert np.array_equal(far, 45.0 * near)
