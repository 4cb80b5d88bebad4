"""Functions that write typed tables atomically: a reader sees either the old file or the new file."""

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

# Type of a column: a polars.DataType or its class. Polars returns classes for types inside of other types.
DataType = Any

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
    """Raised when the system refuses to write a file."""


def write_table(path: Path, frame: pl.DataFrame | pl.LazyFrame, schema: pl.Schema) -> None:
    """Write a table with its schema, completely or not at all.

    Args:
        path: the file. Its name without the suffix is the name of the table in error messages.
        frame: the table; a lazy frame is streamed to the file.
        schema: data type by column.

    Raises:
        InputError: when a column is missing, unknown or has a type whose conversion would lose values, or
            when the file cannot be written. An old file at `path` then stays.
    """
    checked = typed(frame.lazy(), schema, path.stem)
    with replacing(path) as temporary:
        try:
            # Pass an open file: given a path, polars may open the file after an error has deleted it.
            with temporary.open("wb") as file:
                checked.sink_parquet(file)
        except InvalidOperationError as error:
            raise InputError(f"table {path.stem}: {_first_line(error, schema)}") from error


def typed(frame: pl.LazyFrame, schema: pl.Schema, table: str) -> pl.LazyFrame:
    """Return the frame with its columns in the order of the schema and with the types of the schema.

    Only casts that keep every value are allowed: null to anything, integer to integer or float, text to Enum.
    A value that does not fit (a text that is no category, an integer that is too large) is detected when the
    frame is collected.

    Args:
        frame: the table.
        schema: data type by column.
        table: name of the table, for messages.

    Raises:
        InputError: when columns are missing, unknown or of another type; the message names them.
    """
    columns = frame.collect_schema()
    absent = [name for name in schema if name not in columns]
    unknown = [name for name in columns if name not in schema]
    if absent or unknown:
        complaints = [f"lacks {', '.join(absent)}"] * bool(absent)
        complaints += [f"has unknown {', '.join(unknown)}"] * bool(unknown)
        raise InputError(f"table {table} {' and '.join(complaints)} (columns: {', '.join(schema)})")
    for name, dtype in schema.items():
        if not _fits(columns[name], dtype):
            raise InputError(f"table {table}: column {name} is {columns[name]}, and should be {dtype}")
    return frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; if the `with` block ends without an error, move the file at this path to
    `path`.

    Raises:
        NotWritten: when the system refuses to write; the message names the folder, the reason and the remedy.
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


def _fits(source: DataType, target: DataType) -> bool:
    """Return whether a cast from `source` to `target` never changes a value: it keeps a value, or raises an
    error.
    """
    if source in (target, pl.Null):
        return True
    if isinstance(source, pl.List) and isinstance(target, pl.List):
        return _fits(source.inner, target.inner)
    if isinstance(source, pl.Struct) and isinstance(target, pl.Struct):
        fields, targets = dict(source), dict(target)
        return list(fields) == list(targets) and all(_fits(fields[name], targets[name]) for name in fields)
    if target == pl.String or isinstance(target, pl.Enum):
        return source in (pl.String, pl.Categorical) or isinstance(source, pl.Enum)
    if target == pl.Int64:
        return source.is_integer()
    return target == pl.Float64 and (source.is_integer() or source.is_float())


def _error_number(error: BaseException) -> int | None:
    """Return the system's error number of an exception; None if the exception has no number.

    Exceptions of polars contain the number only in their text.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None


def _refusal(path: Path) -> int | None:
    """Write a small file next to `path`, and return the error number with which the system refuses; None if
    the file can be written.

    Call this function to find the number if an exception does not contain it.
    """
    try:
        with temporary_beside(path) as temporary, temporary.open("wb") as file:
            file.write(os.urandom(1 << 16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno
    return None


def _first_line(error: InvalidOperationError, schema: pl.Schema) -> str:
    """Return polars' message about a failed cast, with the valid categories if the column is an Enum.

    Args:
        error: the exception of polars.
        schema: data type by column.
    """
    line = str(error).partition("\n")[0]
    for name, dtype in schema.items():
        if isinstance(dtype, pl.Enum) and f"column '{name}'" in line:
            return f"{line} (valid: {', '.join(dtype.categories)})"
    return line
