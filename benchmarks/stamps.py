"""Make an image data set of photographed objects pasted on photographs: `python -m benchmarks.stamps FOLDER`.

The data set resembles ImageNet-25 and is made of images in Debian packages. Each of its 25 classes is one
object in random pose, size and position; the backgrounds of the validation and test images never occur in
training images. The images have the licences of the packages (GPL-2 and CC-BY-SA) and are not part of the
project.
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
FOLDERS = ("animals", "food", "household", "plants", "vehicles")
PHOTOGRAPHS = (Path("usr/share/backgrounds"), Path("usr/share/backgrounds/mate/nature"))
CLASSES = 25
# Minimum number of distinct colours per opaque pixel of a photograph; drawings have fewer.
MIN_UNIQUE_COLOURS = 0.45
# Minimum number of photographs, so that each split gets at least one.
MIN_PHOTOGRAPHS = 5
# Minimum length, in pixels, of the longer side of an object's file.
MIN_PIXELS = 100
# Maximum side of an image in pixels.
MAX_SIDE_PIXELS = 224
# Share of the photographs in each split.
SPLIT_SHARES = {"train": 0.6, "val": 0.2, "test": 0.2}
# Range of the side of the background, relative to the shorter side of its photograph.
CROP_FRACTION = (0.25, 1.0)
# Range of the random factors of a background's colour channels.
# Without random colours, a network could memorize the few photographs.
TINT_FACTORS = (0.5, 1.5)
# Range of the longer side of an object, relative to the side of the image.
OBJECT_FRACTION = (0.35, 0.9)
# Maximum rotation of an object in either direction.
MAX_DEGREES = 40.0
JPEG_QUALITY = 90


@dataclass(frozen=True)
class Packages:
    """Images of the Debian packages, below the folder in which the packages are unpacked."""

    root: Path

    @cached_property
    def objects(self) -> dict[str, Path]:
        """Files of the photographed objects, by name.

        Raises:
            InputError: if the packages have no photographed object.
        """
        files = [path for folder in FOLDERS for path in sorted((self.root / STAMPS / folder).rglob("*.png"))]
        by_name = {
            path.stem.lower(): path
            for path in files
            if "cartoon" not in path.as_posix()
            and is_photographed(np.asarray(Image.open(path).convert("RGBA")))
        }
        return self._there(by_name, PACKAGES[0])

    @cached_property
    def photographs(self) -> dict[str, Path]:
        """Files of the photographs, by name.

        Raises:
            InputError: if there are fewer than MIN_PHOTOGRAPHS photographs.
        """
        files = [path for folder in PHOTOGRAPHS for path in sorted((self.root / folder).glob("*.jpg"))]
        by_name = {path.stem: path for path in files}
        return self._there(by_name if len(by_name) >= MIN_PHOTOGRAPHS else {}, " and ".join(PACKAGES[1:]))

    def _there(self, by_name: dict[str, Path], package: str) -> dict[str, Path]:
        if not by_name:
            remedy = f"run `apt-get install {' '.join(PACKAGES)}` on Debian or Ubuntu"
            raise InputError(
                f"{self.root}: has nothing of {package}; {remedy}, or unpack these (`apt-get download`, "
                "`dpkg-deb -x`) and give --root FOLDER"
            )
        return by_name


def is_photographed(pixels: np.ndarray) -> bool:
    """Return whether a stamp (an image with opacity) is large and has enough colours to be a photograph.

    Args:
        pixels: red, green, blue and opacity, shape (rows, columns, 4).
    """
    opaque = pixels[pixels[..., 3] > 127][:, :3].astype(np.int32)
    colours = len(np.unique(opaque @ np.array([1 << 16, 1 << 8, 1])))
    return max(pixels.shape[:2]) >= MIN_PIXELS and colours >= MIN_UNIQUE_COLOURS * max(len(opaque), 1)


def split_photographs(names: Sequence[str], seed: int) -> dict[str, list[str]]:
    """Assign the photographs to splits at random, and return the names in each split."""
    order = generator("stamps", seed, "photographs").permutation(sorted(names))
    ends = np.cumsum([round(share * len(order)) for share in SPLIT_SHARES.values()])
    parts = np.split(order, ends[:-1])
    return {split: part.tolist() for split, part in zip(SPLIT_SHARES, parts, strict=True)}


def pasted(stamp: Image.Image, photograph: Image.Image, side: int, draws: np.random.Generator) -> Image.Image:
    """Paste an object on a background and return the image, `side` x `side` pixels.

    The background is a random square of the photograph, rotated by a multiple of 90 degrees and tinted. The
    object may be mirrored, and is rotated, scaled and placed at random.
    """
    crop = round(min(photograph.size) * draws.uniform(*CROP_FRACTION))
    top, left = (int(draws.integers(length - crop + 1)) for length in (photograph.height, photograph.width))
    pixels = resized_crop(photograph, Box(top, left, crop, crop), side)
    pixels = np.rot90(pixels, int(draws.integers(4))) * draws.uniform(*TINT_FACTORS, 3)
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    if draws.random() < 0.5:
        stamp = stamp.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    stamp = stamp.rotate(draws.uniform(-MAX_DEGREES, MAX_DEGREES), Image.Resampling.BICUBIC, expand=True)
    factor = side * draws.uniform(*OBJECT_FRACTION) / max(stamp.size)
    size = tuple(max(1, round(length * factor)) for length in stamp.size)
    stamp = stamp.resize((size[0], size[1]), Image.Resampling.BILINEAR)
    corner = tuple(int(draws.integers(side - length + 1)) for length in stamp.size)
    image.paste(stamp, (corner[0], corner[1]), stamp)
    return image


def images(
    packages: Packages, counts: Mapping[str, int], side: int, seed: int
) -> Iterator[tuple[Path, Image.Image]]:
    """Yield the images of the data set, each with its path relative to the data set's folder.

    The numbers of images of two classes in a split differ by at most one. An image depends only on the seed,
    its split and its number.
    """
    classes = drawn_classes(sorted(packages.objects), CLASSES, generator("stamps", seed, "classes"))
    stamps = {name: _stamp(packages.objects[name], side) for name in classes}
    photographs = {name: _photograph(path, side) for name, path in packages.photographs.items()}
    for split, available in split_photographs(list(photographs), seed).items():
        for number in range(counts[split]):
            draws = generator("stamps", seed, split, number)
            name = classes[number % CLASSES]
            ground = photographs[available[int(draws.integers(len(available)))]]
            yield Path(split, name, f"{number:06d}.JPEG"), pasted(stamps[name], ground, side, draws)


def _stamp(path: Path, side: int) -> Image.Image:
    """Load a stamp (an image with opacity), scaled down to at most twice the side of an image.

    Transparent margins of the stamp are cut off.
    """
    stamp = Image.open(path).convert("RGBA")
    stamp = stamp.crop(stamp.getchannel("A").getbbox())
    stamp.thumbnail((2 * side, 2 * side))
    return stamp


def _photograph(path: Path, side: int) -> Image.Image:
    photograph = Image.open(path).convert("RGB")
    photograph.thumbnail((8 * side, 8 * side))
    return photograph


def write(folder: Path, packages: Packages, counts: Mapping[str, int], side: int, seed: int) -> None:
    """Write the data set and its index. If an image cannot be written, the folder is not created.

    Raises:
        InputError: if the folder exists already, the side is too large, or the packages are missing.
    """
    if folder.exists():
        raise InputError(f"{folder}: is there already; remove it, or name another folder")
    if side > MAX_SIDE_PIXELS:
        raise InputError(f"--side {side}: is larger than {MAX_SIDE_PIXELS}")
    unfinished = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    progress = Progress(f"images of {folder.name}", sum(counts.values()))
    for path, image in images(packages, counts, side, seed):
        (unfinished / path).parent.mkdir(parents=True, exist_ok=True)
        image.save(unfinished / path, "JPEG", quality=JPEG_QUALITY)
        progress.advance(1)
    unfinished.rename(folder)
    with taking_place(index_file(folder)) as path:
        path.write_text(index_text(examined(folder, listed(folder))), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a data set as the command line says, and return the exit status."""
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
    options = parser.parse_args(arguments)
    counts = {"train": options.train, "val": options.held_out, "test": options.held_out}
    try:
        write(options.folder, Packages(options.root), counts, options.side, options.seed)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{options.folder}: {sum(counts.values())} images; {index_file(options.folder)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
