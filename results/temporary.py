"""Temporary names: a file is written under one and then takes its own, so that nobody sees half of it."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """A name beside `path` with its suffix, of which no file is left afterwards, whatever happened.

    What processes that were killed left there for the same `path` goes too.
    """
    _remove_leftovers(path)
    temporary = path.parent / f".{os.getpid()}-{secrets.token_hex(4)}.{path.name}"
    try:
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink()


def _remove_leftovers(path: Path) -> None:
    import psutil

    for left in path.parent.glob(f".*-*.{glob.escape(path.name)}"):
        process = left.name[1:].partition("-")[0]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            with suppress(OSError):
                left.unlink()
