"""Tables and texts are written whole and typed, or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from curvebench.results.schema import CURVES, RUNS, TABLES
from curvebench.results.temporary import temporary_beside, write_texts
from curvebench.results.writing import replacing, write_table
from curvebench.spec.errors import InputError
from tests.results.rows import rows


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("lazy", [False, True])
def test_round_trip(tmp_path, table, lazy):
    path = tmp_path / "new" / "folder" / f"{table}.parquet"
    frame = rows(table, {}, {})
    write_table(path, frame.lazy() if lazy else frame, TABLES[table])
    assert_frame_equal(pl.read_parquet(path), frame)
    assert pl.read_parquet(path).schema == TABLES[table]
    assert names(path.parent) == [path.name]


def test_casts_that_keep_every_value(tmp_path):
    path = tmp_path / "curves.parquet"
    frame = pl.DataFrame(
        {
            "value": [1],
            "step": pl.Series([3], dtype=pl.Int32),
            "metric": pl.Series(["loss"], dtype=pl.Categorical),
            "run": ["r"],
            "examples": [None],
            "gradient_evaluations": [3],
            "seconds": pl.Series([0.5], dtype=pl.Float32),
        }
    )
    write_table(path, frame, CURVES)
    expected = {"run": "r", "step": 3, "examples": None, "gradient_evaluations": 3}
    expected |= {"seconds": 0.5, "metric": "loss", "value": 1.0}
    assert pl.read_parquet(path).row(0, named=True) == expected


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (rows("curves", {}).drop("metric"), ["curves", "lacks metric"]),
        (rows("curves", {}).with_columns(colour=1), ["curves", "unknown colour"]),
        (rows("curves", {}).rename({"value": "values"}), ["curves", "lacks value", "unknown values"]),
        (rows("curves", {}).with_columns(step=1.5), ["curves", "step is Float64", "should be Int64"]),
        (rows("curves", {}).with_columns(value=pl.lit("1.0")), ["curves", "value is String", "Float64"]),
        (rows("curves", {}).with_columns(metric=3), ["curves", "metric is Int32", "String"]),
        (rows("curves", {}).with_columns(step=pl.lit(2**63, pl.UInt64)), ["curves", "step"]),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_wrong_columns_are_named(tmp_path, frame, words):
    with pytest.raises(InputError) as error:
        write_table(tmp_path / "curves.parquet", frame, CURVES)
    for word in words:
        assert word in str(error.value)
    assert names(tmp_path) == []


@pytest.mark.parametrize("lazy", [False, True])
def test_an_unknown_outcome_lists_the_valid_ones(tmp_path, lazy):
    frame = rows("runs", {}).with_columns(outcome=pl.lit("exploded"))
    with pytest.raises(InputError, match=r"runs: .*'outcome'.*exploded.*valid: reached"):
        write_table(tmp_path / "runs.parquet", frame.lazy() if lazy else frame, RUNS)
    assert names(tmp_path) == []


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
def test_a_failure_in_the_middle_keeps_the_old_file(tmp_path, monkeypatch, call, failure):
    path = tmp_path / "curves.parquet"
    old = rows("curves", {"value": 1.0})
    write_table(path, old, CURVES)

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(os, call, fail)
    with pytest.raises((KeyboardInterrupt, InputError)):
        write_table(path, rows("curves", {"value": 2.0}), CURVES)
    assert_frame_equal(pl.read_parquet(path), old)
    assert names(tmp_path) == ["curves.parquet"]


def test_file_and_folder_are_on_the_disk_before_and_after_the_name_changes(tmp_path, monkeypatch):
    events: list[str] = []
    replace = os.replace

    def note_flush(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().suffix or "folder")

    def note_replace(*paths: Path) -> None:
        events.append("replace")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", note_flush)
    monkeypatch.setattr(os, "replace", note_replace)
    write_table(tmp_path / "curves.parquet", rows("curves", {}), CURVES)
    assert events == [".parquet", "replace", "folder"]


def refuse(folder: Path, number: int) -> None:
    with replacing(folder / "runs.parquet") as temporary:
        temporary.write_bytes(b"half")
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "free space"), (errno.EROFS, "make it writable"), (errno.EIO, "check the disk")],
)
def test_a_refusal_names_folder_reason_and_remedy(tmp_path, number, remedy):
    with pytest.raises(InputError) as error:
        refuse(tmp_path, number)
    for word in (str(tmp_path), "runs.parquet", os.strerror(number), remedy):
        assert word in str(error.value)
    assert names(tmp_path) == []


def test_a_file_where_a_folder_is_wanted(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(InputError, match=r"results: curves\.parquet cannot be written.*move it away"):
        write_table(tmp_path / "results" / "curves.parquet", rows("curves", {}), CURVES)


SINK = pl.LazyFrame.sink_parquet


def into_a_full_disk(frame: pl.LazyFrame, *_: object) -> None:
    SINK(frame, "/dev/full")


def forbid(*_: object) -> None:
    raise PermissionError("Permission denied (os error 13): x")  # polars raises it without errno


def blame_the_file(*_: object) -> None:
    """Report damage of the file, as polars does of some writes to a full disk, which the disk then tells."""
    raise pl.exceptions.ComputeError("parquet: File out of specification: Invalid thrift: transport error")


@pytest.mark.parametrize(
    ("sink", "remedy"),
    [
        (into_a_full_disk, r"No space left on device.*free space"),
        (forbid, r"Permission denied\); make it writable"),  # root may write anywhere
        (blame_the_file, r"curves.parquet cannot be written there .*; free space"),
    ],
)
def test_what_polars_cannot_write_is_refused_with_the_reason(tmp_path, monkeypatch, sink, remedy):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", sink)
    monkeypatch.setattr("curvebench.results.writing.os.fsync", full)
    with pytest.raises(InputError, match=remedy):
        write_table(tmp_path / "curves.parquet", rows("curves", {}), CURVES)
    assert names(tmp_path) == []


def test_no_file_is_left_whatever_happens(tmp_path: Path):
    path = tmp_path / "runs.parquet"
    with suppress(OSError), temporary_beside(path) as temporary:
        temporary.write_bytes(b"half")
        raise OSError("full")
    with temporary_beside(path) as temporary:
        temporary.write_bytes(b"whole")
        temporary.replace(path)
    assert [each.name for each in tmp_path.iterdir()] == ["runs.parquet"]


def test_what_a_killed_process_left_goes_and_what_a_running_one_writes_stays(tmp_path: Path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, running = (f".{number}-00c0ffee.adam[1].npz" for number in (ended.pid, os.getpid()))
    others = [running, f".{ended.pid}-00c0ffee.adam1.npz", ".hidden-adam[1].npz"]
    for name in (dead, *others):
        (tmp_path / name).touch()
    with temporary_beside(tmp_path / "adam[1].npz"):
        assert sorted(each.name for each in tmp_path.iterdir()) == sorted(others)


def test_texts_are_written_whole_and_leftovers_go(tmp_path: Path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / f".{ended.pid}-00c0ffee.b.json").touch()
    write_texts({tmp_path / "a.json": "one", tmp_path / "b.json": "two"})
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"a.json": "one", "b.json": "two"}


def test_a_text_that_cannot_be_written_leaves_nothing_and_is_named(tmp_path: Path):
    (tmp_path / "taken.json").mkdir()
    with pytest.raises(OSError, match=r"taken\.json"):
        write_texts({tmp_path / "a.json": "one", tmp_path / "taken.json": "two"})
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.json", "taken.json"]
