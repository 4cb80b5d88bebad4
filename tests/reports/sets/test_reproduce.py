"""Running a claim again: what agrees with a published set, what differs, and what cannot be told."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from curvebench.__main__ import main
from documents.errors import InputError
from documents.plan import ReportPlan, SkippedStudy
from reports.plan import read_plan
from reports.sets.derived import read_set
from reports.sets.reproduce import (
    Line,
    announced,
    backends_of,
    between_backends,
    changes,
    choose_set,
    compared,
    planned,
    summed_up,
)
from results.schema import TABLES
from results.writing import write_table
from tests.reports.changing import replace
from tests.reports.example_sets import changed, scaled, write_report, write_set
from tests.reports.synthetic import Shape

CLAIM = "egop.digits_mlp"
SHAPE = Shape()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one published set."""
    folder = tmp_path_factory.mktemp("published")
    write_set(folder, "old.quick", [SHAPE])
    return folder


@pytest.fixture(scope="module")
def published(folder: Path) -> ReportPlan:
    """The set's plan."""
    return read_set(folder / "old.quick")


def again(folder: Path, **options: Any) -> ReportPlan:
    """The plan of a report that was run again."""
    return read_plan(write_report(folder, **{"shapes": [SHAPE], **options}))


def lines_of(lines: list[Line], answer: str) -> list[str]:
    return [line.what for line in lines if line.answer == answer]


def test_equal_tables_agree_line_by_line(published: ReportPlan, tmp_path: Path):
    lines = compared(CLAIM, published, again(tmp_path))
    assert summed_up(lines) == "agrees"
    assert [line.what for line in lines] == [
        "verdict on jax",
        "verdict on torch",
        "final training loss of adam @ egop over adam, digits_mlp on jax",
        "final training loss of adam @ egop over adam, digits_mlp on torch",
        "final training loss of adam @ egop, digits_mlp on jax: runs by seed",
        "final training loss of adam, digits_mlp on jax: runs by seed",
        "final training loss of adam @ egop, digits_mlp on torch: runs by seed",
        "final training loss of adam, digits_mlp on torch: runs by seed",
    ]


def test_rounding_agrees_and_is_shown(published: ReportPlan, tmp_path: Path):
    lines = compared(CLAIM, published, again(tmp_path, runs=scaled("adam", 1 + 1e-6)))
    assert summed_up(lines) == "agrees"
    (line,) = (line for line in lines if "of adam, digits_mlp on jax" in line.what)
    assert "median relative change +1.00×10⁻⁶" in line.note
    assert "10 seeds, tolerance 5.26 %" in line.note  # 5 % less is 1 / 1.0526


def stopping(plan: ReportPlan) -> ReportPlan:
    """The plan with a threshold at which about half of the runs of one method stop."""
    studies = (replace(study, stop={"train_loss": 0.00025}) for study in plan.studies)
    return replace(plan, studies=tuple(studies))


def test_what_stopped_runs_leave_open_is_held_bound_against_bound(tmp_path: Path):
    plain, other = (again(tmp_path / name) for name in ("first", "second"))
    lines = compared(CLAIM, stopping(plain), stopping(other))
    assert summed_up(lines) == "agrees"
    bounds = [line.what for line in lines if line.what.endswith(("at least", "at most"))]
    comparison = "final training loss of adam @ egop over adam, digits_mlp on jax"
    assert bounds[:2] == [f"{comparison}, at least", f"{comparison}, at most"]


def test_a_method_that_ends_elsewhere_differs_and_its_seeds_are_named(published: ReportPlan, tmp_path: Path):
    lines = compared(CLAIM, published, again(tmp_path, runs=scaled("adam", 1.5)))
    assert summed_up(lines) == "differs"
    differing = [line for line in lines if line.answer == "differs"]
    assert all(
        "runs by seed" in line.what for line in differing
    )  # both methods moved, and their ratio did not
    assert "most: seed 10" in differing[0].note


