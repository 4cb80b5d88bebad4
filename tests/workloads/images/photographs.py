"""Folders of JPEG files made from scikit-learn's two photographs, intact and damaged."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from curvebench.workloads.images.folders import IndexedImage, examined, listed

# EXIF tag; the value 6 means that the image has to be rotated by 90 degrees.
ORIENTATION = 0x0112


@cache
def photographs() -> tuple[Image.Image, ...]:
    """Return the photographs "China" and "flower", 640 x 427 pixels."""
    return tuple(map(Image.fromarray, load_sample_images()["images"]))


def piece(number: int, width: int = 60, height: int = 45) -> Image.Image:
    """Return a crop of a photograph, at a position that depends on the number."""
    generator = np.random.default_rng(number)
    photograph = photographs()[number % 2]
    left, top = (
        int(generator.integers(length)) for length in (photograph.width - width, photograph.height - height)
    )
    return photograph.crop((left, top, left + width, top + height))


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    """Return the bytes of an image's file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned(image: Image.Image) -> bytes:
    """Return a file with a tag for another orientation."""
    tags = Image.Exif()
    tags[ORIENTATION] = 6
    return encoded(image, exif=tags)


def unusual() -> dict[str, bytes]:
    """Return files with an image in an unusual form, by name."""
    image = piece(0)
    return {
        "grey": encoded(image.convert("L")),
        "cmyk": encoded(image.convert("CMYK")),
        "turned": turned(image),
        "wrong_suffix": encoded(image, "PNG"),
        "one_pixel": encoded(image.resize((1, 1))),
        "palette": encoded(image.convert("P"), "PNG"),
    }


def damaged() -> dict[str, bytes]:
    """Return files without a readable image, by name."""
    whole = encoded(piece(1))
    return {"cut": whole[: len(whole) // 2], "empty": b"", "text": b"<html>not found</html>"}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files by their paths relative to a folder."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def write_set(folder: Path, classes: int = 2, train: int = 6, validation: int = 3) -> Path:
    """Write a data set in the usual layout, with the given numbers of images per class."""
    files = {
        f"{part}/n{category:02d}/{number}.JPEG": encoded(
            piece(100 * category + number + start, 60 + number, 45)
        )
        for part, count, start in (("train", train, 0), ("val", validation, 50))
        for category in range(classes)
        for number in range(count)
    }
    return write(folder, files)


def index_of(folder: Path) -> list[IndexedImage]:
    """Return the lines of a folder's index."""
    return examined(folder, listed(folder))
