"""Checking a set: what is accepted, and what is refused with which reason."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.reports.sets import rows as set_rows
from curvebench.reports.sets.checking import check, disagreements, flaws
from curvebench.reports.sets.contents import all_jobs, provenance_of
from curvebench.reports.sets.files import files_of, seal
from curvebench.results.verdicts import RULE_VERSION
from curvebench.spec.plan import ChecksPlan, ClaimPlan, PartPlan
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


def test_verdicts_that_are_said_to_lie_elsewhere_are_refused(copy: Path):
    edited(copy, "plan.json", verdicts="convex")
    assert flaws(copy)[0].startswith("plan.json: verdicts")


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


def bests(factor: float) -> Change:
    """What multiplies the best training losses."""
    best = pl.element().struct
    value = pl.when(best.field("name") == "train_loss").then(factor).otherwise(1.0) * best.field("value")
    each = pl.struct(best.field("name"), value.alias("value"), best.field("step"))
    return lambda runs: runs.with_columns(pl.col("best_metrics").list.eval(each))


def reached(steps: int) -> Change:
    """What says that every target was met at a step."""
    said = {"metric": "validation_accuracy", "threshold": 0.9, "steps": steps}
    target = [said | {"seconds": None, "seconds_kind": None}]
    return lambda runs: runs.with_columns(
        targets=pl.Series([target] * len(runs), dtype=runs.schema["targets"])
    )


def middle(curves: Frame) -> Frame:
    """Better values at a step that is not the last."""
    return curves.with_columns(
        value=pl.when(pl.col("step") == 20).then(pl.col("value") * 1e-6).otherwise("value")
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


FINAL, SECOND = pl.col("stage") == "final", pl.col("optimizer") == "adagrad"
STRANGER = "jobs.parquet has no job"
FLAWS: dict[str, tuple[str, Change, str]] = {
    "a run of no job": ("runs", one(spec_hash="f" * 16), f"run run-00025: {STRANGER} ffffffffffffffff"),
    "a timing of another machine": ("timings", one(machine="m9"), STRANGER),
    "a point twice": ("curves", lambda frame: pl.concat([frame, frame[:1]]), "has more than one row"),
    "another study": ("runs", one(study="mnist"), "is of mnist, scale quick"),
    "a seed twice": ("runs", one(seed=1001), "seed 1000: 0 runs, and the plan asks for 1; 1 more likewise"),
    "a tuning seed that judges": ("runs", one(seed=0), "seed 0: 1 runs, and the plan asks for 0"),
    "a method left out": (
        "runs",
        without(optimizer="adam"),
        "kind final, backend jax, workload digits_mlp, method adam, seed",
    ),
    "less tuning": ("runs", without(stage="sweep", seed=2), "seed 2: 0 runs, and the plan asks for 5"),
    "a rate not chosen": (
        "runs",
        where(FINAL & SECOND, learning_rate=0.03),
        "learning_rate are (0.03,), and tuning on jax chose (0.1,)",
    ),
    "a final metric edited": (
        "runs",
        scaled("adam", 0.5),
        "and should be 0.00037919493893",
    ),
    "a best edited": ("runs", bests(1e-3), "metric train_loss: best is 0.00"),
    "a target forged": (
        "runs",
        reached(1),
        "metric validation_accuracy: steps to target is 1, and should be",
    ),
    "an unknown metric": (
        "runs",
        where(FINAL, final_metrics=pl.lit([{"name": "luck", "value": 1.0}])),
        "metric luck: is no metric of the workload",
    ),
    "no metrics": ("runs", where(FINAL, final_metrics=pl.lit([])), "is None, and should be"),
    "a curve edited": ("curves", middle, "and should be 1.782977602"),
    "a curve cut": ("curves", without(step=0), "needs a curve from step 0 to 40"),
    "faster timings": (
        "timings",
        lambda frame: frame.with_columns(pl.col("seconds") / 2),
        "targets are not what the tables give",
    ),
    "a check said to hold": (
        "checks",
        where(pl.col("value").is_nan(), holds=True),
        "holds is True, and should be False",
    ),
    "an instance left out": (
        "checks",
        lambda frame: frame.filter((pl.col("part") != "full AdaGrad") | (pl.col("instance") != 9)),
        "claim notes.regret, part full AdaGrad: 199 instances, and the plan asks for 200",
    ),
    "parity said to hold": (
        "parity",
        where(pl.col("judged"), difference=1.0),
        "holds is True, and should be False",
    ),
    "a tolerance edited": ("parity", one(tolerance=1.0), "tolerance is 1.0, and should be 1e-10"),
    "an unknown problem": ("parity", one(problem="hill"), "the plan has no problem hill"),
    "a comparison left out": (
        "parity",
        without(optimizer="adam", problem="bowl", comparison="torch against jax"),
        "optimizer adam, problem bowl, comparison torch against jax: is missing",
    ),
}


@pytest.mark.parametrize(
    ("bound", "instances", "accepted"),
    [
        *((False, range(3), True), (False, range(4), False)),
        *((True, range(3), False), (True, range(4), True), (True, range(5), True), (True, range(6), False)),
        (True, (0, 1, 2, 4), False),
    ],
)
def test_a_bound_has_an_instance_more_at_least_and_one_a_quantity_at_most(
    bound: bool, instances: Iterable[int], accepted: bool
):
    part = PartPlan(part="it is", variant="", instances=3, bound=bound)
    about = dict.fromkeys(("sentence", "source", "setting", "file"), "")
    claim = ClaimPlan(id="a.claim", **about, parts=(part,))
    plan = ChecksPlan(claims=(claim,), tables=(), figures=Path())
    measure = {
        "claim": "a.claim",
        "part": "it is",
        "variant": "",
        "value": 0.5,
        "relation": "<=",
        "limit": 1.0,
    }
    rows = pl.DataFrame(
        [
            measure
            | {"value": 0.5, "tolerance": 0.0, "holds": True, "instance": instance, "quantity": quantity}
            for instance in instances
            for quantity in ("one", "other")
        ]
    )
    asked = 3 + bound
    told = f"part it is: {len([*instances])} instances, and the plan asks for {asked}"
    assert [told in flaw for flaw in set_rows._checks(plan, rows)] == ([] if accepted else [True])


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_in_a_table_is_refused(good: Path, tmp_path: Path, flaw: str):
    table, change, told = FLAWS[flaw]
    folder = table if table in FOLDERS else "digits_mlp"
    found = flaws(changed(good, tmp_path / "set", f"{folder}/{table}.parquet", change))
    assert any(told in complaint for complaint in found), found
    assert all(folder in complaint for complaint in found if "provenance.json" not in complaint), found


@pytest.mark.parametrize(
    ("points", "whole", "refused"),
    [((50, 50), False, False), ((50, 60), False, True), ((50, 60), True, False), ((60, 60), True, True)],
)
def test_thinned_curves_are_longer_only_where_the_set_says_so(
    good: Path, tmp_path: Path, points: tuple[int, int], whole: bool, refused: bool
):
    def longer(curves: Frame) -> Frame:
        runs = curves["run"].unique(maintain_order=True)[:2]
        rows = [
            curves.filter(run=run, step=0).join(
                pl.DataFrame({"step": range(count)}), how="cross", suffix="_new"
            )
            for run, count in zip(runs, points, strict=True)
        ]
        return pl.concat(rows).with_columns(step=pl.col("step_new")).select(curves.columns)

    folder = changed(good, tmp_path / "set", "digits_mlp/curves.parquet", longer)
    edited(folder, "provenance.json", thinned_curves=["digits_mlp"], whole_curves=["digits_mlp"] * whole)
    assert any("says that it is thinned" in told for told in flaws(folder)) == refused


def test_thinned_curves_may_have_missed_the_best_value_and_the_first_step(good: Path, tmp_path: Path):
    """Between the recorded steps that stayed a run may have been better, and met its target earlier."""
    thin = changed(good, tmp_path / "set", "digits_mlp/curves.parquet", without(step=20))
    told = "digits_mlp/runs.parquet"
    assert any(complaint.startswith(told) for complaint in flaws(thin))
    edited(thin, "provenance.json", thinned_curves=["digits_mlp"])
    assert not [complaint for complaint in flaws(thin) if complaint.startswith(told)]
    worse = changed(thin, tmp_path / "worse", "digits_mlp/runs.parquet", bests(1e3))
    assert any("best is" in complaint for complaint in flaws(worse))


def test_a_failed_run_needs_no_curve(good: Path, tmp_path: Path):
    failed = where(FINAL & SECOND, outcome="out_of_memory", final_metrics=pl.lit([]), best_metrics=pl.lit([]))
    told = flaws(changed(good, tmp_path / "set", "digits_mlp/runs.parquet", failed))
    assert not [each for each in told if "metric" in each or "curve" in each]


@pytest.mark.parametrize("file", ["leaderboard.csv", "leaderboard.json", "leaderboard.schema.json"])
def test_a_leaderboard_that_does_not_follow_from_its_table_is_refused(copy: Path, file: str):
    (copy / file).write_text("sgd wins")
    seal(copy)
    (told,) = disagreements(copy)
    assert told.startswith(f"{file}: ")


def test_no_sentence_of_a_set_is_compared(copy: Path):
    for file in ("README.md", "LICENSE"):
        (copy / file).write_text("in other words")
    seal(copy)
    assert check(copy) == []


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
        "pipe: neither a file nor a folder; remove it",
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
    jobs = all_jobs(pl.read_parquet(flawed / name / "jobs.parquet") for name in FOLDERS)
    edited(flawed, "provenance.json", commits=provenance_of(jobs, 0)["commits"])
    found = "\n".join(flaws(flawed))
    assert "convex: 8 of 8 jobs ran code that differs from its commit" in found
    assert "waive=dirty" in found
    waived = {"kind": "dirty", "where": "convex", "names": ["0123456789ab"], "count": 8, "of": 8}
    edited(flawed, "plan.json", waived=[waived])
    assert flaws(flawed) == []
    edited(flawed, "plan.json", waived=[waived, {**waived, "count": 7}])
    (only,) = flaws(flawed)
    assert only.startswith("plan.json: waived: convex: 7 of 8 jobs")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("runs", 3), ("name", "other"), ("published", "9999"), ("commit", "main"), ("dirty", "no"),
        ("thinned_curves", ["x"]), ("machines", []),
    ],
)  # fmt: skip
def test_provenance_tells_of_the_set_as_it_is(copy: Path, key: str, value: object):
    edited(copy, "provenance.json", **{key: value})
    assert any(told.startswith("provenance.json") and key in told for told in flaws(copy))


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


def test_a_verdict_that_the_tables_do_not_give_is_refused(good: Path, tmp_path: Path):
    turned = where(pl.lit(value=True), verdict="not run")
    found = check(changed(good, tmp_path / "set", "claims.parquet", turned))
    assert found[0].startswith(
        "claims.parquet: claim egop.digits_mlp, backend jax: verdict is not run, and the tables give"
    )


@pytest.mark.parametrize(("table", "column"), [("leaderboard", "mean_rank"), ("findings", "estimate")])
def test_a_number_that_the_tables_do_not_give_is_refused(good: Path, tmp_path: Path, table: str, column: str):
    moved = changed(
        good, tmp_path / "set", f"{table}.parquet", lambda frame: frame.with_columns(pl.col(column) * 1.001)
    )
    (told,) = disagreements(moved)
    assert told.startswith(f"{table}.parquet: ")
    assert f": {column} is " in told
    assert " more rows likewise" in told
    rounded = changed(
        good,
        tmp_path / "two",
        f"{table}.parquet",
        lambda frame: frame.with_columns(pl.col(column) * (1 + 1e-9)),
    )
    assert not [told for told in disagreements(rounded) if ".parquet" in told]


def test_a_row_too_few_is_refused(good: Path, tmp_path: Path):
    short = changed(good, tmp_path / "set", "leaderboard.parquet", lambda frame: frame[1:])
    assert "rows, and the tables give" in disagreements(short)[0]


def test_another_version_of_the_rules_is_refused_and_says_what_checks_it(copy: Path):
    edited(copy, "provenance.json", rule_version=RULE_VERSION - 1)
    (found,) = flaws(copy)
    revision = json.loads((copy / "provenance.json").read_text())["commit"]
    assert f"version {RULE_VERSION - 1} of the rules" in found
    assert revision in found
