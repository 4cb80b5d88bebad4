"""Sums of the seconds of jobs by cause, by hand."""

from __future__ import annotations

import math

import polars as pl

from curvebench.results.schema import TABLES
from curvebench.results.seconds import seconds_by_cause

SCHEMA = {name: kind for name, kind in TABLES["jobs"].items() if name.endswith(("_seconds", "_bytes"))}
ROWS = [
    {
        "study": "b",
        "step_seconds": 2.0,
        "evaluation_seconds": 1.0,
        "compile_seconds": 5,
        "total_seconds": 8.0,
    },
    {"study": "a", "step_seconds": 1.0, "other_seconds": 1.0, "total_seconds": 2.0, "peak_memory_bytes": 7},
    {"study": "b", "step_seconds": 1.0, "data_seconds": 1.0, "total_seconds": 2.0, "peak_memory_bytes": 9},
]


def test_seconds_are_summed_by_study_and_the_share_is_that_of_steps_and_evaluation():
    jobs = pl.DataFrame(ROWS, schema={"study": pl.String, **SCHEMA})
    a, b = seconds_by_cause(jobs, "study").to_dicts()
    assert [a["study"], a["jobs"], a["total_seconds"], a["work_share"]] == ["a", 1, 2.0, 0.5]
    assert [b["jobs"], b["compile_seconds"], b["step_seconds"], b["peak_memory_bytes"]] == [2, 5.0, 3.0, 9]
    assert b["work_share"] == 0.4
    everything = seconds_by_cause(jobs).row(0, named=True)
    assert everything["work_share"] == 5 / 12
    assert everything["jobs"] == 3


def test_no_jobs_have_no_share():
    nothing = seconds_by_cause(pl.DataFrame(schema=SCHEMA)).row(0, named=True)
    assert nothing["jobs"] == 0
    assert math.isnan(nothing["work_share"])
