"""Deep tanh autoencoders of digits, of curves and of Fashion-MNIST.

An autoencoder is a network whose targets are its inputs. Its layers shrink to a code of few units and grow
again in mirror image. Deep autoencoders of digits and curves are the problems on which second-order methods
were first compared with gradient descent (Hinton and Salakhutdinov 2006, "Reducing the dimensionality of data
with neural networks"; Martens 2010, "Deep learning via Hessian-free optimization").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from curvebench.spec.values import choice
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.data import (
    MAXIMUM_PIXEL,
    PIXELS,
    random_parts,
    read_reduced_digits,
    reduced_digits_files,
)
from curvebench.workloads.fashion import FASHION, SIDE, max_pool, read_fashion
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
    loss_of,
    require_batch,
)

POOLING = 2  # side length of the squares of an image of Fashion-MNIST of which only the largest pixel is used
GRID = SIDE // POOLING  # height and width of images of curves and of Fashion-MNIST, in pixels
CURVE_POINTS = 40  # points at which the distance of a pixel from a curve is measured
CURVE_WIDTH = 0.04  # distance from a curve, in sides of the image, at which a pixel is exp(-1/2)


class ImageSet(NamedTuple):
    """A data set: the pixels of an image, the numbers of training and validation images, and their reader."""

    pixels: int
    counts: dict[str, int]
    read: Callable[[dict[str, int], Random], dict[str, np.ndarray]]


def split_digits(counts: dict[str, int], random: Random) -> dict[str, np.ndarray]:
    """Return scikit-learn's digits with pixels in [0, 1], divided at random in the same way for all seeds."""
    pixels = read_reduced_digits()[0] / MAXIMUM_PIXEL
    return {name: pixels[part] for name, part in random_parts(counts, random("split", shared=True)).items()}


def curves(corners: np.ndarray) -> np.ndarray:
    """Draw quadratic Bezier curves as images with pixels in [0, 1], (curves, GRID * GRID), row by row.

    A pixel is exp(-r^2 / (2 w^2)), where r is the distance from its centre to the nearest of CURVE_POINTS
    points of the curve, and w is CURVE_WIDTH.

    Args:
        corners: the start, the control point and the end of each curve in the unit square, (curves, 3, 2).
    """
    times = np.linspace(0.0, 1.0, CURVE_POINTS)
    weights = np.stack([(1 - times) ** 2, 2 * times * (1 - times), times**2], axis=1)
    centres = (np.indices((GRID, GRID)).reshape(2, -1).T + 0.5) / GRID
    points = weights @ corners  # (curves, CURVE_POINTS, 2)
    squares = ((centres[None, :, None] - points[:, None]) ** 2).sum(axis=-1)
    return np.exp(-squares.min(axis=-1) / (2 * CURVE_WIDTH**2))


def _curves(counts: dict[str, int], random: Random) -> dict[str, np.ndarray]:
    """Draw curves with three uniform corners, the same for all seeds."""
    generator = random("curves", shared=True)
    return {name: curves(generator.uniform(size=(count, 3, 2))) for name, count in counts.items()}


def _fashion(counts: dict[str, int], random: Random) -> dict[str, np.ndarray]:
    """Return the first images of the standard parts of Fashion-MNIST, pooled, with pixels in [0, 1]."""
    parts = {"train": "train", "validation": "test"}
    images = {name: read_fashion(parts[name])[0][:count] for name, count in counts.items()}
    return {name: max_pool(array, POOLING).reshape(len(array), -1) / 255 for name, array in images.items()}


DATA: Mapping[str, ImageSet] = {
    "digits": ImageSet(PIXELS, {"train": 1437, "validation": 360}, split_digits),
    "curves": ImageSet(GRID**2, {"train": 2000, "validation": 500}, _curves),
    "fashion": ImageSet(GRID**2, {"train": 5000, "validation": 1000}, _fashion),
}


def _widths(settings: Settings) -> list[int]:
    """Return the number of units of each layer, from the pixels to their reconstruction."""
    encoder = [DATA[settings["data"]].pixels, *settings["widths"]]
    return encoder + encoder[-2::-1]


def _network(settings: Settings) -> FullyConnected:
    """Return the parameters of the network; its last layer is no head, since its outputs are no classes."""
    return FullyConnected(_widths(settings), last="weight")


