"""Gaussian-process hyperparameters: the likelihood of SciPy's normal law, scikit-learn's gradient, data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads.gaussian_process import GAUSSIAN_PROCESS, JITTER
from tests.workloads.cases import agreed_gradient, random_of


def _problem(seed=0, **settings):
    return GAUSSIAN_PROCESS.problem(GAUSSIAN_PROCESS.complete(settings), random_of(seed))


def _loss(theta, split):
    return float(GAUSSIAN_PROCESS.loss(numpy_ops(), {"theta": theta}, {}, split, {})[0])


def test_the_loss_is_the_log_density_of_a_normal_vector():
    problem = _problem(examples=15, inputs=2)
    train, theta = problem.splits["train"], np.array([-0.5, 0.3, 0.2, -1.0])
    covariance = np.zeros((15, 15))
    for i, first in enumerate(train["inputs"]):
        for j, second in enumerate(train["inputs"]):
            scaled = (first - second) / np.exp(theta[:2])
            covariance[i, j] = np.exp(0.4) * np.exp(-0.5 * scaled @ scaled) + (i == j) * (
                np.exp(-2.0) + JITTER
            )
    density = multivariate_normal(np.zeros(15), covariance).logpdf(train["targets"])
    assert _loss(theta, train) == pytest.approx(-density / 15, rel=1e-12)


def test_the_gradient_is_that_of_scikit_learn():
    problem = _problem(examples=60)
    train, theta = problem.splits["train"], problem.parameters["theta"]
    kernel = ConstantKernel(1.0) * RBF(np.ones(4)) + WhiteKernel(1.0)
    model = GaussianProcessRegressor(kernel, alpha=JITTER, optimizer=None).fit(
        train["inputs"], train["targets"]
    )
    # scikit-learn has the logarithms of s^2, of the length scales and of e^2, in this order
    point = np.array([2.0 * theta[-2], *theta[:-2], 2.0 * theta[-1]])
    value, slopes = model.log_marginal_likelihood(point, eval_gradient=True)
    gradient = agreed_gradient(GAUSSIAN_PROCESS, problem, train)[0]["theta"]
    assert _loss(theta, train) == pytest.approx(-value / 60, rel=1e-12)
    expected = -np.array([*slopes[1:-1], 2.0 * slopes[0], 2.0 * slopes[-1]]) / 60
    np.testing.assert_allclose(gradient, expected, rtol=1e-9)


def test_targets_have_the_law_of_the_true_hyperparameters():
    """The mean loss at the truth is the entropy, and the loss is larger at other hyperparameters."""
    truth = np.log([*np.geomspace(0.3, 10.0, 2), 1.0, 0.1])
    problems = [_problem(seed, examples=30, inputs=2, noise=0.1).splits["train"] for seed in range(40)]
    whitened = []
    for split in problems:
        scaled = split["inputs"] / np.exp(truth[:2])
        distances = np.sum((scaled[:, None] - scaled[None]) ** 2, axis=-1)
        covariance = np.exp(-0.5 * distances) + 0.01 * np.eye(30)
        whitened.append(np.linalg.solve(np.linalg.cholesky(covariance), split["targets"]))
    assert np.mean(np.square(whitened)) == pytest.approx(1.0, abs=0.15)
    mean = {move: np.mean([_loss(truth + move, split) for split in problems]) for move in (-0.7, 0.0, 0.7)}
    assert min(mean, key=mean.__getitem__) == 0.0


def test_starts_have_the_deviation_of_the_setting():
    near, far = (_problem(start_scale=scale).parameters["theta"] for scale in (0.5, 2.0))
    np.testing.assert_allclose(far, 4.0 * near)


def test_a_far_hyperparameter_gives_nan_and_no_error():
    split = _problem(examples=20, inputs=2).splits["train"]
    assert np.isnan(_loss(np.array([np.nan, 0.0, 0.0, 0.0]), split))
