"""Search for data files, reading and splitting of data, and the UCI digits."""

from __future__ import annotations

import gzip
import importlib.util
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curvebench.spec.errors import InputError
from curvebench.workloads.workload import DataMissing

FOLDER_VARIABLE = "CURVEBENCH_DATA"
# Number of lines of each file of the UCI digits
OPTDIGITS_ROWS: Mapping[str, int] = {"optdigits.tra": 3823, "optdigits.tes": 1797}
PIXELS = 64  # an image has 8 x 8 pixels; each pixel is a count from 0 to MAXIMUM_PIXEL
MAXIMUM_PIXEL = 16
CLASSES = 10


class DataDamaged(InputError):
    """Raised for a data file with wrong content; the message contains file and line."""


@dataclass(frozen=True)
class DataFiles:
    """Files of a data set, which users put into the folder that the variable `CURVEBENCH_DATA` names.

    Args:
        title: name of the data set in messages.
        names: names of the files.
        subfolder: subfolder of `CURVEBENCH_DATA` that is searched before that folder itself.
        remedy: instruction for getting the files, for messages.
        installed: function that returns further folders to search, such as the folder of a package.
    """

    title: str
    names: tuple[str, ...]
    subfolder: str
    remedy: str
    installed: Callable[[], tuple[Path, ...]] = tuple

    @property
    def _folders(self) -> tuple[Path, ...]:
        """Folders to search for the files, in the order of the search."""
        root = os.environ.get(FOLDER_VARIABLE)
        chosen = (Path(root).expanduser() / self.subfolder, Path(root).expanduser()) if root else ()
        return (*chosen, *self.installed())

    def found(self) -> dict[str, Path]:
        """Return the existing files by name, from the folder with the most files of the data set.

        If several folders have equally many, the first one in the order of `_folders` counts.
        """
        folders = ({name: folder / name for name in self.names} for folder in self._folders)
        existing = [{name: path for name, path in files.items() if path.is_file()} for files in folders]
        return max(existing, key=len, default={})

    def paths(self) -> tuple[Path, ...]:
        """Return the paths of the files that exist, in the order of `names`."""
        return tuple(self.found().values())

    def missing(self) -> str | None:
        """Return a text on which files are missing and how to get them; None if all files exist."""
        absent = [name for name in self.names if name not in self.found()]
        if not absent:
            return None
        folders = ", ".join(map(str, self._folders)) or f"no folder, for {FOLDER_VARIABLE} is not set"
        return f"{self.title} needs {', '.join(absent)} (looked in {folders}): {self.remedy}"

    def required(self) -> dict[str, Path]:
        """Return all files by name.

        Raises:
            DataMissing: when a file is missing.
        """
        if missing := self.missing():
            raise DataMissing(missing)
        return self.found()


def read_content(path: Path) -> bytes:
    """Return the content of a file, decompressed if its name ends in .gz.

    Raises:
        DataDamaged: if the file cannot be read.
    """
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataDamaged(f"{path}: cannot be read ({error}); fetch the file again") from error


def random_parts(counts: Mapping[str, int], generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Divide the indices 0, 1, ... at random into sets of the given sizes, and return the sets by name."""
    permutation = generator.permutation(sum(counts.values()))
    arrays = np.split(permutation, np.cumsum(list(counts.values()))[:-1])
    return dict(zip(counts, arrays, strict=True))


FULL_DIGITS = DataFiles(
    "the full set of UCI digits",
    tuple(OPTDIGITS_ROWS),
    "optdigits",
    "download them from https://archive.ics.uci.edu/dataset/80 (Optical Recognition of Handwritten Digits), "
    f"put them in a folder and set {FOLDER_VARIABLE} to it, or choose source: reduced",
)


def read_full_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return all 5,620 UCI digits, optdigits.tra before optdigits.tes: pixels (5620, 64) and labels (5620,).

    Raises:
        DataMissing: if a file does not exist.
        DataDamaged: if a file has wrong content.
    """
    arrays = [read_optdigits(path, OPTDIGITS_ROWS[name]) for name, path in FULL_DIGITS.required().items()]
    return np.concatenate([part[0] for part in arrays]), np.concatenate([part[1] for part in arrays])


def reduced_digits_files() -> tuple[Path, ...]:
    """Return the path of scikit-learn's file of digits, or an empty tuple if there is none.

    The function does not import scikit-learn, because the import takes 2 seconds.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        return ()
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    return (path,) if path.is_file() else ()


def read_reduced_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the 1,797 digits in scikit-learn (file optdigits.tes): pixels (1797, 64) and labels (1797,).

    Raises:
        DataMissing: if scikit-learn is not installed, or lacks the file.
        DataDamaged: if the file has wrong content.
    """
    files = reduced_digits_files()
    if not files:
        raise DataMissing("scikit-learn's digits are not installed: run `pip install scikit-learn`")
    return read_optdigits(files[0], OPTDIGITS_ROWS["optdigits.tes"])


def read_optdigits(path: Path, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Read a file in the UCI optdigits format: lines with 64 counts from 0 to 16 and a label from 0 to 9.

    Args:
        path: path of the file.
        rows: number of lines that the file must have.

    Returns:
        Pixels (rows, 64) in float64 and labels (rows,) in int64.

    Raises:
        DataDamaged: if the file cannot be read, has another number of lines, or has a line that breaks the
            format.
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
    maximum = np.array([MAXIMUM_PIXEL] * PIXELS + [CLASSES - 1])
    (bad_lines,) = np.nonzero(((values < 0) | (values > maximum)).any(axis=1))
    if len(bad_lines):
        raise DataDamaged(
            f"{path}, line {bad_lines[0] + 1}: pixels must lie in 0..{MAXIMUM_PIXEL} and the label in "
            f"0..{CLASSES - 1}; fetch the file again"
        )
    return values[:, :PIXELS].astype(np.float64), values[:, PIXELS]