def _problem(settings: Settings, random: Random) -> Problem:
    """Return images, the same for all seeds, and random initial parameters."""
    data = DATA[settings["data"]]
    splits = {name: {"images": images} for name, images in data.read(data.counts, random).items()}
    return Problem(_network(settings).sample(random("parameters")), splits)


def _outputs(ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays) -> Array:
    """Return the outputs of the network, (examples, pixels)."""
    return perceptron(ops, params, batch["images"], ops.tanh)


def _squared(ops: Ops, params: Arrays, batch: Arrays) -> Array:
    """Return the mean over images of |z - x|^2 / 2, where z are the outputs of an image x."""
    errors = _outputs(ops, params, {}, batch, {}) - batch["images"]
    return 0.5 * ops.sum(ops.square(errors)) / errors.shape[0]


def _bernoulli(ops: Ops, params: Arrays, batch: Arrays) -> Array:
    """Return the mean over images of -sum_j [x_j log s(z_j) + (1 - x_j) log s(-z_j)].

    z are the outputs of an image x, and s is the logistic function.
    """
    outputs, images = _outputs(ops, params, {}, batch, {}), batch["images"]
    terms = images * ops.log_sigmoid(outputs) + (1 - images) * ops.log_sigmoid(-outputs)
    return -ops.sum(terms) / images.shape[0]


def _logits(ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays) -> Array:
    """Return the logits of the values 0 and 1 of each pixel, (examples, pixels, 2).

    The logits are 0 and z, so that a pixel is 1 with probability s(z). Their categorical distribution is the
    Bernoulli distribution of `_bernoulli`.
    """
    outputs = _outputs(ops, params, state, batch, noise)
    return ops.stack([ops.zeros_like(outputs), outputs], -1)


LOSSES = {
    "bernoulli": (_bernoulli, Likelihood(_logits, "categorical")),
    "squared": (_squared, Likelihood(_outputs, "gaussian", targets=lambda ops, batch: batch["images"])),
}


def _workload(loss: str) -> Workload:
    """Return the workload with a loss of LOSSES."""
    objective, likelihood = LOSSES[loss]
    return Workload(
        name="autoencoder",
        description="deep tanh autoencoder with a code of 8 units, on scikit-learn's digits (d = 9048)",
        source="Hinton and Salakhutdinov 2006; Martens 2010, with smaller networks and images",
        metrics={
            f"{split}_loss": Metric(f"loss of the reconstruction per image of the {split} split", "minimize")
            for split in ("train", "validation")
        },
        settings={
            "batch_size": batch_size(128),
            "data": Setting(
                "digits",
                "digits: 8 x 8 pixels, from scikit-learn; curves: synthetic, 14 x 14; fashion: Fashion-MNIST "
                "with pixels pooled to 14 x 14",
                choice(*DATA),
            ),
            "loss": Setting(
                "bernoulli",
                "bernoulli: cross entropy of each pixel; squared: half the squared error, without a logistic "
                "function after the last layer",
                choice(*LOSSES),
            ),
            "widths": Setting(
                [48, 24, 8],
                "units of the encoder's layers, the last of which is the code; the decoder mirrors them",
                LINEAR_NETWORK.settings["widths"].read,
            ),
        },
        dtype="float32",
        shared_data=True,
        roles=lambda settings: _network(settings).roles,
        problem=_problem,
        sample_parameters=lambda settings, generator: _network(settings).sample(generator),
        loss=loss_of(objective),
        evaluate=lambda ops, params, state, split: {"loss": objective(ops, params, split)},
        likelihood=likelihood,
        start=Start(44.40758926514236, 7.486981365939235),
        missing=lambda settings: FASHION.missing() if settings["data"] == "fashion" else None,
        files=lambda settings: FILES[settings["data"]](),
        check=lambda settings: require_batch(settings, DATA[settings["data"]].counts["train"]),
        bind=lambda settings: BY_LOSS[settings["loss"]],
    )


FILES = {"digits": reduced_digits_files, "curves": tuple, "fashion": FASHION.paths}
BY_LOSS = {loss: _workload(loss) for loss in LOSSES}
WORKLOADS = (BY_LOSS["bernoulli"],)
