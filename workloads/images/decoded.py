"""A cache of decoded images: one file with the pixels of all images of a folder, in the order of the
index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from curvebench.workloads.data import DataDamaged
from curvebench.workloads.images.decoding import decode
from curvebench.workloads.images.folders import IndexedImage, checksum, index_file

if TYPE_CHECKING:
    from PIL.Image import Image

CHANNELS = 3


def decoded_file(folder: Path) -> Path:
    """Return the path of a folder's cache, next to the folder; its name contains the hash of the index."""
    return folder.with_name(f"{folder.name}.decoded-{checksum(index_file(folder).read_bytes())}.uint8")


class DecodedImages:
    """Decoded images, uint8 in RGB, of the files in an index. The images are in a memory-mapped cache file.

    Args:
        path: path of the cache file.
        lines: all lines of the index.

    Raises:
        DataDamaged: if the size of the cache file is not the sum of the images' sizes in the index.
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
            raise DataDamaged(f"{path}: has {len(self._pixels)} bytes where the index has {end}; delete it")

    def image(self, path: str) -> Image:
        """Return the image of the file that has the path `path` in the index."""
        from PIL import Image

        start, height, width = self._places[path]
        pixels = self._pixels[start : start + height * width * CHANNELS]
        return Image.fromarray(pixels.reshape(height, width, CHANNELS))


def write_decoded(
    file: BinaryIO, folder: Path, lines: Iterable[IndexedImage], progress: Callable[[], None] = lambda: None
) -> None:
    """Decode the images of an index into a cache file, and call `progress` after each image.

    Raises:
        DataDamaged: if an image has changed since it was indexed.
    """
    for line in lines:
        progress()
        if line.damage:
            continue
        content = (folder / line.path).read_bytes()
        if checksum(content) != line.checksum:
            raise DataDamaged(
                f"{folder / line.path}: has changed since it was indexed; run `curvebench images index "
                f"{folder}`"
            )
        file.write(np.asarray(decode(content)).tobytes())
