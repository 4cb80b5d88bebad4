"""Compare the outputs of two runs of the same specs bit by bit, except for times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from polars.testing import assert_frame_equal

from curvebench.results.reading import read
from curvebench.results.schema import JOBS, MEMORY, RUNS

# Quantities that may differ between two computations of one spec: durations, times of day and memory.
# The values are columns, and fields of the structs in a list column.
VARYING: dict[str, Sequence[str]] = {
    # The seconds in `runs` come from a basis job, or are modelled from a timing job.
    "runs": [*(name for name in RUNS if name.endswith("_seconds")), "targets.seconds"],
    # a timed piece is repeated until it is long relative to the clock's resolution
    "timings": ("seconds", "steps"),
    "memory": [name for name in MEMORY if name.endswith("_bytes")],
    "jobs": ["started", *(name for name in JOBS if name.endswith(("_seconds", "_joules", "_bytes")))],
}


def determined(file: Path) -> pl.DataFrame:
    """Return the table in a file without the columns and fields that may vary."""
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
    """Return the arrays of a basis, except for its seconds."""
    with np.load(path) as loaded:
        return {name: loaded[name] for name in loaded.files if name != "seconds"}


def assert_same_results(one: Path, other: Path) -> None:
    """Assert that two folders have the same files, with bit-identical tables and bases except for times."""
    files = [
        sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file()) for root in (one, other)
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
