"""Atomic writing: a file is written under a temporary name and then renamed, so that readers never see a file
that is only half written.
"""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def temporary_beside(path: Path, search: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`, with the same suffix. When the `with` block ends,
    delete the file at the temporary path, if there is one.

    Args:
        path: path for which the temporary file is written.
        search: whether to also delete temporary files for the same `path` that killed processes have left.
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
    """Yield a temporary path; if the `with` block ends without an error, move the file at this path to
    `path`.

    The new file and its folder are flushed to disk, so that the new file survives a power failure.
    """
    with temporary_beside(path) as temporary:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write each text to its path, completely or not at all.

    Each folder is searched only once for temporary files that killed processes have left.

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
    """Flush a file, or the directory entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: Path, names: str) -> None:
    """Delete temporary files of processes that no longer exist.

    Args:
        folder: folder to search.
        names: glob pattern of the final file names, for which the temporary files were written.
    """
    import psutil

    for leftover in folder.glob(f".*-*.{names}"):
        process = leftover.name[1:].partition("-")[0]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            with suppress(OSError):
                leftover.unlink()
