"""Checking a set: what is accepted, and what is refused with which reason."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.reports.sets.checking import check, disagreements, flaws
from curvebench.reports.sets.files import files_of, seal
from tests.conftest import ROOT
from tests.reports.example_sets import Change, changed, dirty, scaled, write_set
from tests.reports.synthetic import RATES

Frame = pl.DataFrame
FOLDERS = ("digits_mlp", "convex", "parity", "checks")
DAMAGED = 40  # bytes, one at a time
SETS = [plan.parent for plan in sorted((ROOT / "results/published").glob("*/plan.json"))]
LARGE = {  # sets of more than a megabyte, whose verdicts take long
    folder.name
    for folder in SETS
    if sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) > 1_000_000
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a valid set."""
    return write_set(tmp_path_factory.mktemp("good"), "good.quick")


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    """Return the folder of a copy of the valid set."""
    shutil.copytree(good, tmp_path / "set")
    return tmp_path / "set"


def test_a_good_set_is_accepted_and_a_folder_of_sets_is_none(good: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["sets", "check", str(good)]) == 0
    assert capsys.readouterr().out == f"{good}: accepted\n"
    assert main(["sets", "check", str(good.parent)]) == 2
    assert f"name one of the sets in it, such as {good}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "folder",
    [pytest.param(folder, marks=[pytest.mark.long] if folder.name in LARGE else []) for folder in SETS],
    ids=lambda folder: folder.name,
)
def test_the_sets_of_this_repository_are_accepted(folder: Path):
    """They are accepted on any processor: their verdicts and leaderboards do not depend on rounding."""
    assert check(folder) == []


@pytest.mark.parametrize("name", sorted(LARGE))
def test_the_large_ones_are_whole_and_hold_what_their_plans_ask(name: str):
    assert flaws(ROOT / "results/published" / name) == []


def test_a_result_that_contradicts_a_record_is_accepted_like_any_other(good: Path, tmp_path: Path):
    contrary = write_set(tmp_path, "contrary.quick", runs=scaled("adam", 1e3))
    boards = [pl.read_parquet(folder / "leaderboard.parquet") for folder in (good, contrary)]
    assert boards[0]["mean_rank"].to_list() != boards[1]["mean_rank"].to_list()
    assert flaws(contrary) == disagreements(contrary) == []


# --- files ---------------------------------------------------------------------------------------


def test_a_damaged_byte_anywhere_is_refused_by_its_file(copy: Path):
    places = random.Random(0)
    sizes = {name: (copy / name).stat().st_size for name in files_of(copy)}
    for name in places.choices(list(sizes), weights=list(sizes.values()), k=DAMAGED):
        whole = (copy / name).read_bytes()
        at = places.randrange(len(whole))
        (copy / name).write_bytes(
            whole[:at] + bytes([whole[at] ^ (1 << places.randrange(8))]) + whole[at + 1 :]
        )
        (told,) = check(copy)
        assert told.startswith(f"{name}: is not the file that the checksum is of")
        (copy / name).write_bytes(whole)


def test_no_sentence_of_a_set_is_compared(copy: Path):
    (copy / "README.md").write_text("in other words")
    seal(copy)
    assert check(copy) == []


def test_changed_missing_and_further_files_are_told_at_once(copy: Path, capsys: pytest.CaptureFixture[str]):
    (copy / "LICENSE").write_text("mine")
    (copy / "convex/jobs.parquet").unlink()
    (copy / "notes.txt").write_text("see")
    (copy / "link.parquet").symlink_to("/etc/passwd")
    assert main(["sets", "check", str(copy)]) == 1
    said = capsys.readouterr().out
    files = ("LICENSE: is not the", "jobs.parquet: is miss", "notes.txt: is not", "link.parquet: a link")
    for told in ("refused, 4 reasons", *files):
        assert told in said


def test_checksums_do_not_excuse_a_file_that_no_set_has(copy: Path):
    (copy / "convex/sitecustomize.py").write_text("raise SystemExit")
    (copy / "convex/runs.parquet").unlink()
    seal(copy)
    found = "\n".join(flaws(copy))
    assert "convex/sitecustomize.py: a set has no such file" in found
    assert "convex/runs.parquet: a set needs this file" in found


