"""Tables as CSV, nested columns flattened: `curvebench tables export`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from documents.errors import InputError
from results.reading import read
from results.schema import TABLES
from results.writing import replacing


def export(folder: Path, out: Path, tables: Sequence[str] = ()) -> list[Path]:
    """Write every table below a folder as CSV, in folders of the same names.

    Args:
        folder: a published set, or any folder with tables in it or below.
        tables: which; empty for all that there are.

    Returns:
        The files, in order of name.

    Raises:
        InputError: when a table is unknown, missing, damaged, or cannot be written.
    """
    for table in tables:
        if table not in TABLES:
            raise InputError(f"--tables {table}: no such table (valid: {', '.join(TABLES)})")
    files = [path for path in sorted(folder.rglob("*.parquet")) if path.stem in (tables or TABLES)]
    if not files:
        asked = ", ".join(tables) or "tables"
        raise InputError(
            f"{folder}: holds no {asked}; name a published set, or a folder below results/tables"
        )
    written = []
    for path in files:
        to = (out / path.relative_to(folder)).with_suffix(".csv")
        with replacing(to) as temporary:
            flattened(read([path], path.stem)).write_csv(temporary)
        written.append(to)
    return written


def flattened(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame without nested columns.

    A list of structs whose first field names its items, no name twice in a row, becomes a column for each
    name and each other field, `final_metrics.train_loss.value`, null in rows that do not list the name. Any
    other nested column becomes JSON text, with NaN and infinities as JSON's extension has them.
    """
    return pl.DataFrame([column for name in frame.columns for column in _columns(frame[name])])


def _columns(column: pl.Series) -> list[pl.Series]:
    dtype = column.dtype
    if not dtype.is_nested():
        return [column]
    if not (isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.Struct)):
        return [_as_json(column)]
    key, *fields = dtype.inner.fields
    if key.dtype != pl.String:
        return [_as_json(column)]
    rows = [{item[key.name]: item for item in row or []} for row in column.to_list()]
    if any(len(row or []) != len(by_name) for row, by_name in zip(column.to_list(), rows, strict=True)):
        return [_as_json(column)]
    names = dict.fromkeys(name for row in rows for name in row)
    return [
        flat
        for name in names
        for field in fields
        for flat in _columns(
            pl.Series(
                f"{column.name}.{name}.{field.name}",
                [row[name][field.name] if name in row else None for row in rows],
                dtype=field.dtype,
            )
        )
    ]


def _as_json(column: pl.Series) -> pl.Series:
    texts: list[Any] = [None if value is None else json.dumps(value) for value in column.to_list()]
    return pl.Series(column.name, texts, dtype=pl.String)
