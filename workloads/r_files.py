"""Data files of R packages: tables and texts, read without R.

Debian installs data of R packages in /usr/lib/R/site-library. A package stores each object in a file
NAME.rda, or all objects in Rdata.rdb, with their places in Rdata.rdx. The format of an object is that of R's
function `serialize` ("R Internals", Sec. 1.8).
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from curvebench.workloads.data import DataDamaged, DataFiles

LIBRARY = Path("/usr/lib/R/site-library")
# First bytes of compressed files, and the function that decompresses each.
COMPRESSED: Mapping[bytes, Callable[[bytes], bytes]] = {
    b"\xfd7zXZ": lzma.decompress,
    b"BZh": bz2.decompress,
    b"\x1f\x8b": gzip.decompress,
}


def r_files(package: str, *names: str) -> DataFiles:
    """Return data files of an R package, which Debian installs or users copy to a folder PACKAGE.

    Args:
        package: name of the R package.
        names: names of the files.
    """
    debian = f"r-cran-{package.lower()}"
    return DataFiles(
        f"data of the R package {package}",
        names,
        package,
        f"run `apt-get install {debian}` on Debian or Ubuntu, or unpack that package (`apt-get download "
        f"{debian}`, `dpkg-deb -x`) and copy the files to a folder {package} in the folder of data",
        lambda: (LIBRARY / package / "data",),
    )


class RValue(NamedTuple):
    """A vector of R: an array or a list, and its attributes, such as names or levels."""

    values: Any
    attributes: Mapping[str, Any]


@dataclass
class _ObjectReader:
    """Reader of serialized objects, in R's binary format with big-endian numbers (XDR).

    Args:
        content: the bytes of the object, from the header.
        position: position of the next byte to read.
        symbols: symbols read so far, which later references repeat by number.
    """

    content: bytes
    position: int = 0
    symbols: list[str] = field(default_factory=list)

    def object(self) -> Any:
        """Read the header and the object."""
        self.position += 2
        if self.numbers("i4", 3)[0] == 3:  # version 3 has the name of an encoding
            length = self.whole()
            self.position += length
        return self.item()

    def numbers(self, kind: str, count: int) -> np.ndarray:
        """Read numbers of a type of NumPy."""
        found = np.frombuffer(self.content, f">{kind}", count, self.position)
        self.position += found.nbytes
        return found.astype(kind)

    def whole(self) -> int:
        """Read a whole number."""
        return int(self.numbers("i4", 1)[0])

    def item(self) -> Any:
        """Read an object: a vector (`RValue`), a string, or a list of pairs of name and object.

        Raises:
            ValueError: for a kind of object that tables do not have.
        """
        flags = self.whole()
        kind, has_attributes, has_tag = flags & 0xFF, flags & 0x200, flags & 0x400
        if kind in (242, 253, 254):  # empty and global environment, NULL
            return None
        if kind == 255:
            return self.symbols[(flags >> 8 or self.whole()) - 1]
        if kind == 1:
            self.symbols.append(self.item())
            return self.symbols[-1]
        if kind == 2:
            if has_attributes:
                self.item()  # attributes of a list of pairs are not used
            pair = (self.item() if has_tag else "", self.item())
            return [pair, *(self.item() or ())]
        length = self.whole()
        if kind == 9:  # a string, or NA with length -1
            self.position += max(length, 0)
            return self.content[self.position - max(length, 0) : self.position].decode("utf-8", "replace")
        if kind in (10, 13, 14):  # logical, integer, real
            values: Any = self.numbers("f8" if kind == 14 else "i4", length)
        elif kind in (16, 19):  # strings, list
            values = [self.item() for _ in range(length)]
        else:
            raise ValueError(f"holds an object of type {kind}, which is not read here")
        return RValue(values, dict(self.item()) if has_attributes else {})


def read_rda(path: Path, name: str) -> RValue:
    """Read an object of a file NAME.rda.

    Raises:
        DataDamaged: if the file cannot be read, or has no object of this name.
    """
    with _damage(path):
        content = _decompressed(path.read_bytes())
        if content[:5] not in (b"RDX2\n", b"RDX3\n"):
            raise ValueError("not a file of R's function save")
        return dict(_ObjectReader(content[5:]).object())[name]


def read_rdb(places: Path, objects: Path, name: str) -> RValue:
    """Read an object of a package that stores all its objects together.

    Args:
        places: path of the file Rdata.rdx, which has the place of each object.
        objects: path of the file Rdata.rdb.
        name: name of the object.

    Raises:
        DataDamaged: if a file cannot be read, or has no object of this name.
    """
    with _damage(places):
        index = named(_ObjectReader(_decompressed(places.read_bytes())).object())
        start, length = named(index["variables"])[name].values
    with _damage(objects):
        content = objects.read_bytes()[start + 4 : start + length]  # the first 4 bytes are the length
        if content[:1] == b"Z":
            content = lzma.decompress(content[1:], lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2}])
        else:
            content = zlib.decompress(content)
        return _ObjectReader(content).object()


def named(value: RValue) -> dict[str, Any]:
    """Return the elements of a named list or the columns of a table, by name."""
    return dict(zip(value.attributes["names"].values, value.values, strict=True))


def _decompressed(content: bytes) -> bytes:
    """Decompress the content of a file."""
    functions = (function for magic, function in COMPRESSED.items() if content.startswith(magic))
    return next(functions, bytes)(content)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Report an error in reading a file as `DataDamaged`."""
    try:
        yield
    except Exception as error:  # Bytes of any kind may be read as anything.
        raise DataDamaged(f"{path}: cannot be read ({error!r}); install its package again") from error
