"""Teachers and students: splits, spectrum of the inputs, targets and loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads import workloads
from curvebench.workloads.teacher_student import sample_features, sample_weights, spectrum
from curvebench.workloads.workload import Problem
from tests.workloads.cases import random_of

NAMES = ("teacher_student_linear", "teacher_student_tanh")
SMALL: dict[str, Any] = {"widths": [5, 4, 3], "train_examples": 60, "test_examples": 20}


def _instance(name: str, seed: int = 0, **settings: Any) -> Problem:
    workload = workloads()[name]
    return workload.problem(workload.complete(settings), random_of(seed))


def _answer(name: str, weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Return the output of a network of two layers for one input."""
    hidden = weights["W1"] @ x
    return weights["W2"] @ (np.tanh(hidden) if name.endswith("tanh") else hidden)


@pytest.mark.parametrize("name", NAMES)
def test_splits_have_the_sizes_of_the_paper(name):
    for fields in _instance(name).splits.values():
        assert (fields["features"].shape, fields["targets"].shape) == ((5000, 100), (5000, 40))
    assert workloads()[name].dtype == "float64"


def test_the_spectrum_is_a_logarithmic_grid():
    values = spectrum(100)
    assert (values[0], values[-1]) == (1.0, pytest.approx(1e-5))
    np.testing.assert_allclose(values[1:] / values[:-1], 10 ** (-5 / 99), rtol=1e-12)


def test_inputs_have_mean_zero_and_that_spectrum_along_the_eigenvectors():
    eigenvectors = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    features = sample_features(eigenvectors, 40_000, np.random.default_rng(1))
    along = features @ eigenvectors / np.sqrt(spectrum(6))
    assert np.abs(along.mean(0)).max() < 5 / np.sqrt(40_000)
    np.testing.assert_allclose(along.T @ along / 40_000, np.eye(6), atol=0.04)


def test_both_splits_have_one_covariance_whose_eigenvectors_differ_from_seed_to_seed():
    splits = _instance(NAMES[0], train_examples=20_000, test_examples=20_000, widths=[6, 2, 1]).splits
    train, test = (fields["features"].T @ fields["features"] / 20_000 for fields in splits.values())
    np.testing.assert_allclose(train, test, atol=0.05)
    np.testing.assert_allclose(np.linalg.eigvalsh(train)[::-1], spectrum(6), rtol=0.1)
    other = _instance(NAMES[0], 1, train_examples=20_000, widths=[6, 2, 1]).splits["train"]["features"]
    assert np.abs(other.T @ other / 20_000 - train).max() > 0.1


def test_a_linear_teacher_of_full_rank_is_found_by_least_squares():
    problem = _instance(NAMES[0], widths=[5, 9, 3], train_examples=60)
    train, test = (problem.splits[split] for split in ("train", "test"))
    found = np.linalg.lstsq(train["features"], train["targets"], rcond=None)[0]
    np.testing.assert_allclose(test["features"] @ found, test["targets"], atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_teacher_is_another_network_than_the_student_and_reproduces_the_targets(name):
    workload = workloads()[name]
    problem = _instance(name, 3, **SMALL)
    teacher = sample_weights(workload.complete(SMALL), random_of(3)("teacher"))
    assert not np.array_equal(teacher["W1"], problem.parameters["W1"])
    for fields in problem.splits.values():
        answers = [_answer(name, teacher, x) for x in fields["features"]]
        np.testing.assert_allclose(fields["targets"], answers, rtol=1e-13, atol=1e-13)
        assert float(workload.evaluate(numpy_ops(), teacher, {}, fields)["loss"]) < 1e-25


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_its_formula_on_any_batch(name):
    problem = _instance(name, **SMALL)
    batch = {field: values[:7] for field, values in problem.splits["train"].items()}
    total = 0.0
    for x, y in zip(batch["features"], batch["targets"], strict=True):
        total += np.sum((_answer(name, problem.parameters, x) - y) ** 2) / 2
    loss = workloads()[name].loss(numpy_ops(), problem.parameters, {}, batch, {})[0]
    assert float(loss) == pytest.approx(total / 7, rel=1e-12)


def test_deeper_networks_are_networks_too():
    problem = _instance(NAMES[1], **{**SMALL, "widths": [5, 4, 6, 3]})
    assert list(problem.parameters) == ["W1", "W2", "W3"]
    assert problem.splits["test"]["targets"].shape == (20, 3)
