"""The folder of a published set: its files, its checksums, and writing it whole or not at all."""

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
SPECIAL = {"parity": ("parity", "jobs"), "checks": ("checks", "series", "jobs")}  # no studies
TOP = {
    "README.md",
    "LICENSE",
    PLAN,
    PROVENANCE,
    *(f"{table}.parquet" for table in ("claims", "findings", "leaderboard")),
    *(f"leaderboard.{kind}" for kind in ("csv", "json", "schema.json")),
}
LICENCE = "CC BY 4.0"
CURVE_POINTS = 50  # of a run and metric, where a study has more rows than a set keeps


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to write into; it takes the place of `folder` when the block ends without error.

    Raises:
        InputError: when the system refuses.
    """
    stage, before = (
        folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}") for _ in range(2)
    )
    try:
        try:
            stage.mkdir(parents=True)
            yield stage
            if folder.exists():
                folder.rename(before)
            stage.rename(folder)
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be written ({error.strerror}); make room there, or make it writable"
            ) from error
    finally:
        for folder in (stage, before):
            shutil.rmtree(folder, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text)


def as_json(content: Any) -> str:
    """The text of a JSON file."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def files_of(folder: Path) -> list[str]:
    """The names of all that lies in a set and is no folder, the checksums left out, sorted."""
    found = (
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )
    return sorted(name for name in found if name != SUMS)


def seal(folder: Path) -> None:
    """Write the checksums of a set's files, as `sha256sum --check` reads them."""
    lines = (f"{sha256(folder / name)}  {name}\n" for name in files_of(folder))
    write_text(folder / SUMS, "".join(lines))


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
