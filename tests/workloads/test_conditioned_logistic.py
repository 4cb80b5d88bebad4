"""Logistic regression with a given condition: its spectrum, axes and labels, and its minimum."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegression

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads.conditioned_logistic import CONDITIONED_LOGISTIC_REGRESSION as WORKLOAD
from tests.workloads.cases import random_of


def _splits(**settings):
    problem = WORKLOAD.problem(WORKLOAD.complete({"d": 5, **settings}), random_of(0))
    return problem.splits["train"], problem.splits["validation"], problem


def _loss(theta, split):
    return float(WORKLOAD.loss(numpy_ops(), {"theta": theta}, {}, split, {})[0])


@pytest.mark.parametrize("axes", ["rotated", "aligned"])
def test_the_covariance_has_the_condition_and_the_axes_of_the_settings(axes):
    train, _, _ = _splits(condition=1e6, axes=axes, train_examples=50_000)
    covariance = train["features"].T @ train["features"] / 50_000
    deviations = np.sqrt(np.diag(covariance))
    correlations = covariance / np.outer(deviations, deviations) - np.eye(5)
    if axes == "aligned":
        np.testing.assert_allclose(deviations**2, np.geomspace(1.0, 1e-6, 5), rtol=0.05)
        assert np.abs(correlations).max() < 0.03
    else:
        np.testing.assert_allclose(np.linalg.eigvalsh(covariance)[::-1], np.geomspace(1.0, 1e-6, 5), rtol=0.1)
        assert np.abs(correlations).max() > 0.5


def test_the_axes_are_coordinates_of_the_same_problem():
    rotated, aligned = (_splits(axes=axes)[0] for axes in ("rotated", "aligned"))
    assert np.array_equal(rotated["labels"], aligned["labels"])
    np.testing.assert_allclose(
        rotated["features"] @ rotated["features"].T, aligned["features"] @ aligned["features"].T, atol=1e-12
    )
    assert rotated["minimum"][0] == pytest.approx(aligned["minimum"][0], rel=1e-10)


def test_the_minimum_is_that_of_scikit_learn():
    train, _, problem = _splits(condition=100.0, axes="aligned")
    found = LogisticRegression(
        C=np.inf, fit_intercept=False, tol=1e-12, max_iter=5000, solver="newton-cholesky"
    )
    theta = found.fit(train["features"], train["labels"]).coef_[0]
    assert problem.facts["minimum"] == pytest.approx(_loss(theta, train), rel=1e-9)
    metrics = WORKLOAD.evaluate(numpy_ops(), {"theta": theta}, {}, train)
    assert metrics["suboptimality"] == pytest.approx(0.0, abs=1e-9)
    assert 0.2 < metrics["loss"] < 0.6


def _is_separable(split):
    signs = 2.0 * split["labels"] - 1.0
    inequalities = -signs[:, None] * split["features"]
    search = linprog(np.zeros(5), inequalities, -np.ones(len(signs)), bounds=(None, None))
    return search.status == 0


def test_labels_are_separable_where_the_setting_says_so():
    train, validation, problem = _splits(separable=True, condition=10.0)
    assert _is_separable(train)
    assert problem.facts["minimum"] < 1e-8
    assert not _is_separable(_splits(condition=10.0)[0])
    assert not _is_separable(_splits(separable=True, condition=10.0, label_noise=0.1)[0])
    assert set(np.unique(validation["labels"])) == {0.0, 1.0}


def test_label_noise_exchanges_its_share_of_the_labels():
    clean, noisy = (_splits(label_noise=noise)[0] for noise in (0.0, 0.2))
    assert np.array_equal(clean["features"], noisy["features"])
    assert np.mean(clean["labels"] != noisy["labels"]) == pytest.approx(0.2, abs=0.04)


def test_the_signal_is_the_deviation_of_the_true_scores():
    """Without a signal, labels are independent of the features; the mean loss is at most log 2."""
    assert _splits(signal=0.0)[2].facts["minimum"] == pytest.approx(np.log(2.0), abs=0.01)
    assert _splits(signal=10.0)[2].facts["minimum"] < 0.2


def test_loss_and_accuracy_are_those_of_the_formula():
    _, validation, _ = _splits()
    theta = np.array([0.3, -0.2, 0.1, 2.0, -1.0])
    chances = 1.0 / (1.0 + np.exp(-validation["features"] @ theta))
    labels = validation["labels"]
    metrics = WORKLOAD.evaluate(numpy_ops(), {"theta": theta}, {}, validation)
    expected = -np.mean(labels * np.log(chances) + (1.0 - labels) * np.log(1.0 - chances))
    assert metrics["loss"] == pytest.approx(expected, rel=1e-12)
    assert metrics["accuracy"] == np.mean((chances > 0.5) == labels)
