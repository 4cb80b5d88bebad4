"""`python -m benchmarks.stamps FOLDER`: photographed objects pasted on photographs, as JPEG files in folders.

A set like ImageNet-25 in kind, made of what Debian packages bring: each of its 25 classes is an object in
random pose, size and place, and validation and test have photographs that training never has. The licences
of the packages (GPL-2 and CC-BY-SA) hold for the images, which are no part of the project.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from curvebench.progress import Progress
from curvebench.results.temporary import taking_place
from curvebench.seeding import generator
from curvebench.spec.errors import InputError
from curvebench.workloads.images.decoding import Box, resized_crop
from curvebench.workloads.images.folders import drawn_classes, examined, index_file, index_text, listed

PACKAGES = (
    "tuxpaint-stamps-default",
    "lomiri-wallpapers-16.04",
    "lomiri-wallpapers-20.04",
    "mate-backgrounds",
)
STAMPS = Path("usr/share/tuxpaint/stamps")
OBJECTS = ("animals", "food", "household", "plants", "vehicles")  # folders of stamps
PHOTOGRAPHS = (Path("usr/share/backgrounds"), Path("usr/share/backgrounds/mate/nature"))
CLASSES = 25
DISTINCT = 0.45  # the least share of colours that are there once: a drawing has fewer
LEAST_PHOTOGRAPHS = 5  # so that each split has one
LEAST = 100  # pixels of the longer side of an object
LARGEST = 224  # side of an image
SHARES = {"train": 0.6, "val": 0.2, "test": 0.2}  # of the photographs
BACKGROUND = (0.25, 1.0)  # the side of the piece of a photograph, by the photograph's shorter side
TINT = (0.5, 1.5)  # what each channel of a photograph is multiplied with: few are not to be known by heart
SIZE = (0.35, 0.9)  # the longer side of an object, by the side of the image
TURN = 40.0  # degrees, at most, to either side
QUALITY = 90


@dataclass(frozen=True)
class Packages:
    """What the packages bring, below the folder that they are unpacked in."""

    root: Path

    @cached_property
    def objects(self) -> dict[str, Path]:
        """The photographed objects by name.

        Raises:
            InputError: where there are none.
        """
        files = [path for folder in OBJECTS for path in sorted((self.root / STAMPS / folder).rglob("*.png"))]
        found = {
            path.stem.lower(): path
            for path in files
            if "cartoon" not in path.as_posix()
            and is_photographed(np.asarray(Image.open(path).convert("RGBA")))
        }
        return self._there(found, PACKAGES[0])

    @cached_property
    def photographs(self) -> dict[str, Path]:
        """The photographs by name.

        Raises:
            InputError: where there are too few.
        """
        files = [path for folder in PHOTOGRAPHS for path in sorted((self.root / folder).glob("*.jpg"))]
        found = {path.stem: path for path in files}
        return self._there(found if len(found) >= LEAST_PHOTOGRAPHS else {}, " and ".join(PACKAGES[1:]))

    def _there(self, found: dict[str, Path], package: str) -> dict[str, Path]:
        if not found:
            how = f"run `apt-get install {' '.join(PACKAGES)}` on Debian or Ubuntu"
            raise InputError(
                f"{self.root}: has nothing of {package}; {how}, or unpack these (`apt-get download`, "
                "`dpkg-deb -x`) and give --root FOLDER"
            )
        return found


def is_photographed(pixels: np.ndarray) -> bool:
    """Whether a stamp (rows, columns, 4) is large and shows so many colours as a photograph does."""
    seen = pixels[pixels[..., 3] > 127][:, :3].astype(np.int32)
    colours = len(np.unique(seen @ np.array([1 << 16, 1 << 8, 1])))
    return max(pixels.shape[:2]) >= LEAST and colours >= DISTINCT * max(len(seen), 1)


def split_photographs(names: Sequence[str], seed: int) -> dict[str, list[str]]:
    """The names of each split's photographs."""
    order = generator("stamps", seed, "photographs").permutation(sorted(names))
    ends = np.cumsum([round(share * len(order)) for share in SHARES.values()])
    parts = np.split(order, ends[:-1])
    return {split: part.tolist() for split, part in zip(SHARES, parts, strict=True)}


