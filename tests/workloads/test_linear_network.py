"""The linear network: the paper's splits, its data and its formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads.linear_network import LINEAR_NETWORK
from curvebench.workloads.workload import Role
from tests.workloads.cases import SMALL, random_of


def _instance(seed=0, **settings):
    return LINEAR_NETWORK.problem(LINEAR_NETWORK.complete(settings), random_of(seed))


@pytest.fixture(scope="module")
def paper():
    return _instance()


def test_splits_have_the_sizes_of_the_paper(paper):
    counts = {split: len(fields["features"]) for split, fields in paper.splits.items()}
    assert counts == {"train": 10_000, "validation": 4_000, "test": 6_000}


def test_singular_values_are_those_of_all_examples_together(paper):
    features = np.concatenate([fields["features"] for fields in paper.splits.values()])
    np.testing.assert_allclose(
        np.linalg.svd(features, compute_uv=False), np.arange(1.0, 11) ** -2, atol=1e-12
    )


def test_each_split_is_an_even_share_of_the_data(paper):
    """sigma_1 of a share s of exchangeable columns is sqrt(s) to a few parts in a hundred."""
    for fields in paper.splits.values():
        largest = np.linalg.svd(fields["features"], compute_uv=False)[0]
        assert largest == pytest.approx(np.sqrt(len(fields["features"]) / 20_000), rel=0.05)


def test_one_linear_map_gives_the_targets_of_all_splits(paper):
    train = paper.splits["train"]
    found = np.linalg.lstsq(train["features"], train["targets"], rcond=None)[0]
    for fields in paper.splits.values():
        np.testing.assert_allclose(fields["features"] @ found, fields["targets"], atol=1e-13)


def test_the_linear_map_is_standard_normal():
    maps = []
    for seed in range(40):
        train = _instance(seed, train_examples=500, validation_examples=1, test_examples=1).splits["train"]
        maps.append(np.linalg.lstsq(train["features"], train["targets"], rcond=None)[0])
    entries = np.concatenate(maps).ravel()
    assert abs(entries.mean()) < 5 / np.sqrt(entries.size)
    assert entries.std() == pytest.approx(1.0, abs=5 / np.sqrt(2 * entries.size))


@given(st.integers(0, 20), st.integers(1, 40))
def test_the_loss_is_its_formula_on_any_minibatch(seed, size):
    problem = _instance(seed, **SMALL["linear_network"])
    batch = {field: values[:size] for field, values in problem.splits["train"].items()}
    params = problem.parameters
    total = 0.0
    for a, y in zip(batch["features"], batch["targets"], strict=True):
        out = params["W3"] @ (params["W2"] @ (params["W1"] @ a))
        total += sum((out[k] - y[k]) ** 2 for k in range(len(y)))
    loss = LINEAR_NETWORK.loss(numpy_ops(), params, {}, batch, {})[0]
    assert float(loss) == pytest.approx(total / size, rel=1e-12)


def test_the_loss_is_that_of_the_network_whatever_the_order_of_its_weights():
    problem = _instance(widths=[3] * 13, train_examples=20, batch_size=5)
    reordered = {name: problem.parameters[name] for name in sorted(problem.parameters)}
    assert list(reordered) != list(problem.parameters)
    batch = problem.splits["train"]
    ops = numpy_ops()
    assert (
        LINEAR_NETWORK.loss(ops, reordered, {}, batch, {})[0]
        == LINEAR_NETWORK.loss(ops, problem.parameters, {}, batch, {})[0]
    )


def test_the_other_reading_of_the_widths_has_as_many_parameters():
    problem = _instance(widths=[10, 30, 50, 10])
    assert problem.parameters["W1"].shape == (30, 10)
    assert sum(weight.size for weight in problem.parameters.values()) == 2300


def test_widths_may_be_a_list_or_a_tuple():
    assert LINEAR_NETWORK.roles(LINEAR_NETWORK.complete({"widths": (4, 3, 2)})) == {
        "W1": Role("weight", 0),
        "W2": Role("weight", 1),
    }
    left, right = (
        _instance(widths=kind([4, 3, 2]), train_examples=500).parameters["W1"] for kind in (list, tuple)
    )
    assert np.array_equal(left, right)
