"""The two regressions on matrices: the paper's sizes, data and starts, their formulas and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.benchmarks.claims._matrices import rearrange
from curvebench.workloads import workloads
from curvebench.workloads.matrix_regression import WORKLOADS, kronecker_residual
from tests.workloads.cases import random_of

SEEDS = st.integers(0, 20)
MASKED = workloads()["errors_in_variables"]
NOISES = (0.0, 0.3, 1.0)
FACTORED = workloads()["matrix_factorization"]


def _instance(workload, seed=0, **settings):
    return workload.problem(workload.complete(settings), random_of(seed))


def _evaluated(workload, params, split):
    return {key: float(value) for key, value in workload.evaluate(numpy_ops(), params, {}, split).items()}


def _parameters(problem, seed):
    """Standard normal ones."""
    generator = np.random.default_rng(seed)
    return {name: generator.normal(size=value.shape) for name, value in problem.parameters.items()}


def _hessian(matrix, mask):
    """Return the Hessian of 1/2 ||A (M * W) - Y||_F^2 in the row-major entries of W: the Gram matrix of the
    columns of the linear map.
    """
    n, m = mask.shape
    units = np.eye(n * m).reshape(n * m, n, m)
    columns = np.stack([(matrix @ (mask * unit)).ravel() for unit in units], axis=1)
    return columns.T @ columns


def test_matrices_have_the_sizes_and_the_decay_of_the_paper():
    for workload, n, alpha in ((MASKED, 10, 2.0), (FACTORED, 20, 0.5)):
        train = _instance(workload).splits["train"]
        assert train["matrix"].shape == train["targets"].shape == (n, n)
        values = np.linalg.svd(train["matrix"], compute_uv=False)
        np.testing.assert_allclose(values, np.arange(1.0, n + 1) ** -alpha, atol=1e-12)
    assert {workload.dtype for workload in WORKLOADS} == {"float64"}


# --- errors in variables ---------------------------------------------------------------------------


@given(SEEDS, st.sampled_from(NOISES))
def test_the_masked_loss_is_its_formula(seed, nu):
    problem = _instance(MASKED, seed, nu=nu, n=4, m=3)
    split, params = problem.splits["train"], _parameters(problem, seed)
    a, mask, y, w = split["matrix"], split["mask"], split["targets"], params["W"]
    expected = 0.5 * sum(
        (sum(a[i, k] * mask[k, j] * w[k, j] for k in range(4)) - y[i, j]) ** 2
        for i in range(4)
        for j in range(3)
    )
    assert _evaluated(MASKED, params, split)["loss"] == pytest.approx(expected, rel=1e-13)


def test_masks_have_mean_one_and_the_deviation_of_their_workload():
    for nu in NOISES:
        masks = np.concatenate(
            [_instance(MASKED, s, nu=nu).splits["train"]["mask"].ravel() for s in range(60)]
        )
        assert masks.mean() == pytest.approx(1.0, abs=5 * nu / np.sqrt(masks.size))
        assert masks.std() == pytest.approx(nu, rel=5 / np.sqrt(2 * masks.size))


def test_the_true_matrix_is_standard_normal():
    """Solved for: A is invertible, and with nu = 0 the mask is all ones."""
    truths = []
    for seed in range(60):
        split = _instance(MASKED, seed, nu=0.0).splits["train"]
        np.testing.assert_array_equal(split["mask"], 1.0)
        truths.append(np.linalg.solve(split["matrix"], split["targets"]))
    entries = np.concatenate(truths).ravel()
    assert abs(entries.mean()) < 5 / np.sqrt(entries.size)
    assert entries.std() == pytest.approx(1.0, abs=5 / np.sqrt(2 * entries.size))


@pytest.mark.parametrize("nu", NOISES)
def test_the_masked_loss_starts_at_one_relative_and_vanishes_at_the_solution(nu):
    workload = MASKED
    problem = _instance(workload, 2, nu=nu)
    split = problem.splits["train"]
    assert not np.any(problem.parameters["W"])
    start = _evaluated(workload, problem.parameters, split)
    assert start["relative_loss"] == 1.0
    assert start["loss"] == pytest.approx(0.5 * np.sum(split["targets"] ** 2), rel=1e-14)
    solution = {"W": np.linalg.solve(split["matrix"], split["targets"]) / split["mask"]}
    assert _evaluated(workload, solution, split)["loss"] < 1e-20
    halfway = _evaluated(workload, {"W": solution["W"] / 2}, split)
    assert halfway["relative_loss"] == pytest.approx(0.25, rel=1e-9)  # the residual is linear in W


@given(SEEDS, st.integers(1, 5), st.integers(1, 5), st.sampled_from([0.0, 0.1, 1.0]))
def test_the_kronecker_residual_is_that_of_the_rearranged_hessian(seed, n, m, nu):
    generator = np.random.default_rng(seed)
    matrix, mask = generator.normal(size=(n, n)), 1 + nu * generator.normal(size=(n, m))
    hessian = _hessian(matrix, mask)
    values = np.linalg.svd(rearrange(hessian, n, m, n, m), compute_uv=False)
    expected = np.linalg.norm(values[1:]) / np.linalg.norm(hessian)
    assert kronecker_residual(matrix, mask) == pytest.approx(expected, abs=1e-12)


def test_the_kronecker_residual_vanishes_without_a_mask_and_grows_with_it():
    medians = [
        np.median([_instance(MASKED, seed, nu=nu).facts["kronecker_residual"] for seed in range(20)])
        for nu in NOISES
    ]
    assert medians[0] < 1e-14
    assert medians == sorted(medians)
    assert medians[-1] > 0.4
    assert kronecker_residual(np.eye(2), np.eye(2)) == pytest.approx(np.sqrt(0.5))  # two equal values of two
    assert kronecker_residual(np.zeros((2, 2)), np.ones((2, 3))) == 0.0


# --- low-rank factorization ------------------------------------------------------------------------


@given(SEEDS)
def test_the_factored_loss_and_the_recovery_error_are_their_formulas(seed):
    problem = _instance(FACTORED, seed, n=5, m=4, rank=2)
    params, train = _parameters(problem, seed), problem.splits["train"]
    product = np.array([[sum(params["L"][i] * params["R"][j]) for j in range(4)] for i in range(5)])
    expected = 0.5 * sum(
        (sum(train["matrix"][i, k] * product[k, j] for k in range(5)) - train["targets"][i, j]) ** 2
        for i in range(5)
        for j in range(4)
    )
    assert _evaluated(FACTORED, params, train)["loss"] == pytest.approx(expected, rel=1e-12)
    test = problem.splits["test"]
    distance = sum((product[i, j] - test["truth"][i, j]) ** 2 for i in range(5) for j in range(4))
    assert _evaluated(FACTORED, params, test) == {"recovery_error": pytest.approx(distance, rel=1e-12)}


def test_the_true_matrix_has_its_rank_and_a_linear_grid_of_singular_values():
    truth = _instance(FACTORED, 3).splits["test"]["truth"]
    expected = np.concatenate([[1.0, 0.875, 0.75, 0.625, 0.5], np.zeros(15)])
    np.testing.assert_allclose(np.linalg.svd(truth, compute_uv=False), expected, atol=1e-14)
    wide = _instance(FACTORED, 3, n=4, m=7, rank=2, condition=5.0).splits["test"]["truth"]
    np.testing.assert_allclose(np.linalg.svd(wide, compute_uv=False)[:2], [1.0, 0.2], atol=1e-14)


def test_the_noise_has_its_deviation():
    noises = []
    for seed in range(20):
        problem = _instance(FACTORED, seed)
        train, truth = problem.splits["train"], problem.splits["test"]["truth"]
        noises.append(train["targets"] - train["matrix"] @ truth)
    assert np.std(noises) == pytest.approx(0.01, rel=5 / np.sqrt(2 * 20 * 400))


@given(SEEDS)
def test_without_noise_the_start_recovers_the_true_matrix(seed):
    problem = _instance(FACTORED, seed, noise=0.0)
    assert _evaluated(FACTORED, problem.parameters, problem.splits["test"])["recovery_error"] < 1e-24
    assert _evaluated(FACTORED, problem.parameters, problem.splits["train"])["loss"] < 1e-24
    assert problem.facts["minimum"] < 1e-24


def test_the_start_is_the_best_approximation_of_the_solved_targets():
    """Against the eigenvectors of its Gram matrix: no other matrix of the rank is nearer."""
    problem = _instance(FACTORED, 4)
    train, params = problem.splits["train"], problem.parameters
    solved = np.linalg.solve(train["matrix"], train["targets"])
    leading = np.linalg.eigh(solved.T @ solved)[1][:, -5:]
    np.testing.assert_allclose(params["L"] @ params["R"].T, solved @ leading @ leading.T, atol=1e-12)
    np.testing.assert_allclose(params["L"].T @ params["L"], params["R"].T @ params["R"], atol=1e-13)


def test_the_printed_start_has_the_inverse_singular_values():
    expected = {"1/2": [1.0, 0.875, 0.75, 0.625, 0.5], "-1/2": [2.0, 1.6, 4 / 3, 8 / 7, 1.0]}
    for power, values in expected.items():
        start = _instance(FACTORED, 4, noise=0.0, start_power=power).parameters
        found = np.linalg.svd(start["L"] @ start["R"].T, compute_uv=False)[:5]
        np.testing.assert_allclose(found, values, rtol=1e-12)


@given(SEEDS)
def test_the_least_loss_is_the_tail_of_the_targets_and_is_reached(seed):
    problem = _instance(FACTORED, seed)
    train = problem.splits["train"]
    left, values, right = np.linalg.svd(train["targets"])
    best = {"L": np.linalg.solve(train["matrix"], left[:, :5] * values[:5]), "R": right[:5].T}
    assert _evaluated(FACTORED, best, train)["loss"] == pytest.approx(problem.facts["minimum"], rel=1e-10)
    assert _evaluated(FACTORED, best, train)["suboptimality"] == pytest.approx(0.0, abs=1e-15)
    start = _evaluated(FACTORED, problem.parameters, train)
    assert start["suboptimality"] == pytest.approx(start["loss"] - 0.5 * sum(values[5:] ** 2), rel=1e-10)
    assert start["suboptimality"] > 0


def test_a_sample_is_the_start_of_another_instance():
    settings = FACTORED.complete({"noise": 0.0})
    draws = [FACTORED.sample_parameters(settings, np.random.default_rng(seed)) for seed in range(2)]
    for draw in draws:
        values = np.linalg.svd(draw["L"] @ draw["R"].T, compute_uv=False)[:5]
        np.testing.assert_allclose(values, [1.0, 0.875, 0.75, 0.625, 0.5], rtol=1e-12)
    assert not np.allclose(draws[0]["L"], draws[1]["L"])
