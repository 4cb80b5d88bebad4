"""The one function that decodes an image, and the crops of it that training and evaluation see."""

from __future__ import annotations

import math
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

LEAST_AREA = 0.08  # of a random crop, as a share of the image's
ASPECTS = (3 / 4, 4 / 3)  # of a random crop, width by height
ATTEMPTS = 10
FIVE_CROPS = 5  # four corners and the centre


def decode(content: bytes) -> Image:
    """An image as it is stored, in RGB of 8 bits: whatever the file's colours and its name's suffix are.

    A tag of orientation is not followed, as in torchvision, timm and TensorFlow.

    Raises:
        OSError, ValueError, SyntaxError, DecompressionBombError: for what is no image, or not whole.
    """
    from PIL import Image

    image = Image.open(BytesIO(content))
    image.load()
    return image if image.mode == "RGB" else image.convert("RGB")


class Box(NamedTuple):
    """A rectangle of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


def random_box(
    height: int, width: int, generator: np.random.Generator, least_area: float = LEAST_AREA
) -> Box:
    """The box of a random resized crop, by torchvision's rule (`RandomResizedCrop.get_params`).

    The area's share is uniform from the least one to 1, the logarithm of the aspect in that of ASPECTS; where
    no box of ATTEMPTS fits, the largest at the centre whose aspect is allowed.
    """
    low, high = map(math.log, ASPECTS)
    for _ in range(ATTEMPTS):
        area = height * width * generator.uniform(least_area, 1.0)
        aspect = math.exp(generator.uniform(low, high))
        wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            top, left = (int(generator.integers(most + 1)) for most in (height - tall, width - wide))
            return Box(top, left, tall, wide)
    aspect = min(max(width / height, ASPECTS[0]), ASPECTS[1])
    tall, wide = min(height, round(width / aspect)), min(width, round(height * aspect))
    return Box((height - tall) // 2, (width - wide) // 2, tall, wide)


def resized_crop(image: Image, box: Box, side: int) -> np.ndarray:
    """A box of an image in side x side pixels, (side, side, 3) uint8.

    Bilinear and antialiased, of the pixels in the box alone: cut out first, as torchvision does.
    """
    from PIL.Image import Resampling

    cut = image.crop((box.left, box.top, box.left + box.width, box.top + box.height))
    return np.asarray(cut.resize((side, side), Resampling.BILINEAR))


def five_crops(image: Image, shorter: int, side: int) -> np.ndarray:
    """Crops of an image whose shorter side is resized, (5, side, side, 3) uint8.

    Top left, top right, bottom left, bottom right, centre, as torchvision's `five_crop`; with their mirror
    images they are the ten crops (000 C.1), whose last torchvision takes a pixel beside the centre where the
    width left over is odd.

    Args:
        image: of any size.
        shorter: the shorter side, in pixels, that it is resized to; at least `side`.
        side: of the crops.
    """
    resized = np.asarray(_with_shorter_side(image, shorter))
    bottom, right = resized.shape[0] - side, resized.shape[1] - side
    places = ((0, 0), (0, right), (bottom, 0), (bottom, right), _centre(resized, side))
    return np.stack([resized[top : top + side, left : left + side] for top, left in places])


def centre_crop(image: Image, shorter: int, side: int) -> np.ndarray:
    """The crop at the centre of an image whose shorter side is resized, (side, side, 3) uint8."""
    resized = np.asarray(_with_shorter_side(image, shorter))
    top, left = _centre(resized, side)
    return resized[top : top + side, left : left + side]


def _centre(pixels: np.ndarray, side: int) -> tuple[int, int]:
    return round((pixels.shape[0] - side) / 2), round((pixels.shape[1] - side) / 2)


def _with_shorter_side(image: Image, shorter: int) -> Image:
    """The image resized, its longer side rounded down (torchvision's `resize` to one number)."""
    from PIL.Image import Resampling

    longer = int(shorter * max(image.size) / min(image.size))
    wide, tall = (shorter, longer) if image.width <= image.height else (longer, shorter)
    return image.resize((wide, tall), Resampling.BILINEAR)
