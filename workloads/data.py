"""How data files are found, read and split; the UCI digits, whole or as scikit-learn carries them."""

from __future__ import annotations

import gzip
import importlib.util
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from curvebench.spec.errors import InputError
from curvebench.workloads.workload import DataMissing

FOLDER_VARIABLE = "CURVEBENCH_DATA"
OPTDIGITS_ROWS: Mapping[str, int] = {"optdigits.tra": 3823, "optdigits.tes": 1797}
PIXELS = 64  # 8 x 8, each a count from 0 to MAXIMUM_PIXEL
MAXIMUM_PIXEL = 16
CLASSES = 10


class DataDamaged(InputError):
    """A data file with the wrong content; the message names the file and the line."""


def find_file(name: str, subfolder: str) -> Path | None:
    """A file in the folder named by `CURVEBENCH_DATA`, or in the given folder inside it."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return None
    root = Path(folder).expanduser()
    places = (root / name, root / subfolder / name)
    return next((place for place in places if place.is_file()), None)


def read_content(path: Path) -> bytes:
    """What a file holds, decompressed where its name ends in .gz.

    Raises:
        DataDamaged: when it cannot be read.
    """
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataDamaged(f"{path}: cannot be read ({error}); fetch the file again") from error


def random_parts(counts: Mapping[str, int], generator: np.random.Generator) -> dict[str, np.ndarray]:
    """A random partition of the numbers below the sum of the counts: so many numbers by each name."""
    permutation = generator.permutation(sum(counts.values()))
    parts = np.split(permutation, np.cumsum(list(counts.values()))[:-1])
    return dict(zip(counts, parts, strict=True))


def missing_optdigits() -> str | None:
    """What of the full UCI digits is not there and how to get it; None when both files are."""
    absent = [name for name in OPTDIGITS_ROWS if find_file(name, "optdigits") is None]
    if not absent:
        return None
    folder = os.environ.get(FOLDER_VARIABLE)
    looked = f"{folder} and {folder}/optdigits" if folder else f"no folder, for {FOLDER_VARIABLE} is not set"
    return (
        f"the full UCI digits need {' and '.join(absent)} (looked in {looked}): download them from "
        "https://archive.ics.uci.edu/dataset/80 (Optical Recognition of Handwritten Digits), put them in a "
        f"folder and set {FOLDER_VARIABLE} to it, or choose source: reduced"
    )


def full_digits_files() -> tuple[Path, ...]:
    """The files of the full UCI digits that are there, optdigits.tra first."""
    found = [find_file(name, "optdigits") for name in OPTDIGITS_ROWS]
    return tuple(path for path in found if path is not None)


def reduced_digits_files() -> tuple[Path, ...]:
    """The file of scikit-learn's digits, where it is there."""
    path = scikit_learn_digits()
    return () if path is None else (path,)


def read_full_digits() -> tuple[np.ndarray, np.ndarray]:
    """All 5,620 UCI digits, optdigits.tra then optdigits.tes: pixels (5620, 64) and labels (5620,).

    Raises:
        DataMissing: when a file is not there.
        DataDamaged: when a file is not as it should be.
    """
    missing = missing_optdigits()
    if missing:
        raise DataMissing(missing)
    parts = [read_optdigits(path, OPTDIGITS_ROWS[path.name]) for path in full_digits_files()]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def scikit_learn_digits() -> Path | None:
    """The file of scikit-learn's digits, found without the 2 s that importing the package takes."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        return None
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    return path if path.is_file() else None


def read_reduced_digits() -> tuple[np.ndarray, np.ndarray]:
    """The 1,797 digits that scikit-learn carries, optdigits.tes: pixels (1797, 64) and labels (1797,).

    Raises:
        DataMissing: when scikit-learn or its copy is not installed.
        DataDamaged: when the file is not as it should be.
    """
    path = scikit_learn_digits()
    if path is None:
        raise DataMissing("scikit-learn's digits are not installed: run `pip install scikit-learn`")
    return read_optdigits(path, OPTDIGITS_ROWS["optdigits.tes"])


def read_optdigits(path: Path, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """A file in the UCI optdigits format: lines of 64 counts from 0 to 16 and a label from 0 to 9.

    Returns:
        Pixels (rows, 64) in float64 and labels (rows,) in int64.

    Raises:
        DataDamaged: with the file and what is wrong in it.
    """
    try:
        lines = read_content(path).decode("ascii").splitlines()
        if len(lines) != rows:
            raise ValueError(f"{len(lines)} lines where {rows} are due")
        values = np.loadtxt(lines, np.int64, delimiter=",", ndmin=2)
        if values.shape != (rows, PIXELS + 1):
            raise ValueError(f"{values.shape[1]} numbers in {len(values)} lines where {PIXELS + 1} are due")
    except DataDamaged:
        raise
    except ValueError as error:
        raise DataDamaged(f"{path}: cannot be read ({error}); fetch the file again") from error
    most = np.array([MAXIMUM_PIXEL] * PIXELS + [CLASSES - 1])
    (wrong,) = np.nonzero(((values < 0) | (values > most)).any(axis=1))
    if len(wrong):
        raise DataDamaged(
            f"{path}, line {wrong[0] + 1}: pixels must lie in 0..{MAXIMUM_PIXEL} and the label in "
            f"0..{CLASSES - 1}; fetch the file again"
        )
    return values[:, :PIXELS].astype(np.float64), values[:, PIXELS]
