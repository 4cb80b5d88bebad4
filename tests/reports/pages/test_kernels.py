"""Kernel speed: changes over commits, damaged files of asv, and times compared with other libraries."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.reports.pages import kernels
from curvebench.spec.errors import InputError
from tests.reports.stored_kernels import write_stored


@pytest.fixture
def hashes() -> list[str]:
    return [letter * 40 for letter in "abc"]


def test_a_change_is_that_from_the_measured_commit_before(tmp_path: Path, hashes: list[str]):
    seconds = [[first, 0.0, 1.0] for first in (1.0, None, 3.0)]
    (part,) = kernels.machine_parts(kernels.read_stored(write_stored(tmp_path, hashes, seconds=seconds)))
    rotation, step, zero = (list(row["cells"].values()) for row in part["tables"]["seconds"])
    assert [cell["change"] for cell in step] == [None, None, 3.0]
    assert {cell["change"] for cell in zero} == {None}, "a ratio to 0 says nothing"
    assert [cell["change"] for cell in rotation] == [None, 1.0, 1.0]


def test_another_version_of_a_benchmark_is_not_compared(tmp_path: Path, hashes: list[str]):
    write_stored(tmp_path, hashes)
    path = tmp_path / "one" / f"{hashes[0][:8]}-existing-py.json"
    path.write_text(path.read_text().replace('"1", 1000', '"0", 1000'))
    stored = kernels.read_stored(tmp_path)
    assert set(stored.frame["commit"]) == set(hashes[1:])
    assert "9 values of an older version" in stored.notes[0]


@pytest.mark.parametrize(
    "wrong",
    [*("", "[]", {"date": None}, {"date": 10**17}, {"env_name": None}), {"results": {"x.time_call": [[1]]}}],
    ids=str,
)
def test_a_damaged_file_hides_no_other(tmp_path: Path, hashes: list[str], wrong: str | dict[str, Any]):
    write_stored(tmp_path, hashes)
    damaged = tmp_path / "one" / f"{hashes[1][:8]}-existing-py.json"
    if isinstance(wrong, str):
        damaged.write_text(wrong)
        (tmp_path / "one" / "machine.json").write_text(wrong or "3")
    else:
        damaged.write_text(json.dumps(json.loads(damaged.read_text()) | wrong))
    page = kernels.kernels_page(tmp_path)
    assert f"{damaged}: not a result of asv" in page["notes"][0]
    assert {row["commit"] for row in page["commits"]} == {hashes[0], hashes[2]}


def test_a_folder_of_a_plan_that_is_not_there_is_said(tmp_path: Path):
    with pytest.raises(InputError, match="the plan's folder of kernel speed is not there; run snakemake"):
        kernels.kernels_page(tmp_path / "gone")


PERFORMANCE = Path(__file__).parents[3] / "docs/performance.md"


def row(step: str, peer: str, ratio: float) -> dict[str, object]:
    return {
        "step": step, "backend": "torch", "precision": "float32", "peer": peer, "ours_milliseconds": 1.0,
        "peer_milliseconds": 1 / ratio, "ratio": ratio, "low": ratio, "high": ratio, "same_low": 1.0,
        "same_high": 1.0, "measured": "2026-11-22", "processor": "any", "versions": "any",
    }  # fmt: skip


def test_the_fastest_library_counts_and_another_computation_stays_out_of_the_mean():
    stored = pl.DataFrame(
        [
            row("step.adam.many_tiny", "foreach", 0.25),
            row("step.adam.many_tiny", "fused", 0.5),
            row("step.adam.one_large", "fused", 2.0),
            row("step.muon.one_large beside bfloat16", "in bfloat16", 8.0),
        ]
    )
    [table] = kernels.ratio_tables(stored)
    assert table["shapes"] == ["many_tiny", "one_large"]
    assert table["mean"] == pytest.approx(1.0)
    assert table["worst"]["ratio"] == 8.0, "the worst of the rows that are shown"
    assert [each["rule"] for each in table["rows"]] == ["adam", "muon beside bfloat16"]
    assert [cell and cell["peer"] for cell in table["rows"][0]["cells"]] == ["fused", "fused"]
    assert table["rows"][1]["cells"][0] is None


def test_every_stored_ratio_is_that_of_its_times_inside_its_interval():
    stored = kernels.read_ratios()
    assert not stored.is_empty()
    assert stored.select(~pl.col("ratio").is_between("low", "high")).sum().item() == 0
    assert not any(stored.null_count().row(0))


def test_the_document_has_the_ratios_that_are_stored():
    [table] = re.findall(
        r"^\| \| many_tiny.*\n\| ---.*\n((?:\|.*\n)+)", PERFORMANCE.read_text(), re.MULTILINE
    )
    told = {
        tuple(cells[0].split(", ")): [float(cell) for cell in cells[1:]]
        for cells in (re.split(r" \| ", line.strip("| ")) for line in table.splitlines())
    }
    kept = {
        (each["rule"], of["backend"]): [cell["ratio"] for cell in each["cells"] if cell]
        for of in kernels.ratio_tables(kernels.read_ratios())
        for each in of["rows"]
    }
    assert len(told) == 10
    for name, ratios in told.items():
        assert kept[name] == pytest.approx(ratios, abs=0.0051)