def test_a_verdict_that_turns_differs(published: ReportPlan, tmp_path: Path):
    def turned(runs: pl.DataFrame) -> pl.DataFrame:
        moved = scaled("adam", 1e6)(runs)
        own = pl.col("basis") == "egop"
        return moved.with_columns(
            final_metrics=pl.when(own).then(pl.col("final_metrics")).otherwise(runs["final_metrics"])
        )

    lines = compared(CLAIM, published, again(tmp_path, runs=turned))
    assert {"verdict on jax", "final training loss of adam @ egop over adam, digits_mlp on jax"} <= set(
        lines_of(lines, "differs")
    )


def test_few_seeds_cannot_tell(published: ReportPlan, tmp_path: Path):
    lines = compared(CLAIM, published, again(tmp_path, shapes=[Shape(seeds=(100, 101))]))
    assert summed_up(lines) == "cannot be told"
    assert "verdict on jax" in lines_of(lines, "cannot be told")


def test_other_rules_cannot_be_told(published: ReportPlan, tmp_path: Path):
    path = write_report(tmp_path, [SHAPE])
    raw = json.loads(path.read_text())
    raw["studies"][0]["rules"][CLAIM] = "0" * 16
    path.write_text(json.dumps(raw))
    lines = compared(CLAIM, published, read_plan(path))
    assert "the claim's rule is another one" in next(
        line.note for line in lines if line.what == "verdict on jax"
    )
    assert summed_up(lines) == "cannot be told"


def test_a_condition_that_asks_something_else_says_what(published: ReportPlan, tmp_path: Path):
    def change(condition: dict[str, Any], **keys: str) -> ReportPlan:
        path = write_report(tmp_path, [SHAPE])
        raw = json.loads(path.read_text())
        claim = raw["studies"][0]["claims"][0]
        claim["holds_if"][0] |= keys
        path.write_text(json.dumps(raw))
        return replace(
            read_plan(path),
            studies=tuple(replace(study, stop={"train_loss": 0.00025}) for study in read_plan(path).studies),
        )

    now = change({}, quantity="steps_to_stop")
    notes = {line.note for line in compared(CLAIM, published, now) if " over " in line.what}
    assert notes == {"asks something else here (steps to the stop instead of the final value)"}
    now = replace(
        now,
        studies=tuple(replace(study, rules={CLAIM: "0"}) for study in now.studies),
    )
    told = list(announced(CLAIM, published, now, 3))
    assert told[-1].endswith("verdicts cannot be compared, 0 of 2 comparisons can")


def test_a_claim_that_cannot_be_planned_is_told_before_anything_runs(published: ReportPlan):
    now = replace(
        published, studies=(), checks=None, skipped=(SkippedStudy(name="digits_mlp", reason="no data"),)
    )
    with pytest.raises(InputError, match="cannot be run again: digits_mlp: no data"):
        list(announced(CLAIM, published, now, 0))


def test_the_plan_of_a_claim_is_that_of_the_harness(tmp_path: Path):
    config = ["studies=egop.convex", "scale=quick", "backends=jax", "parity=false"]
    plan, jobs = planned(config, tmp_path)
    assert backends_of("egop.convex", plan) == ("jax",)
    assert plan.parity is None
    assert jobs > 0
    with pytest.raises(InputError, match=r"--config scale: .* no scale 'quik'"):
        planned(["scale=quik"], tmp_path)


def test_a_backend_that_did_not_run_cannot_be_told(published: ReportPlan, tmp_path: Path):
    lines = compared(CLAIM, published, again(tmp_path, shapes=[Shape(backends=("jax",))]))
    assert "verdict on torch" in lines_of(lines, "cannot be told")
    assert not lines_of(lines, "differs")


# --- property claims -----------------------------------------------------------------------------


def flip(plan: ReportPlan, instances: int) -> ReportPlan:
    """The checks with some measures of one part turned to missing their limit."""
    assert plan.checks is not None
    path = plan.checks.tables[0] / "checks.parquet"
    frame = pl.read_parquet(path)
    turned = (pl.col("part") == "gradient descent") & (pl.col("instance") < instances)
    frame = frame.with_columns(
        pl.when(turned).then(pl.lit(value=False)).otherwise(pl.col("holds")).alias("holds")
    )
    write_table(path, frame, TABLES["checks"])
    return plan


