"""Images of an index as a data source: read, decoded and cropped when they are needed."""

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

NAMED = 5  # images that a note names


@dataclass
class ImageSource:
    """The images of a split: random resized crops in training, of the whole image in evaluation.

    Fields are `images`, uint8 with channels last: (side, side, 3), where evaluation has five crops
    (5, side, side, 3); and `labels`, the place of the class among those chosen.

    Args:
        folder: that the paths of the lines start from.
        lines: of the index, those of one split.
        classes: that are chosen, sorted.
        side: of the crops, in pixels.
        shorter: to how many pixels evaluation resizes an image's shorter side.
        crops: what evaluation sees: the centre, or corners and centre.
        least_area: of a random crop, as a share of the image's.
        damaged_share: of the images that may be damaged or missing; more end the run.
        decoded: the images as they were decoded before, where they were.
        drawn: what a note says of the draw of the classes, where they were drawn.
    """

    folder: Path
    lines: InitVar[Iterable[IndexedImage]]
    classes: Sequence[str]
    side: int
    shorter: int
    crops: Literal["centre", "five"] = "centre"
    least_area: float = decoding.LEAST_AREA
    damaged_share: float = 0.01
    decoded: DecodedImages | None = None
    drawn: str = ""

    def __post_init__(self, lines: Iterable[IndexedImage]) -> None:
        labels = {category: label for label, category in enumerate(self.classes)}
        chosen = [line for line in lines if line.category in labels]
        whole = [line for line in chosen if not line.damage]
        self._indexed = len(chosen)
        self._damaged = {line.path: line.damage for line in chosen if line.damage}
        self._known = len(self._damaged)
        self._paths = np.array([line.path.encode() for line in whole])  # a tenth of the lines' own memory
        self._sizes = np.array([line.size for line in whole], np.int64)
        self._labels = np.array([labels[line.category] for line in whole], np.int64)
        self._lock = Lock()
        self._require_few()

    def __len__(self) -> int:
        """The images that were whole when they were indexed."""
        return len(self._paths)

    def placeholder(self, is_training: bool) -> dict[str, np.ndarray]:
        """A black image of the first class."""
        shape = (self.side, self.side, 3)
        several = not is_training and self.crops == "five"
        return {
            "images": np.zeros((decoding.FIVE_CROPS, *shape) if several else shape, np.uint8),
            "labels": np.zeros((), np.int64),
        }

    def fetch(self, number: int, generator: np.random.Generator | None) -> dict[str, np.ndarray]:
        """An image and its label; where it cannot be read any more those of the next that can, and a note.

        Raises:
            DataDamaged: where more than the share cannot be read.
        """
        number, image = self._read(number)
        if generator is not None:
            box = decoding.random_box(image.height, image.width, generator, self.least_area)
            pixels = decoding.resized_crop(image, box, self.side)
        elif self.crops == "five":
            pixels = decoding.five_crops(image, self.shorter, self.side)
        else:
            pixels = decoding.centre_crop(image, self.shorter, self.side)
        return {"images": pixels, "labels": self._labels[number]}

    @property
    def notes(self) -> list[str]:
        """Which classes were drawn, how many images were damaged in the index, and which were lost since."""
        damaged = self._damaged_so_far()
        before, since = damaged[: self._known], damaged[self._known :]
        left_out = f"{self._known} of {self._indexed} images are left out: {_some(before)}" if before else ""
        lost = (f"{one} could not be read: the next image took its place" for one in since)
        return [note for note in (self.drawn, left_out, *lost) if note]

    def _read(self, number: int) -> tuple[int, Image]:
        while True:
            path = self._paths[number].decode()
            try:
                return number, self._decoded(number, path)
            except Exception as error:  # libraries raise many kinds for damaged files
                with self._lock:
                    self._damaged[path] = reason(error)
                self._require_few()
            number = (number + 1) % len(self)

    def _decoded(self, number: int, path: str) -> Image:
        if self.decoded is not None:
            return self.decoded.image(path)
        content = (self.folder / path).read_bytes()
        if len(content) != self._sizes[number]:
            raise ValueError(f"{len(content)} bytes where the index has {self._sizes[number]}")
        return decoding.decode(content)

    def _damaged_so_far(self) -> list[str]:
        with self._lock:
            return [f"{path} ({why})" for path, why in self._damaged.items()]

    def _require_few(self) -> None:
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
    """The splits of an indexed folder; from decoded images, where these lie beside it.

    Args:
        folder: of the images.
        choose: gives some of the sorted names of its classes, sorted.
        options: of each `ImageSource`: its crops and the share that may be damaged.

    Raises:
        DataDamaged: for an index or decoded images that are not as they should be, or too much damage.
    """
    lines = read_index(index_file(folder))
    names = sorted({line.category for line in lines})
    classes = choose(names)
    every = len(classes) == len(names)
    drawn = {} if every else {"train": f"{len(classes)} of {len(names)} classes: {', '.join(classes)}"}
    path = decoded_file(folder)
    decoded = DecodedImages(path, lines) if path.is_file() else None
    return {
        split: ImageSource(folder, own, classes, decoded=decoded, drawn=drawn.get(split, ""), **options)
        for split in PARTS
        if (own := [line for line in lines if line.split == split])
    }


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
