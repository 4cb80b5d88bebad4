"""`curvebench images index` and `decode`: prepare a folder of images once for all runs that use it."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from curvebench.commands.command import argument, command, positive

IMAGES = argument(
    "folder",
    type=Path,
    metavar="FOLDER",
    help="folder of images: train/CLASS/FILE, val/CLASS/FILE and test/CLASS/FILE",
)
# `images index` prints the names of at most this many damaged images, and the number of all damaged images.
MAX_NAMED = 20


@command("images index", IMAGES, argument("--threads", type=positive, default=os.cpu_count(), metavar="N"))
def index(args: Namespace) -> None:
    """Read every image of a folder once, and write an index of them.

    The index is written next to the folder, as FOLDER.index.csv. It contains the size in bytes, the checksum,
    the height and width in pixels, and the damage of each image. Studies on the folder require it, because
    the names of their jobs depend on the images.

    Args:
        --threads: threads that read images (default: all processors, %(default)s)
    """
    from curvebench.progress import Progress
    from curvebench.results.temporary import taking_place
    from curvebench.workloads.images.folders import examined, index_file, index_text, listed

    folder = args.folder.absolute()
    images = listed(folder)
    progress = Progress(f"index of {folder.name}", len(images))
    lines = examined(folder, images, args.threads, lambda: progress.advance(1))
    with taking_place(index_file(folder)) as path:
        path.write_text(index_text(lines), encoding="utf-8")
    damaged = [line for line in lines if line.damage]
    for line in damaged[:MAX_NAMED]:
        print(f"damaged: {folder / line.path}: {line.damage}")
    classes = len({line.category for line in lines})
    print(f"{index_file(folder)}: {len(lines)} images of {classes} classes, {len(damaged)} of them damaged")


@command("images decode", IMAGES)
def decode(args: Namespace) -> None:
    """Decode the images of an indexed folder into one file.

    The file is written next to the folder and has 3 bytes per pixel. If it exists, runs read it instead of
    the images, which is faster and gives them the same pixels.
    """
    from curvebench.progress import Progress
    from curvebench.results.temporary import taking_place
    from curvebench.workloads.images.decoded import decoded_file, write_decoded
    from curvebench.workloads.images.folders import index_file, read_index

    folder = args.folder.absolute()
    lines = read_index(index_file(folder))
    progress = Progress(f"decoding {folder.name}", len(lines))
    with taking_place(decoded_file(folder)) as path, path.open("wb") as file:
        write_decoded(file, folder, lines, lambda: progress.advance(1))
    print(f"{decoded_file(folder)}: {decoded_file(folder).stat().st_size / 1e9:.2f} GB")
