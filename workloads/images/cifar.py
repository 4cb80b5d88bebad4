"""CIFAR-10: where its six files of the binary version lie, and how they are read."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import numpy as np

from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged, find_file, read_content
from curvebench.workloads.workload import DataMissing

SUBFOLDER = "cifar-10-batches-bin"  # as the archive unpacks
SIDE, COLOURS, CLASSES = 32, 3, 10
PIXELS = COLOURS * SIDE**2
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = ("test_batch.bin",)
IMAGES = 10_000  # of each file; of each class there are equally many in both parts


def cifar_files() -> tuple[Path, ...]:
    """The files of CIFAR-10 that are there."""
    return tuple(path for name in (*TRAIN, *TEST) if (path := find_file(name, SUBFOLDER)) is not None)


def missing_cifar() -> str | None:
    """What of CIFAR-10 is not there and how to get it; None when all six files are."""
    absent = [name for name in (*TRAIN, *TEST) if find_file(name, SUBFOLDER) is None]
    if not absent:
        return None
    folder = os.environ.get(FOLDER_VARIABLE) or f"the folder that {FOLDER_VARIABLE} names, which is not set"
    return (
        f"CIFAR-10 needs {', '.join(absent)} (looked in {folder}, and in {SUBFOLDER} there): download "
        "cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it there"
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
    missing = missing_cifar()
    if missing:
        raise DataMissing(missing)
    records = np.concatenate([_read(name) for name in names])
    labels = records[:, 0].astype(np.int64)
    if np.bincount(labels, minlength=CLASSES).tolist() != [len(records) // CLASSES] * CLASSES:
        raise DataDamaged(f"{', '.join(names)}: the classes are not those of CIFAR-10; fetch them again")
    pixels = records[:, 1:].reshape(-1, COLOURS, SIDE, SIDE)
    return np.ascontiguousarray(np.moveaxis(pixels, 1, -1)), labels


def _read(name: str) -> np.ndarray:
    path = find_file(name, SUBFOLDER)
    assert path is not None, "missing_cifar says so"
    content = np.frombuffer(read_content(path), np.uint8)
    if len(content) != IMAGES * (1 + PIXELS):
        due = IMAGES * (1 + PIXELS)
        raise DataDamaged(f"{path}: has {len(content)} bytes, and CIFAR-10's has {due}; fetch it again")
    return content.reshape(IMAGES, 1 + PIXELS)
