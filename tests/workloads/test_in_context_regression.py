"""In-context regression: the data, the formula token by token, and closed forms of one layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads.in_context_regression import WORKLOADS, sample_inputs
from curvebench.workloads.workload import Problem
from tests.workloads.cases import agreed_gradient, minibatch, random_of

OPS = numpy_ops()
(WORKLOAD,) = WORKLOADS


def _instance(**given: Any) -> Problem:
    return WORKLOAD.problem(WORKLOAD.complete(given), random_of(0))


def test_all_outputs_of_a_regression_belong_to_one_linear_map():
    for fields in _instance().splits.values():
        for tokens, target in zip(fields["tokens"][:50], fields["targets"], strict=False):
            inputs, outputs = tokens[:, :-1], tokens[:, -1]
            assert outputs[-1] == 0.0
            truth = np.linalg.lstsq(inputs[:-1], outputs[:-1], rcond=None)[0]
            assert inputs[-1] @ truth == pytest.approx(target[0], abs=1e-9)


def test_inputs_have_the_stated_distributions():
    generator = np.random.default_rng(0)
    normal, heavy = (sample_inputs(kind, (100_000, 3), generator) for kind in ("normal", "heavy"))
    np.testing.assert_allclose(normal.T @ normal / 1e5, np.eye(3), atol=0.02)
    np.testing.assert_allclose(heavy.T @ heavy / 1e5, np.eye(3) / 3, atol=0.04)
    assert np.mean(np.sum(normal**2, axis=1) ** 2) == pytest.approx(15, rel=0.05)  # d (d + 2)
    assert np.mean(np.sum(heavy**2, axis=1) ** 2) == pytest.approx(11, rel=0.2)  # k (k + 1) theta^2
    np.testing.assert_allclose(heavy.mean(0), 0.0, atol=0.02)


def test_loss_and_gradient_are_those_of_sums_over_tokens_by_pytorch():
    problem = _instance(layers=2, dimension=3, context=4, start_scale=0.5)
    batch, count = minibatch(problem, 7), 4
    params = {name: torch.tensor(value, requires_grad=True) for name, value in problem.parameters.items()}
    assert list(params) == ["Q1", "P1", "Q2", "P2"]
    total = torch.zeros(1, dtype=torch.float64)
    for tokens, target in zip(torch.tensor(batch["tokens"]), torch.tensor(batch["targets"]), strict=True):
        columns = list(tokens)
        for layer in (1, 2):
            query, value = params[f"Q{layer}"], params[f"P{layer}"]
            known = columns[:count]
            columns = [z + value @ sum(k * (k @ (query @ z)) for k in known) / count for z in columns]
        total = total + (-columns[-1][-1] - target) ** 2 / 7
    found = float(WORKLOAD.loss(OPS, problem.parameters, {}, batch, {})[0])
    assert found == pytest.approx(total.item(), rel=1e-12)
    total.sum().backward()
    gradient, size = agreed_gradient(WORKLOAD, problem, batch)
    for name, value in gradient.items():
        np.testing.assert_allclose(value, params[name].grad.numpy(), atol=1e-12 * size)


def _descent(dimension: int, rate: float) -> dict[str, np.ndarray]:
    """Return the weights of a layer that makes one step of gradient descent from 0 with the given rate."""
    query, value = np.zeros((2, dimension + 1, dimension + 1))
    query[:dimension, :dimension] = -rate * np.eye(dimension)
    value[dimension, dimension] = 1.0
    return {"Q1": query, "P1": value}


def test_a_layer_can_make_one_step_of_gradient_descent():
    batch = _instance(layers=1).splits["train"]
    errors = []
    for tokens, target in zip(batch["tokens"], batch["targets"], strict=True):
        step = 0.7 * tokens[:-1, :-1].T @ tokens[:-1, -1] / 20
        errors.append(step @ tokens[-1, :-1] - target[0])
    found = float(WORKLOAD.loss(OPS, _descent(5, 0.7), {}, batch, {})[0])
    assert found == pytest.approx(np.mean(np.square(errors)), rel=1e-12)


def test_the_best_step_has_the_expected_loss_and_a_vanishing_gradient():
    """E |w - c X X^T w / n|^2 = d (1 - 2 c + c^2 (n + d + 1) / n) is minimal at c = n / (n + d + 1)."""
    dimension, context = 3, 6
    problem = _instance(layers=1, dimension=dimension, context=context, train_examples=20_000)
    best = context / (context + dimension + 1)
    params, batch = _descent(dimension, best), problem.splits["train"]
    found = float(WORKLOAD.evaluate(OPS, params, {}, batch)["loss"])
    assert found == pytest.approx(dimension * (1 - best), rel=0.05)
    _, size = agreed_gradient(WORKLOAD, Problem(params, problem.splits), batch)
    _, elsewhere = agreed_gradient(WORKLOAD, Problem(_descent(dimension, 0.3), problem.splits), batch)
    assert size < 0.2 * elsewhere


def test_without_attention_the_loss_is_the_square_of_the_targets():
    batch = _instance(start_scale=0.0).splits["validation"]
    found = WORKLOAD.evaluate(OPS, _instance(start_scale=0.0).parameters, {}, batch)["loss"]
    assert float(found) == pytest.approx(np.mean(batch["targets"] ** 2), rel=1e-12)
