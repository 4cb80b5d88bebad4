"""`curvebench images index` and `decode`: what is made once of a folder of images."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from curvebench.commands.command import argument, command, positive

IMAGES = argument(
    "folder", type=Path, metavar="FOLDER", help="of the images: train/CLASS/FILE, and so in val and test"
)
NAMED = 20  # damaged images that are named


@command(
    "images index",
    IMAGES,
    argument("--threads", type=positive, default=os.cpu_count(), metavar="N", help="default: %(default)s"),
)
def index(given: Namespace) -> None:
    """Read every image of a folder once, and write their index.

    The index lies beside the folder, as FOLDER.index.csv. It has the size, checksum, pixels and damage of
    each image, and the hashes of jobs cover it: without it no study runs on the folder.
    """
    from curvebench.progress import Progress
    from curvebench.results.temporary import taking_place
    from curvebench.workloads.images.folders import examined, index_file, index_text, listed

    folder = given.folder.absolute()
    found = listed(folder)
    progress = Progress(f"index of {folder.name}", len(found))
    lines = examined(folder, found, given.threads, lambda: progress.advance(1))
    with taking_place(index_file(folder)) as path:
        path.write_text(index_text(lines), encoding="utf-8")
    damaged = [line for line in lines if line.damage]
    for line in damaged[:NAMED]:
        print(f"damaged: {folder / line.path}: {line.damage}")
    classes = len({line.category for line in lines})
    print(f"{index_file(folder)}: {len(lines)} images of {classes} classes, {len(damaged)} of them damaged")


@command("images decode", IMAGES)
def decode(given: Namespace) -> None:
    """Decode the images of an indexed folder once and for all.

    Their pixels lie beside the folder in one file, with 3 bytes a pixel; runs read it, where it is, instead
    of the images, and get equal pixels.
    """
    from curvebench.progress import Progress
    from curvebench.results.temporary import taking_place
    from curvebench.workloads.images.decoded import decoded_file, write_decoded
    from curvebench.workloads.images.folders import index_file, read_index

    folder = given.folder.absolute()
    lines = read_index(index_file(folder))
    progress = Progress(f"decoding {folder.name}", len(lines))
    with taking_place(decoded_file(folder)) as path, path.open("wb") as file:
        write_decoded(file, folder, lines, lambda: progress.advance(1))
    print(f"{decoded_file(folder)}: {decoded_file(folder).stat().st_size / 1e9:.2f} GB")
