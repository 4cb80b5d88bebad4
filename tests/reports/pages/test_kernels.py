"""Kernel speed over commits: changes, versions and damaged files of asv's; the page is frozen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curvebench.reports.pages.kernels import kernels_page, machine_parts, read_stored
from curvebench.spec.errors import InputError
from tests.reports.stored_kernels import write_stored


@pytest.fixture
def hashes() -> list[str]:
    return [letter * 40 for letter in "abc"]


def test_a_change_is_that_from_the_measured_commit_before(tmp_path: Path, hashes: list[str]):
    seconds = [[first, 0.0, 1.0] for first in (1.0, None, 3.0)]
    (part,) = machine_parts(read_stored(write_stored(tmp_path, hashes, seconds=seconds)))
    rotation, step, zero = (list(row["cells"].values()) for row in part["tables"]["seconds"])
    assert [cell["change"] for cell in step] == [None, None, 3.0]
    assert {cell["change"] for cell in zero} == {None}, "a ratio to 0 says nothing"
    assert [cell["change"] for cell in rotation] == [None, 1.0, 1.0]


def test_another_version_of_a_benchmark_is_not_compared(tmp_path: Path, hashes: list[str]):
    write_stored(tmp_path, hashes)
    path = tmp_path / "one" / f"{hashes[0][:8]}-existing-py.json"
    path.write_text(path.read_text().replace('"1", 1000', '"0", 1000'))
    stored = read_stored(tmp_path)
    assert set(stored.frame["commit"]) == set(hashes[1:])
    assert "9 values of an older version" in stored.notes[0]


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "[]", {"date": None}, {"date": 10**17}, {"env_name": None}),
        {"results": {"x.time_call": [[1]]}},
    ],
    ids=str,
)
def test_a_damaged_file_is_named_and_the_rest_is_shown(
    tmp_path: Path, hashes: list[str], wrong: str | dict[str, Any]
):
    write_stored(tmp_path, hashes)
    damaged = tmp_path / "one" / f"{hashes[1][:8]}-existing-py.json"
    if isinstance(wrong, str):
        damaged.write_text(wrong)
        (tmp_path / "one" / "machine.json").write_text(wrong or "3")
    else:
        damaged.write_text(json.dumps(json.loads(damaged.read_text()) | wrong))
    page = kernels_page(tmp_path)
    assert f"{damaged}: not a result of asv" in page["notes"][0]
    assert {row["commit"] for row in page["commits"]} == {hashes[0], hashes[2]}


def test_a_folder_of_a_plan_that_is_not_there_is_said(tmp_path: Path):
    with pytest.raises(InputError, match="the plan's folder of kernel speed is not there; run snakemake"):
        kernels_page(tmp_path / "gone")