def test_nothing_of_a_set_is_executed(copy: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("reports", "polars", "sitecustomize"):
        (copy / f"{name}.py").write_text(f"open({str(copy / 'ran')!r}, 'w')")
    seal(copy)
    monkeypatch.chdir(copy)
    assert len(check(copy)) == 3
    assert not (copy / "ran").exists()


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path):
    assert check(tmp_path / "gone") == [f"{tmp_path / 'gone'}: no such folder"]


def test_damaged_tables_and_texts_are_named(copy: Path):
    (copy / "convex/runs.parquet").write_bytes(b"PAR1")
    (copy / "digits_mlp/timings.parquet").write_bytes((copy / "digits_mlp/memory.parquet").read_bytes())
    seal(copy)
    found = "\n".join(flaws(copy))
    assert "convex/runs.parquet: not a whole Parquet file" in found
    assert "delete" not in found
    assert "get the set's folder again from where it comes from" in found
    assert "digits_mlp/timings.parquet: column phase is missing" in found
    (copy / "provenance.json").write_text("{")
    seal(copy)
    assert "provenance.json: not that of a set" in flaws(copy)[0]


# --- tables --------------------------------------------------------------------------------------


def where(said: pl.Expr, **values: Any) -> Change:
    """Return a function that replaces values in the rows of a frame that satisfy a condition."""
    return lambda frame: frame.with_columns(
        pl.when(said).then(pl.lit(value).cast(frame.schema[name])).otherwise(name).alias(name)
        for name, value in values.items()
    )


def one(**values: Any) -> Change:
    """Return a function that replaces values of the first final run, or of the first row of another table."""

    def change(frame: Frame) -> Frame:
        stage = pl.col("stage") == "final" if "outcome" in frame.columns else pl.lit(value=True)
        number = pl.int_range(pl.len())
        return where(number == number.filter(stage).min(), **values)(frame)

    return change


def without(**values: Any) -> Change:
    """Return a function that removes the rows of a frame that have all these values."""
    return lambda frame: frame.filter(
        ~pl.all_horizontal(pl.col(name).cast(pl.String) == str(value) for name, value in values.items())
    )


