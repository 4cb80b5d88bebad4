"""Export of tables as CSV files without nested columns: `curvebench tables export`."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from curvebench.results.reading import named, read
from curvebench.results.schema import TABLES
from curvebench.results.writing import replacing
from curvebench.spec.errors import InputError


def export(folder: Path, out: Path) -> list[Path]:
    """Write every table in a folder, or below, as a CSV file with the same path relative to `out`.

    Args:
        folder: a published set, or any folder with tables in it or below.
        out: folder of the CSV files.

    Returns:
        The files, sorted by name.

    Raises:
        InputError: when there is no table, or a table is damaged or cannot be written.
    """
    files = [path for path in sorted(folder.rglob("*.parquet")) if path.stem in TABLES]
    if not files:
        raise InputError(f"{folder}: holds no tables; name a published set, or a folder below results/tables")
    written = []
    for path in files:
        target = (out / path.relative_to(folder)).with_suffix(".csv")
        with replacing(target) as temporary:
            flattened(read([path], path.stem)).write_csv(temporary)
        written.append(target)
    return written


def flattened(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame without nested columns.

    A column may contain lists of structs, in which the first field of a struct is a name that occurs at most
    once in each list. Such a column becomes one column for each name and each other field, such as
    `final_metrics.train_loss.value`, which is null in rows whose list lacks the name. Any other nested column
    becomes a column of JSON text, in which NaN and infinities are written as Python's JSON module writes
    them.
    """
    return frame.select(column for name in frame.columns for column in _columns(frame[name]))


def _columns(column: pl.Series) -> list[pl.Expr | pl.Series]:
    """Return the columns without nesting that replace a column of a table."""
    if not column.dtype.is_nested():
        return [column]
    if isinstance(column.dtype, pl.List) and isinstance(column.dtype.inner, pl.Struct):
        key, *fields = column.dtype.inner.fields
        names = column.list.eval(pl.element().struct.field(key.name))
        if key.dtype == pl.String and (names.list.len() == names.list.n_unique()).all():
            return [
                named(name, column.name, key.name, field.name).alias(f"{column.name}.{name}.{field.name}")
                for name in names.explode().drop_nulls().unique(maintain_order=True)
                for field in fields
            ]
    texts = [None if value is None else json.dumps(value) for value in column.to_list()]
    return [pl.Series(column.name, texts, dtype=pl.String)]
