"""Decoding of images, and the crops of images that training and evaluation use.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

import math
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

MIN_AREA = 0.08  # smallest area of a random crop as a share of the image's area
ASPECTS = (3 / 4, 4 / 3)  # smallest and largest ratio of width to height of a random crop
ATTEMPTS = 10  # maximum number of random boxes that are tried per crop
FIVE_CROPS = 5  # number of crops at the four corners and the centre


def decode(content: bytes) -> Image:
    """Decode an image to 8-bit RGB, whatever the file's format and colour mode are.

    The orientation tag is ignored, as in torchvision, timm and TensorFlow.

    Raises:
        OSError, ValueError, SyntaxError, DecompressionBombError: if `content` is not a complete image.
    """
    from PIL import Image

    image = Image.open(BytesIO(content))
    image.load()
    return image if image.mode == "RGB" else image.convert("RGB")


class Box(NamedTuple):
    """A rectangle in an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


def random_box(height: int, width: int, generator: np.random.Generator, min_area: float = MIN_AREA) -> Box:
    """Draw the box of a random resized crop by the rule of torchvision (`RandomResizedCrop.get_params`).

    The box's share of the image's area is uniform from `min_area` to 1, and the logarithm of the ratio of
    width to height is uniform in the range of ASPECTS. If none of ATTEMPTS such boxes fits into the image,
    return the largest box at the centre with an allowed ratio.
    """
    low, high = map(math.log, ASPECTS)
    for _ in range(ATTEMPTS):
        area = height * width * generator.uniform(min_area, 1.0)
        aspect = math.exp(generator.uniform(low, high))
        box_width, box_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < box_width <= width and 0 < box_height <= height:
            top, left = (
                int(generator.integers(room + 1)) for room in (height - box_height, width - box_width)
            )
            return Box(top, left, box_height, box_width)
    aspect = min(max(width / height, ASPECTS[0]), ASPECTS[1])
    box_height, box_width = min(height, round(width / aspect)), min(width, round(height * aspect))
    return Box((height - box_height) // 2, (width - box_width) // 2, box_height, box_width)


def resized_crop(image: Image, box: Box, side: int) -> np.ndarray:
    """Return a box of an image, resized to side x side pixels, (side, side, 3) uint8.

    Interpolation is bilinear with antialiasing. The interpolation uses only pixels in the box, because the
    box is cut out first, as in torchvision.
    """
    from PIL.Image import Resampling

    cut = image.crop((box.left, box.top, box.left + box.width, box.top + box.height))
    return np.asarray(cut.resize((side, side), Resampling.BILINEAR))


def five_crops(image: Image, shorter: int, side: int) -> np.ndarray:
    """Resize an image, and return crops at its corners and centre, (5, side, side, 3) uint8.

    The order is top left, top right, bottom left, bottom right, centre, as in torchvision's `five_crop`. The
    five crops and their mirror images are the ten crops of 000 C.1. If the widths of image and crop differ by
    an odd number, torchvision's mirrored centre crop is one pixel off.

    Args:
        image: image of any size.
        shorter: length in pixels that the shorter side is resized to; at least `side`.
        side: height and width of the crops.
    """
    resized = np.asarray(_with_shorter_side(image, shorter))
    bottom, right = resized.shape[0] - side, resized.shape[1] - side
    corners = ((0, 0), (0, right), (bottom, 0), (bottom, right), _centre(resized, side))
    return np.stack([resized[top : top + side, left : left + side] for top, left in corners])


def centre_crop(image: Image, shorter: int, side: int) -> np.ndarray:
    """Resize the shorter side of an image, and return the crop at its centre, (side, side, 3) uint8."""
    resized = np.asarray(_with_shorter_side(image, shorter))
    top, left = _centre(resized, side)
    return resized[top : top + side, left : left + side]


def _centre(pixels: np.ndarray, side: int) -> tuple[int, int]:
    """Return the top and left edge, in pixels, of the square crop at the centre."""
    return round((pixels.shape[0] - side) / 2), round((pixels.shape[1] - side) / 2)


def _with_shorter_side(image: Image, shorter: int) -> Image:
    """Resize an image so that its shorter side has `shorter` pixels.

    The length of the longer side is rounded down, as in torchvision.
    """
    from PIL.Image import Resampling

    longer = int(shorter * max(image.size) / min(image.size))
    new_width, new_height = (shorter, longer) if image.width <= image.height else (longer, shorter)
    return image.resize((new_width, new_height), Resampling.BILINEAR)
