"""Associative memory: frequencies of facts, embeddings, and known losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads.associative_memory import WORKLOADS, zipf_labels
from curvebench.workloads.workload import Problem
from tests.workloads.cases import agreed_gradient, random_of

OPS = numpy_ops()
(WORKLOAD,) = WORKLOADS


def _instance(**given: Any) -> Problem:
    return WORKLOAD.problem(WORKLOAD.complete(given), random_of(0))


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5])
def test_facts_have_the_frequencies_of_zipfs_law_up_to_rounding(exponent: float):
    weights = np.arange(1, 21) ** -exponent
    counts = np.bincount(zipf_labels(20, exponent, 1000), minlength=20)
    np.testing.assert_allclose(counts, 1000 * weights / weights.sum(), atol=1)
    train = _instance(facts=20, exponent=exponent, train_examples=1000).splits["train"]["labels"]
    assert np.array_equal(np.bincount(train, minlength=20), counts)


def test_embeddings_are_unit_vectors_in_all_directions():
    problem = _instance(facts=4000, width=3)
    keys, answers = problem.splits["validation"]["features"], problem.state["answers"]
    assert np.array_equal(problem.splits["validation"]["labels"], np.arange(4000))
    for vectors in (keys, answers):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0)
        np.testing.assert_allclose(vectors.T @ vectors / 4000, np.eye(3) / 3, atol=0.03)
        np.testing.assert_allclose(vectors.mean(0), 0.0, atol=0.05)
    assert not np.array_equal(keys, answers)
    train = problem.splits["train"]
    assert np.array_equal(train["features"], keys[train["labels"]])


def test_loss_and_gradient_are_those_of_pytorch():
    problem = _instance(facts=9, width=4, train_examples=30)
    batch = problem.splits["train"]
    weight = torch.tensor(problem.parameters["W"], requires_grad=True)
    logits = torch.tensor(batch["features"]) @ weight.T @ torch.tensor(problem.state["answers"]).T
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(batch["labels"]))
    found = WORKLOAD.loss(OPS, problem.parameters, problem.state, batch, {})[0]
    assert float(found) == pytest.approx(loss.item(), rel=1e-12)
    loss.backward()
    gradient, size = agreed_gradient(WORKLOAD, problem, batch)
    np.testing.assert_allclose(gradient["W"], weight.grad.numpy(), atol=1e-12 * size)


def test_losses_without_memory_and_with_orthogonal_embeddings_are_known():
    """A memory c sum_k u_k e_k^T of orthogonal facts has the logit c for the answer, and 0 for others."""
    facts = 8
    problem = _instance(facts=facts, width=facts, start_scale=0.0)
    split = problem.splits["validation"]
    assert WORKLOAD.evaluate(OPS, problem.parameters, problem.state, split)["loss"] == pytest.approx(
        math.log(8)
    )
    keys, answers = (np.linalg.qr(np.random.default_rng(seed).normal(size=(8, 8)))[0] for seed in range(2))
    memory = {"W": 1.7 * answers.T @ keys}
    fields = {"features": keys, "labels": np.arange(facts)}
    found = WORKLOAD.evaluate(OPS, memory, {"answers": answers}, fields)["loss"]
    assert found == pytest.approx(math.log1p(7 * math.exp(-1.7)), rel=1e-12)


def test_the_standard_deviation_of_the_start_is_a_setting():
    start = _instance(width=60, start_scale=0.25).parameters["W"]
    assert start.std() == pytest.approx(0.25, rel=0.05)
