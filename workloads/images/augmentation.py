"""What the device does to images: normalization, flips, MixUp and CutMix, by numbers drawn on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from curvebench.spec.errors import InputError
from curvebench.workloads.workload import Array, Arrays, Ops

MEANS = (0.485, 0.456, 0.406)  # of ImageNet's channels red, green and blue, from 0 to 1
DEVIATIONS = (0.229, 0.224, 0.225)


def normalized(
    ops: Ops, images: Array, means: Sequence[float] = MEANS, deviations: Sequence[float] = DEVIATIONS
) -> Array:
    """Pixels (..., rows, columns, 3) from 0 to 255 as (..., 3, rows, columns), by a set's statistics."""
    channels = [
        (ops.astype_float(images[..., channel]) - 255 * mean) / (255 * deviation)
        for channel, (mean, deviation) in enumerate(zip(means, deviations, strict=True))
    ]
    return ops.stack(channels, -3)


@dataclass(frozen=True)
class Augmentation:
    """What training does to the images of a minibatch, besides the crops that they come as.

    Every other image, at random, is mirrored.
    MixUp is a mean of two images, CutMix pastes a box of one into the other, and labels have weights in the
    same shares. Each minibatch has one of the two, and one share and box, as in the authors' programs.
    Examples 2 k and 2 k + 1 are each other's partners: the order of minibatches is random, and an even part
    of one, where gradients are accumulated, has whole pairs.

    Args:
        mixup: alpha of the Beta distribution of MixUp's shares (Zhang et al. 2018, Alg. 1); 0 for none.
        cutmix: of those of CutMix (Yun et al. 2019, Alg. 1); 0 for none. Where there are both, each minibatch
            has one of them with probability 1/2.
        shift: by how many pixels at most images are moved, in rows and columns; None for no shifts.
    """

    mixup: float = 0.0
    cutmix: float = 0.0
    shift: int | None = None

    @property
    def mixes(self) -> bool:
        """Whether images are mixed."""
        return self.mixup > 0 or self.cutmix > 0

    def draw(self, generator: np.random.Generator, batch_size: int, side: int) -> dict[str, np.ndarray]:
        """The numbers of one step; of a workload's `noise`.

        Args:
            batch_size: examples.
            side: of the images, in pixels.

        Returns:
            `flipped` (batch_size,); where images are shifted those of `drawn_places`; and where
            images are mixed `share` (batch_size,), of the own image in the
            mean, `box` (batch_size, 4), the rows and columns of the other's, each first and end, and `weight`
            (batch_size,), of the own label.
        """
        found = {"flipped": generator.random(batch_size) < 0.5}
        if self.shift is not None:
            found |= drawn_places(generator, batch_size, self.shift, side)
        if not self.mixes:
            return found
        share, box = 1.0, (0, 0, 0, 0)
        if generator.random() < (0.5 if self.mixup and self.cutmix else float(self.cutmix > 0)):
            box = _box(generator, generator.beta(self.cutmix, self.cutmix), side)
        else:
            share = generator.beta(self.mixup, self.mixup)
        area = (box[1] - box[0]) * (box[3] - box[2])
        return {
            **found,
            "share": np.full(batch_size, share),
            "box": np.tile(np.array(box, np.int32), (batch_size, 1)),
            "weight": np.full(batch_size, share * (1 - area / side**2)),
        }

    def apply(self, ops: Ops, images: Array, noise: Arrays) -> Array:
        """Normalized images (examples, 3, side, side), flipped and mixed by the numbers of a step."""
        images = ops.where(noise["flipped"][:, None, None, None], ops.flip(images, -1), images)
        if self.shift is not None:
            images = shifted(ops, images, noise)
        if not self.mixes:
            return images
        places, box = ops.arange(images.shape[-1]), noise["box"][:, :, None]
        rows = (places >= box[:, 0]) & (places < box[:, 1])
        columns = (places >= box[:, 2]) & (places < box[:, 3])
        share = ops.where(rows[:, :, None] & columns[:, None, :], 0.0, noise["share"][:, None, None])[:, None]
        return share * images + (1 - share) * partners(ops, images)


def drawn_places(
    generator: np.random.Generator, batch_size: int, most: int, side: int
) -> dict[str, np.ndarray]:
    """Which rows and columns of its image each example shows, moved by up to so many pixels.

    Beyond an edge come its own rows and columns again, reflected.

    Returns:
        `rows` and `columns`, (batch_size, side) each.
    """
    places = np.arange(side) - generator.integers(-most, most, (2, batch_size, 1), endpoint=True)
    reflected = side - 1 - np.abs(side - 1 - np.abs(places))
    return {"rows": reflected[0], "columns": reflected[1]}


def shifted(ops: Ops, images: Array, noise: Arrays) -> Array:
    """Images (examples, channels, side, side) of the rows and columns that `drawn_places` gives."""
    images = ops.take_along_axis(images, noise["rows"][:, None, :, None], axis=2)
    return ops.take_along_axis(images, noise["columns"][:, None, None, :], axis=3)


def partners(ops: Ops, values: Array) -> Array:
    """The values (examples, ...) of each example's partner.

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
    """First and end row, first and end column of a box of 1 - share of the area, cut off at the edges."""
    half = int(side * np.sqrt(1 - share)) // 2
    row, column = generator.integers(side, size=2)
    edges = (row - half, row + half, column - half, column + half)
    top, bottom, left, right = (int(min(max(edge, 0), side)) for edge in edges)
    return top, bottom, left, right