def test_property_claims_agree_instance_by_instance(published: ReportPlan, tmp_path: Path):
    lines = compared("notes.regret", published, again(tmp_path))
    assert summed_up(lines) == "agrees"
    assert [line.what for line in lines] == [
        "verdict",
        "share of instances that hold",
        "part 'gradient descent'",
        "part 'full AdaGrad'",
    ]
    misprint = compared("notes.misprint", published, again(tmp_path / "two"))
    assert "verdict as printed" in [line.what for line in misprint]


def test_a_property_claim_that_fails_again_differs(published: ReportPlan, tmp_path: Path):
    lines = compared("notes.regret", published, flip(again(tmp_path), 150))
    assert summed_up(lines) == "differs"
    (line,) = (line for line in lines if line.what == "part 'gradient descent'")
    assert line.published == "200 of 200 measures hold"
    assert line.again == "50 of 200 measures hold"
    assert "150 measures" in line.note
    assert "instance 0, 1, 2" in line.note


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were run; each leaves the report of equal tables where it would leave its site."""
    called: list[list[str]] = []
    asked: list[list[str]] = []  # of what was planned

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if command[1:4] == ["-m", "curvebench", "plan"]:
            asked.append(command[4:])
            raw = json.loads(write_report(tmp_path / "planned", [SHAPE]).read_text())
            raw["studies"][0]["rules"][CLAIM] = "0" * 16
            return subprocess.CompletedProcess(command, 0, stdout=json.dumps({**raw, "jobs": 7}))
        called.append(command)
        assert asked.pop() == [*command[command.index("--config") + 1 :], "--json"]
        first, _, rest = options["env"]["PATH"].partition(os.pathsep)
        assert Path(first) == Path(sys.executable).parent  # Snakemake starts its jobs by the name python
        assert rest == os.environ["PATH"]
        (site,) = (part.partition("=")[2] for part in command if part.startswith("site="))
        Path(site).mkdir(parents=True)
        made = write_report(tmp_path / "again", [SHAPE])
        (Path(site) / "plan.json").write_text(made.read_text())
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    return called


def test_the_command_is_printed_and_run(
    folder: Path, tmp_path: Path, ran: list[list[str]], capsys: pytest.CaptureFixture[str]
):
    results = tmp_path / "results"
    asked = [
        "sets",
        "reproduce",
        CLAIM,
        "--published",
        str(folder / "old.quick"),
        "--cores",
        "1",
        "--results",
        str(results),
    ]
    assert main(asked) == 0
    said = capsys.readouterr().out
    config = (
        f"studies={CLAIM} scale=quick backends=jax,torch parity=false results={results} site={results}/site"
    )
    expected = f"snakemake --cores 1 reports --config {config}"
    first, estimate, rule, printed, *_ = said.splitlines()
    assert first == f"{CLAIM}: set {folder / 'old.quick'}, scale quick on jax and torch: 7 jobs"
    assert estimate.endswith(f"curvebench estimate {CLAIM} --scale quick --backend jax --backend torch")
    assert rule.endswith(
        "changed since the set was published: verdicts cannot be compared, 2 of 2 comparisons can"
    )
    assert printed == expected
    assert ran[0][1:3] == ["-m", "snakemake"]
    assert " ".join(ran[0][2:]) == expected
    assert f"{CLAIM}: agrees with old.quick" in said


def test_snakemake_that_fails_is_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    planned = json.dumps({**json.loads(write_report(tmp_path, [SHAPE]).read_text()), "jobs": 7})

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, int("snakemake" in command), stdout=planned)

    monkeypatch.setattr(subprocess, "run", run)
    assert (
        main(
            ["sets", "reproduce", CLAIM, "--published", str(folder / "old.quick"), "--results", str(tmp_path)]
        )
        == 2
    )
    assert "snakemake ended with an error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "told"),
    [(["egop"], "has no claim 'egop'"), ([CLAIM, "--scale", "paper"], "a set of scale quick")],
)
def test_what_a_set_does_not_have_is_told_before_anything_runs(
    folder: Path, ran: list[list[str]], capsys: pytest.CaptureFixture[str], asked: list[str], told: str
):
    assert main(["sets", "reproduce", *asked, "--published", str(folder / "old.quick")]) == 2
    assert told in capsys.readouterr().err
    assert ran == []


@pytest.mark.parametrize("cores", ["0", "-1", "1.5", "many", ""])
def test_cores_are_a_number_above_0_or_all(cores: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["sets", "reproduce", CLAIM, "--cores", cores])
    assert "neither a number above 0 nor all" in capsys.readouterr().err


def test_a_claim_of_which_a_set_has_no_measures_is_told_before_anything_runs(
    folder: Path, tmp_path: Path, ran: list[list[str]], capsys: pytest.CaptureFixture[str]
):
    made = changed(
        folder / "old.quick",
        tmp_path / "set",
        "checks/checks.parquet",
        lambda frame: frame.filter(pl.col("claim") != "notes.regret"),
    )
    assert main(["sets", "reproduce", "notes.regret", "--published", str(made)]) == 2
    assert "the tables hold no measure of notes.regret" in capsys.readouterr().err
    assert ran == []


def test_the_newest_set_that_has_the_claim_is_taken(folder: Path, tmp_path: Path):
    for number, name in enumerate(("one", "two", "three")):
        (tmp_path / name).mkdir()
        for file in ("plan.json", "provenance.json"):
            (tmp_path / name / file).write_text((folder / "old.quick" / file).read_text())
        about = json.loads((tmp_path / name / "provenance.json").read_text())
        about["published"] = f"2030-01-0{1 + number % 2}T00:00:00+00:00"
        (tmp_path / name / "provenance.json").write_text(json.dumps(about))
    for name in (".half", "broken"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text("{")
    said: list[str] = []
    assert choose_set(CLAIM, tmp_path, None, said.append) == tmp_path / "two"
    (told,) = said
    assert told.startswith(f"passed over: {tmp_path / 'broken'}: ")
    assert choose_set("notes.regret", tmp_path, "quick", said.append) == tmp_path / "two"
    with pytest.raises(InputError, match=r"no published set has the claim 'egop\.digits_mlp' at scale paper"):
        choose_set(CLAIM, tmp_path, "paper", said.append)
    with pytest.raises(InputError, match="there is one at scale quick: leave --scale out"):
        choose_set(CLAIM, tmp_path, "paper", said.append)
    with pytest.raises(InputError, match=f"has the claim 'egop.digits'; did you mean '{CLAIM}'") as no:
        choose_set("egop.digits", tmp_path, None, said.append)
    assert "snakemake --cores all reports --config studies=egop.digits scale=quick" in str(no.value)
    assert "curvebench list" in str(no.value)
    with pytest.raises(InputError, match=rf"the claim 'kfac' \(they have: .*{CLAIM}, .*\)"):
        choose_set("kfac", tmp_path, None, said.append)


# --- the tolerance -------------------------------------------------------------------------------


def test_the_tolerance_is_what_two_backends_differ_by():
    values = pl.DataFrame(
        {
            "seed": [0, 1, 2, 0, 1, 2, 3],
            "backend": ["jax"] * 3 + ["torch"] * 4,
            "learning_rate": [0.1] * 7,
            "value": [1.0, 1.0, math.inf, math.exp(0.1), math.exp(-0.3), math.inf, 5.0],
        }
    )
    assert between_backends("ratio", values) == pytest.approx(0.1)  # 0.1, 0.3 and 0
    assert between_backends("ratio", values.filter(backend="jax")) == 0.0
    rates = values.with_columns(learning_rate=pl.when(pl.col("backend") == "jax").then(1.0).otherwise(0.1))
    assert between_backends("ratio", rates) == 0.0


def test_changes_of_equal_values_are_none_whatever_they_are():
    same = np.array([0.0, math.inf, 2.0])
    assert changes("ratio", same, same).tolist() == [0.0, 0.0, 0.0]
    assert changes("difference", same, same).tolist() == [0.0, 0.0, 0.0]
    assert changes("ratio", np.array([0.0, 1.0]), np.array([1.0, 0.0])).tolist() == [-math.inf, math.inf]
