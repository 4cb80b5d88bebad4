"""Tables are read lazily, checked, and damage is named."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from curvebench.results.reading import find_run, named, read, scan
from curvebench.results.schema import OPTIONAL, RUNS, TABLES
from curvebench.results.writing import write_table
from curvebench.spec.errors import InputError
from tests.results.rows import rows, target, write

NAMES = st.sampled_from(["train_loss", "validation_loss", "beta1", "µ", "a b", ""])
VALUES = st.none() | st.floats(width=64)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | st.dictionaries(NAMES, VALUES), min_size=1, max_size=4))
def test_named_values_survive_the_disk(cells):
    lists = [
        None if cell is None else [{"name": name, "value": value} for name, value in cell.items()]
        for cell in cells
    ]
    frame = rows("runs", *({"hyperparameters": items} for items in lists))
    with tempfile.TemporaryDirectory() as folder:
        write_table(Path(folder) / "runs.parquet", frame, RUNS)
        back = read(Path(folder), "runs")
    assert_frame_equal(back, frame)
    for name in ["train_loss", "µ", "absent"]:
        pulled = back.select(named(name, "hyperparameters"))[name].to_list()
        for value, cell in zip(pulled, cells, strict=True):
            expected = (cell or {}).get(name)
            assert repr(value) == repr(expected)  # NaN, null and -0.0 are three things


def test_named_pulls_any_field():
    frame = rows("runs", {"targets": [target(metric="loss", steps=3), target()]}, {"targets": []})
    steps = frame.select(named("train_loss", "targets", key="metric", value="steps"))["train_loss"]
    assert steps.to_list() == [7, None]


def test_files_with_different_hyperparameters_scan_together(tmp_path):
    for number, name in enumerate(["beta1", "momentum", "epsilon"]):
        changes = {"run": f"r{number}", "hyperparameters": [{"name": name, "value": number / 2}]}
        write(tmp_path / name, runs=rows("runs", changes))
    write(tmp_path / "none", runs=rows("runs", {"run": "r3", "hyperparameters": []}))
    momentum = scan(tmp_path, "runs").select("run", named("momentum", "hyperparameters")).collect()
    assert dict(momentum.iter_rows()) == {"r0": None, "r1": 0.5, "r2": None, "r3": None}


def test_a_folders_own_table_comes_before_those_below(tmp_path):
    write(tmp_path / "below", runs=rows("runs", {"run": "below"}))
    write(tmp_path, runs=rows("runs", {"run": "own"}))
    assert read(tmp_path, "runs")["run"].to_list() == ["own"]


def test_no_files_are_an_empty_table():
    assert read([], "runs").schema == RUNS


@pytest.mark.parametrize("keep", [0, -1])
def test_a_truncated_file_is_named_with_the_remedy(tmp_path, keep):
    file = write(tmp_path / "job", runs=rows("runs", {})) / "runs.parquet"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(InputError) as error:
        scan(tmp_path, "runs")
    assert f"{file}: not a whole Parquet file" in str(error.value)
    assert f"delete {file.parent} and run snakemake again" in str(error.value)


def test_damage_inside_one_of_many_files_is_named(tmp_path):
    for name in ("a", "b", "c"):
        write(
            tmp_path / name,
            curves=rows("curves", *({"step": step, "value": step**0.5} for step in range(999))),
        )
    file = tmp_path / "b" / "curves.parquet"
    content = bytearray(file.read_bytes())
    content[200:2000] = bytes(1800)
    file.write_bytes(content)
    with pytest.raises(InputError, match=f"{file}: not a whole Parquet file"):
        read(tmp_path, "curves")


def test_a_file_that_forbids_reading(tmp_path, monkeypatch):
    write(tmp_path, runs=rows("runs", {}))

    def forbid(*_: object, **__: object) -> None:
        raise PermissionError("Permission denied")

    monkeypatch.setattr(pl, "scan_parquet", forbid)  # root may read anything
    with pytest.raises(InputError, match=r"runs\.parquet: cannot be read .*make it readable"):
        scan(tmp_path, "runs")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop("seed"), "column seed is missing, and should be Int64"),
        (lambda frame: frame.with_columns(pl.col("seed").cast(pl.Float64)), "column seed is Float64"),
        (lambda frame: frame.with_columns(more=1), "unknown columns more"),
        (lambda frame: frame.select(reversed(frame.columns)), "columns in another order"),
    ],
)
def test_another_schema_is_refused(tmp_path, change, words):
    change(rows("runs", {})).write_parquet(tmp_path / "runs.parquet")
    with pytest.raises(InputError, match=rf"runs\.parquet: {words}.*another version"):
        scan(tmp_path, "runs")


def test_an_optional_column_that_an_old_file_lacks_is_null(tmp_path):
    for name in ("old", "new"):
        write(tmp_path / name, jobs=rows("jobs", {"spec_hash": name, "gpu_joules": 2.0}))
    file = tmp_path / "old" / "jobs.parquet"
    pl.read_parquet(file).drop(OPTIONAL["jobs"]).write_parquet(file)
    table = read(tmp_path, "jobs")
    assert table.schema == TABLES["jobs"]
    assert dict(table.select("spec_hash", "gpu_joules").iter_rows()) == {"new": 2.0, "old": None}


def test_an_enumeration_that_has_grown_since_is_read(tmp_path):
    write(tmp_path, claims=rows("claims", {"claim": "a", "verdict": "reproduced"}))
    file, fewer = tmp_path / "claims.parquet", pl.Enum(["reproduced", "not run"])
    pl.read_parquet(file).with_columns(pl.col("verdict").cast(fewer)).write_parquet(file)
    table = read(tmp_path, "claims")
    assert table.schema == TABLES["claims"]
    assert table["verdict"].to_list() == ["reproduced"]


def test_missing_folders_and_tables(tmp_path):
    with pytest.raises(InputError, match="no such folder; run snakemake"):
        scan(tmp_path / "nowhere", "runs")
    with pytest.raises(InputError, match=r"holds no runs\.parquet.*run snakemake"):
        scan(tmp_path, "runs")
    with pytest.raises(InputError, match=r"gone\.parquet: no such file"):
        scan([tmp_path / "gone.parquet"], "runs")


@pytest.fixture
def results(tmp_path):
    """Return a results folder with two jobs, and with merged tables, which must not be read as well."""
    for job in ("abc", "abd"):
        runs = [f"{job}-0000", f"{job}-0001"]
        curves = [{"run": run, "step": step} for run in runs for step in (5, 0)]
        frames = {"runs": rows("runs", *({"run": run} for run in runs)), "curves": rows("curves", *curves)}
        write(tmp_path / "runs" / "toy" / job, **frames)
        write(tmp_path / "tables" / job, **frames)
    return tmp_path


def test_find_run(results):
    row, curve = find_run(results, "abd-0001")
    assert_frame_equal(row, rows("runs", {"run": "abd-0001"}))
    assert curve["run"].unique().to_list() == ["abd-0001"]
    assert curve["step"].to_list() == [0, 5]


def test_find_run_prefers_the_whole_name_to_a_beginning(results):
    frames = {"runs": rows("runs", {"run": "abc-0000@m2"}), "curves": rows("curves")}
    write(results / "runs" / "second", **frames)
    assert find_run(results, "abc-0000")[0]["run"].item() == "abc-0000"


def test_find_run_says_what_is_ambiguous_or_unknown(results):
    with pytest.raises(InputError, match=r"'ab' names 4 runs: abc-0000 in .*toy/abc"):
        find_run(results, "ab")
    with pytest.raises(InputError, match=r"no run 'xyz'; its table runs.parquet"):
        find_run(results, "xyz")


def test_find_run_whose_curves_are_gone(results):
    (results / "runs" / "toy" / "abc" / "curves.parquet").unlink()
    with pytest.raises(InputError, match=r"curves\.parquet: no such file.*run snakemake again"):
        find_run(results, "abc-0000")


def test_signs_in_a_path_are_no_pattern(tmp_path):
    for name in ("a[1]*", "a1"):
        job = write(tmp_path / name, runs=rows("runs", {"run": name}), curves=rows("curves", {"run": name}))
        assert read(job, "runs")["run"].to_list() == [name]
        assert find_run(job, name)[1]["run"].to_list() == [name]
