"""Recurrent networks: the sequences of both tasks, PyTorch's cells, and known losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads.recurrent import WORKLOADS
from curvebench.workloads.workload import Problem, Workload
from tests.workloads.cases import agreed_gradient, minibatch, random_of

OPS = numpy_ops()
TASKS = ("adding", "copy")


def _instance(**given: Any) -> tuple[Workload, Problem]:
    (workload,) = WORKLOADS
    settings = workload.complete(given)
    return workload.at(settings), workload.problem(settings, random_of(0))


@pytest.mark.parametrize("length", [2, 9, 20])
def test_the_target_of_adding_is_the_sum_of_a_number_of_each_half(length: int):
    _, problem = _instance(length=length)
    for count, fields in zip((2048, 512), problem.splits.values(), strict=True):
        assert fields["inputs"].shape == (count, length, 2)
        numbers, markers = fields["inputs"][..., 0], fields["inputs"][..., 1]
        for sequence, marks, target in zip(numbers, markers, fields["targets"].ravel(), strict=True):
            first, second = np.flatnonzero(marks)
            assert first < (length + 1) // 2 <= second
            assert target == sequence[first] + sequence[second]
        assert 0 <= numbers.min() < 0.01
        assert 0.99 < numbers.max() <= 1
    assert np.all(problem.splits["train"]["inputs"][..., 1].any(0))  # each step is marked at times


@pytest.mark.parametrize("length", [8, 20])
def test_symbols_come_first_and_are_due_at_the_end(length: int):
    _, problem = _instance(task="copy", length=length)
    fields = problem.splits["train"]
    assert np.all(fields["inputs"].sum(-1) == 1)
    codes = fields["inputs"].argmax(-1)
    assert np.array_equal(codes[:, :4], fields["labels"])
    assert np.all(codes[:, 4:-4] == 8)
    assert np.all(codes[:, -4] == 9)
    assert np.all(codes[:, -3:] == 8)
    np.testing.assert_allclose(np.bincount(fields["labels"].ravel()) / 8192, 1 / 8, atol=0.02)


def test_a_network_that_ignores_its_inputs_has_the_stated_losses():
    """Var(a + b) = 1/6 for uniform a and b, and all symbols are equally likely."""
    for task, output, expected, error in (("adding", 1.0, 1 / 6, 0.01), ("copy", 0.0, math.log(8), 1e-12)):
        workload, problem = _instance(task=task)
        params = {name: np.zeros_like(value) for name, value in problem.parameters.items()}
        params["b_out"] += output
        found = workload.evaluate(OPS, params, {}, problem.splits["train"])["loss"]
        assert float(found) == pytest.approx(expected, abs=error)


@pytest.mark.parametrize("cell", ["tanh", "gru"])
def test_recurrent_matrices_start_orthogonal(cell: str):
    weight = _instance(cell=cell, width=5)[1].parameters["W_rec"]
    assert weight.shape == ((5 if cell == "tanh" else 15), 5)
    for block in np.split(weight, len(weight) // 5):
        np.testing.assert_allclose(block @ block.T, np.eye(5), atol=1e-12)


@pytest.mark.parametrize("cell", ["tanh", "gru"])
@pytest.mark.parametrize("task", TASKS)
def test_loss_and_gradient_are_those_of_pytorchs_cells(task: str, cell: str):
    workload, problem = _instance(task=task, cell=cell, width=6, length=11)
    batch, generator = minibatch(problem), np.random.default_rng(1)
    params = {name: generator.normal(size=value.shape) / 2 for name, value in problem.parameters.items()}
    inputs, (outputs, width) = batch["inputs"].shape[-1], params["W_out"].shape
    network = (torch.nn.RNN if cell == "tanh" else torch.nn.GRU)(inputs, width, batch_first=True).double()
    head = torch.nn.Linear(width, outputs).double()
    owners = {
        "W_in": network.weight_ih_l0,
        "b_in": network.bias_ih_l0,
        "W_rec": network.weight_hh_l0,
        "b_rec": network.bias_hh_l0,
        "W_out": head.weight,
        "b_out": head.bias,
    }
    with torch.no_grad():
        for name, owner in owners.items():  # a tanh cell has one bias
            owner.copy_(torch.tensor(params[name]) if name in params else torch.zeros_like(owner))
    states, _ = network(torch.tensor(batch["inputs"]))
    if task == "adding":
        expected = torch.nn.functional.mse_loss(head(states[:, -1:]), torch.tensor(batch["targets"]))
    else:
        logits = head(states[:, -4:]).flatten(0, 1)
        expected = torch.nn.functional.cross_entropy(logits, torch.tensor(batch["labels"]).flatten())
    assert float(workload.loss(OPS, params, {}, batch, {})[0]) == pytest.approx(expected.item(), rel=1e-12)
    expected.backward()
    found, size = agreed_gradient(workload, Problem(params, problem.splits), batch)
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, owners[name].grad.numpy(), atol=1e-12 * size)


@pytest.mark.parametrize("task", TASKS)
def test_the_likelihood_is_that_of_the_loss(task: str):
    """Up to the constant of a normal distribution, and per sequence."""
    workload, problem = _instance(task=task)
    batch, params, likelihood = minibatch(problem), problem.parameters, workload.likelihood
    assert likelihood is not None
    outputs = likelihood.outputs(OPS, params, {}, batch, {})
    if task == "adding":
        negative = np.sum((outputs - batch["targets"]) ** 2) / 2
    else:
        negative = -np.sum(np.take_along_axis(OPS.log_softmax(outputs, -1), batch["labels"][..., None], -1))
    found = float(workload.loss(OPS, params, {}, batch, {})[0])
    assert found == pytest.approx(likelihood.scale * negative / 40, rel=1e-12)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"length": 1}, "too short for adding: at least 2"),
        ({"task": "copy", "length": 7}, "too short for copy: at least 8"),
        ({"train_examples": 63}, "batch_size = 64 is larger than the 63 training examples"),
    ],
)
def test_sequences_that_are_too_short_or_too_few_are_refused(given: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        WORKLOADS[0].complete(given)
