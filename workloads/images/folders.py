"""Images in folders with a subfolder per class, and the index of their files with checksums."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged
from curvebench.workloads.images.decoding import decode
from curvebench.workloads.workload import DataMissing

# Names that the folder of each split may have.
PARTS: Mapping[str, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("val", "validation"),
    "test": ("test",),
}
SUFFIXES = (".jpeg", ".jpg", ".png")
# File with the labels of ImageNet-1k's validation images at Kaggle, one line per image.
KAGGLE = "LOC_val_solution.csv"
# File with the labels of the validation images in ImageNet's development kit: one class number per image.
TRUTH = "ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"  # File in the same folder as TRUTH, which has the class that belongs to each class number.


class IndexedImage(NamedTuple):
    """A line of an index, which describes one image file."""

    split: str
    category: str  # name of the class
    path: str  # path of the file relative to the indexed folder
    size: int  # size of the file in bytes
    checksum: str  # first 16 digits of the SHA-256 of the file
    height: int
    width: int
    damage: str  # reason why the image cannot be decoded; empty if the image can be decoded


def images_folder(name: str) -> Path | None:
    """Return the folder of this name in the folder of data (`CURVEBENCH_DATA`); None if there is no such
    folder.
    """
    root = os.environ.get(FOLDER_VARIABLE)
    folder = None if not root else Path(root).expanduser() / name
    return folder if folder is not None and folder.is_dir() else None


def index_file(folder: Path) -> Path:
    """Return the path of a folder's index. The index is next to the folder, so that the folder may be
    read-only.
    """
    return folder.with_name(f"{folder.name}.index.csv")


def missing_images(name: str, remedy: str) -> str | None:
    """Return a text on which of folder and index is missing, and how to get it; None if both exist.

    Args:
        name: name of the folder.
        remedy: instruction for getting the images.
    """
    folder = images_folder(name)
    if folder is None:
        root = os.environ.get(FOLDER_VARIABLE) or f"the folder that {FOLDER_VARIABLE} names, which is not set"
        return f"{name} needs a folder {name} in {root}, with {'/, '.join(PARTS)}/ in it: {remedy}"
    if not index_file(folder).is_file():
        return f"{name} has no index {index_file(folder)}: run `curvebench images index {folder}`"
    return None


def index_files(name: str) -> tuple[Path, ...]:
    """Return the path of a folder's index if it exists.

    In a job's hash, the index stands for the content of all images.
    """
    folder = images_folder(name)
    return () if folder is None or not index_file(folder).is_file() else (index_file(folder),)


# --- content of a folder -------------------------------------------------------------------------


def listed(folder: Path) -> list[tuple[str, str, str]]:
    """Return split, class and relative path of all images `train/CLASS/FILE`, `val/CLASS/FILE`, sorted.

    The validation images of ImageNet-1k may be in `val` without subfolders. Their labels are then read from
    Kaggle's file, or from two files of ImageNet's development kit, anywhere in the folder.

    Raises:
        DataDamaged: if there are no training images, an image has no class, or a class has no training
            images.
    """
    files = sorted(
        (split, *image)
        for split in PARTS
        for image in _images(folder, split, partial(_validation_labels, folder))
    )
    classes = {category for split, category, _ in files if split == "train"}
    if not classes:
        raise DataDamaged(f"{folder}: has no images; they are looked for in train/CLASS/FILE.JPEG")
    for split, category, path in files:
        if category not in classes:
            raise DataDamaged(f"{folder / path}: {split} has the class {category}, and train has not")
    return files


def _images(folder: Path, split: str, labels: Callable[[], Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield class and path of each image of a split.

    Args:
        folder: folder that contains a folder for each split.
        split: name of the split.
        labels: function that returns the class by file name without suffix, for images that are not in the
            folder of a class. It is called only if there are such images.
    """
    split_folder = next((folder / name for name in PARTS[split] if (folder / name).is_dir()), None)
    entries = [] if split_folder is None else sorted(os.scandir(split_folder), key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir():
            paths = sorted(path for path in Path(entry.path).rglob("*") if _is_image(path))
            yield from ((entry.name, path.relative_to(folder).as_posix()) for path in paths)
    unsorted = [Path(entry.path) for entry in entries if not entry.is_dir() and _is_image(Path(entry.path))]
    classes = labels() if unsorted else {}
    for path in unsorted:
        if path.stem not in classes:
            raise DataDamaged(
                f"{path}: has no class; put images into a folder for each class, or the labels of ImageNet's "
                f"validation images ({KAGGLE}; or {TRUTH} and {META}) into {folder}"
            )
        yield classes[path.stem], path.relative_to(folder).as_posix()


def _is_image(path: Path) -> bool:
    """Return whether a file has the suffix of an image and is not hidden."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def _validation_labels(folder: Path) -> dict[str, str]:
    """Return the class of each validation image of ImageNet-1k by file name without suffix; {} if the folder
    contains no labels.
    """
    kaggle = next(folder.rglob(KAGGLE), None)
    if kaggle is not None:
        with kaggle.open(newline="") as file:
            return {name: label.split()[0] for name, label, *_ in list(csv.reader(file))[1:]}
    truth = next(folder.rglob(TRUTH), None)
    if truth is None or not truth.with_name(META).is_file():
        return {}
    classes = _classes_by_number(truth.with_name(META))
    return {
        f"ILSVRC2012_val_{image_number:08d}": classes[int(number)]
        for image_number, number in enumerate(truth.read_text().split(), start=1)
    }


def _classes_by_number(meta: Path) -> dict[int, str]:
    """Return the WordNet id of each class of ImageNet-1k by the number that ImageNet uses, starting at 1."""
    from scipy.io import loadmat

    synsets = loadmat(meta, squeeze_me=True, struct_as_record=False)["synsets"]
    return {int(synset.ILSVRC2012_ID): str(synset.WNID) for synset in synsets if synset.num_children == 0}


# --- the index -----------------------------------------------------------------------------------


def examined(
    folder: Path,
    images: Iterable[tuple[str, str, str]],
    threads: int = 1,
    progress: Callable[[], None] = lambda: None,
) -> list[IndexedImage]:
    """Read and decode the images from `listed`, and return the index; call `progress` after each image."""
    lines = []
    with ThreadPoolExecutor(threads) as pool:
        for line in pool.map(partial(_examined, folder), images):
            lines.append(line)
            progress()
    return lines


def _examined(folder: Path, image: tuple[str, str, str]) -> IndexedImage:
    """Read and decode one image, and return its line of the index."""
    split, category, path = image
    content, decoded, damage = b"", None, ""
    try:
        content = (folder / path).read_bytes()
        decoded = decode(content)
    except Exception as error:  # image libraries raise many types of exceptions for damaged files
        damage = reason(error)
    height, width = (0, 0) if decoded is None else (decoded.height, decoded.width)
    return IndexedImage(split, category, path, len(content), checksum(content), height, width, damage)


def reason(error: Exception) -> str:
    """Return why an image cannot be read, in one line without folders and memory addresses."""
    if isinstance(error, OSError) and error.errno is not None:
        return str(error.strerror)
    text = "is no image" if type(error).__name__ == "UnidentifiedImageError" else str(error)
    return " ".join(text.split()) or type(error).__name__


def checksum(content: bytes) -> str:
    """Return the first 16 digits of the SHA-256 of `content`."""
    return hashlib.sha256(content).hexdigest()[:16]


def index_text(lines: Iterable[IndexedImage]) -> str:
    """Return an index in CSV format."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([IndexedImage._fields, *lines])
    return file.getvalue()


def read_index(path: Path) -> list[IndexedImage]:
    """Read the lines of an index.

    Raises:
        DataMissing: if the file does not exist.
        DataDamaged: if the file is not an index.
    """
    folder = path.with_name(path.name.removesuffix(".index.csv"))
    if not path.is_file():
        raise DataMissing(f"{path}: is not there; run `curvebench images index {folder}`")
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        try:
            if tuple(next(reader)) != IndexedImage._fields:
                raise ValueError(f"its first line is not {','.join(IndexedImage._fields)}")
            return [_line(row) for row in reader]
        except (StopIteration, ValueError) as error:
            why = str(error) or "it is empty"
            raise DataDamaged(
                f"{path}: is no index of images ({why}); run `curvebench images index {folder}`"
            ) from error


def _line(row: Sequence[str]) -> IndexedImage:
    """Convert a row of the index's CSV file to an `IndexedImage`."""
    split, category, path, size, digits, height, width, damage = row
    return IndexedImage(split, category, path, int(size), digits, int(height), int(width), damage)


def drawn_classes(names: Sequence[str], count: int, generator: np.random.Generator) -> tuple[str, ...]:
    """Draw `count` class names at random; `names` and the result are sorted.

    Raises:
        DataDamaged: if there are fewer names than `count`.
    """
    if count > len(names):
        raise DataDamaged(f"{count} classes are asked for, and there are {len(names)}")
    return tuple(sorted(generator.choice(np.array(names), count, replace=False).tolist()))
