"""Autoencoders: the images of each data set, the losses by PyTorch's layers, and the likelihoods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads import fashion
from curvebench.workloads.autoencoder import CURVE_POINTS, CURVE_WIDTH, GRID, WORKLOADS, curves
from curvebench.workloads.data import read_reduced_digits
from curvebench.workloads.fashion import read_fashion
from curvebench.workloads.workload import Problem, Workload
from tests.workloads.cases import minibatch, random_of

OPS = numpy_ops()


def _instance(seed: int = 0, **given: Any) -> tuple[Workload, Problem]:
    (workload,) = WORKLOADS
    settings = workload.complete(given)
    return workload.at(settings), workload.problem(settings, random_of(seed))


def _images(**given: Any) -> dict[str, np.ndarray]:
    return {name: fields["images"] for name, fields in _instance(**given)[1].splits.items()}


def test_digits_are_all_those_of_scikit_learn():
    images = _images()
    assert {name: array.shape for name, array in images.items()} == {
        "train": (1437, 64),
        "validation": (360, 64),
    }
    found, due = np.concatenate(list(images.values())), read_reduced_digits()[0] / 16
    assert np.array_equal(found[np.lexsort(found.T)], due[np.lexsort(due.T)])


def test_images_of_clothing_are_the_first_of_each_part_pooled():
    images = _images(data="fashion")
    for split, part in (("train", "train"), ("validation", "test")):
        raw = torch.tensor(read_fashion(part)[0][:50]).double()
        due = torch.nn.functional.max_pool2d(raw[:, None], 2).flatten(1) / 255
        np.testing.assert_allclose(images[split][:50], due.numpy(), rtol=1e-15)


def test_missing_images_of_clothing_say_how_to_get_them(tmp_path, monkeypatch):
    (workload,) = WORKLOADS
    monkeypatch.setattr(fashion, "DEBIAN_FOLDER", tmp_path)
    monkeypatch.delenv("CURVEBENCH_DATA")
    said = workload.missing(workload.complete({"data": "fashion"}))
    assert said is not None
    assert "apt-get install dataset-fashion-mnist" in said
    assert workload.missing(workload.complete({})) is None


def test_pixels_of_a_straight_curve_fall_with_the_distance_from_the_line():
    """From one side to the other at the centres of a row of pixels, with points at most 1 / 39 apart."""
    height = 4.5 / GRID
    (image,) = curves(np.array([[[height, 0.0], [height, 0.5], [height, 1.0]]])).reshape(-1, GRID, GRID)
    for row in range(GRID):
        distance = abs(row - 4) / GRID
        most = np.exp(-(distance**2) / (2 * CURVE_WIDTH**2))
        least = np.exp(-(distance**2 + (0.5 / (CURVE_POINTS - 1)) ** 2) / (2 * CURVE_WIDTH**2))
        assert np.all(image[row] <= most * (1 + 1e-12))
        assert np.all(image[row] >= least * (1 - 1e-12))


def test_a_curve_starts_and_ends_at_its_corners_and_bends_to_the_control_point():
    corners = (np.array([[2, 3], [6, 12], [11, 5]]) + 0.5) / GRID
    middle = corners[0] / 4 + corners[1] / 2 + corners[2] / 4
    image = curves(corners[None]).reshape(GRID, GRID)
    assert image[2, 3] == image[11, 5] == 1.0
    row, column = np.floor(middle * GRID).astype(int)
    assert image[row, column] > 0.4
    assert image[6, 12] < 1e-6


def test_curves_are_many_and_differ():
    images = _images(data="curves")
    assert {name: array.shape for name, array in images.items()} == {
        "train": (2000, 196),
        "validation": (500, 196),
    }
    assert len(np.unique(np.concatenate(list(images.values())), axis=0)) == 2500


@pytest.mark.parametrize("loss", ["bernoulli", "squared"])
@pytest.mark.parametrize("data", ["digits", "curves", "fashion"])
def test_the_loss_is_that_of_layers_of_pytorch(data: str, loss: str):
    workload, problem = _instance(data=data, loss=loss, widths=[9, 7, 3])
    batch, generator = minibatch(problem, 30), np.random.default_rng(1)
    params = {name: generator.normal(size=value.shape) / 3 for name, value in problem.parameters.items()}
    pixels = batch["images"].shape[1]
    widths = [pixels, 9, 7, 3, 7, 9, pixels]
    outputs = images = torch.tensor(batch["images"])
    for layer in range(1, 7):
        linear = torch.nn.Linear(widths[layer - 1], widths[layer]).double()
        linear.weight.data, linear.bias.data = (torch.tensor(params[f"{kind}{layer}"]) for kind in "Wb")
        outputs = linear(outputs) if layer == 1 else linear(torch.tanh(outputs))
    if loss == "squared":
        expected = torch.nn.functional.mse_loss(outputs, images, reduction="sum") / 60
    else:
        terms = torch.nn.functional.binary_cross_entropy_with_logits(outputs, images, reduction="sum")
        expected = terms / 30
    assert float(workload.loss(OPS, params, {}, batch, {})[0]) == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("loss", ["bernoulli", "squared"])
def test_the_likelihood_is_that_of_the_loss(loss: str):
    """On images of 0 and 1, for which the loss is the negative log-likelihood without a constant."""
    workload, problem = _instance(loss=loss, widths=[6, 2])
    images = np.round(minibatch(problem)["images"])
    batch, params = {"images": images}, problem.parameters
    assert workload.likelihood is not None
    outputs = workload.likelihood.outputs(OPS, params, {}, batch, {})
    if loss == "squared":
        expected = np.sum((outputs - images) ** 2) / 2
    else:
        indices = images[..., None].astype(int)
        expected = -np.sum(np.take_along_axis(OPS.log_softmax(outputs, -1), indices, -1))
    assert float(workload.loss(OPS, params, {}, batch, {})[0]) == pytest.approx(expected / 40, rel=1e-12)


@pytest.mark.parametrize("loss", ["bernoulli", "squared"])
def test_the_loss_of_a_network_of_zeros_is_known(loss: str):
    workload, problem = _instance(loss=loss)
    zeros = {name: np.zeros_like(value) for name, value in problem.parameters.items()}
    batch = problem.splits["train"]
    expected = 64 * np.log(2) if loss == "bernoulli" else np.sum(batch["images"] ** 2) / (2 * 1437)
    assert float(workload.loss(OPS, zeros, {}, batch, {})[0]) == pytest.approx(expected, rel=1e-12)
