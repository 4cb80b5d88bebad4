"""Publishing: what stands in the way, sets that are written whole or not at all, and the README's table."""

from __future__ import annotations

import io
import json
import math
import subprocess
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pandas
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.plan import ReportError, read_plan
from reports.publish import publish, read_set, texts
from results.errors import TableError
from results.publishing import (
    BEGIN,
    END,
    between_markers,
    changed_rules,
    in_short,
    new_set,
    objections,
    seal,
    thinned,
)
from results.schema import TABLES
from results.set_names import check_name, check_waivers
from tests.reports.sets import CODE, write_report, write_set
from tests.reports.synthetic import HOSTILE, Shape
from tests.results.rows import rows

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published set."""
    return write_set(tmp_path_factory.mktemp("published"), "made.quick")


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["digits", "digits-quick.2026-11", "a1", "a" * 60])
def test_a_name_of_the_right_letters_is_taken(name: str, tmp_path: Path):
    assert check_name(name, tmp_path) == name


@pytest.mark.parametrize(
    "name", ["", "Digits", "1a", "a b", "../a", "a/b", "a..b", ".a", "a-", "ä", "a" * 61, 2026, "a\n"]
)
def test_another_name_is_refused(name: object, tmp_path: Path):
    with pytest.raises(TableError, match="begins with a small letter"):
        check_name(name, tmp_path)


def test_a_missing_and_a_taken_name_are_told_apart(tmp_path: Path):
    with pytest.raises(TableError, match="add --config name=NAME"):
        check_name(None, tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(TableError, match="is there already"):
        check_name("there", tmp_path)


def test_what_can_be_waived_is_known():
    assert check_waivers(["tuning", "dirty", "dirty"]) == ("dirty", "tuning")
    with pytest.raises(TableError, match=r"'durty'.*valid: dirty, hardware, tuning, rules"):
        check_waivers(["durty"])


# --- what stands in the way ----------------------------------------------------------------------


def kinds(
    jobs: list[dict[str, object]],
    runs: list[dict[str, object]],
    timings: list[dict[str, object]],
    tried_in: list[str] | None = None,
) -> list[str]:
    tables = {
        "jobs": rows("jobs", *jobs),
        "runs": rows("runs", *runs),
        "timings": rows("timings", *timings),
        "memory": rows("memory"),
    }
    return [each.kind for each in objections("toy", tables, tried_in)]


CLEAN = {"commit": COMMIT, "dirty": False}


def test_clean_tables_meet_no_objection():
    assert kinds([CLEAN], [{}, {"optimizer": "sgd"}], [{}]) == []


@pytest.mark.parametrize(
    "job",
    [{"commit": COMMIT, "dirty": True}, {"commit": None, "dirty": False}, {"commit": COMMIT, "dirty": None}],
)
def test_jobs_of_unknown_code_are_objected_to(job: dict[str, object]):
    assert kinds([CLEAN, job], [{}], [{}]) == ["dirty"]


def test_machines_may_differ_between_backends_and_not_within_one():
    assert kinds([CLEAN], [{}, {"backend": "torch", "machine": "m2"}], [{}]) == []
    assert kinds([CLEAN], [{}, {"seed": 1, "machine": "m2"}], [{}]) == ["hardware"]
    assert kinds([CLEAN], [{}], [{"machine": "m2"}]) == ["hardware"]


def tuned(optimizer: str, count: int, **more: object) -> list[dict[str, object]]:
    runs = [
        {"optimizer": optimizer, "stage": "sweep", "seed": 100 + number, **more} for number in range(count)
    ]
    return [*runs, {"optimizer": optimizer, **more}]


def test_tuning_budgets_are_counted_by_method():
    assert kinds([CLEAN], tuned("adam", 3) + tuned("sgd", 3), []) == []
    assert kinds([CLEAN], tuned("adam", 3) + tuned("sgd", 4), []) == ["tuning"]
    assert kinds([CLEAN], tuned("adam", 3) + tuned("sgd", 0), []) == ["tuning"]
    on_torch = [run | {"backend": "torch"} for run in tuned("adam", 0)]  # takes the rates of jax
    assert kinds([CLEAN], tuned("adam", 3) + tuned("sgd", 3) + on_torch, []) == []


def test_a_basis_in_which_nothing_is_tried_has_no_budget_of_its_own():
    shared = tuned("adam", 3) + tuned("adam", 0, basis="egop")
    assert kinds([CLEAN], shared, []) == ["tuning"]
    assert kinds([CLEAN], shared, [], ["identity"]) == []
    assert kinds([CLEAN], shared, [], ["identity", "egop"]) == ["tuning"]
    assert kinds([CLEAN], shared + tuned("sgd", 2), [], ["identity"]) == ["tuning"]


def test_a_rule_that_is_not_that_of_the_runs_is_objected_to():
    row = {"claim": "a", "verdict": "reproduced", "rule": "1" * 16, "rule_of_runs": "1" * 16}
    others = [
        row | {"rule_of_runs": "2" * 16},
        row | {"rule_of_runs": None},
        row | {"verdict": "not run", "rule_of_runs": None},
    ]
    claims = pl.DataFrame([row, *others], schema=TABLES["claims"])
    assert [each.kind for each in changed_rules(claims)] == ["rules", "rules"]


def dirty(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.with_columns(dirty=pl.lit(True))


def test_a_refusal_names_each_remedy_and_leaves_nothing_behind(tmp_path: Path):
    plan = read_plan(write_report(tmp_path / "tables", [Shape()], checks=False, jobs=dirty))
    readme = tmp_path / "README.md"
    readme.write_text(f"{BEGIN}\nlast year\n{END}\n")
    with pytest.raises(ReportError, match=r"digits_mlp: 15 of 15 jobs.*\n.*remedy: commit.*waive=dirty"):
        publish(plan, "new", tmp_path / "published", readme=readme, code=CODE)
    assert "last year" in readme.read_text()
    assert not (tmp_path / "published").exists()


def test_what_is_waived_is_told_everywhere(tmp_path: Path):
    plan = read_plan(write_report(tmp_path / "tables", [Shape()], checks=False, jobs=dirty))
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nlast year\n{END}\nafter\n")
    made = publish(plan, "new", tmp_path / "published", ["dirty"], readme, CODE)
    told = "digits_mlp: 15 of 15 jobs ran code that differs from its commit"
    assert told in json.loads((made / "provenance.json").read_text())["waived"][0]["sentence"]
    assert told in read_set(made).waived[0]
    for page in (made / "README.md", readme):
        assert told.replace("_", r"\_") in page.read_text()
    assert readme.read_text().startswith(f"before\n{BEGIN}\n")
    assert readme.read_text().endswith(f"{END}\nafter\n")
    assert "last year" not in readme.read_text()


def test_changed_rules_are_one_sentence_for_readers():
    claims = [("egop.a", "jax"), ("egop.a", "torch"), ("egop.b", "jax")]
    rows = pl.DataFrame(
        {
            "claim": [claim for claim, _ in claims],
            "backend": [backend for _, backend in claims],
            "verdict": ["reproduced"] * 3,
            "rule": ["0" * 16] * 3,
            "rule_of_runs": ["1" * 16, None, "1" * 16],
        }
    )
    sentences = [each.sentence for each in changed_rules(rows)]
    assert len(sentences) == 3
    told = "the rules of 2 claims were changed after the runs were planned: egop.a, egop.b"
    assert in_short(["a job is dirty", *sentences]) == ["a job is dirty", told]
    assert in_short(sentences[:1]) == sentences[:1]
    assert in_short(sentences[:2]) == ["the rule of a claim was changed after the runs were planned: egop.a"]


# --- the set -------------------------------------------------------------------------------------


def test_a_set_holds_all_that_it_should(made: Path):
    files = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    study = {"runs", "curves", "timings", "memory", "jobs"}
    assert files == {
        *(f"{name}/{table}.parquet" for name in ("digits_mlp", "convex") for table in study),
        *(f"{name}/{table}.parquet" for name in ("parity", "checks") for table in (name, "jobs")),
        "checks/series.parquet",
        *(f"{table}.parquet" for table in ("claims", "findings", "leaderboard")),
        *(f"leaderboard.{kind}" for kind in ("csv", "json", "schema.json")),
        *("plan.json", "provenance.json", "LICENSE", "README.md", "SHA256SUMS"),
    }
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=made, capture_output=True, check=False
    )
    assert done.returncode == 0
    final = pl.read_parquet(made / "convex/runs.parquet").filter(pl.col("stage") == "final")["run"]
    assert set(pl.read_parquet(made / "convex/curves.parquet")["run"]) == set(final)
    assert "creativecommons.org/licenses/by/4.0" in (made / "LICENSE").read_text()


def test_the_leaderboard_is_the_same_in_every_format(made: Path):
    board = pl.read_parquet(made / "leaderboard.parquet")
    listed = json.loads((made / "leaderboard.json").read_text())
    schema = json.loads((made / "leaderboard.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(listed, schema)
    assert schema["version"] == "3"
    for wrong in ("high", "Infinity "):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate([listed[0] | {"score": wrong}], schema)
    flat = pl.read_csv(made / "leaderboard.csv")
    assert board["method"].to_list() == flat["method"].to_list() == [row["method"] for row in listed]
    assert board["mean_rank"].to_list() == pytest.approx(flat["mean_rank"].to_list())
    assert "workloads" not in flat.columns
    assert listed[0]["workloads"][0]["workload"] == board["workloads"][0][0]["workload"]


ODD = [None, math.inf, -math.inf, math.nan, 1.5]
WORDS = [None, "Infinity", "-Infinity", "NaN", 1.5]
SAID = {1: [None, None, None, None, 1.5], 2: WORDS, 3: WORDS}


@pytest.mark.parametrize("version", SAID)
def test_a_leaderboard_says_what_its_version_can_of_missing_and_infinite_numbers(made: Path, version: int):
    board = pl.read_parquet(made / "leaderboard.parquet")
    odd = pl.concat([board[:1]] * len(ODD)).with_columns(pl.Series("step_ratio", ODD))
    given = [
        {**row, "workloads": [{**row["workloads"][0], "value": row["step_ratio"]}]} for row in odd.to_dicts()
    ]
    about = json.loads((made / "provenance.json").read_text()) | {"board_version": version}
    written = texts(read_set(made), about, pl.DataFrame(given, schema=board.schema))
    listed = json.loads(written["leaderboard.json"])
    jsonschema.validate(listed, json.loads(written["leaderboard.schema.json"]))
    assert [row["step_ratio"] for row in listed] == SAID[version]
    assert [row["workloads"][0]["value"] for row in listed] == SAID[version]


def test_pandas_tells_infinite_from_missing_in_a_leaderboard(made: Path):
    board = pl.read_parquet(made / "leaderboard.parquet")
    odd = pl.concat([board[:1]] * len(ODD)).with_columns(pl.Series("step_ratio", ODD))
    written = texts(read_set(made), json.loads((made / "provenance.json").read_text()), odd)
    from_json = pandas.DataFrame(json.loads(written["leaderboard.json"]))["step_ratio"].astype(float)
    from_csv = pandas.read_csv(io.StringIO(written["leaderboard.csv"]))["step_ratio"]
    for column in (from_json, from_csv):
        np.testing.assert_array_equal(column.to_numpy(), [math.nan, math.inf, -math.inf, math.nan, 1.5])
    cells = pl.read_csv(io.StringIO(written["leaderboard.csv"]), infer_schema=False)["step_ratio"]
    assert cells.to_list() == [None, "inf", "-inf", "NaN", "1.5"]


def test_names_are_text_in_markdown(made: Path):
    page = (made / "README.md").read_text()
    assert HOSTILE not in page
    assert r"\<script\>" in page


def test_a_set_keeps_its_plan_and_can_be_read_from_anywhere(
    made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    plan = read_set(made)
    assert plan.published == "made.quick"
    assert plan.study("convex").tables == made / "convex"
    assert plan.checks is not None
    assert plan.checks.tables == (made / "checks",)


@pytest.mark.parametrize("outside", ["../elsewhere", "/etc", "a/../../b"])
def test_a_plan_whose_folders_lie_elsewhere_is_refused(made: Path, tmp_path: Path, outside: str):
    raw = json.loads((made / "plan.json").read_text())
    raw["studies"][0]["tables"] = outside
    (tmp_path / "plan.json").write_text(json.dumps(raw))
    with pytest.raises(ReportError, match="does not lie in the set"):
        read_set(tmp_path)


def test_a_report_plan_is_no_set(tmp_path: Path):
    with pytest.raises(ReportError, match="not of a published set"):
        read_set(write_report(tmp_path, [Shape()], checks=False).parent)


def test_an_interrupted_set_leaves_nothing_behind(tmp_path: Path):
    def write() -> None:
        with new_set(tmp_path, "half") as stage:
            (stage / "one").write_text("1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []
    with new_set(tmp_path, "whole") as stage:
        (stage / "one").write_text("1")
        seal(stage)
    assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == ["SHA256SUMS", "one"]


def test_tables_that_a_check_would_refuse_are_not_published(tmp_path: Path):
    def nameless(jobs: pl.DataFrame) -> pl.DataFrame:
        return jobs.with_columns(commit=pl.lit("main"))

    plan = read_plan(write_report(tmp_path / "tables", [Shape()], checks=False, jobs=nameless))
    with pytest.raises(ReportError, match=r"would refuse it.*\n.*commit is 'main', and should be"):
        publish(plan, "new", tmp_path / "published", code=CODE)
    assert list((tmp_path / "published").iterdir()) == []


# --- curves and pages ----------------------------------------------------------------------------


@given(count=st.integers(1, 300), points=st.integers(2, 60))
def test_thinned_curves_keep_their_ends_and_so_many_points(count: int, points: int):
    steps = [3 * number for number in range(count)]
    frames = [pl.DataFrame({"run": run, "metric": "loss", "step": steps}) for run in "ab"]
    kept = thinned(pl.concat(frames), most=0, points=points)
    for (_,), own in kept.group_by(["run"]):
        assert len(own) == min(count, points)
        assert {0, steps[-1]} <= set(own["step"])
        gaps = np.diff(np.sort(own["step"].to_numpy())) // 3
        assert len(gaps) == 0 or np.ptp(gaps) <= 1


def test_short_curves_stay_whole():
    frame = pl.DataFrame({"run": ["a"] * 9, "metric": ["loss"] * 9, "step": range(9)})
    assert thinned(frame, most=9, points=2).equals(frame)
    assert thinned(frame, most=8, points=2)["step"].to_list() == [0, 8]
    others = pl.concat([frame, frame.with_columns(metric=pl.lit("other"))])
    kept = thinned(others, others.filter(metric="other").select("run", "metric").unique(), most=8, points=2)
    assert kept.equals(pl.concat([others[[0, 8]], others.filter(metric="other")]))


@pytest.mark.parametrize("text", ["", BEGIN, END + BEGIN, f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_its_markers_is_named(text: str):
    with pytest.raises(TableError, match=r"page\.md.*each once"):
        between_markers(text, Path("page.md"), [])
