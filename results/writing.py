"""Writing typed tables so that a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import InvalidOperationError, PolarsError

from curvebench.results.temporary import taking_place, temporary_beside
from curvebench.spec.errors import InputError

DataType = Any  # a polars.DataType, or the class of one where a type is inside another

NOT_WRITABLE = "make it writable for you, or choose another results folder"
REMEDIES = {
    errno.ENOSPC: "free space on that disk, or choose a results folder on another one",
    errno.EDQUOT: "free some of your quota, or choose a results folder on another disk",
    errno.EACCES: NOT_WRITABLE,
    errno.EPERM: NOT_WRITABLE,
    errno.EROFS: NOT_WRITABLE,
    errno.EEXIST: "a file lies where a folder is wanted; move it away",
    errno.ENOTDIR: "a file lies where a folder is wanted; move it away",
}


class NotWritten(InputError):
    """A file that the system refused to take."""


def write_table(path: Path, frame: pl.DataFrame | pl.LazyFrame, schema: pl.Schema) -> None:
    """Write a table under its schema, whole or not at all.

    A lazy frame is streamed to the file. The table's name in messages is the stem of `path`.

    Raises:
        InputError: when a column is missing, unknown or of a type that would lose values, and when the
            folder cannot take the file; an old file at `path` is then as it was.
    """
    checked = typed(frame.lazy(), schema, path.stem)
    with replacing(path) as temporary:
        try:
            with temporary.open("wb") as file:  # by name it may be opened after an error
                checked.sink_parquet(file)
        except InvalidOperationError as error:
            raise InputError(f"table {path.stem}: {_first_line(error, schema)}") from error


def typed(frame: pl.LazyFrame, schema: pl.Schema, table: str) -> pl.LazyFrame:
    """The frame with the columns, in the order and of the types of the schema.

    Only casts that keep every value are made: null to anything, integer to integer or float, text to Enum.
    A value that does not fit (an unknown word, an integer too large) shows when the frame is collected.

    Raises:
        InputError: naming the table and the columns that are missing, unknown or of another type.
    """
    given = frame.collect_schema()
    missing = [name for name in schema if name not in given]
    extra = [name for name in given if name not in schema]
    if missing or extra:
        complaints = [f"lacks {', '.join(missing)}"] * bool(missing)
        complaints += [f"has unknown {', '.join(extra)}"] * bool(extra)
        raise InputError(f"table {table} {' and '.join(complaints)} (columns: {', '.join(schema)})")
    for name, wanted in schema.items():
        if not _fits(given[name], wanted):
            raise InputError(f"table {table}: column {name} is {given[name]}, and should be {wanted}")
    return frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place, durably, when the block ends without an error.

    Raises:
        NotWritten: when the system refuses, naming the folder, the reason and the remedy.
    """
    try:
        with taking_place(path) as temporary:
            yield temporary
    except (OSError, PolarsError) as error:
        number = _error_number(error) or _refusal(path)
        if number is None:
            raise
        remedy = REMEDIES.get(number, "check the disk, or choose another results folder")
        raise NotWritten(
            f"{path.parent}: {path.name} cannot be written there ({os.strerror(number)}); {remedy}"
        ) from error


def _fits(given: DataType, wanted: DataType) -> bool:
    """Whether a cast from one type to the other keeps every value that it does not refuse."""
    if given in (wanted, pl.Null):
        return True
    if isinstance(given, pl.List) and isinstance(wanted, pl.List):
        return _fits(given.inner, wanted.inner)
    if isinstance(given, pl.Struct) and isinstance(wanted, pl.Struct):
        left, right = dict(given), dict(wanted)
        return list(left) == list(right) and all(_fits(left[name], right[name]) for name in left)
    if wanted == pl.String or isinstance(wanted, pl.Enum):
        return given in (pl.String, pl.Categorical) or isinstance(given, pl.Enum)
    if wanted == pl.Int64:
        return given.is_integer()
    return wanted == pl.Float64 and (given.is_integer() or given.is_float())


def _error_number(error: BaseException) -> int | None:
    """The system's error number, which polars' own errors and its OSErrors hold in their text only."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None


def _refusal(path: Path) -> int | None:
    """The error number with which the system refuses a small file now, where an error did not carry it."""
    try:
        with temporary_beside(path) as temporary, temporary.open("wb") as file:
            file.write(os.urandom(1 << 16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno
    return None


def _first_line(error: InvalidOperationError, schema: pl.Schema) -> str:
    """What polars says of a failed cast, with the legal values where the column is an Enum."""
    line = str(error).partition("\n")[0]
    for name, dtype in schema.items():
        if isinstance(dtype, pl.Enum) and f"column '{name}'" in line:
            return f"{line} (valid: {', '.join(dtype.categories)})"
    return line
