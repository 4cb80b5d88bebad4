"""The six novels of Jane Austen, as the R package janeaustenr stores them.

R stores each object of a package in the file Rdata.rdb: its size as a 4-byte big-endian number, then a zlib
stream with the object in R's serialization. Only vectors of strings are read here, so that R is not needed.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from pathlib import Path

from curvebench.workloads.data import FOLDER_VARIABLE, DataDamaged, DataFiles, read_content

FILE, SUBFOLDER = "Rdata.rdb", "janeaustenr"
# Folder into which the Debian package installs the file.
DEBIAN_FOLDER = Path("/usr/lib/R/site-library/janeaustenr/data")
# The novels in the order of the file.
NOVELS = (
    "Emma",
    "Mansfield Park",
    "Northanger Abbey",
    "Persuasion",
    "Pride and Prejudice",
    "Sense and Sensibility",
)
AUSTEN = DataFiles(
    "Jane Austen's novels",
    (FILE,),
    SUBFOLDER,
    "run `apt-get install r-cran-janeaustenr` on Debian or Ubuntu, or unpack that package with "
    f"`dpkg-deb -x`, put its file data/{FILE} into a folder {SUBFOLDER} and set {FOLDER_VARIABLE} to the "
    "folder that holds it",
    lambda: (DEBIAN_FOLDER,),
)
# Types of R's objects, in the last byte of a 4-byte number that precedes an object.
STRINGS, STRING = 16, 9


def read_austen() -> dict[str, list[str]]:
    """Return the lines of each novel, by its title.

    Raises:
        DataMissing: if the file does not exist.
        DataDamaged: if the file does not contain six vectors of strings.
    """
    return _read(AUSTEN.required()[FILE])


@lru_cache(maxsize=1)  # the novels are read once, and shared by the seeds of a job
def _read(path: Path) -> dict[str, list[str]]:
    content = read_content(path)
    novels = []
    try:
        while content:
            stream = zlib.decompressobj()
            novels.append(parse_strings(stream.decompress(content[4:]) + stream.flush()))
            if not stream.eof:
                raise ValueError("an object is cut off")
            content = stream.unused_data
        return dict(zip(NOVELS, novels, strict=True))
    except (ValueError, struct.error, zlib.error) as error:
        raise DataDamaged(
            f"{path}: is not the file of the package janeaustenr ({error}); fetch it again"
        ) from error


def parse_strings(content: bytes) -> list[str]:
    """Return the strings of a vector in R's binary serialization, version 3.

    The format is: "X" and a line feed, three version numbers, the length and the name of the encoding, the
    type and the length of the vector, and the type, the length and the bytes of each string. All numbers are
    big-endian and have 4 bytes.

    Raises:
        ValueError: if the content is another object.
    """
    *_, encoding = struct.unpack_from(">4i", content, 2)
    offset = 18 + encoding
    kind, count = struct.unpack_from(">2i", content, offset)
    if content[:2] != b"X\n" or kind & 0xFF != STRINGS:
        raise ValueError("an object is not a vector of strings")
    strings, offset = [], offset + 8
    for _ in range(count):
        kind, length = struct.unpack_from(">2i", content, offset)
        if kind & 0xFF != STRING or length < 0:
            raise ValueError("an entry of a vector is not a string")
        strings.append(content[offset + 8 : offset + 8 + length].decode())
        offset += 8 + length
    return strings
