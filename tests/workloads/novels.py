"""Short texts in the file of Jane Austen's novels, which tests read on machines without the package."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

LINES = ["It is a truth universally acknowledged,", "", "that a single text, in want of a reader; (1813)"]


def as_object(strings: Sequence[str], kind: int = 16) -> bytes:
    """Return a vector of strings in R's serialization, version 3."""
    head = struct.pack(">4i", 3, 262657, 197888, 5) + b"UTF-8" + struct.pack(">2i", kind, len(strings))
    encoded = [string.encode() for string in strings]
    return b"X\n" + head + b"".join(struct.pack(">2i", 0x40009, len(text)) + text for text in encoded)


def write_objects(folder: Path, objects: Iterable[bytes]) -> Path:
    """Write a file Rdata.rdb with the given objects."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "Rdata.rdb"
    path.write_bytes(b"".join(struct.pack(">i", len(one)) + zlib.compress(one) for one in objects))
    return path
