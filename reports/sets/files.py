"""The folder of a published set: its files, its checksums, and writing the folder atomically."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from curvebench.results.writing import replacing
from curvebench.spec.errors import InputError
from curvebench.spec.sets import PLAN, PROVENANCE, SUMS

STUDY_TABLES = ("runs", "curves", "timings", "memory", "jobs")
# Folders of a set that belong to no study, with the names of their tables.
SPECIAL = {"parity": ("parity", "jobs"), "checks": ("checks", "series", "jobs")}
TOP = {
    "README.md",
    "LICENSE",
    PLAN,
    PROVENANCE,
    *(f"{table}.parquet" for table in ("claims", "findings", "leaderboard")),
    *(f"leaderboard.{kind}" for kind in ("csv", "json", "schema.json")),
}
LICENCE = "CC BY 4.0"
CURVE_POINTS = 50  # number of steps of a thinned curve, for each run and metric


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to write into, which replaces `folder` when the block ends without an error.

    Raises:
        InputError: when the operating system refuses to create or move a folder.
    """
    names = (f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}" for _ in range(2))
    stage, replaced = map(folder.with_name, names)
    try:
        try:
            stage.mkdir(parents=True)
            yield stage
            if folder.exists():
                folder.rename(replaced)
            stage.rename(folder)
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be written ({error.strerror}); make room there, or make it writable"
            ) from error
    finally:
        for folder in (stage, replaced):
            shutil.rmtree(folder, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text to a file, completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text)


def as_json(content: Any) -> str:
    """Return `content` as the text of a JSON file."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def files_of(folder: Path) -> list[str]:
    """Return the sorted names, relative to the folder, of all files and links in a set, except SHA256SUMS."""
    names = (
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )
    return sorted(name for name in names if name != SUMS)


def seal(folder: Path) -> None:
    """Write the checksums of a set's files, in the format that `sha256sum --check` reads."""
    lines = (f"{sha256(folder / name)}  {name}\n" for name in files_of(folder))
    write_text(folder / SUMS, "".join(lines))


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
