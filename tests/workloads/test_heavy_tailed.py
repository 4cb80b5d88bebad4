"""Softmax regression with heavy-tailed classes: frequencies, groups, loss and gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads.heavy_tailed import GROUPS, HEAVY_TAILED_SOFTMAX, frequencies, groups_of
from curvebench.workloads.workload import Problem
from tests.workloads.cases import random_of, small, torch_gradient


def instance(**settings: Any) -> Problem:
    return HEAVY_TAILED_SOFTMAX.problem(HEAVY_TAILED_SOFTMAX.complete(settings), random_of(0))


def test_frequencies_follow_the_power_law():
    np.testing.assert_allclose(frequencies(3, 1.0), np.array([6, 3, 2]) / 11)
    np.testing.assert_allclose(frequencies(3, 2.0), np.array([36, 9, 4]) / 49)
    np.testing.assert_allclose(frequencies(4, 0.0), 0.25)
    labels = instance(classes=5, exponent=1.5, train_examples=40_000).splits["train"]["labels"]
    shares = np.bincount(labels) / len(labels)
    np.testing.assert_allclose(shares, frequencies(5, 1.5), atol=0.01)


def test_groups_have_about_a_third_of_the_examples_each():
    np.testing.assert_array_equal(groups_of(np.full(6, 1 / 6)), [0, 0, 1, 1, 2, 2])
    shares = frequencies(1000, 1.0)
    each = np.bincount(groups_of(shares), weights=shares)
    np.testing.assert_allclose(each, 1 / 3, atol=0.04)
    assert np.bincount(groups_of(shares))[0] < 10


def test_features_are_class_means_with_noise():
    split = instance(classes=2, features=3, exponent=0.0, signal=4.0, train_examples=20_000).splits["train"]
    each = [split["features"][split["labels"] == label] for label in (0, 1)]
    for rows in each:
        np.testing.assert_allclose(np.cov(rows.T), np.eye(3), atol=0.05)
    generator = random_of(0)("data")
    means = 4.0 * generator.normal(size=(2, 3))
    np.testing.assert_allclose([rows.mean(axis=0) for rows in each], means, atol=0.05)


def test_loss_and_gradient_are_those_of_softmax_regression():
    _, settings = small("heavy_tailed_softmax")
    problem = HEAVY_TAILED_SOFTMAX.problem(settings, random_of(0))
    split, params = problem.splits["train"], problem.parameters
    logits = split["features"] @ params["W"].T + params["b"]
    loss = HEAVY_TAILED_SOFTMAX.loss(numpy_ops(), params, {}, split, {})[0]
    due = torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(split["labels"]))
    assert float(loss) == pytest.approx(float(due), rel=1e-13)
    gradient = torch_gradient(HEAVY_TAILED_SOFTMAX, problem, split)(params)
    errors = torch.softmax(torch.tensor(logits), 1).numpy() - np.eye(6)[split["labels"]]
    np.testing.assert_allclose(gradient["W"], errors.T @ split["features"] / 50, atol=1e-14)
    np.testing.assert_allclose(gradient["b"], errors.mean(axis=0), atol=1e-14)


def test_the_loss_is_the_mean_of_the_groups_weighted_by_their_examples():
    problem = instance(classes=40, train_examples=300)
    split = problem.splits["train"]
    values = HEAVY_TAILED_SOFTMAX.evaluate(numpy_ops(), problem.parameters, {}, split)
    counts = np.bincount(split["group"], minlength=3)
    assert counts.min() > 60
    total = sum(count * values[f"{group}_loss"] for count, group in zip(counts, GROUPS, strict=True))
    assert total / 300 == pytest.approx(float(values["loss"]), rel=1e-13)
    for index, group in enumerate(GROUPS):
        rows = {name: array[split["group"] == index] for name, array in split.items()}
        loss = HEAVY_TAILED_SOFTMAX.loss(numpy_ops(), problem.parameters, {}, rows, {})[0]
        assert float(values[f"{group}_loss"]) == pytest.approx(float(loss), rel=1e-12)
    none = {name: array[split["group"] != 1] for name, array in split.items()}
    assert HEAVY_TAILED_SOFTMAX.evaluate(numpy_ops(), problem.parameters, {}, none)["middle_loss"] == 0.0


def test_settings_give_the_sizes():
    problem = instance()
    assert [len(problem.splits[split]["labels"]) for split in ("train", "validation")] == [1000, 1000]
    assert sum(value.size for value in problem.parameters.values()) == 3300
    with pytest.raises(ValueError, match="batch_size = 11 is larger than the 10 training examples"):
        HEAVY_TAILED_SOFTMAX.complete({"train_examples": 10, "batch_size": 11})
