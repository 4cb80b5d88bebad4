"""Images of an index as a data source: images are read, decoded and cropped when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from curvebench.workloads.data import DataDamaged
from curvebench.workloads.images import decoding
from curvebench.workloads.images.decoded import DecodedImages, decoded_file
from curvebench.workloads.images.folders import PARTS, IndexedImage, index_file, read_index, reason

if TYPE_CHECKING:
    from PIL.Image import Image

SHOWN = 5  # largest number of images that a note names


@dataclass
class ImageSource:
    """The images of a split: random resized crops for training, fixed crops of the whole image for
    evaluation.

    The fields of an example are `images`, uint8 with channels last, (side, side, 3), or (5, side, side, 3) if
    evaluation uses five crops; and `labels`, the index of the class in `classes`.

    Args:
        folder: folder of the images.
        lines: lines of the index, all of the same split.
        classes: classes to use, sorted; images of all other classes are left out.
        side: height and width of the crops in pixels.
        shorter: length in pixels to which evaluation resizes an image's shorter side.
        crops: crops that evaluation uses: the centre only, or centre and corners.
        min_area: smallest area of a random crop as a share of the image's area.
        damaged_share: share of the images that may be damaged or missing. If more images are damaged, the run
            ends with an error.
        decoded: cache of decoded images; None to read and decode the files.
        drawn: note about the classes if they were drawn at random, otherwise empty.
    """

    folder: Path
    lines: InitVar[Iterable[IndexedImage]]
    classes: Sequence[str]
    side: int
    shorter: int
    crops: Literal["centre", "five"] = "centre"
    min_area: float = decoding.MIN_AREA
    damaged_share: float = 0.01
    decoded: DecodedImages | None = None
    drawn: str = ""

    def __post_init__(self, lines: Iterable[IndexedImage]) -> None:
        labels = {category: label for label, category in enumerate(self.classes)}
        chosen = [line for line in lines if line.category in labels]
        usable = [line for line in chosen if not line.damage]
        self._indexed = len(chosen)
        self._damaged = {line.path: line.damage for line in chosen if line.damage}
        self._known = len(self._damaged)
        # Paths are stored as bytes, which need a tenth of the memory of the index lines.
        self._paths = np.array([line.path.encode() for line in usable])
        self._sizes = np.array([line.size for line in usable], np.int64)
        self._labels = np.array([labels[line.category] for line in usable], np.int64)
        self._lock = Lock()
        self._require_few()

    def __len__(self) -> int:
        """Return the number of images that were not damaged when they were indexed."""
        return len(self._paths)

    def placeholder(self, is_training: bool) -> dict[str, np.ndarray]:
        """Return a black image with the label of the first class."""
        shape = (self.side, self.side, 3)
        several = not is_training and self.crops == "five"
        return {
            "images": np.zeros((decoding.FIVE_CROPS, *shape) if several else shape, np.uint8),
            "labels": np.zeros((), np.int64),
        }

    def fetch(self, number: int, generator: np.random.Generator | None) -> dict[str, np.ndarray]:
        """Return an image and its label. If the image can no longer be read, note this and return the next
        image.

        Args:
            number: index of the image, from 0.
            generator: random generator for a training crop; None for the crops of evaluation.

        Raises:
            DataDamaged: if more images than `damaged_share` cannot be read.
        """
        number, image = self._read(number)
        if generator is not None:
            box = decoding.random_box(image.height, image.width, generator, self.min_area)
            pixels = decoding.resized_crop(image, box, self.side)
        elif self.crops == "five":
            pixels = decoding.five_crops(image, self.shorter, self.side)
        else:
            pixels = decoding.centre_crop(image, self.shorter, self.side)
        return {"images": pixels, "labels": self._labels[number]}

    @property
    def notes(self) -> list[str]:
        """Return notes on the classes that were drawn, images damaged in the index, and images lost since
        then.
        """
        damaged = self._damaged_so_far()
        listed, since = damaged[: self._known], damaged[self._known :]
        left_out = f"{self._known} of {self._indexed} images are left out: {_some(listed)}" if listed else ""
        lost = (f"{description} could not be read: the next image took its place" for description in since)
        return [note for note in (self.drawn, left_out, *lost) if note]

    def _read(self, number: int) -> tuple[int, Image]:
        """Return number and pixels of the first readable image, starting at image `number`."""
        while True:
            path = self._paths[number].decode()
            try:
                return number, self._decoded(number, path)
            except Exception as error:  # image libraries raise many types of exceptions for damaged files
                with self._lock:
                    self._damaged[path] = reason(error)
                self._require_few()
            number = (number + 1) % len(self)

    def _decoded(self, number: int, path: str) -> Image:
        """Return an image from the cache or from its file. A file must have the size that is in the index."""
        if self.decoded is not None:
            return self.decoded.image(path)
        content = (self.folder / path).read_bytes()
        if len(content) != self._sizes[number]:
            raise ValueError(f"{len(content)} bytes where the index has {self._sizes[number]}")
        return decoding.decode(content)

    def _damaged_so_far(self) -> list[str]:
        """Return the paths of the images that could not be read so far, each with the reason."""
        with self._lock:
            return [f"{path} ({why})" for path, why in self._damaged.items()]

    def _require_few(self) -> None:
        """Raise DataDamaged if more images than `damaged_share` could not be read."""
        damaged = self._damaged_so_far()
        if len(damaged) > self.damaged_share * self._indexed or not len(self):
            raise DataDamaged(
                f"{self.folder}: {len(damaged)} of {self._indexed} images cannot be read, more than a share "
                f"of {self.damaged_share:g}: {_some(damaged)}; fetch them again, and run `curvebench images "
                f"index {self.folder}`"
            )


def image_sources(
    folder: Path, choose: Callable[[Sequence[str]], Sequence[str]] = list, **options: Any
) -> dict[str, ImageSource]:
    """Return the splits of an indexed folder. The splits use the cache of decoded images if it exists.

    Args:
        folder: folder of the images.
        choose: function that takes the sorted names of all classes and returns the names to use, sorted.
        options: options of each `ImageSource`.

    Raises:
        DataDamaged: if the index or the cache is damaged, or if too many images are damaged.
    """
    lines = read_index(index_file(folder))
    names = sorted({line.category for line in lines})
    classes = choose(names)
    every = len(classes) == len(names)
    notes = {} if every else {"train": f"{len(classes)} of {len(names)} classes: {', '.join(classes)}"}
    path = decoded_file(folder)
    decoded = DecodedImages(path, lines) if path.is_file() else None
    return {
        split: ImageSource(folder, rows, classes, decoded=decoded, drawn=notes.get(split, ""), **options)
        for split in PARTS
        if (rows := [line for line in lines if line.split == split])
    }


def _some(names: Sequence[str]) -> str:
    """Return the first names as a text, with the number of names left out."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
