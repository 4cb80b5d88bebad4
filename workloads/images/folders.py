"""Images in the usual folders, and the index of their files: sizes, checksums and what is damaged."""

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

PARTS: Mapping[str, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("val", "validation"),
    "test": ("test",),
}  # what the folder of each split may be called
SUFFIXES = (".jpeg", ".jpg", ".png")
KAGGLE = (
    "LOC_val_solution.csv"  # ImageNet-1k as Kaggle gives it: a line an image, its class in the first word
)
TRUTH = "ILSVRC2012_validation_ground_truth.txt"  # as its own site does: a number an image, in the devkit
META = "meta.mat"  # beside it: the class of each number


class IndexedImage(NamedTuple):
    """A line of an index."""

    split: str
    category: str  # the name of its class
    path: str  # from the folder
    size: int  # of the file, in bytes
    checksum: str  # the first 16 digits of the SHA-256 of its bytes
    height: int
    width: int
    damage: str  # why it cannot be decoded, or nothing


def images_folder(name: str) -> Path | None:
    """The folder of this name in the one that `CURVEBENCH_DATA` names."""
    root = os.environ.get(FOLDER_VARIABLE)
    found = None if not root else Path(root).expanduser() / name
    return found if found is not None and found.is_dir() else None


def index_file(folder: Path) -> Path:
    """Where the index of a folder lies: beside it, so that the folder need not be written to."""
    return folder.with_name(f"{folder.name}.index.csv")


def missing_images(name: str, remedy: str) -> str | None:
    """What of a folder of images is not there and how to get it; None when folder and index are.

    Args:
        name: of the folder.
        remedy: how to get the images.
    """
    folder = images_folder(name)
    if folder is None:
        at = os.environ.get(FOLDER_VARIABLE) or f"the folder that {FOLDER_VARIABLE} names, which is not set"
        return f"{name} needs a folder {name} in {at}, with {'/, '.join(PARTS)}/ in it: {remedy}"
    if not index_file(folder).is_file():
        return f"{name} has no index {index_file(folder)}: run `curvebench images index {folder}`"
    return None


def index_files(name: str) -> tuple[Path, ...]:
    """The index of a folder, where it is there: what stands for its images in the hash of a job."""
    folder = images_folder(name)
    return () if folder is None or not index_file(folder).is_file() else (index_file(folder),)


# --- what is in a folder -----------------------------------------------------------------------------


def listed(folder: Path) -> list[tuple[str, str, str]]:
    """Split, class and path from the folder of every image, sorted: `train/CLASS/FILE`, `val/CLASS/FILE`.

    The validation images of ImageNet-1k may lie in `val` without folders of classes, with Kaggle's file of
    their labels, or the two of ImageNet's own development kit, anywhere in the folder.

    Raises:
        DataDamaged: for a folder without training images, images without a class, or a class without
            training images.
    """
    found = sorted(
        (split, *one)
        for split in PARTS
        for one in _images(folder, split, partial(_validation_labels, folder))
    )
    classes = {category for split, category, _ in found if split == "train"}
    if not classes:
        raise DataDamaged(f"{folder}: has no images; they are looked for in train/CLASS/FILE.JPEG")
    for split, category, path in found:
        if category not in classes:
            raise DataDamaged(f"{folder / path}: {split} has the class {category}, and train has not")
    return found


def _images(folder: Path, split: str, labels: Callable[[], Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Class and path of the images of a split."""
    part = next((folder / name for name in PARTS[split] if (folder / name).is_dir()), None)
    entries = [] if part is None else sorted(os.scandir(part), key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir():
            paths = sorted(path for path in Path(entry.path).rglob("*") if _is_image(path))
            yield from ((entry.name, path.relative_to(folder).as_posix()) for path in paths)
    alone = [Path(entry.path) for entry in entries if not entry.is_dir() and _is_image(Path(entry.path))]
    known = labels() if alone else {}
    for path in alone:
        if path.stem not in known:
            raise DataDamaged(
                f"{path}: has no class; put images into a folder for each class, or the labels of ImageNet's "
                f"validation images ({KAGGLE}; or {TRUTH} and {META}) into {folder}"
            )
        yield known[path.stem], path.relative_to(folder).as_posix()


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def _validation_labels(folder: Path) -> dict[str, str]:
    """The class of each validation image of ImageNet-1k by its name without suffix, where it is given."""
    kaggle = next(folder.rglob(KAGGLE), None)
    if kaggle is not None:
        with kaggle.open(newline="") as file:
            return {name: said.split()[0] for name, said, *_ in list(csv.reader(file))[1:]}
    truth = next(folder.rglob(TRUTH), None)
    if truth is None or not truth.with_name(META).is_file():
        return {}
    classes = _classes_by_number(truth.with_name(META))
    return {
        f"ILSVRC2012_val_{place:08d}": classes[int(number)]
        for place, number in enumerate(truth.read_text().split(), start=1)
    }


def _classes_by_number(meta: Path) -> dict[int, str]:
    """WordNet's name of each of ImageNet-1k's classes by ImageNet's own number, which starts from 1."""
    from scipy.io import loadmat

    synsets = loadmat(meta, squeeze_me=True, struct_as_record=False)["synsets"]
    return {int(one.ILSVRC2012_ID): str(one.WNID) for one in synsets if one.num_children == 0}


# --- the index -----------------------------------------------------------------------------------


def examined(
    folder: Path,
    images: Iterable[tuple[str, str, str]],
    threads: int = 1,
    progress: Callable[[], None] = lambda: None,
) -> list[IndexedImage]:
    """The index of what `listed` found: each image is read and decoded once, and `progress` called."""
    lines = []
    with ThreadPoolExecutor(threads) as pool:
        for line in pool.map(partial(_examined, folder), images):
            lines.append(line)
            progress()
    return lines


def _examined(folder: Path, image: tuple[str, str, str]) -> IndexedImage:
    split, category, path = image
    content, decoded, damage = b"", None, ""
    try:
        content = (folder / path).read_bytes()
        decoded = decode(content)
    except Exception as error:  # libraries raise many kinds for damaged files
        damage = reason(error)
    height, width = (0, 0) if decoded is None else (decoded.height, decoded.width)
    return IndexedImage(split, category, path, len(content), checksum(content), height, width, damage)


def reason(error: Exception) -> str:
    """Why an image cannot be read, in a line without its address in memory or its folder."""
    if isinstance(error, OSError) and error.errno is not None:
        return str(error.strerror)
    said = "is no image" if type(error).__name__ == "UnidentifiedImageError" else str(error)
    return " ".join(said.split()) or type(error).__name__


def checksum(content: bytes) -> str:
    """The first 16 digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def index_text(lines: Iterable[IndexedImage]) -> str:
    """An index as a CSV file."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([IndexedImage._fields, *lines])
    return file.getvalue()


def read_index(path: Path) -> list[IndexedImage]:
    """The lines of an index.

    Raises:
        DataMissing: where there is none.
        DataDamaged: for a file that is no index.
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
    split, category, path, size, digits, height, width, damage = row
    return IndexedImage(split, category, path, int(size), digits, int(height), int(width), damage)


def drawn_classes(names: Sequence[str], count: int, generator: np.random.Generator) -> tuple[str, ...]:
    """So many of the sorted names of classes, sorted.

    Raises:
        DataDamaged: where there are fewer.
    """
    if count > len(names):
        raise DataDamaged(f"{count} classes are asked for, and there are {len(names)}")
    return tuple(sorted(generator.choice(np.array(names), count, replace=False).tolist()))
