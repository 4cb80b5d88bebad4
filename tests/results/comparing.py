"""Comparing what two runs of the same specs wrote: bit for bit, times apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from polars.testing import assert_frame_equal

from curvebench.results.reading import read
from curvebench.results.schema import JOBS, MEMORY, RUNS

# All that may differ between two computations of one spec: how long they took, when, and in how much memory.
# Columns, and fields of the structs that a column lists.
VARYING: dict[str, Sequence[str]] = {
    # of a basis job, and modelled from a timing job
    "runs": [*(name for name in RUNS if name.endswith("_seconds")), "targets.seconds"],
    "timings": ("seconds", "steps"),  # a measured stretch is repeated until it is long beside the clock
    "memory": [name for name in MEMORY if name.endswith("_bytes")],
    "jobs": ["started", *(name for name in JOBS if name.endswith(("_seconds", "_joules", "_bytes")))],
}


def determined(file: Path) -> pl.DataFrame:
    """The table in a file without what VARYING names."""
    frame = read([file], file.stem)
    for name in VARYING.get(file.stem, ()):
        column, _, field = name.partition(".")
        frame = _without_field(frame, column, field) if field else frame.drop(column)
    return frame


def _without_field(frame: pl.DataFrame, column: str, field: str) -> pl.DataFrame:
    structs = frame.schema[column]
    assert isinstance(structs, pl.List)
    assert isinstance(structs.inner, pl.Struct)
    kept = [pl.element().struct.field(one.name) for one in structs.inner.fields if one.name != field]
    return frame.with_columns(pl.col(column).list.eval(pl.struct(kept)))


def arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a basis but for its seconds."""
    with np.load(path) as loaded:
        return {name: loaded[name] for name in loaded.files if name != "seconds"}


def assert_same_results(one: Path, other: Path) -> None:
    """Both folders hold the same files, and their tables and bases bit-identical values, times apart."""
    files = [
        sorted(path.relative_to(each) for path in each.rglob("*") if path.is_file()) for each in (one, other)
    ]
    assert files[0] == files[1]
    tables = [path for path in files[0] if path.suffix == ".parquet"]
    bases = [path for path in files[0] if path.suffix == ".npz"]
    for path in tables:
        assert_frame_equal(determined(one / path), determined(other / path), check_exact=True)
    for path in bases:
        ours, theirs = arrays(one / path), arrays(other / path)
        assert list(ours) == list(theirs)
        for name, values in ours.items():
            assert values.tobytes() == theirs[name].tobytes(), f"{path}: {name}"
    assert tables
