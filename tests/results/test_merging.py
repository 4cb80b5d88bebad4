"""Jobs are merged without doubles, their machines are counted and their seconds summed by cause."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from curvebench.__main__ import main
from curvebench.results.merging import KEYS, machines, merge, mixed_hardware, model_seconds
from curvebench.results.reading import read
from curvebench.results.schema import TABLES
from curvebench.results.seconds import seconds_by_cause
from curvebench.spec.errors import InputError
from tests.results.rows import rows, target, write


def final(folder: Path, run: str = "a-0", machine: str = "m1", value: float = 1.0) -> Path:
    """Return a job's folder with one run that reached its target after 7 steps."""
    return write(
        folder,
        runs=rows("runs", {"run": run, "machine": machine, "targets": [target()]}),
        curves=rows("curves", {"run": run, "value": value}, {"run": run, "step": 5, "value": math.nan}),
        jobs=rows("jobs", {"spec_hash": run, "machine": machine}),
    )


def timing(folder: Path, machine: str = "m1", seconds: float = 2.0) -> Path:
    """Return the folder of a timing job: `seconds` for ten steps, and a slower repetition."""
    return write(
        folder,
        timings=rows(
            "timings",
            *(
                {"repetition": number, "seconds": seconds * (1 + number**2), "machine": machine}
                for number in range(3)
            ),
        ),
        memory=rows("memory", {"machine": machine}),
        jobs=rows("jobs", {"spec_hash": "timing", "stage": "timing", "machine": machine}),
    )


def merged(folder: Path, *jobs: Path) -> Path:
    merge(jobs, folder)
    return folder


def test_merge_writes_all_tables_and_models_seconds(tmp_path):
    bases = write(tmp_path / "bases", jobs=rows("jobs", {"stage": "bases"}))
    jobs = [bases, final(tmp_path / "a"), final(tmp_path / "b", "b-0"), timing(tmp_path / "t")]
    out = merged(tmp_path / "out", *jobs)
    assert {file.name for file in out.iterdir()} == {f"{table}.parquet" for table in KEYS}
    assert [read(out, table).height for table in KEYS] == [2, 4, 3, 1, 4]
    targets = read(out, "runs")["targets"].to_list()
    assert targets == [[target(seconds=7 * 0.4, seconds_kind="modelled")]] * 2
    assert read(out, "runs")["run"].to_list() == ["a-0", "b-0"]


def test_identical_rows_are_kept_once(tmp_path):
    out = merged(
        tmp_path / "out", final(tmp_path / "a"), final(tmp_path / "copy"), final(tmp_path / "b", "b-0")
    )
    alone = merged(tmp_path / "alone", tmp_path / "a", tmp_path / "b")
    for table in KEYS:
        assert_frame_equal(read(out, table), read(alone, table))


@pytest.mark.parametrize(("table", "change"), [("runs", {"seed": 1}), ("curves", {"value": 9.0})])
def test_different_rows_of_one_name_are_an_error(tmp_path, table, change):
    first, second = final(tmp_path / "first"), final(tmp_path / "second")
    old = read(second, table)
    write(second, **{table: old.with_columns(**change), "jobs": read(second, "jobs")})
    with pytest.raises(InputError) as error:
        merge([first, second], tmp_path / "out")
    for word in (f"table {table}", "run a-0", str(first), str(second), "snakemake again"):
        assert word in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_job_that_has_not_finished_is_named(tmp_path):
    job = final(tmp_path / "job")
    (job / "jobs.parquet").unlink()
    with pytest.raises(InputError, match=rf"{job}: holds no jobs\.parquet; run snakemake again"):
        merge([job], tmp_path / "out")


def test_model_seconds_by_hand():
    timings = rows(
        "timings",
        {"seconds": 1.0, "steps": 10},  # 0.1 s a step
        {"seconds": 8.0, "steps": 20, "repetition": 1},  # 0.4
        {"seconds": 0.9, "steps": 3, "repetition": 2},  # 0.3, the median
        {"seconds": 1000.0, "phase": "compile"},
        {"seconds": 1000.0, "phase": "null_step"},
        {"seconds": 50.0, "basis": "egop"},  # 5 s a step
        {"seconds": 1000.0, "machine": "m2"},
    )
    measured = target(seconds=123.0, seconds_kind="measured")
    unreached = target(steps=None)
    runs = rows(
        "runs",
        {"targets": [target(), unreached, target(metric="other", steps=20)]},
        {"basis": "egop", "targets": [target(), measured]},
        {"basis": "block", "targets": [target()]},
        {"targets": []},
        {"targets": None},
    )
    modelled = model_seconds(runs, timings)
    expected = [
        [
            target(seconds=pytest.approx(2.1), seconds_kind="modelled"),
            unreached,
            target(metric="other", steps=20, seconds=pytest.approx(6.0), seconds_kind="modelled"),
        ],
        [target(seconds=35.0, seconds_kind="modelled"), measured],
        [target()],
        [],
        None,
    ]
    assert modelled["targets"].to_list() == expected
    assert modelled.schema == runs.schema
    assert_frame_equal(modelled.drop("targets"), runs.drop("targets"))
    assert_frame_equal(model_seconds(modelled, timings), modelled)


def test_machines_counts_jobs():
    jobs = rows("jobs", {}, {"machine": "m2", "gpu": "Toy GPU"}, {"machine": "m2", "gpu": "Toy GPU"})
    runs = rows("runs", {}, {"backend": "torch", "machine": "m2"}, {"study": "other", "machine": "m2"})
    assert mixed_hardware(runs) == [], "backends may be on machines of their own"
    mixed = ["toy at quick scale on jax: runs of 2 machines, m1, m2"]
    assert mixed_hardware(rows("runs", {}, {"run": "other", "machine": "m2"})) == mixed
    assert machines(jobs).select("machine", "gpu", "jobs").rows() == [("m2", "Toy GPU", 2), ("m1", None, 1)]


def test_the_command_line_merges_jobs_that_are_named_or_listed_in_a_file(tmp_path, capsys):
    jobs = [str(final(tmp_path / "a")), str(timing(tmp_path / "t"))]
    (tmp_path / "jobs").write_text("\n".join(jobs))
    for given in (jobs, [str(tmp_path / "jobs")]):
        assert main(["tables", "merge", "--out", str(tmp_path / "out"), "--jobs", *given]) == 0
        assert "1 runs, 2 curves, 3 timings, 1 memory, 2 jobs" in capsys.readouterr().out


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
