"""Tables as CSV, nested columns flattened: `curvebench tables export`."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from curvebench.results.reading import named, read
from curvebench.results.schema import TABLES
from curvebench.results.writing import replacing
from curvebench.spec.errors import InputError


def export(folder: Path, out: Path) -> list[Path]:
    """Write every table below a folder as CSV, in folders of the same names.

    Args:
        folder: a published set, or any folder with tables in it or below.

    Returns:
        The files, in order of name.

    Raises:
        InputError: when there is none, or one is damaged or cannot be written.
    """
    files = [path for path in sorted(folder.rglob("*.parquet")) if path.stem in TABLES]
    if not files:
        raise InputError(f"{folder}: holds no tables; name a published set, or a folder below results/tables")
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
    return frame.select(column for name in frame.columns for column in _columns(frame[name]))


def _columns(column: pl.Series) -> list[pl.Expr | pl.Series]:
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
