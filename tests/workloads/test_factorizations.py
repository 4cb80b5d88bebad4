"""Factorizations: entry by entry, symmetries, known solutions and their recovery."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads.factorizations import (
    MATRIX_COMPLETION,
    PHASE_RETRIEVAL,
    TENSOR_FACTORIZATION,
    WORKLOADS,
)
from tests.workloads.cases import jax_gradient, random_of

COMPLETIONS = (MATRIX_COMPLETION, TENSOR_FACTORIZATION)


def _problem(workload, seed=0, **settings):
    return workload.problem(workload.complete(settings), random_of(seed))


def _metrics(workload, params, split):
    return {key: float(x) for key, x in workload.evaluate(numpy_ops(), params, {}, split).items()}


def _dense(params):
    """Return the array that factors give, (n, ..., n)."""
    subscripts = ",".join(f"{letter}z" for letter in "abc"[: len(params)]) + "->" + "abc"[: len(params)]
    return np.einsum(subscripts, *params.values())


@pytest.mark.parametrize("workload", COMPLETIONS, ids=lambda workload: workload.name)
def test_losses_are_those_of_the_products_of_the_factors(workload):
    problem = _problem(workload, n=5, rank=2, columns=3, noise=0.4, observed=0.5)
    dense, (train, whole) = _dense(problem.parameters), problem.splits.values()
    errors = [
        dense[tuple(index)] - entry for index, entry in zip(train["index"], train["entries"], strict=True)
    ]
    assert len(errors) == round(0.5 * dense.size)
    assert len({tuple(index) for index in train["index"]}) == len(errors)
    loss = math.fsum(error**2 for error in errors) / 2 / len(errors)
    assert _metrics(workload, problem.parameters, train)["loss"] == pytest.approx(loss, rel=1e-13)
    metrics = _metrics(workload, problem.parameters, whole)
    truth = np.zeros_like(dense)
    for index, entry in zip(product(range(5), repeat=dense.ndim), whole["entries"], strict=True):
        truth[index] = entry
    distance = np.linalg.norm(dense - truth)
    assert metrics["distance"] == pytest.approx(distance / np.linalg.norm(truth), rel=1e-13)
    assert metrics["loss"] == pytest.approx(distance**2 / 2 / dense.size, rel=1e-13)


@pytest.mark.parametrize("workload", COMPLETIONS, ids=lambda workload: workload.name)
def test_the_solution_has_its_rank_its_scale_and_its_collinearity(workload):
    wholes = [_problem(workload, seed, rank=2).splits["validation"]["entries"] for seed in range(30)]
    assert np.mean(np.square(wholes)) == pytest.approx(1.0, abs=0.2)
    n = workload.complete({})["n"]
    ranks = {c: np.linalg.svd(_unfolded(workload, n, c), compute_uv=False) for c in (0.0, 0.95)}
    assert all(values[3] < 1e-12 * values[0] for values in ranks.values())
    assert ranks[0.95][2] / ranks[0.95][0] < 0.3 * ranks[0.0][2] / ranks[0.0][0]


def _unfolded(workload, n, collinearity):
    return _problem(workload, collinearity=collinearity).splits["validation"]["entries"].reshape(n, -1)


def test_targets_have_the_noise_of_the_setting():
    clean, noisy = (_problem(MATRIX_COMPLETION, noise=noise).splits["train"] for noise in (0.0, 0.5))
    assert np.array_equal(clean["index"], noisy["index"])
    assert np.std(noisy["entries"] - clean["entries"]) == pytest.approx(0.5, rel=0.1)
    clean, noisy = (_problem(PHASE_RETRIEVAL, noise=noise).splits["train"] for noise in (0.0, 0.5))
    assert np.std(noisy["intensities"] - clean["intensities"]) == pytest.approx(0.5, rel=0.15)


def test_symmetries_leave_losses_and_distances_unchanged():
    problem = _problem(TENSOR_FACTORIZATION)
    signs, order = np.array([2.0, -0.5, 1.0]), [2, 0, 1]
    first, second, third = (factor[:, order] for factor in problem.parameters.values())
    moved = {"F1": first * signs, "F2": second / signs, "F3": third}
    for split in problem.splits.values():
        assert _metrics(TENSOR_FACTORIZATION, moved, split) == pytest.approx(
            _metrics(TENSOR_FACTORIZATION, problem.parameters, split), rel=1e-12
        )


def test_phase_retrieval_is_the_formula_and_ignores_the_sign():
    problem = _problem(PHASE_RETRIEVAL, d=7)
    (train, validation), x = problem.splits.values(), problem.parameters["x"]
    truth = validation["truth"]
    terms = [(float(np.dot(a, x)) ** 2 - float(np.dot(a, truth)) ** 2) ** 2 for a in train["vectors"]]
    assert len(terms) == 42
    assert _metrics(PHASE_RETRIEVAL, {"x": x}, train)["loss"] == pytest.approx(math.fsum(terms) / 4 / 42)
    for sign in (1.0, -1.0):
        near = {"x": sign * 1.5 * truth}
        assert _metrics(PHASE_RETRIEVAL, near, validation)["distance"] == pytest.approx(0.5)
        assert _metrics(PHASE_RETRIEVAL, {"x": sign * truth}, train)["loss"] == pytest.approx(0.0, abs=1e-30)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_starts_have_the_scale_of_the_setting(workload):
    small, large = (_problem(workload, start_scale=scale).parameters for scale in (0.1, 1.0))
    for name, values in large.items():
        np.testing.assert_allclose(small[name], 0.1 * values)
    deviation = np.std(np.concatenate([values.ravel() for values in large.values()]))
    assert deviation == pytest.approx(50**-0.5 if workload is PHASE_RETRIEVAL else 1.0, rel=0.25)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_search_from_the_start_recovers_the_solution(workload):
    import jax

    problem = _problem(workload, seed=1)
    shapes = {name: value.shape for name, value in problem.parameters.items()}
    bounds = np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1]

    def parameters(x):
        return {
            name: part.reshape(shape)
            for part, (name, shape) in zip(np.split(x, bounds), shapes.items(), strict=True)
        }

    train = problem.splits["train"]
    with jax.enable_x64(True):
        gradient = jax_gradient(workload, problem, train)
        found = minimize(
            lambda x: float(workload.loss(numpy_ops(), parameters(x), {}, train, {})[0]),
            np.concatenate([value.ravel() for value in problem.parameters.values()]),
            jac=lambda x: np.concatenate([g.ravel() for g in gradient(parameters(x)).values()]),
            method="L-BFGS-B",
            options={"maxiter": 3000, "ftol": 0.0, "gtol": 1e-9},
        )
    metrics = _metrics(workload, parameters(found.x), problem.splits["validation"])
    assert metrics["distance"] < 1e-5
