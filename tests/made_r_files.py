"""Files in the formats of R packages, made without R: tables with random entries and texts."""

from __future__ import annotations

import gzip
import lzma
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curvebench.workloads.austen import NOVELS
from curvebench.workloads.tables import TABLES, Table

LINES = ["It is a truth universally acknowledged,", "", "that a single text, in want of a reader; (1813)"]
ROWS = 3000  # of each table, enough for the default splits
VECTOR, WITH_ATTRIBUTES, WITH_TAG = 19, 0x200, 0x400


class Writer:
    """Serialization of objects as R does it: arrays, lists of strings, factors and named lists."""

    def __init__(self) -> None:
        self.symbols: list[str] = []

    def item(self, value: Any) -> bytes:
        """Return the bytes of an object."""
        if isinstance(value, dict):
            items = b"".join(map(self.item, value.values()))
            return self.vector(VECTOR, len(value), items, {"names": [*value]})
        if isinstance(value, tuple):
            codes, levels = value
            attributes = {"levels": levels, "class": ["factor"]}
            return self.vector(13, len(codes), codes.astype(">i4").tobytes(), attributes)
        if isinstance(value, list):
            return self.vector(16, len(value), b"".join(map(text, value)), {})
        kind, dtype = (14, ">f8") if value.dtype == np.float64 else (13, ">i4")
        return self.vector(kind, len(value), value.astype(dtype).tobytes(), {})

    def vector(self, kind: int, length: int, content: bytes, attributes: Mapping[str, Any]) -> bytes:
        """Return the bytes of a vector with attributes."""
        flags = kind | (WITH_ATTRIBUTES if attributes else 0)
        return struct.pack(">ii", flags, length) + content + (self.pairs(attributes) if attributes else b"")

    def pairs(self, items: Mapping[str, Any]) -> bytes:
        """Return the bytes of a list of pairs, whose names are symbols."""
        parts = [
            struct.pack(">i", 2 | WITH_TAG) + self.symbol(name) + self.item(x) for name, x in items.items()
        ]
        return b"".join(parts) + struct.pack(">i", 254)

    def symbol(self, name: str) -> bytes:
        """Return a symbol, or a reference if it was written before."""
        if name in self.symbols:
            return struct.pack(">i", 255 | (self.symbols.index(name) + 1) << 8)
        self.symbols.append(name)
        return struct.pack(">i", 1) + text(name)


def text(value: str) -> bytes:
    """Return the bytes of a string."""
    content = value.encode()
    return struct.pack(">ii", 9, len(content)) + content


def header(version: int) -> bytes:
    """Return the beginning of a serialized object."""
    encoding = struct.pack(">i", 5) + b"UTF-8" if version == 3 else b""
    return b"X\n" + struct.pack(">iii", version, 0x40202, 0x30500) + encoding


def write_rda(path: Path, objects: Mapping[str, Any], version: int = 3) -> None:
    """Write objects to a file NAME.rda."""
    content = f"RDX{version}\n".encode() + header(version) + Writer().pairs(objects)
    path.write_bytes(lzma.compress(content) if version == 2 else gzip.compress(content))


def write_rdb(folder: Path, objects: Mapping[str, Any], raw_lzma: bool = True) -> None:
    """Write objects to Rdata.rdb, and their places to Rdata.rdx."""
    places, content = {}, b""
    for name, value in objects.items():
        plain = header(3) + Writer().item(value)
        if raw_lzma:
            packed = b"Z" + lzma.compress(plain, lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2}])
        else:
            packed = zlib.compress(plain)
        packed = struct.pack(">i", len(plain)) + packed
        places[name] = np.array([len(content), len(packed)], np.int32)
        content += packed
    (folder / "Rdata.rdb").write_bytes(content)
    index = {"variables": places, "references": {}, "compressed": np.array([3], np.int32)}
    (folder / "Rdata.rdx").write_bytes(gzip.compress(header(3) + Writer().item(index)))


def write_novels(folder: Path, texts: Iterable[Sequence[str]]) -> Path:
    """Write the lines of each of Jane Austen's novels, and return the path of Rdata.rdb."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rdb(folder, dict(zip(NOVELS.values(), map(list, texts), strict=False)), raw_lzma=False)
    return folder / "Rdata.rdb"


def made_table(table: Table) -> dict[str, Any]:
    """Return a random table; the target is its first column, and depends on the others."""
    generator = np.random.default_rng(table.inputs)
    inputs = generator.normal(3.0, 2.0, size=(table.inputs, ROWS))
    target: Any = inputs.mean(axis=0)
    if table.outputs > 1:
        order = np.argsort(np.argsort(target))
        names = [f"class {label}" for label in range(table.outputs)]
        target = (order * table.outputs // ROWS + 1, names)
    return {table.target: target, **{f"x{number}": column for number, column in enumerate(inputs)}}


def write_tables(folder: Path) -> dict[str, Table]:
    """Write all tables below a folder of data, and return their descriptions with the number of rows."""
    for name, table in TABLES.items():
        place = folder / table.files.subfolder
        place.mkdir(exist_ok=True)
        if len(table.files.names) == 1:
            version = 2 if name == "shuttle" else 3
            write_rda(place / table.files.names[0], {table.name: made_table(table)}, version)
        else:
            write_rdb(place, {"other": np.arange(3), table.name: made_table(table)})
    return {name: table._replace(rows=ROWS) for name, table in TABLES.items()}
