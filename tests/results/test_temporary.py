"""Temporary names: none is left, neither by those who end nor by those who were killed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from results.temporary import temporary_beside


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
