"""Temporary names: a file is written under one and then takes its own, so that nobody sees half of it."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def temporary_beside(path: Path, search: bool = True) -> Iterator[Path]:
    """A name beside `path` with its suffix, of which no file is left afterwards, whatever happened.

    What processes that were killed left there for the same `path` goes too, if it is searched for.
    """
    if search:
        _remove_leftovers(path.parent, glob.escape(path.name))
    temporary = path.parent / f".{os.getpid()}-{secrets.token_hex(4)}.{path.name}"
    try:
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def taking_place(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place, durably, when the block ends without an error."""
    with temporary_beside(path) as temporary:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write each text to its path, whole or not at all; a folder is searched for leftovers once.

    Raises:
        OSError: naming the first file that cannot be written.
    """
    for folder in {path.parent for path in texts}:
        _remove_leftovers(folder, "*")
    for path, text in texts.items():
        with temporary_beside(path, search=False) as temporary:
            temporary.write_text(text)
            temporary.replace(path)


def _flush(path: Path) -> None:
    """Have the system put a file, or a folder's list of names, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: Path, names: str) -> None:
    import psutil

    for left in folder.glob(f".*-*.{names}"):
        process = left.name[1:].partition("-")[0]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            with suppress(OSError):
                left.unlink()
