"""Fashion-MNIST: where its four standard files lie, and how the idx format that they are in is read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged, read_content
from curvebench.workloads.workload import DataMissing

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # where the package dataset-fashion-mnist puts them
SUBFOLDER = "fashion-mnist"
# The SHA-256 of each file's content, decompressed: MNIST has files of the same names and shapes.
CONTENTS: Mapping[str, Mapping[str, str]] = {
    "train": {
        "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    },
    "test": {
        "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
}
NAMES = tuple(name for part in CONTENTS.values() for name in part)


def _folders() -> tuple[Path, ...]:
    """Where the files are looked for, first to last."""
    named = os.environ.get(FOLDER_VARIABLE)
    own = () if not named else (Path(named).expanduser() / SUBFOLDER, Path(named).expanduser())
    return (*own, DEBIAN_FOLDER)


def _find() -> dict[str, Path]:
    """The files by name that are there, from the first folder that holds most of them."""
    found = [{name: folder / name for name in NAMES if (folder / name).is_file()} for folder in _folders()]
    return max(found, key=len)


def fashion_files() -> tuple[Path, ...]:
    """The files of Fashion-MNIST that are there."""
    return tuple(_find().values())


def missing_fashion() -> str | None:
    """What of Fashion-MNIST is not there and how to get it; None when all four files are."""
    found = _find()
    absent = [name for name in NAMES if name not in found]
    if not absent:
        return None
    *others, last = map(str, _folders())
    looked = f"{', '.join(others)} and {last}" if others else last
    return (
        f"Fashion-MNIST needs {', '.join(absent)} (looked in {looked}): run `apt-get install "
        "dataset-fashion-mnist` on Debian or Ubuntu, or download the files from "
        f"https://github.com/zalandoresearch/fashion-mnist, put all four into a folder {SUBFOLDER} and set "
        f"{FOLDER_VARIABLE} to the folder that holds it"
    )


def read_fashion(part: str) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of the standard training part, `train`, or of the standard test part, `test`.

    Returns:
        Pixels (examples, 28, 28) from 0 to 255 and labels (examples,) from 0 to 9, both uint8; 60,000
        examples in `train`, 10,000 in `test`.

    Raises:
        DataMissing: when a file is not there.
        DataDamaged: when one is not that of Fashion-MNIST.
    """
    missing = missing_fashion()
    if missing:
        raise DataMissing(missing)
    found = _find()
    images, labels = (_read_checked(found[name], due) for name, due in CONTENTS[part].items())
    return images, labels


def _read_checked(path: Path, due: str) -> np.ndarray:
    """The array in a file whose content has this SHA-256.

    Raises:
        DataDamaged: when it has another.
    """
    content = read_content(path)
    if hashlib.sha256(content).hexdigest() != due:
        raise DataDamaged(
            f"{path}: is not the file of Fashion-MNIST with this name (the SHA-256 of its content is not "
            f"{due}; MNIST has files of the same names); fetch it again"
        )
    return parse_idx(content)


def parse_idx(content: bytes) -> np.ndarray:
    """The array in the content of an idx file of unsigned bytes: uint8, read-only.

    The format: two zeros, the type of the entries, the number of axes, the length of each axis as a
    big-endian 4-byte number, then the entries in row-major order.
    """
    start = 4 * (1 + content[3])
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4))
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