FLAWS: dict[str, tuple[str, Change, str]] = {
    "a seed twice": ("runs", one(seed=1001), "1000: 0 runs, and the plan has 1; 1 more cells likewise"),
    "a tuning seed that judges": ("runs", one(seed=0), "0: 1 runs, and the plan has 0"),
    "a method left out": ("runs", without(optimizer="adam"), "final, jax, digits_mlp, adam, 1000: 0 runs"),
    "less tuning": ("runs", without(stage="tuning", seed=2), "2: 0 runs, and the plan has 5"),
    "a check said to hold": (
        "checks",
        where(pl.col("value").is_nan(), holds=True),
        "holds is True, and should be what its numbers give",
    ),
    "an instance left out": (
        "checks",
        lambda frame: frame.filter((pl.col("part") != "full AdaGrad") | (pl.col("instance") != 9)),
        "notes.regret, full AdaGrad: 199 instances, and the plan has 200",
    ),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_in_a_table_is_refused(good: Path, tmp_path: Path, flaw: str):
    table, change, told = FLAWS[flaw]
    folder = table if table in FOLDERS else "digits_mlp"
    found = flaws(changed(good, tmp_path / "set", f"{folder}/{table}.parquet", change))
    assert any(told in complaint for complaint in found), found
    assert all(folder in complaint for complaint in found if "provenance.json" not in complaint), found


def test_a_setting_that_a_round_repeats_is_two_runs(good: Path, tmp_path: Path):
    """Successive halving repeats its best settings if it has fewer different ones than a round tries."""
    first, second, *_ = RATES
    repeat = where((pl.col("stage") == "tuning") & (pl.col("learning_rate") == first), learning_rate=second)
    found = flaws(changed(good, tmp_path / "set", "digits_mlp/runs.parquet", repeat))
    assert not [complaint for complaint in found if "the plan has" in complaint]


def test_what_is_no_file_ends_no_check(copy: Path):
    (copy / "plan.json").write_text("[" * 100_000)
    seal(copy)
    assert flaws(copy)[0].startswith("plan.json")
    os.mkfifo(copy / "pipe")
    (copy / "\x1b[31m").write_text("red")
    told = check(copy)
    assert told == ["\\x1b[31m: is not among the checksums; remove it", "pipe: a link, or no file; remove it"]
    for make in (lambda path: path.symlink_to(copy / "LICENSE"), os.mkfifo):
        (copy / "SHA256SUMS").unlink()
        make(copy / "SHA256SUMS")
        assert check(copy) == ["SHA256SUMS: is missing, a link, or no file; get the set's folder again"]


def edited(folder: Path, file: str, **values: Any) -> None:
    """Replace values of a JSON file of a set, each at a path with `/`, and update the checksums."""
    whole = json.loads((folder / file).read_text())
    for place, value in values.items():
        *above, last = (int(step) if step.isdigit() else step for step in place.split("/"))
        reduce(getitem, above, whole)[last] = value
    (folder / file).write_text(json.dumps(whole))
    seal(folder)


@pytest.mark.parametrize(
    ("file", "place", "value", "told"),
    [
        ("plan.json", "studies", [3], "plan.json: "),
        ("plan.json", "parity/tables", ["convex"], "plan.json: "),
        ("plan.json", "published", "Not A Name", "Not A Name"),
        ("plan.json", "studies/0/tables", ".", "tables of digits_mlp should lie in the folder digits_mlp"),
        ("plan.json", "studies/0/joins", "arena", "plan.json: digits_mlp: joins: .* 'arena'"),
        ("plan.json", "verdicts", "convex", "plan.json: verdicts"),
        (
            "plan.json",
            "studies/0/claims/0/supported_if/0/smallest_effect",
            0.5,
            "egop.digits_mlp: its rule is not",
        ),
        ("provenance.json", "published", "9999", "provenance.json: not that of a set.*published"),
        ("provenance.json", "commit", "main", "provenance.json: not that of a set.*commit"),
        ("provenance.json", "dirty", "no", "provenance.json: not that of a set.*dirty"),
        ("provenance.json", "dirty", True, "differs from its commit"),
        ("provenance.json", "commit", None, "is of no known commit"),
        ("provenance.json", "rule_version", 1, "version 1 of the rules.*COMMIT"),
    ],
)
def test_a_wrong_value_of_a_document_is_refused(copy: Path, file: str, place: str, value: object, told: str):
    commit = json.loads((copy / "provenance.json").read_text())["commit"]
    edited(copy, file, **{place: value})
    assert re.search(told.replace("COMMIT", commit), flaws(copy)[0], re.DOTALL)


def test_what_is_not_waived_is_refused_and_what_is_waived_is_not(good: Path, tmp_path: Path):
    flawed = changed(good, tmp_path / "set", "convex/jobs.parquet", dirty)
    (found,) = flaws(flawed)
    assert found.startswith("convex: 5 of 5 jobs ran code that differs from its commit (0123456789ab)")
    assert "waive=dirty" in found
    edited(flawed, "plan.json", waived=[{"kind": "tuning", "where": "convex"}])
    assert flaws(flawed) == [found]
    edited(flawed, "plan.json", waived=[{"kind": "dirty", "where": "convex"}])
    assert flaws(flawed) == []


# --- what follows from the tables ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "change", "told"),
    [
        ("claims", where(pl.lit(value=True), verdict="not run"), "egop.digits_mlp.*verdict is 'not run'"),
        ("leaderboard", lambda frame: frame.with_columns(pl.col("mean_rank") * 1.001), "mean_rank is '"),
        ("findings", lambda frame: frame.with_columns(pl.col("estimate") * 1.001), "estimate is '"),
        ("findings", lambda frame: frame.with_columns(pl.col("estimate") * (1 + 1e-9)), None),
        ("claims", lambda frame: frame.with_columns(pl.col("estimate") * 1.001), "estimate is '"),
        ("claims", lambda frame: frame.with_columns(pl.col("estimate") * (1 + 1e-12)), None),
        ("leaderboard", lambda frame: frame[1:], "rows, and the tables give"),
    ],
)
def test_tables_are_recomputed(good: Path, tmp_path: Path, table: str, change: Change, told: str | None):
    found = check(changed(good, tmp_path / "set", f"{table}.parquet", change))
    if told is None:
        assert found == [], "another processor's rounding"
    else:
        assert re.match(rf"{table}\.parquet: .*{told}", found[0])
