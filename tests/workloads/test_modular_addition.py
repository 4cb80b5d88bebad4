"""Modular addition: the pairs, a network that solves the problem, and PyTorch's layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads.modular_addition import BY_ACTIVATION, WORKLOADS
from curvebench.workloads.workload import Problem
from tests.workloads.cases import minibatch, random_of

(WORKLOAD,) = WORKLOADS


def _instance(seed: int = 0, **settings: Any) -> Problem:
    return WORKLOAD.problem(WORKLOAD.complete(settings), random_of(seed))


@pytest.mark.parametrize("modulus", [2, 7])
def test_every_pair_is_in_one_split_with_the_class_of_its_sum(modulus: int):
    splits = _instance(modulus=modulus, train_share=0.5).splits
    assert len(splits["train"]["labels"]) == round(modulus**2 / 2)
    pairs = np.concatenate([fields["summands"] for fields in splits.values()])
    labels = np.concatenate([fields["labels"] for fields in splits.values()])
    assert sorted(map(tuple, pairs)) == [(a, b) for a in range(modulus) for b in range(modulus)]
    assert [sum(pair) % modulus for pair in pairs] == labels.tolist()


def _solution(modulus: int, scale: float) -> dict[str, np.ndarray]:
    """Return parameters with the logits `scale` sum_k cos(2 pi k (a + b - c) / p), k = 1, ..., (p - 1) / 2.

    A product of two cosines or sines is ((u + v)^2 - (u - v)^2) / 4, which takes two units.
    """
    count = (modulus - 1) // 2
    angles = 2 * np.pi * np.outer(np.arange(modulus), np.arange(1, count + 1)) / modulus
    cosines, sines = np.cos(angles), np.sin(angles)
    of_cosine, of_sine = (
        np.eye(2 * count)[:count],
        np.eye(2 * count)[count:],
    )  # (count, width): what a unit reads
    units, outputs = [], []
    # cos(a + b) and sin(a + b), times the cosine or sine of c
    for left, right, factor in (
        (of_cosine, of_cosine, cosines),
        (of_sine, of_sine, -cosines),
        (of_sine, of_cosine, sines),
        (of_cosine, of_sine, sines),
    ):
        for sign in (1, -1):
            units.append(np.concatenate([left, sign * right], 1))
            outputs.append(scale * sign / 4 * factor)
    return {
        "embedding": np.concatenate([cosines, sines], 1),
        "W1": np.concatenate(units),
        "b1": np.zeros(8 * count),
        "W2": np.concatenate(outputs, 1),
        "b2": np.zeros(modulus),
    }


@pytest.mark.parametrize("modulus", [3, 7, 31])
def test_a_sum_of_cosines_solves_the_problem_with_the_square_activation(modulus: int):
    """The logits are p / 2 times the scale for the class of the sum, and 0 for others, up to a constant."""
    settings = {"modulus": modulus, "width": modulus - 1, "hidden": 4 * (modulus - 1)}
    due = {name: value.shape for name, value in _instance(**settings).parameters.items()}
    params = _solution(modulus, 0.3)
    assert {name: params[name].shape for name in due} == due
    for fields in _instance(**settings).splits.values():
        found = WORKLOAD.evaluate(numpy_ops(), params, {}, fields)
        assert float(found["accuracy"]) == 1.0
        expected = math.log1p((modulus - 1) * math.exp(-0.3 * modulus / 2))
        assert float(found["loss"]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("activation", BY_ACTIVATION)
def test_the_loss_is_that_of_layers_of_pytorch(activation: str):
    import torch

    problem = _instance(activation=activation, modulus=7, width=5, hidden=6)
    weights = {name: torch.tensor(value) for name, value in problem.parameters.items()}
    embedding = torch.nn.Embedding.from_pretrained(weights["embedding"])
    layers = [torch.nn.Linear(10, 6), torch.nn.Linear(6, 7)]
    for number, layer in enumerate(layers, start=1):
        layer.weight.data = weights[f"W{number}"]
        layer.bias.data = weights[f"b{number}"] + number  # not 0, as at the start
    batch = minibatch(problem)
    hidden = layers[0](embedding(torch.tensor(batch["summands"])).flatten(1))
    hidden = torch.relu(hidden) if activation == "relu" else hidden**2
    expected = torch.nn.functional.cross_entropy(layers[1](hidden), torch.tensor(batch["labels"]))
    params = {**problem.parameters, "b1": problem.parameters["b1"] + 1, "b2": problem.parameters["b2"] + 2}
    workload = WORKLOAD.at(WORKLOAD.complete({"activation": activation}))
    loss = workload.loss(numpy_ops(), params, {}, batch, {})[0]
    assert float(loss) == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"train_share": 0.0}, "leaves no pair for the train split"),
        ({"train_share": 1.0}, "leaves no pair for the validation split"),
        ({"batch_size": 600}, "larger than the 577 training examples"),
        ({"modulus": 1}, "is not a whole number from 2 on"),
    ],
)
def test_settings_that_leave_no_examples_are_refused(given: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        WORKLOAD.complete(given)