def pasted(stamp: Image.Image, photograph: Image.Image, side: int, draws: np.random.Generator) -> Image.Image:
    """An object, mirrored or not, in a random size and place on a piece of a photograph of side x side."""
    piece = round(min(photograph.size) * draws.uniform(*BACKGROUND))
    top, left = (int(draws.integers(most - piece + 1)) for most in (photograph.height, photograph.width))
    pixels = resized_crop(photograph, Box(top, left, piece, piece), side)
    pixels = np.rot90(pixels, int(draws.integers(4))) * draws.uniform(*TINT, 3)
    ground = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    if draws.random() < 0.5:
        stamp = stamp.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    stamp = stamp.rotate(draws.uniform(-TURN, TURN), Image.Resampling.BICUBIC, expand=True)
    factor = side * draws.uniform(*SIZE) / max(stamp.size)
    size = tuple(max(1, round(length * factor)) for length in stamp.size)
    stamp = stamp.resize((size[0], size[1]), Image.Resampling.BILINEAR)
    place = tuple(int(draws.integers(side - length + 1)) for length in stamp.size)
    ground.paste(stamp, (place[0], place[1]), stamp)
    return ground


def images(
    packages: Packages, counts: Mapping[str, int], side: int, seed: int
) -> Iterator[tuple[Path, Image.Image]]:
    """The images of a set with their paths in it; the classes of a split have equally many, but for one.

    An image depends on seed, split and number alone.
    """
    classes = drawn_classes(sorted(packages.objects), CLASSES, generator("stamps", seed, "classes"))
    stamps = {name: _stamp(packages.objects[name], side) for name in classes}
    photographs = {name: _photograph(path, side) for name, path in packages.photographs.items()}
    for split, own in split_photographs(list(photographs), seed).items():
        for number in range(counts[split]):
            draws = generator("stamps", seed, split, number)
            name = classes[number % CLASSES]
            ground = photographs[own[int(draws.integers(len(own)))]]
            yield Path(split, name, f"{number:06d}.JPEG"), pasted(stamps[name], ground, side, draws)


def _stamp(path: Path, side: int) -> Image.Image:
    """What of a stamp is seen, no larger than images ask for."""
    stamp = Image.open(path).convert("RGBA")
    stamp = stamp.crop(stamp.getchannel("A").getbbox())
    stamp.thumbnail((2 * side, 2 * side))
    return stamp


def _photograph(path: Path, side: int) -> Image.Image:
    photograph = Image.open(path).convert("RGB")
    photograph.thumbnail((8 * side, 8 * side))
    return photograph


def write(folder: Path, packages: Packages, counts: Mapping[str, int], side: int, seed: int) -> None:
    """Write a set and its index, whole or not at all.

    Raises:
        InputError: where the folder is there already, or something of the packages is not.
    """
    if folder.exists():
        raise InputError(f"{folder}: is there already; remove it, or name another folder")
    if side > LARGEST:
        raise InputError(f"--side {side}: is larger than {LARGEST}")
    unfinished = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    progress = Progress(f"images of {folder.name}", sum(counts.values()))
    for path, image in images(packages, counts, side, seed):
        (unfinished / path).parent.mkdir(parents=True, exist_ok=True)
        image.save(unfinished / path, "JPEG", quality=QUALITY)
        progress.advance(1)
    unfinished.rename(folder)
    with taking_place(index_file(folder)) as path:
        path.write_text(index_text(examined(folder, listed(folder))), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a set as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stamps", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a new one, such as ~/data/stamps")
    parser.add_argument("--side", type=int, default=64, help="pixels, at most 224 (default: %(default)s)")
    parser.add_argument("--train", type=int, default=8000, metavar="N", help="images (default: %(default)s)")
    parser.add_argument(
        "--held-out", type=int, default=1000, metavar="N", help="of validation and of test (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: %(default)s)")
    parser.add_argument(
        "--root", type=Path, default=Path("/"), help="where the packages are (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    counts = {"train": given.train, "val": given.held_out, "test": given.held_out}
    try:
        write(given.folder, Packages(given.root), counts, given.side, given.seed)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{given.folder}: {sum(counts.values())} images; {index_file(given.folder)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
