"""Synthetic images in the four files of Fashion-MNIST, which the tests read instead on every machine."""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

# Examples in each standard part, equally many of each class.
EXAMPLES = {"train": 800, "test": 400}
CLASSES = 10
# Standard deviation of a pixel around its class's template; pixels range to 255.
NOISE = 25.0


def idx_bytes(array: np.ndarray) -> bytes:
    """Return an array of unsigned bytes in the idx format: two zeros, type, axes, their lengths, entries."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def images_of_classes(count: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return images (count, 28, 28) and labels (count,) in random order, both uint8.

    An image is its class's template of 7 x 7 grey squares, the same in both parts, plus noise on each pixel.
    A linear classifier can learn them.
    """
    templates = np.random.default_rng(0).uniform(-60.0, 300.0, (CLASSES, 7, 7)).repeat(4, 1).repeat(4, 2)
    labels = generator.permutation(np.arange(count) % CLASSES)
    noisy = templates[labels] + generator.normal(0.0, NOISE, (count, 28, 28))
    return noisy.clip(0, 255).astype(np.uint8), labels.astype(np.uint8)


def write_images(folder: Path, names: Mapping[str, Iterable[str]]) -> dict[str, dict[str, str]]:
    """Write the files of images and labels of each part, always with equal content.

    Args:
        folder: where to write them; it is made.
        names: the two file names of each part, images before labels.

    Returns:
        The SHA-256 of each file's decompressed content, by part and name.
    """
    folder.mkdir(parents=True)
    checksums: dict[str, dict[str, str]] = {}
    for seed, (part, files) in enumerate(names.items(), start=1):
        arrays = images_of_classes(EXAMPLES[part], np.random.default_rng(seed))
        contents = {name: idx_bytes(array) for name, array in zip(files, arrays, strict=True)}
        for name, content in contents.items():
            (folder / name).write_bytes(gzip.compress(content, 1, mtime=0))
        checksums[part] = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return checksums
