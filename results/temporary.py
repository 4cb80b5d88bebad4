"""Temporary names: a file is written under one and then takes its own, so that nobody sees half of it."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """A name beside `path` with its suffix, of which no file is left afterwards, whatever happened.

    What processes that were killed left there for the same `path` goes too.
    """
    _remove_leftovers(path.parent, glob.escape(path.name))
    temporary = _name_beside(path)
    try:
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write each text to its path, whole or not at all; a folder is searched for leftovers once.

    Raises:
        OSError: naming the first file that cannot be written.
    """
    for folder in {path.parent for path in texts}:
        _remove_leftovers(folder, "*")
    for path, text in texts.items():
        temporary = _name_beside(path)
        try:
            temporary.write_text(text)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def _name_beside(path: Path) -> Path:
    return path.parent / f".{os.getpid()}-{secrets.token_hex(4)}.{path.name}"


def _remove_leftovers(folder: Path, names: str) -> None:
    import psutil

    for left in folder.glob(f".*-*.{names}"):
        process = left.name[1:].partition("-")[0]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            with suppress(OSError):
                left.unlink()
