"""Denoising diffusion: the points, times and noise, the loss by PyTorch's layers, and closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads.data import read_reduced_digits
from curvebench.workloads.denoising_diffusion import PLANE, SPREAD, WORKLOADS, gaussians, moons, spiral
from curvebench.workloads.workload import Problem, Workload
from tests.workloads.cases import minibatch, random_of

OPS = numpy_ops()
DATA = (*PLANE, "digits")
COUNT = 5_000


def _instance(**given: Any) -> tuple[Workload, dict[str, Any], Problem]:
    (workload,) = WORKLOADS
    settings = workload.complete(given)
    return workload.at(settings), settings, workload.problem(settings, random_of(0))


def test_moons_are_two_half_circles_that_interlock():
    points = moons(COUNT, np.random.default_rng(0))
    angles = np.linspace(0.0, np.pi, 500)
    upper = np.stack([np.cos(angles) - 0.5, np.sin(angles) - 0.25], 1)
    distances = [np.hypot(*(points[:, None] - moon).swapaxes(0, 2)).min(0) for moon in (upper, -upper)]
    assert (distances[0] < distances[1]).mean() == pytest.approx(0.5, abs=0.02)
    assert np.sqrt(np.mean(np.minimum(*distances) ** 2)) == pytest.approx(SPREAD, rel=0.05)


def test_a_spiral_has_a_radius_of_its_angle():
    points = spiral(COUNT, np.random.default_rng(0))
    radius = np.hypot(*points.T)
    turns = np.arctan2(points[:, 1], points[:, 0]) / (2 * np.pi)  # up to whole numbers
    errors = (radius - turns + 0.5) % 1 - 0.5  # the radius grows by 1 a turn
    assert np.abs(errors[radius > 0.5]).max() < 6 * SPREAD
    assert np.quantile(radius, [0.25, 1.0]) == pytest.approx([1.0, 2.0], abs=0.15)  # as sqrt of a uniform


def test_gaussians_are_eight_of_equal_weight_on_a_circle():
    points = gaussians(COUNT, np.random.default_rng(0))
    sectors = np.round(np.arctan2(points[:, 1], points[:, 0]) / (np.pi / 4)).astype(int) % 8
    np.testing.assert_allclose(np.bincount(sectors) / COUNT, 1 / 8, atol=0.02)
    for sector in range(8):
        part = points[sectors == sector]
        centre = math.sqrt(2) * np.array([np.cos(sector * np.pi / 4), np.sin(sector * np.pi / 4)])
        np.testing.assert_allclose(part.mean(0), centre, atol=0.02)
        np.testing.assert_allclose(np.cov(part.T), 4 * SPREAD**2 * np.eye(2), atol=0.003)


def test_images_are_all_digits_from_minus_one_to_one():
    _, _, problem = _instance(data="digits")
    found = np.concatenate([fields["points"] for fields in problem.splits.values()])
    due = read_reduced_digits()[0] / 8 - 1
    assert np.array_equal(found[np.lexsort(found.T)], due[np.lexsort(due.T)])


@pytest.mark.parametrize("data", DATA)
def test_times_are_spread_evenly_and_noise_is_standard_normal(data: str):
    workload, settings, problem = _instance(data=data)
    assert workload.noise is not None
    drawn = [workload.noise(settings, np.random.default_rng(seed), 500) for seed in range(3)]
    for fields in (*problem.splits.values(), *drawn):
        count = len(fields["times"])
        assert np.array_equal(np.sort(np.floor(fields["times"] * count)), np.arange(count))
        assert not np.array_equal(np.argsort(fields["times"]), np.arange(count))
        assert fields["noise"].shape == (count, 64 if data == "digits" else 2)
        assert abs(fields["noise"].mean()) < 5 / math.sqrt(fields["noise"].size)
        assert fields["noise"].std() == pytest.approx(1.0, abs=5 / math.sqrt(2 * fields["noise"].size))
    assert not np.array_equal(drawn[0]["noise"], drawn[1]["noise"])


@pytest.mark.parametrize("drawn", [True, False], ids=["fresh", "fixed"])
@pytest.mark.parametrize("data", DATA)
def test_the_loss_is_that_of_layers_of_pytorch(data: str, drawn: bool):
    workload, settings, problem = _instance(data=data, noise="fresh" if drawn else "fixed", widths=[7, 5])
    batch, generator = minibatch(problem), np.random.default_rng(1)
    params = {name: generator.normal(size=value.shape) / 3 for name, value in problem.parameters.items()}
    assert (workload.noise is not None) is drawn
    noise = workload.noise(settings, generator, 40) if workload.noise is not None else {}
    fields = {name: torch.tensor(value) for name, value in {**batch, **noise}.items()}
    time = fields["times"][:, None]
    noisy = torch.cos(math.pi / 2 * time) * fields["points"] + torch.sin(math.pi / 2 * time) * fields["noise"]
    waves = 2 * math.pi * time * torch.tensor([0.25, 0.5, 1.0, 2.0])
    inputs = torch.cat([noisy, torch.sin(waves), torch.cos(waves)], 1)
    layers = [torch.nn.Linear(*reversed(params[f"W{layer}"].shape)).double() for layer in (1, 2, 3)]
    for number, layer in enumerate(layers, start=1):
        layer.weight.data, layer.bias.data = (torch.tensor(params[f"{kind}{number}"]) for kind in "Wb")
    silu = torch.nn.SiLU()
    outputs = torch.nn.Sequential(layers[0], silu, layers[1], silu, layers[2])(inputs)
    expected = torch.nn.functional.mse_loss(outputs, fields["noise"], reduction="sum") / 80
    assert float(workload.loss(OPS, params, {}, batch, noise)[0]) == pytest.approx(expected.item(), rel=1e-12)


def test_evaluation_and_steps_with_fixed_noise_use_that_of_the_split():
    workload, _, problem = _instance(noise="fixed")
    assert workload.noise is None
    train = problem.splits["train"]
    value = workload.loss(OPS, problem.parameters, {}, train, {})[0]
    assert workload.evaluate(OPS, problem.parameters, {}, train)["loss"] == value
    fresh = minibatch(_instance(data="gaussians")[2], len(train["times"]))
    assert workload.loss(OPS, problem.parameters, {}, train, {"noise": -fresh["noise"]})[0] != value


def test_without_a_prediction_the_loss_is_half_the_square_of_the_noise():
    workload, _, problem = _instance()
    zeros = {name: np.zeros_like(value) for name, value in problem.parameters.items()}
    fields = problem.splits["validation"]
    found = float(workload.evaluate(OPS, zeros, {}, fields)["loss"])
    assert found == pytest.approx(np.sum(fields["noise"] ** 2) / 2048, rel=1e-12)
