"""Steps beside other libraries: the stored table, what the page makes of it, and that the documents agree."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from curvebench.reports.pages.kernel_ratios import ratio_tables, read_ratios

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
    [table] = ratio_tables(stored)
    assert table["shapes"] == ["many_tiny", "one_large"]
    assert table["mean"] == pytest.approx(1.0)
    assert table["worst"]["ratio"] == 8.0, "the worst of the rows that are shown"
    assert [each["rule"] for each in table["rows"]] == ["adam", "muon beside bfloat16"]
    assert [cell and cell["peer"] for cell in table["rows"][0]["cells"]] == ["fused", "fused"]
    assert table["rows"][1]["cells"][0] is None


def test_every_stored_ratio_is_that_of_its_times_inside_its_interval():
    stored = read_ratios()
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
        for of in ratio_tables(read_ratios())
        for each in of["rows"]
    }
    assert len(told) == 10
    for name, ratios in told.items():
        assert kept[name] == pytest.approx(ratios, abs=0.0051)
