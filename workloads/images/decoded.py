"""Decoded images in one file: their pixels end to end, read without decoding them again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from workloads.images.decoding import decode
from workloads.images.folders import IndexedImage, checksum, index_text

if TYPE_CHECKING:
    from PIL.Image import Image

CHANNELS = 3


def decoded_file(folder: Path, lines: Iterable[IndexedImage]) -> Path:
    """Where the decoded images of an index lie: beside the folder, by the hash of the index."""
    digest = hashlib.sha256(index_text(lines).encode()).hexdigest()[:16]
    return folder.with_name(f"{folder.name}.decoded-{digest}.uint8")


class DecodedImages:
    """The images of an index, uint8 in RGB, mapped from their file.

    Args:
        path: of the file.
        lines: of the whole index.

    Raises:
        ValueError: for a file of another size.
    """

    def __init__(self, path: Path, lines: Iterable[IndexedImage]) -> None:
        self._places: dict[str, tuple[int, int, int]] = {}
        end = 0
        for line in lines:
            if not line.damage:
                self._places[line.path] = end, line.height, line.width
                end += line.height * line.width * CHANNELS
        self._pixels = np.memmap(path, np.uint8, mode="r")
        if len(self._pixels) != end:
            raise ValueError(f"{path}: has {len(self._pixels)} bytes where the index has {end}; delete it")

    def image(self, path: str) -> Image:
        """The image that the file at a path from the folder holds."""
        from PIL import Image

        start, height, width = self._places[path]
        pixels = self._pixels[start : start + height * width * CHANNELS]
        return Image.fromarray(pixels.reshape(height, width, CHANNELS))


def write_decoded(file: BinaryIO, folder: Path, lines: Iterable[IndexedImage]) -> None:
    """Decode the images of an index into a file.

    Raises:
        ValueError: for an image that is not the one that was indexed.
    """
    for line in lines:
        if line.damage:
            continue
        content = (folder / line.path).read_bytes()
        if checksum(content) != line.checksum:
            raise ValueError(
                f"{folder / line.path}: has changed since it was indexed; index the folder again"
            )
        file.write(np.asarray(decode(content)).tobytes())
