"""CIFAR-10: reading of the six files of its binary version."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged, DataFiles, read_content

SIDE, COLOURS, CLASSES = 32, 3, 10
PIXELS = COLOURS * SIDE**2
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = ("test_batch.bin",)
IMAGES = 10_000  # images in each file; the classes are equally large in the training and in the test set


CIFAR = DataFiles(
    "CIFAR-10",
    (*TRAIN, *TEST),
    "cifar-10-batches-bin",  # folder inside the archive that users download
    f"download cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html, unpack it and set "
    f"{FOLDER_VARIABLE} to the folder that holds its folder",
)


@lru_cache(maxsize=2)  # training and test set are read once, and shared by the seeds of a job
def read_cifar(names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Read the images and labels of files, in the order of their names.

    Returns:
        Pixels (examples, 32, 32, 3), uint8, and labels (examples,) from 0 to 9, int64.

    Raises:
        DataMissing: if a file does not exist.
        DataDamaged: if a file has another length than CIFAR-10's files, or the classes have different numbers
            of images.
    """
    files = CIFAR.required()
    records = np.concatenate([_read(files[name]) for name in names])
    labels = records[:, 0].astype(np.int64)
    if np.bincount(labels, minlength=CLASSES).tolist() != [len(records) // CLASSES] * CLASSES:
        raise DataDamaged(f"{', '.join(names)}: the classes are not those of CIFAR-10; fetch them again")
    pixels = records[:, 1:].reshape(-1, COLOURS, SIDE, SIDE)
    return np.ascontiguousarray(np.moveaxis(pixels, 1, -1)), labels


def _read(path: Path) -> np.ndarray:
    """Return the records (images, 1 + pixels) of a file; the first byte of each record is the label."""
    content = np.frombuffer(read_content(path), np.uint8)
    if len(content) != IMAGES * (1 + PIXELS):
        expected = IMAGES * (1 + PIXELS)
        raise DataDamaged(f"{path}: has {len(content)} bytes, and CIFAR-10's has {expected}; fetch it again")
    return content.reshape(IMAGES, 1 + PIXELS)
