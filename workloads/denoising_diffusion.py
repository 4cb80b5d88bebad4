"""Denoising diffusion: a network that predicts the noise in noisy points of the plane or images of digits.

The noisy point at time t, 0 <= t <= 1, is x_t = cos(pi t / 2) x + sin(pi t / 2) e, where x is an example and
e is standard normal. The network sees x_t and sines and cosines of t, and predicts e (Ho, Jain and Abbeel
2020, "Denoising diffusion probabilistic models"; the weights of x and e are those of Nichol and Dhariwal
2021, "Improved denoising diffusion probabilistic models", without their offset). Each training step draws new
times and new noise. Every split stores a time and a noise of each example, on which it is evaluated.

The quality of samples from the network is not evaluated: each evaluation would need hundreds of passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from curvebench.spec.values import choice
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.autoencoder import split_digits
from curvebench.workloads.data import PIXELS, reduced_digits_files
from curvebench.workloads.linear_network import LINEAR_NETWORK
from curvebench.workloads.networks.perceptron import FullyConnected, perceptron
from curvebench.workloads.workload import (
    Likelihood,
    Metric,
    Problem,
    Setting,
    Start,
    Workload,
    batch_size,
    require_batch,
)

WAVES = 4  # numbers of frequencies of the sines and cosines of the time: 1/4, 1/2, 1 and 2 periods
SPREAD = 0.05  # standard deviation of points around moons and spiral; of a Gaussian it is twice as large


def moons(count: int, generator: np.random.Generator) -> np.ndarray:
    """Draw points (count, 2) around two half circles that interlock."""
    upper = generator.uniform(size=count) < 0.5
    angles = generator.uniform(0.0, math.pi, count)
    points = np.stack([np.where(upper, np.cos(angles), 1 - np.cos(angles)) - 0.5, np.sin(angles)], axis=1)
    points[:, 1] = np.where(upper, points[:, 1] - 0.25, 0.25 - points[:, 1])
    return points + SPREAD * generator.normal(size=(count, 2))


def spiral(count: int, generator: np.random.Generator) -> np.ndarray:
    """Draw points (count, 2) around a spiral of two turns with radius 2 at its end."""
    shares = np.sqrt(generator.uniform(size=count))  # of the angle; by the root, points are evenly dense
    angles = 4 * math.pi * shares
    points = 2 * shares[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return points + SPREAD * generator.normal(size=(count, 2))


def gaussians(count: int, generator: np.random.Generator) -> np.ndarray:
    """Draw points (count, 2) of 8 Gaussians, whose means are on a circle with radius sqrt(2)."""
    angles = generator.integers(8, size=count) * math.pi / 4
    means = math.sqrt(2) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return means + 2 * SPREAD * generator.normal(size=(count, 2))


PLANE: Mapping[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "moons": moons,
    "spiral": spiral,
    "gaussians": gaussians,
}
PLANE_COUNTS = {"train": 1024, "validation": 1024}
DIGITS_COUNTS = {"train": 1437, "validation": 360}


def _counts(settings: Settings) -> dict[str, int]:
    """Return the number of examples in each split."""
    return PLANE_COUNTS if settings["data"] in PLANE else DIGITS_COUNTS


def _widths(settings: Settings) -> list[int]:
    """Return the number of units of each layer, from noisy point and time to noise."""
    size = 2 if settings["data"] in PLANE else PIXELS
    return [size + 2 * WAVES, *settings["widths"], size]


def _network(settings: Settings) -> FullyConnected:
    """Return the parameters of the network; its last layer is no head, since its outputs are no classes."""
    return FullyConnected(_widths(settings), last="weight")


def _draw(settings: Settings, generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Draw times (count,), one in each of `count` equal intervals, and normal noise (count, size)."""
    times = (generator.permutation(count) + generator.uniform(size=count)) / count
    return {"times": times, "noise": generator.normal(size=(count, _widths(settings)[-1]))}


def _problem(settings: Settings, random: Random) -> Problem:
    """Return examples with a time and a noise each, the same for all seeds, and initial parameters."""
    counts = _counts(settings)
    if settings["data"] in PLANE:
        generator = random("points", shared=True)
        examples = {name: PLANE[settings["data"]](count, generator) for name, count in counts.items()}
    else:
        examples = {name: 2 * images - 1 for name, images in split_digits(counts, random).items()}
    generator = random("noise of splits", shared=True)
    splits = {
        name: {"points": points, **_draw(settings, generator, len(points))}
        for name, points in examples.items()
    }
    return Problem(_network(settings).sample(random("parameters")), splits)


def _predicted(ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays) -> Array:
    """Return the predicted noise, (examples, size). Times and noise of a step replace those of the batch."""
    drawn = {**batch, **noise}
    angles = math.pi / 2 * drawn["times"][:, None]
    noisy = ops.cos(angles) * batch["points"] + ops.sin(angles) * drawn["noise"]
    waves = angles * ops.exp(math.log(2) * ops.arange(WAVES))
    return perceptron(ops, params, ops.concatenate([noisy, ops.sin(waves), ops.cos(waves)], -1), ops.silu)


def _half_squared_error(ops: Ops, params: Arrays, batch: Arrays, noise: Arrays) -> Array:
    """Return the mean over examples of |f(x_t, t) - e|^2 / 2, where f is the network."""
    errors = _predicted(ops, params, {}, batch, noise) - {**batch, **noise}["noise"]
    return 0.5 * ops.sum(ops.square(errors)) / errors.shape[0]


def _loss(
    ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
) -> tuple[Array, Arrays, Arrays]:
    """Return the loss of a step."""
    return _half_squared_error(ops, params, batch, noise), state, {}


DENOISING_DIFFUSION = Workload(
    name="denoising_diffusion",
    description="network that predicts the noise in noisy points of two moons (d = 9154)",
    source="Ho, Jain and Abbeel 2020; Nichol and Dhariwal 2021",
    metrics={
        f"{split}_loss": Metric(f"half the squared error per example of the {split} split", "minimize")
        for split in ("train", "validation")
    },
    settings={
        "batch_size": batch_size(256),
        "data": Setting(
            "moons",
            "moons, spiral or gaussians: points of the plane; digits: 8 x 8 pixels, from scikit-learn",
            choice(*PLANE, "digits"),
        ),
        "noise": Setting(
            "fresh",
            "fresh: each step draws new times and noise; fixed: each example keeps its own, so that the full "
            "batch has a deterministic loss",
            choice("fresh", "fixed"),
        ),
        "widths": Setting([64, 64, 64], "units of the hidden layers", LINEAR_NETWORK.settings["widths"].read),
    },
    dtype="float32",
    shared_data=True,
    roles=lambda settings: _network(settings).roles,
    problem=_problem,
    sample_parameters=lambda settings, generator: _network(settings).sample(generator),
    loss=_loss,
    evaluate=lambda ops, params, state, split: {"loss": _half_squared_error(ops, params, split, {})},
    likelihood=Likelihood(_predicted, "gaussian"),
    noise=_draw,
    files=lambda settings: () if settings["data"] in PLANE else reduced_digits_files(),
    check=lambda settings: require_batch(settings, _counts(settings)["train"]),
    start=Start(1.0016734319089355, 0.40238268921299875),
    bind=lambda settings: BY_NOISE[settings["noise"]],
)
BY_NOISE: dict[str, Workload] = {
    "fresh": DENOISING_DIFFUSION,
    "fixed": replace(DENOISING_DIFFUSION, noise=None),
}

WORKLOADS = (DENOISING_DIFFUSION,)
