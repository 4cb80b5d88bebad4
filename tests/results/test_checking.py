"""Checking a set: what is accepted, and what is refused with which reason."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reports.publish import disagreements
from results.__main__ import main
from results.checking import complaints, unfounded
from results.publishing import seal
from tests.reports.sets import Change, changed, scaled, with_metric, write_set

Frame = pl.DataFrame


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set that nothing is wrong with."""
    return write_set(tmp_path_factory.mktemp("good"), "good.quick")


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(good, tmp_path / "set")
    return tmp_path / "set"


def test_a_good_set_is_accepted(good: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", str(good)]) == 0
    assert "accepted" in capsys.readouterr().out


def test_a_result_that_contradicts_a_record_is_accepted_like_any_other(good: Path, tmp_path: Path):
    contrary = write_set(tmp_path, "contrary.quick", runs=scaled("adam", 1e3))
    verdicts = [
        pl.read_parquet(folder / "claims.parquet").filter(claim="egop.digits_mlp", backend="jax")["verdict"][
            0
        ]
        for folder in (good, contrary)
    ]
    leaders = [pl.read_parquet(folder / "leaderboard.parquet")["method"][0] for folder in (good, contrary)]
    assert leaders[0] != leaders[1]
    assert verdicts[0] == "reproduced"
    assert unfounded(contrary) == []
    assert disagreements(contrary) == []


# --- files ---------------------------------------------------------------------------------------


def test_changed_missing_and_further_files_are_told_all_at_once(
    copy: Path, capsys: pytest.CaptureFixture[str]
):
    (copy / "LICENSE").write_text("mine")
    (copy / "convex/jobs.parquet").unlink()
    (copy / "notes.txt").write_text("see")
    (copy / "link.parquet").symlink_to("/etc/passwd")
    assert main(["check", str(copy)]) == 1
    said = capsys.readouterr().out
    assert "refused, 4 reasons" in said
    for told in (
        "LICENSE: is not the file",
        "jobs.parquet: is missing",
        "notes.txt: is not among",
        "link.parquet: a link",
    ):
        assert told in said


def test_checksums_do_not_excuse_a_file_that_no_set_has(copy: Path):
    (copy / "convex/sitecustomize.py").write_text("raise SystemExit")
    (copy / "convex/runs.parquet").unlink()
    seal(copy)
    found = "\n".join(unfounded(copy))
    assert "convex/sitecustomize.py: a set has no such file" in found
    assert "convex/runs.parquet: a set needs this file" in found


def test_nothing_of_a_set_is_executed(copy: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("reports", "polars", "sitecustomize"):
        (copy / f"{name}.py").write_text(f"open({str(copy / 'ran')!r}, 'w')")
    seal(copy)
    monkeypatch.chdir(copy)
    assert len(complaints(copy)) == 3
    for name in ("reports", "polars", "sitecustomize"):
        (copy / f"{name}.py").unlink()
    seal(copy)
    assert complaints(copy) == []
    assert not (copy / "ran").exists()


@pytest.mark.parametrize("text", ["", "nonsense\n", "0123  README.md\n"])
def test_checksums_that_are_none_are_refused(copy: Path, text: str):
    (copy / "SHA256SUMS").write_text(text)
    assert unfounded(copy)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path):
    assert complaints(tmp_path / "gone") == [f"{tmp_path / 'gone'}: no such folder"]


def test_damaged_tables_and_texts_are_named(copy: Path):
    (copy / "convex/runs.parquet").write_bytes(b"PAR1")
    (copy / "digits_mlp/timings.parquet").write_bytes((copy / "digits_mlp/memory.parquet").read_bytes())
    (copy / "provenance.json").write_text("{")
    seal(copy)
    found = "\n".join(unfounded(copy))
    assert "convex/runs.parquet: not a whole Parquet file" in found
    assert "digits_mlp/timings.parquet: column phase is missing" in found
    assert "provenance.json: cannot be read as JSON" in found


@pytest.mark.parametrize(
    "text", ["{}", '{"published": "a", "studies": [3]}', '{"published": "a", "studies": 3}', "[]"]
)
def test_a_plan_that_is_none_is_refused(copy: Path, text: str):
    (copy / "plan.json").write_text(text)
    seal(copy)
    assert any(complaint.startswith(("plan.json", "convex")) for complaint in unfounded(copy))


# --- tables --------------------------------------------------------------------------------------


def first(frame: Frame, **values: Any) -> Frame:
    """The table with some values of its first final run replaced; of another table of its first row."""
    stage = pl.col("stage") == "final" if "outcome" in frame.columns else pl.lit(value=True)
    number = pl.int_range(pl.len())
    here = number == number.filter(stage).min()
    return frame.with_columns(
        pl.when(here).then(pl.lit(value, dtype=frame.schema[name])).otherwise(pl.col(name)).alias(name)
        for name, value in values.items()
    )


def infinite(runs: Frame) -> Frame:
    whole = pl.col("outcome") != "diverged"
    bad = with_metric(runs, "train_loss", pl.lit(float("inf")))
    return runs.with_columns(final_metrics=pl.when(whole).then(bad).otherwise(pl.col("final_metrics")))


def one(**values: Any) -> Change:
    """What replaces values of the first row."""
    return lambda frame: first(frame, **values)


def every(**values: Any) -> Change:
    """What replaces values of all rows."""
    return lambda frame: frame.with_columns(
        pl.lit(value, dtype=pl.String).cast(frame.schema[name]).alias(name)
        if isinstance(frame.schema[name], pl.Enum)
        else pl.lit(value, dtype=frame.schema[name]).alias(name)
        for name, value in values.items()
    )


STRANGER = "1 rows without provenance"
FLAWS: dict[str, tuple[str, Change, str]] = {
    "a run of no job": ("runs", one(spec_hash="f" * 16), STRANGER),
    "a run of another machine": ("runs", one(machine="m9"), STRANGER),
    "a timing of no job": ("timings", one(spec_hash="f" * 16), STRANGER),
    "a memory of no job": ("memory", one(spec_hash="f" * 16), STRANGER),
    "a stage of no job": ("runs", every(stage="refine"), "rows without provenance"),
    "a run twice": ("runs", lambda frame: pl.concat([frame, frame[:1]]), "more than one run is called run-"),
    "a seed twice": ("runs", one(seed=101), "more than one final run of a seed"),
    "a tuning seed that judges": ("runs", one(seed=0), "a seed that tuned judges as well"),
    "an infinite loss": ("runs", infinite, "final_metrics are not finite"),
    "no metrics": ("runs", every(final_metrics=[]), "no final metrics"),
    "diverged nowhere": ("runs", every(outcome_step=None), "diverged, and at no step"),
    "another study": ("runs", one(study="mnist"), "1 rows are of the study 'mnist'"),
    "a curve of no run": ("curves", one(run="elsewhere"), "does not have: elsewhere"),
    "a negative second": ("timings", one(seconds=-1.0), "1 seconds are negative or not finite"),
    "no processor": ("jobs", every(cpu=None), "name no machine or no processor"),
    "no commit": ("jobs", every(commit="main"), "'main' is not a commit"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_in_a_table_is_refused(good: Path, tmp_path: Path, flaw: str):
    table, change, told = FLAWS[flaw]
    found = unfounded(changed(good, tmp_path / "set", f"digits_mlp/{table}.parquet", change))
    assert any(told in complaint for complaint in found), found
    assert all("digits_mlp" in complaint for complaint in found if "provenance.json" not in complaint)


def dirty(jobs: Frame) -> Frame:
    return jobs.with_columns(dirty=pl.lit(value=True))


def test_what_is_not_waived_is_refused_and_what_is_waived_is_not(good: Path, tmp_path: Path):
    flawed = changed(good, tmp_path / "set", "convex/jobs.parquet", dirty)
    (found,) = unfounded(flawed)
    assert "convex: 8 of 8 jobs ran code that differs from its commit" in found
    assert "waive=dirty" in found
    provenance = flawed / "provenance.json"
    provenance.write_text(json.dumps(json.loads(provenance.read_text()) | {"waived": [{"kind": "dirty"}]}))
    seal(flawed)
    assert unfounded(flawed) == []
    provenance.write_text(
        json.dumps(json.loads(provenance.read_text()) | {"waived": [{"kind": "dirty"}, {"kind": "all"}]})
    )
    seal(flawed)
    assert "'all' is no kind" in unfounded(flawed)[0]


def test_provenance_tells_runs_and_licence_as_they_are(copy: Path):
    path = copy / "provenance.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"runs": 3, "licence": "none", "waived": "all"})
    )
    seal(copy)
    found = "\n".join(unfounded(copy))
    for told in ("says 3 runs", "licence is 'none'", "waived is not a list"):
        assert told in found


def test_a_rule_that_was_changed_in_the_plan_is_refused(copy: Path):
    path = copy / "plan.json"
    plan = json.loads(path.read_text())
    plan["studies"][0]["claims"][0]["holds_if"][0]["smallest_effect"] = 0.5
    path.write_text(json.dumps(plan))
    seal(copy)
    assert unfounded(copy) == [
        "plan.json: claim egop.digits_mlp: its rule is not the one whose hash stands beside it"
    ]


# --- what follows from the tables ----------------------------------------------------------------


def test_a_verdict_that_the_tables_do_not_give_is_refused(good: Path, tmp_path: Path):
    found = complaints(changed(good, tmp_path / "set", "claims.parquet", every(verdict="not run")))
    assert "claims.parquet: verdict of egop.digits_mlp, jax is not run, the tables give reproduced" in found


@pytest.mark.parametrize(("table", "column"), [("leaderboard", "mean_rank"), ("findings", "estimate")])
def test_a_number_that_the_tables_do_not_give_is_refused(good: Path, tmp_path: Path, table: str, column: str):
    moved = changed(
        good, tmp_path / "set", f"{table}.parquet", lambda frame: frame.with_columns(pl.col(column) * 1.001)
    )
    assert all(f"{table}.parquet: {column} of " in told for told in disagreements(moved))
    assert disagreements(moved)
    rounded = changed(
        good,
        tmp_path / "two",
        f"{table}.parquet",
        lambda frame: frame.with_columns(pl.col(column) * (1 + 1e-9)),
    )
    assert disagreements(rounded) == []


def test_a_row_too_few_is_refused(good: Path, tmp_path: Path):
    short = changed(good, tmp_path / "set", "leaderboard.parquet", lambda frame: frame[1:])
    assert "rows, and the tables give" in disagreements(short)[0]


def test_another_version_of_the_rules_is_told(copy: Path):
    path = copy / "provenance.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rule_version": 0}))
    (found,) = disagreements(copy)
    assert "version 0 of the rules" in found
    assert os.sep not in found.split(":")[0]
