"""Temporary names: none is left, neither by those who end nor by those who were killed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from curvebench.results.temporary import temporary_beside, write_texts


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
