"""Fashion-MNIST: where its four standard files lie, and how the idx format that they are in is read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged, DataFiles, read_content

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
FASHION = DataFiles(
    "Fashion-MNIST",
    tuple(name for part in CONTENTS.values() for name in part),
    SUBFOLDER,
    "run `apt-get install dataset-fashion-mnist` on Debian or Ubuntu, or download the files from "
    f"https://github.com/zalandoresearch/fashion-mnist, put all four into a folder {SUBFOLDER} and set "
    f"{FOLDER_VARIABLE} to the folder that holds it",
    lambda: (DEBIAN_FOLDER,),
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
    found = FASHION.required()
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
