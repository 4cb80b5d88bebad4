"""CIFAR-10: where its six files of the binary version lie, and how they are read."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged, DataFiles, read_content

SIDE, COLOURS, CLASSES = 32, 3, 10
PIXELS = COLOURS * SIDE**2
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = ("test_batch.bin",)
IMAGES = 10_000  # of each file; of each class there are equally many in both parts


CIFAR = DataFiles(
    "CIFAR-10",
    (*TRAIN, *TEST),
    "cifar-10-batches-bin",  # as the archive unpacks
    f"download cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html, unpack it and set "
    f"{FOLDER_VARIABLE} to the folder that holds its folder",
)


@lru_cache(maxsize=2)  # the seeds of a job share both parts
def read_cifar(names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of some of the files, one after the other.

    Returns:
        Pixels (examples, 32, 32, 3), uint8, and labels (examples,) from 0 to 9, int64.

    Raises:
        DataMissing: when a file is not there.
        DataDamaged: for a file of another length, and a part whose classes are not equally large.
    """
    files = CIFAR.required()
    records = np.concatenate([_read(files[name]) for name in names])
    labels = records[:, 0].astype(np.int64)
    if np.bincount(labels, minlength=CLASSES).tolist() != [len(records) // CLASSES] * CLASSES:
        raise DataDamaged(f"{', '.join(names)}: the classes are not those of CIFAR-10; fetch them again")
    pixels = records[:, 1:].reshape(-1, COLOURS, SIDE, SIDE)
    return np.ascontiguousarray(np.moveaxis(pixels, 1, -1)), labels


def _read(path: Path) -> np.ndarray:
    content = np.frombuffer(read_content(path), np.uint8)
    if len(content) != IMAGES * (1 + PIXELS):
        due = IMAGES * (1 + PIXELS)
        raise DataDamaged(f"{path}: has {len(content)} bytes, and CIFAR-10's has {due}; fetch it again")
    return content.reshape(IMAGES, 1 + PIXELS)
