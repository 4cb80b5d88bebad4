"""Normalization, flips, shifts, MixUp and CutMix on the device, with random numbers from the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from curvebench.spec.errors import InputError
from curvebench.workloads.arguments import Array, Arrays, Ops

MEANS = (0.485, 0.456, 0.406)  # means of ImageNet's red, green and blue pixels, which range from 0 to 1
DEVIATIONS = (0.229, 0.224, 0.225)  # standard deviations of ImageNet's red, green and blue pixels


def normalized(
    ops: Ops, images: Array, means: Sequence[float] = MEANS, deviations: Sequence[float] = DEVIATIONS
) -> Array:
    """Convert pixels (..., rows, columns, 3) from 0 to 255 to normalized pixels (..., 3, rows, columns)."""
    channels = [
        (ops.astype_float(images[..., channel]) - 255 * mean) / (255 * deviation)
        for channel, (mean, deviation) in enumerate(zip(means, deviations, strict=True))
    ]
    return ops.stack(channels, -3)


@dataclass(frozen=True)
class Augmentation:
    """Random changes of the images of a minibatch in training, in addition to random crops.

    Each image is mirrored with probability 1/2. MixUp averages two images, and CutMix pastes a box of one
    image into another; the labels get weights in the same proportion. Each minibatch has either MixUp or
    CutMix, with the same proportion and box for all examples, as in the programs of the methods' authors.
    Neighbours in the minibatch (the first and second example, the third and fourth, and so on) are mixed with
    each other, because the order of examples is random anyway, and a microbatch of even size contains both
    neighbours.

    Args:
        mixup: alpha of the Beta distribution of MixUp's proportions (Zhang et al. 2018, Alg. 1); 0 for no
            MixUp.
        cutmix: alpha of the Beta distribution of CutMix's proportions (Yun et al. 2019, Alg. 1); 0 for no
            CutMix. If `mixup` and `cutmix` are both positive, each minibatch has MixUp or CutMix, each with
            probability 1/2.
        shift: largest number of pixels by which images are shifted along rows and columns; None for no
            shifts.
    """

    mixup: float = 0.0
    cutmix: float = 0.0
    shift: int | None = None

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with each other."""
        return self.mixup > 0 or self.cutmix > 0

    def draw(self, generator: np.random.Generator, batch_size: int, side: int) -> dict[str, np.ndarray]:
        """Draw the random numbers of one step, as a workload's `noise`.

        Args:
            generator: random generator.
            batch_size: number of examples.
            side: height and width of the images in pixels.

        Returns:
            `flipped` (batch_size,): whether an image is mirrored. If images are shifted, also the arrays of
            `drawn_positions`. If images are mixed, also `share` (batch_size,), the weight of the image itself
            in the average; `box` (batch_size, 4), first row, end row, first column and end column of the box
            that shows the other image; and `weight` (batch_size,), the weight of the image's own label.
        """
        noise = {"flipped": generator.random(batch_size) < 0.5}
        if self.shift is not None:
            noise |= drawn_positions(generator, batch_size, self.shift, side)
        if not self.mixes:
            return noise
        share, box = 1.0, (0, 0, 0, 0)
        if generator.random() < (0.5 if self.mixup and self.cutmix else float(self.cutmix > 0)):
            box = _box(generator, generator.beta(self.cutmix, self.cutmix), side)
        else:
            share = generator.beta(self.mixup, self.mixup)
        area = (box[1] - box[0]) * (box[3] - box[2])
        return {
            **noise,
            "share": np.full(batch_size, share),
            "box": np.tile(np.array(box, np.int32), (batch_size, 1)),
            "weight": np.full(batch_size, share * (1 - area / side**2)),
        }

    def apply(self, ops: Ops, images: Array, noise: Arrays) -> Array:
        """Mirror, shift and mix normalized images (examples, 3, side, side); `noise` is from `draw`."""
        images = ops.where(noise["flipped"][:, None, None, None], ops.flip(images, -1), images)
        if self.shift is not None:
            images = shifted(ops, images, noise)
        if not self.mixes:
            return images
        positions, box = ops.arange(images.shape[-1]), noise["box"][:, :, None]
        rows = (positions >= box[:, 0]) & (positions < box[:, 1])
        columns = (positions >= box[:, 2]) & (positions < box[:, 3])
        share = ops.where(rows[:, :, None] & columns[:, None, :], 0.0, noise["share"][:, None, None])[:, None]
        return share * images + (1 - share) * partners(ops, images)


def drawn_positions(
    generator: np.random.Generator, batch_size: int, limit: int, side: int
) -> dict[str, np.ndarray]:
    """Draw which rows and columns of its image each example shows after a shift of up to `limit` pixels.

    Beyond an edge, the image is continued by its reflection.

    Returns:
        `rows` and `columns`, (batch_size, side) each.
    """
    positions = np.arange(side) - generator.integers(-limit, limit, (2, batch_size, 1), endpoint=True)
    reflected = side - 1 - np.abs(side - 1 - np.abs(positions))
    return {"rows": reflected[0], "columns": reflected[1]}


def shifted(ops: Ops, images: Array, noise: Arrays) -> Array:
    """Shift images (examples, channels, side, side) by the random numbers of `drawn_positions`."""
    images = ops.take_along_axis(images, noise["rows"][:, None, :, None], axis=2)
    return ops.take_along_axis(images, noise["columns"][:, None, None, :], axis=3)


def partners(ops: Ops, values: Array) -> Array:
    """Return values (examples, ...) after exchanging the two examples of each pair.

    The first and second example are a pair, the third and fourth, and so on.

    Raises:
        InputError: for an odd number of examples.
    """
    if values.shape[0] % 2:
        raise InputError(
            f"MixUp and CutMix pair the examples of a minibatch, or of a part of it where gradients are "
            f"accumulated: {values.shape[0]} is odd"
        )
    pairs = ops.reshape(values, (-1, 2, *values.shape[1:]))
    return ops.reshape(ops.flip(pairs, 1), values.shape)


def _box(generator: np.random.Generator, share: float, side: int) -> tuple[int, int, int, int]:
    """Draw a box with the share `1 - share` of an image's area, and cut the box at the edges of the image.

    Args:
        generator: random generator.
        share: share of the area that is outside of the box.
        side: height and width of the image in pixels.

    Returns:
        First row, end row, first column and end column. The ends are outside of the box.
    """
    half = int(side * np.sqrt(1 - share)) // 2
    row, column = generator.integers(side, size=2)
    edges = (row - half, row + half, column - half, column + half)
    first_row, end_row, first_column, end_column = (int(min(max(edge, 0), side)) for edge in edges)
    return first_row, end_row, first_column, end_column
