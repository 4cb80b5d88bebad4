"""Publishing: what stands in the way, sets that are written whole or not at all, and a set as pages."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import subprocess
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.__main__ import main
from curvebench.reports.claims import verdict_list
from curvebench.reports.claims.quantities import ValueAtCost
from curvebench.reports.claims.verdict_list import as_json, listed, read_verdicts, verdicts_of
from curvebench.reports.rendering import lines
from curvebench.reports.sets.checking import disagreements, flaws, nearly_equal
from curvebench.reports.sets.contents import curves_of_claims, gather, steps_of_claims, thinned
from curvebench.reports.sets.derived import leaderboard_texts, read_set
from curvebench.reports.sets.files import new_folder, seal
from curvebench.reports.sets.objections import changed_rules, objections
from curvebench.reports.sets.publish import publish, renew
from curvebench.reports.tables import read_tables
from curvebench.results.archive import narrowed, with_joined
from curvebench.results.reading import read, with_method
from curvebench.results.schema import CURVES
from curvebench.results.writing import write_table
from curvebench.spec.conditions.value import ValueAtEqualCost
from curvebench.spec.errors import InputError
from curvebench.spec.plan import Objection, StudyPlan, read_plan
from curvebench.spec.sets import BEGIN, END
from tests.reports.changing import replace
from tests.reports.conftest import Report
from tests.reports.example_sets import CODE, Change, dirty, write_report, write_set
from tests.reports.synthetic import HOSTILE, Shape
from tests.results.rows import rows

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SMALL = Shape(optimizers=("sgd", "adam"), backends=("jax",))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a published set of one study."""
    return write_set(tmp_path_factory.mktemp("published"), "small.quick", [SMALL], checks=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a published set."""
    return write_set(tmp_path_factory.mktemp("published"), "made.quick")


# --- what stands in the way ----------------------------------------------------------------------


Rows = list[dict[str, Any]]


def kinds(
    jobs: Rows,
    runs: Rows,
    timings: Rows,
    tuned_bases: list[str] | None = None,
    settings: dict[str, int] | None = None,
) -> list[str]:
    given = {"jobs": jobs, "runs": runs, "timings": timings, "memory": []}
    tables = {name: rows(name, *each) for name, each in given.items()}
    return [each.kind for each in objections("toy", tables, tuned_bases, settings or {})]


CLEAN = {"commit": COMMIT, "dirty": False}


FAILED = {"failures": [{"what": "adam", "outcome": "error", "reason": "broken"}]}


@pytest.mark.parametrize(
    ("jobs", "runs", "timings", "found"),
    [
        ([], [{}, {"optimizer": "sgd"}], [{}], []),
        ([{"commit": COMMIT, "dirty": True}], [{}], [{}], ["dirty"]),
        ([{"commit": COMMIT, "dirty": None}], [{}], [{}], ["dirty"]),
        ([CLEAN | FAILED], [{}], [{}], ["failures"]),
        # backends may be on machines of their own
        ([], [{}, {"backend": "torch", "machine": "m2"}], [{}], []),
        ([], [{}, {"seed": 1, "machine": "m2"}], [{}], ["hardware"]),
        ([], [{}], [{"machine": "m2"}], ["hardware"]),
    ],
)
def test_what_stands_in_the_way(jobs: Rows, runs: Rows, timings: Rows, found: list[str]):
    assert kinds([CLEAN, *jobs], runs, timings) == found


def tuned(optimizer: str, count: int, **more: object) -> Rows:
    runs = [{"stage": "tuning", "seed": 100 + number} for number in range(count)]
    return [{"optimizer": optimizer, **run, **more} for run in [*runs, {}]]


ON_TORCH = [run | {"backend": "torch"} for run in tuned("adam", 0)]  # takes the rates of jax
SHARED = tuned("adam", 3) + tuned("adam", 0, basis="egop")


@pytest.mark.parametrize(
    ("runs", "tuned_bases", "found"),
    [
        (tuned("adam", 3) + tuned("sgd", 3), None, []),
        (tuned("adam", 3) + tuned("sgd", 3) + ON_TORCH, None, []),
        (tuned("adam", 3) + tuned("sgd", 4), None, ["tuning"]),
        (tuned("adam", 3) + tuned("sgd", 0), None, ["tuning"]),
        (SHARED, None, ["tuning"]),
        (SHARED, ["identity"], []),  # a basis in which nothing is tried has no budget of its own
        (SHARED, ["identity", "egop"], ["tuning"]),
        (SHARED + tuned("sgd", 2), ["identity"], ["tuning"]),
    ],
)
def test_tuning_budgets_are_counted_by_method(runs: Rows, tuned_bases: list[str] | None, found: list[str]):
    assert kinds([CLEAN], runs, [], tuned_bases) == found


@pytest.mark.parametrize(("count", "found"), [(6, []), (5, ["tuning"]), (3, ["tuning"])])
def test_a_method_with_more_hyperparameters_has_more_tuning_runs(count: int, found: list[str]):
    runs = tuned("adam", 3) + tuned("sgd", count)
    assert kinds([CLEAN], runs, [], settings={"adam": 3, "sgd": 6}) == found


README = f"before\n{BEGIN}\nlast year\n{END}\nafter\n"


def short(runs: pl.DataFrame) -> pl.DataFrame:
    return runs.filter((pl.col("stage") != "final") | (pl.col("seed") != 1001))


@pytest.mark.parametrize(
    ("changes", "folders", "page", "told"),
    [
        ({}, {"seeds_of": "old"}, "README.md", "these runs took the seeds of old"),
        ({}, {}, "project/README.md", "does not lie below its folder"),
        ({"jobs": dirty}, {}, "README.md", r"digits_mlp: 4 of 4 jobs.*\n.*remedy: commit.*waive=dirty"),
        ({"runs": short}, {}, "README.md", r"would refuse it.*\n.*1001: 0 runs, and the plan has 1"),
    ],
    ids=["known seeds", "page elsewhere", "objection", "incomplete"],
)
def test_a_refusal_names_each_remedy_and_leaves_nothing_behind(
    tmp_path: Path, changes: dict[str, Change], folders: dict[str, str], page: str, told: str
):
    plan = read_plan(write_report(tmp_path / "tables", [SMALL], checks=False, **changes))
    readme, published = tmp_path / page, tmp_path / "published"
    readme.parent.mkdir(exist_ok=True)
    readme.write_text(README)
    with pytest.raises(InputError, match=told):
        publish(replace(plan, folders=folders), "new", published, readme=readme, code=CODE)
    assert readme.read_text() == README
    assert not published.exists() or not list(published.iterdir())


def test_a_set_says_what_was_waived_and_renders_with_its_figures(tmp_path: Path):
    plan = read_plan(write_report(tmp_path / "tables", [SMALL], checks=False, jobs=dirty))
    readme = tmp_path / "README.md"
    readme.write_text(README)
    made = publish(plan, "waived.quick", tmp_path / "published", CODE, ["dirty"], readme)
    (told,) = read_set(made).waived
    assert (told.kind, told.where, told.count, told.of, len(told.names)) == ("dirty", "digits_mlp", 4, 4, 1)
    for page in (made / "README.md", readme):
        assert r"digits\_mlp: 4 of 4 jobs" in page.read_text()
    before, after = README.split("last year\n")
    assert readme.read_text().startswith(before)
    assert "[waived.quick](published/waived.quick/README.md)" in readme.read_text()
    assert readme.read_text().endswith(after)
    site = tmp_path / "site"
    assert main(["site", "--plan", str(made / "plan.json"), "--out", str(site)]) == 0
    pages = {page.name: page.read_text() for page in site.glob("*.html")}
    assert re.search(r'<details class="warning">.*\s.*digits_mlp: 4 of 4 jobs', pages["leaderboard.html"])
    assert list((site / "figures/digits_mlp").glob("*.svg"))
    assert not list(made.rglob("*.svg"))  # a set holds no figures
    run = "curvebench show RUN --results results/published/waived.quick"
    assert any(run in text for name, text in pages.items() if name.startswith("runs"))
    again = "curvebench sets reproduce egop.digits_mlp --published results/published/waived.quick"
    assert again in pages["claims.html"]
    assert all("Published set <code>waived.quick" in text for text in pages.values())
    assert not (site / "plan.json").exists()  # its folders are relative to the plan of the set


def test_rules_that_are_not_those_of_the_runs_are_objected_to_in_one_sentence_for_readers():
    claims = rows(
        "claims",
        {"claim": "egop.a", "rule_of_runs": "0" * 16},
        {"claim": "egop.a", "backend": "torch", "rule_of_runs": None},
        {"claim": "egop.b", "rule_of_runs": "0" * 16},
        {"claim": "egop.as-planned"},
        {"claim": "egop.not-run", "verdict": "not run", "rule_of_runs": None},
    )
    found, in_short = changed_rules(claims), partial(lines, "objections.jinja", "in_short")
    assert [each.kind for each in found] == ["rules"] * 3
    told = "the rules of 2 claims were changed after the runs were planned: egop.a, egop.b"
    dirty_job = Objection(kind="dirty", where="toy", count=1, of=2)
    assert in_short([dirty_job, *found]) == [*in_short([dirty_job]), told]
    assert in_short(found[:1]) == lines("objections.jinja", "sentence", found[0])
    assert in_short(found[:2]) == ["the rule of a claim was changed after the runs were planned: egop.a"]


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
    page = (made / "README.md").read_text()
    assert HOSTILE not in page
    assert r"\<script\>" in page  # names are text in Markdown


def test_verdicts_of_a_set_follow_from_tables(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan = read_set(made)
    found = read_verdicts(plan)
    computed = listed(plan, found.claims, found.findings)
    told = [one for one in computed if one.comparisons]
    assert told
    folder = shutil.copytree(made, tmp_path / "made.quick")
    monkeypatch.setattr(verdict_list, "read_verdicts", None)  # nothing is computed
    assert as_json(verdicts_of(read_set(folder))) == as_json(computed)
    alone = narrowed(read_set(folder), [told[0].study], [])
    assert {one.study for one in verdicts_of(alone)} == {told[0].study}
    (folder / "claims.parquet").write_text("[")
    with pytest.raises(InputError, match=r"claims\.parquet: not a whole Parquet file"):
        verdicts_of(read_set(folder))


def test_the_leaderboard_is_the_same_in_every_format(made: Path):
    board = pl.read_parquet(made / "leaderboard.parquet")
    listed = json.loads((made / "leaderboard.json").read_text())
    schema = json.loads((made / "leaderboard.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(listed, schema)
    for wrong in ("high", "Infinity "):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate([listed[0] | {"score": wrong}], schema)
    flat = pl.read_csv(made / "leaderboard.csv")
    assert board["method"].to_list() == flat["method"].to_list() == [row["method"] for row in listed]
    assert board["mean_rank"].to_list() == pytest.approx(flat["mean_rank"].to_list())
    assert "workloads" not in flat.columns
    assert listed[0]["workloads"][0]["workload"] == board["workloads"][0][0]["workload"]


ODD = [None, math.inf, -math.inf, math.nan, 1.5]


def test_a_leaderboard_tells_missing_from_infinite_numbers(made: Path):
    board = pl.read_parquet(made / "leaderboard.parquet")
    odd = pl.concat([board[:1]] * len(ODD)).with_columns(pl.Series("step_ratio", ODD))
    given = [
        {**row, "workloads": [{**row["workloads"][0], "value": row["step_ratio"]}]} for row in odd.to_dicts()
    ]
    written = leaderboard_texts(pl.DataFrame(given, schema=board.schema))
    listed = json.loads(written["leaderboard.json"])
    jsonschema.validate(listed, json.loads(written["leaderboard.schema.json"]))
    words = [None, "Infinity", "-Infinity", "NaN", 1.5]
    assert [row["step_ratio"] for row in listed] == words
    assert [row["workloads"][0]["value"] for row in listed] == words
    cells = pl.read_csv(io.StringIO(written["leaderboard.csv"]), infer_schema=False)["step_ratio"]
    assert cells.to_list() == [None, "inf", "-inf", "NaN", "1.5"]


def test_a_set_can_be_read_from_anywhere(made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    plan = read_set(made)
    assert plan.published == "made.quick"
    assert plan.study("convex").tables == made / "convex"
    assert plan.checks is not None
    assert plan.checks.tables == (made / "checks",)


@pytest.mark.parametrize("outside", ["/etc", "a/../../b"])
def test_a_plan_whose_folders_lie_elsewhere_is_refused(made: Path, tmp_path: Path, outside: str):
    raw = json.loads((made / "plan.json").read_text())
    raw["studies"][0]["tables"] = outside
    (tmp_path / "plan.json").write_text(json.dumps(raw))
    with pytest.raises(InputError, match="does not lie in the set"):
        read_set(tmp_path)


def test_a_report_plan_is_no_set(tmp_path: Path):
    with pytest.raises(InputError, match="not of a published set"):
        read_set(write_report(tmp_path, [SMALL], checks=False).parent)


def test_an_interrupted_set_leaves_nothing_behind(tmp_path: Path):
    def write() -> None:
        with new_folder(tmp_path / "half") as stage:
            (stage / "one").write_text("1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []
    for text in "12":  # the second takes the place of the first
        with new_folder(tmp_path / "whole") as stage:
            (stage / "one").write_text(text)
            seal(stage)
        assert [path.name for path in tmp_path.iterdir()] == ["whole"]
        assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == ["SHA256SUMS", "one"]
        assert (tmp_path / "whole/one").read_text() == text


def test_a_set_joins_one_of_either_folder(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    field = tmp_path / "results/published" / small.name
    shutil.copytree(small, field)
    about = json.loads((field / "provenance.json").read_text())
    (field / "provenance.json").write_text(json.dumps(about | {"published": "2026-01-01"}))
    own = read_plan(
        write_report(tmp_path / "own", [replace(SMALL, name="lion", optimizers=("lion",))], False)
    )
    (study,) = own.studies
    own = own.model_copy(update={"studies": (study.model_copy(update={"joins": "digits_mlp"}),)})
    monkeypatch.chdir(tmp_path / "own")
    with pytest.raises(InputError, match="no published set has a study 'digits_mlp'"):
        publish(own, "lion.quick", tmp_path / "elsewhere", code=CODE)
    monkeypatch.chdir(tmp_path)
    publish(own, "lion.quick", tmp_path / "elsewhere", code=CODE)
    monkeypatch.chdir(tmp_path / "own")
    lion = publish(own, "lion.quick", field.parent, code=CODE)
    both = with_joined([read_set(small), read_set(lion)], [])[0]
    assert [one.label for one in both.studies[0].optimizers] == ["sgd", "adam", "lion"]
    again = read_set(publish(both, "again.quick", tmp_path / "again", code=CODE))
    assert again.studies[0].optimizers == read_set(small).studies[0].optimizers


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


# --- a set as pages, and published anew ----------------------------------------------------------


def test_the_site_of_a_set_needs_a_folder(small: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["site", "--plan", str(small / "plan.json")]) == 2
    assert "name the folder of its site with --out" in capsys.readouterr().err


def test_a_set_is_derived_anew_from_its_own_tables_in_its_place(tmp_path: Path):
    """Verdicts that no longer follow from the tables are computed again; runs, name, day and waivers stay."""
    plan = read_plan(write_report(tmp_path / "tables", [SMALL], checks=False, jobs=dirty))
    old = publish(plan, "old.quick", tmp_path / "published", CODE, ["dirty"])
    findings = pl.read_parquet(old / "findings.parquet")
    findings.with_columns(low=pl.col("low") - 1).write_parquet(old / "findings.parquet")
    about = json.loads((old / "provenance.json").read_text()) | {"published": "2026-01-01"}
    (old / "provenance.json").write_text(json.dumps({**about, "thinned_curves": ["digits_mlp"]}))
    seal(old)
    assert disagreements(old)
    runs = {path: path.read_bytes() for path in old.glob("digits_mlp/*.parquet")}
    waived = read_set(old).waived
    assert gather(read_plan(old / "plan.json")).thinned == ("digits_mlp",)
    (old / "provenance.json").write_text(json.dumps(about))
    renew(old, CODE, {}, {})
    assert flaws(old) == disagreements(old) == []
    assert runs == {path: path.read_bytes() for path in runs}
    assert pl.read_parquet(old / "findings.parquet").equals(findings)
    assert json.loads((old / "provenance.json").read_text()) == about
    assert read_set(old).waived == waived
    assert [path.name for path in old.parent.iterdir()] == ["old.quick"]


def test_what_definitions_declare_of_published_claims_is_that_of_today(tmp_path: Path):
    """Hardware and causes follow the definitions; the hashes of decision rules stay."""
    folder = publish(read_plan(write_report(tmp_path / "tables", [SMALL])), "old", tmp_path, code=CODE)
    before = read_set(folder)
    (study,) = before.studies
    assert before.checks is not None
    (checked, *_) = before.checks.claims
    renew(folder, CODE, {study.claims[0].id: "gpu"}, {checked.id: "resolution"})
    after = read_set(folder)
    assert [claim.hardware for claim in after.studies[0].claims] == ["gpu"]
    assert after.studies[0].rules == study.rules
    assert after.checks is not None
    assert {claim.id: claim.cause for claim in after.checks.claims}[checked.id] == "resolution"
    assert flaws(folder) == disagreements(folder) == []


def thin(monkeypatch: pytest.MonkeyPatch, points: int) -> None:
    """Let sets keep `points` steps of every curve."""
    monkeypatch.setattr("curvebench.reports.sets.contents.thinned", partial(thinned, most=0, points=points))
    monkeypatch.setattr("curvebench.reports.sets.contents.CURVE_POINTS", points)


def test_curves_that_claims_are_decided_by_stay_whole(report: Report, monkeypatch: pytest.MonkeyPatch):
    """These are the curves of conditions on best values at equal cost, or on the shape of a curve."""
    study = report.plan.study("digits_mlp")
    (claim,) = study.claims
    runs = read_tables(study.tables).runs
    assert not len(curves_of_claims(study, runs))
    for change in ({"at_equal": "gradients", "which": "best"}, {"quantity": "log_linearity", "until": 0.1}):
        asked = replace(claim, conditions=(replace(claim.conditions[0], **change),))
        found = curves_of_claims(replace(study, claims=(asked,)), runs)
        named = runs.filter(pl.col("method").is_in(["adam", "adam @ egop"]))
        assert set(found["run"]) == set(named["run"])
        assert set(found["metric"]) == {"train_loss"}
    thin(monkeypatch, 3)
    contents = gather(replace(report.plan, studies=(replace(study, claims=(asked,)),)))
    assert contents.thinned == contents.whole == ("digits_mlp",)
    curves = contents.frames["digits_mlp"]["curves"].join(runs.select("run", "method"), on="run")
    longest = curves.group_by("method", "metric").agg(pl.len() / pl.col("run").n_unique())
    lengths = {(method, metric): length for method, metric, length in longest.iter_rows()}
    assert lengths["adam", "train_loss"] == 8
    assert lengths["adam", "validation_accuracy"] == lengths["adagrad", "train_loss"] == 3


def at_equal_gradients(study: StudyPlan) -> StudyPlan:
    """Return a study whose claim compares at equal gradient evaluations."""
    (claim,) = study.claims
    claim = replace(claim, conditions=(replace(claim.conditions[0], at_equal="gradients"),))
    return replace(study, claims=(claim,))


def test_thinned_curves_keep_the_points_at_equal_gradients(report: Report, tmp_path: Path):
    """Alternatives too, of which one failed before its first step, and said nothing of what steps cost."""
    study = at_equal_gradients(report.plan.study("digits_mlp"))
    tables = read_tables(study.tables)
    finals = tables.runs.filter(stage="final", backend="jax")
    lost = pl.col("run") == finals["run"][0]
    renamed = pl.col("run") + " at another rate"
    alternatives = finals.with_columns(
        run=renamed,
        stage=pl.lit("alternative"),
        learning_rate=2 * pl.col("learning_rate"),
        outcome=pl.when(lost).then(pl.lit("error")).otherwise("outcome"),
        step_evaluations=pl.when(~lost).then("step_evaluations"),
    )
    curves = read(tables.curves, "curves")
    every = pl.concat([curves, curves.with_columns(run=renamed)])
    tables = replace(tables, runs=pl.concat([tables.runs, alternatives]))
    write_table(tmp_path / "all.parquet", every, CURVES)
    whole = replace(tables, curves=(tmp_path / "all.parquet",))
    few = thinned(every, steps_of_claims(study, whole), most=0, points=2)
    assert few.group_by("run", "metric").len()["len"].max() == 3
    write_table(tmp_path / "few.parquet", few, CURVES)
    both = [whole, replace(whole, curves=(tmp_path / "few.parquet",))]
    (condition,) = study.claims[0].conditions
    assert isinstance(condition, ValueAtEqualCost)
    for treated, control in condition.compared_pairs:
        for stages in product(("final", "alternative"), repeat=2):
            pair = [
                tables.runs.filter(stage=stage, backend="jax", method=method)
                for stage, method in zip(stages, (treated, control), strict=True)
            ]
            values = [ValueAtCost(condition, study, each).pairs(pair) for each in both]
            assert len(values[0]) > 5
            assert values[0].equals(values[1])


def test_thinned_curves_are_published_again_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan = read_plan(write_report(tmp_path / "tables", [SMALL], checks=False))
    study = at_equal_gradients(plan.studies[0])
    thin(monkeypatch, 2)
    plan = replace(plan, studies=(study,))
    made = publish(plan, "thin.quick", tmp_path, code=CODE, waive=["rules"])
    assert json.loads((made / "provenance.json").read_text())["whole_curves"] == ["digits_mlp"]
    once, again = gather(plan), gather(read_plan(made / "plan.json"))
    assert (once.thinned, once.whole) == (again.thinned, again.whole) == (("digits_mlp",), ("digits_mlp",))
    assert once.frames["digits_mlp"]["curves"].equals(again.frames["digits_mlp"]["curves"])


def test_curves_of_alternatives_are_published_if_they_decide(report: Report, monkeypatch: pytest.MonkeyPatch):
    study = at_equal_gradients(report.plan.study("digits_mlp"))
    stage = pl.when(pl.col("seed") % 2 == 0).then(pl.lit("alternative")).otherwise(pl.col("stage"))

    def as_alternatives(folders: Any, table: str, *query: Any) -> pl.DataFrame:
        rows = read(folders, table, *query)
        return rows.with_columns(stage=stage) if table == "runs" else rows

    for module in ("curvebench.reports.sets.contents", "curvebench.reports.tables"):
        monkeypatch.setattr(f"{module}.read", as_alternatives)
    contents = gather(replace(report.plan, studies=(study,)))
    tables = contents.frames["digits_mlp"]
    curves = tables["curves"].join(with_method(tables["runs"]), on="run").filter(stage="alternative")
    assert set(curves.select("method", "metric").unique().rows()) == {
        ("adam", "train_loss"),
        ("adam @ egop", "train_loss"),
    }


@pytest.mark.parametrize(
    ("left", "alike_to", "unlike"),
    [
        (1.0, 1.0 + 1e-9, 1.0 + 1e-3),
        (math.nan, math.nan, None),
        (math.inf, math.inf, 1.0),
        ([1.0, {"a": 2.0}], [1.0, {"a": 2.0 + 1e-9}], [1.0, {"b": 2.0}]),
        ([1.0], [1.0], [1.0, 2.0]),
    ],
)
def test_values_are_alike_but_for_rounding(left: object, alike_to: object, unlike: object):
    assert nearly_equal(left, alike_to)
    assert not nearly_equal(left, unlike)
