"""Checking a set: what is accepted, and what is refused with which reason."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.reports.sets.checking import check, disagreements, flaws
from curvebench.reports.sets.files import files_of, seal
from curvebench.results.verdicts import RULE_VERSION
from tests.conftest import ROOT
from tests.reports.example_sets import Change, changed, dirty, scaled, write_set

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
    """A set that nothing is wrong with."""
    return write_set(tmp_path_factory.mktemp("good"), "good.quick")


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(good, tmp_path / "set")
    return tmp_path / "set"


def test_a_good_set_is_accepted(good: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["sets", "check", str(good)]) == 0
    assert capsys.readouterr().out == f"{good}: accepted\n"


def test_a_folder_of_sets_is_no_set(good: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["sets", "check", str(good.parent)]) == 2
    assert f"is a folder of sets; name one of the sets in it, such as {good}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "folder",
    [pytest.param(folder, marks=[pytest.mark.long] if folder.name in LARGE else []) for folder in SETS],
    ids=lambda folder: folder.name,
)
def test_the_sets_of_this_repository_are_accepted(folder: Path):
    """On any processor: what follows from their tables does not hang on rounding."""
    assert check(folder) == []


@pytest.mark.parametrize("name", sorted(LARGE))
def test_the_large_ones_are_whole_and_hold_what_their_plans_ask(name: str):
    assert flaws(ROOT / "results/published" / name) == []


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
    assert flaws(contrary) == []
    assert disagreements(contrary) == []


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


def test_verdicts_that_do_not_follow_from_the_tables_are_refused(copy: Path):
    held = pl.read_parquet(copy / "claims.parquet")
    estimate = pl.col("estimate")
    for edit, told in ((estimate * 1.001, "estimate"), (estimate * (1 + 1e-12), "")):
        held.with_columns(estimate=edit).write_parquet(copy / "claims.parquet")
        seal(copy)
        found = check(copy)
        assert bool(found) == bool(told), "not for another processor's rounding"
        assert all(one.startswith("claims.parquet: ") and told in one for one in found)
    edited(copy, "plan.json", verdicts="convex")
    assert check(copy)[0].startswith("plan.json: verdicts")


def test_no_sentence_of_a_set_is_compared(copy: Path):
    (copy / "README.md").write_text("in other words")
    seal(copy)
    assert check(copy) == []


def test_changed_missing_and_further_files_are_told_all_at_once(
    copy: Path, capsys: pytest.CaptureFixture[str]
):
    (copy / "LICENSE").write_text("mine")
    (copy / "convex/jobs.parquet").unlink()
    (copy / "notes.txt").write_text("see")
    (copy / "link.parquet").symlink_to("/etc/passwd")
    assert main(["sets", "check", str(copy)]) == 1
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


@pytest.mark.parametrize("text", ["{}", '{"published": "a", "studies": [3]}'])
def test_a_plan_that_is_none_is_refused(copy: Path, text: str):
    (copy / "plan.json").write_text(text)
    seal(copy)
    assert any(complaint.startswith("plan.json") for complaint in flaws(copy))


# --- tables --------------------------------------------------------------------------------------


def one(**values: Any) -> Change:
    """What replaces values of the first final run; of another table of its first row."""

    def change(frame: Frame) -> Frame:
        stage = pl.col("stage") == "final" if "outcome" in frame.columns else pl.lit(value=True)
        number = pl.int_range(pl.len())
        return where(number == number.filter(stage).min(), **values)(frame)

    return change


def without(**values: Any) -> Change:
    """What leaves out the rows that have all these values."""
    return lambda frame: frame.filter(
        ~pl.all_horizontal(pl.col(name).cast(pl.String) == str(value) for name, value in values.items())
    )


def where(said: pl.Expr, **values: Any) -> Change:
    """What replaces values, or takes them from expressions, of the rows of which something is said."""

    def change(frame: Frame) -> Frame:
        new = {
            name: value if isinstance(value, pl.Expr) else pl.lit(value).cast(frame.schema[name])
            for name, value in values.items()
        }
        return frame.with_columns(
            pl.when(said).then(value).otherwise(pl.col(name)).alias(name) for name, value in new.items()
        )

    return change


FLAWS: dict[str, tuple[str, Change, str]] = {
    "a seed twice": ("runs", one(seed=1001), "1000: 0 runs, and the plan has 1; 1 more cells likewise"),
    "a tuning seed that judges": ("runs", one(seed=0), "0: 1 runs, and the plan has 0"),
    "a method left out": ("runs", without(optimizer="adam"), "final, jax, digits_mlp, adam, 1000: 0 runs"),
    "less tuning": ("runs", without(stage="sweep", seed=2), "2: 0 runs, and the plan has 5"),
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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("parity", {"tables": ["convex"]}), ("published", "Not A Name"),
    ],
)  # fmt: skip
def test_a_plan_that_points_elsewhere_is_refused(copy: Path, key: str, value: object):
    edited(copy, "plan.json", **{key: value})
    assert flaws(copy)


def test_a_study_whose_tables_are_said_to_lie_elsewhere_is_refused(copy: Path):
    studies = json.loads((copy / "plan.json").read_text())["studies"]
    edited(copy, "plan.json", studies=[studies[0] | {"tables": "."}, *studies[1:]])
    assert "the tables of digits_mlp should lie in the folder digits_mlp" in flaws(copy)[0]


def test_a_study_that_cannot_join_is_refused_with_the_reason(copy: Path, capsys: pytest.CaptureFixture[str]):
    studies = json.loads((copy / "plan.json").read_text())["studies"]
    edited(copy, "plan.json", studies=[studies[0] | {"joins": "arena"}, *studies[1:]])
    assert main(["sets", "check", str(copy)]) == 1
    told = "plan.json: digits_mlp: joins: no published set has a study 'arena'; publish it first"
    assert told in capsys.readouterr().out


def test_what_is_no_file_ends_no_check(copy: Path):
    (copy / "plan.json").write_text("[" * 100_000)
    seal(copy)
    assert flaws(copy)[0].startswith("plan.json")
    os.mkfifo(copy / "pipe")
    (copy / "\x1b[31m").write_text("red")
    told = check(copy)
    assert told == [
        "\\x1b[31m: is not among the checksums; remove it",
        "pipe: a link, or no file; remove it",
    ]
    for make in (lambda path: path.symlink_to(copy / "LICENSE"), os.mkfifo):
        (copy / "SHA256SUMS").unlink()
        make(copy / "SHA256SUMS")
        assert check(copy) == ["SHA256SUMS: is missing, a link, or no file; get the set's folder again"]


def edited(folder: Path, file: str, **values: Any) -> None:
    """Replace values of a JSON file of a set, and make the checksums anew."""
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    seal(folder)


def test_what_is_not_waived_is_refused_and_what_is_waived_is_not(good: Path, tmp_path: Path):
    flawed = changed(good, tmp_path / "set", "convex/jobs.parquet", dirty)
    (found,) = flaws(flawed)
    assert found.startswith("convex: 8 of 8 jobs ran code that differs from its commit (0123456789ab)")
    assert "waive=dirty" in found
    edited(flawed, "plan.json", waived=[{"kind": "tuning", "where": "convex"}])
    assert flaws(flawed) == [found]
    edited(flawed, "plan.json", waived=[{"kind": "dirty", "where": "convex"}])
    assert flaws(flawed) == []


@pytest.mark.parametrize(("key", "value"), [("published", "9999"), ("commit", "main"), ("dirty", "no")])
def test_provenance_has_its_form(copy: Path, key: str, value: object):
    edited(copy, "provenance.json", **{key: value})
    (told,) = flaws(copy)
    assert told.startswith("provenance.json: not that of a set")
    assert key in told


def test_a_set_that_code_of_no_commit_computed_is_refused(copy: Path):
    edited(copy, "provenance.json", dirty=True)
    assert "the code that computes verdicts and leaderboard differs from its commit" in flaws(copy)[0]
    edited(copy, "provenance.json", commit=None)
    assert "is of no known commit" in flaws(copy)[0]


def test_a_rule_that_was_changed_in_the_plan_is_refused(copy: Path):
    studies = json.loads((copy / "plan.json").read_text())["studies"]
    studies[0]["claims"][0]["holds_if"][0]["smallest_effect"] = 0.5
    edited(copy, "plan.json", studies=studies)
    (told,) = flaws(copy)
    assert told.startswith(
        "plan.json: claim egop.digits_mlp: its rule is not the one whose hash stands beside it: "
    )


# --- what follows from the tables ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "change", "told"),
    [
        (
            "claims",
            where(pl.lit(value=True), verdict="not run"),
            "row 1 (egop.digits_mlp): verdict is 'not run'",
        ),
        ("leaderboard", lambda frame: frame.with_columns(pl.col("mean_rank") * 1.001), "mean_rank is '"),
        ("findings", lambda frame: frame.with_columns(pl.col("estimate") * 1.001), "estimate is '"),
        ("findings", lambda frame: frame.with_columns(pl.col("estimate") * (1 + 1e-9)), None),
        ("leaderboard", lambda frame: frame[1:], "rows, and the tables give"),
    ],
)
def test_what_the_tables_do_not_give_is_refused(
    good: Path, tmp_path: Path, table: str, change: Change, told: str | None
):
    found = check(changed(good, tmp_path / "set", f"{table}.parquet", change))
    if told is None:
        assert found == [], "another processor's rounding"
    else:
        assert found[0].startswith(f"{table}.parquet: ")
        assert told in found[0]


def test_another_version_of_the_rules_is_refused_and_says_what_checks_it(copy: Path):
    edited(copy, "provenance.json", rule_version=RULE_VERSION - 1)
    (found,) = flaws(copy)
    revision = json.loads((copy / "provenance.json").read_text())["commit"]
    assert f"version {RULE_VERSION - 1} of the rules" in found
    assert revision in found
